"""How long the parts of a topic take to drain, its channels and what no channel was given. Pure; nodes may lie.

A topic takes as long as its slowest part. Penstock's nodes tell by how much the backlog of each part changed over the last
minutes, up to five: two looks that are seconds apart say nothing of a backlog that comes and goes in bursts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from admin.nodes.merge import LONGEST_NAME
from admin.nodes.views import EMPTY, GROWING, STALLED, drain_rank
from shared.json_fields import JsonObject, objects, text

MOST_BACKLOGS = 10  # parts that one node tells of a topic
LONGEST_SPAN = 3600  # s
UNKNOWN_DRAIN = -1  # what a node tells in place of the seconds until the slowest part of a topic is empty
_RANKS = {0: EMPTY, -2: STALLED, -3: GROWING}  # by what a node tells
_MOST = 1 << 62  # messages, and seconds


@dataclass(frozen=True, slots=True)
class Backlog:
    """A part of a topic, on one node or on all."""

    depth: int  # messages that wait
    gain: float | None  # decrease of the messages that it holds, per second; None: not known

    def plus(self, other: Backlog) -> Backlog:
        """Return the sum of a part on several nodes."""
        known = self.gain is not None and other.gain is not None
        return Backlog(self.depth + other.depth, (self.gain or 0.0) + (other.gain or 0.0) if known else None)


def add_backlogs(parts: dict[str, Backlog], told: object) -> None:
    """Add the `backlogs` that a node tells in a row of /topics/rows to the parts of the topic, by channel."""
    for one in objects(told)[:MOST_BACKLOGS]:
        name, depth = text(one.get("channel"))[:LONGEST_NAME], one.get("depth")
        if type(depth) is int and 0 <= depth < _MOST:
            backlog = Backlog(depth, _gain(one.get("change"), one.get("seconds")))
            parts[name] = parts[name].plus(backlog) if name in parts else backlog


def slowest(parts: Iterable[Backlog]) -> Backlog | None:
    """Return the part that takes longest, of those of which it is known; None if it is known of none that has messages."""
    ranked = [(rank, one.depth, one) for one in parts if (rank := drain_rank(one.depth, one.gain)) is not None]
    worst = max(ranked, key=lambda one: one[:2], default=None)
    return worst[2] if worst is not None and worst[2].depth else None


def gains_of(answers: Mapping[str, JsonObject]) -> dict[str, float]:
    """Return the decrease per second of what each channel holds on all nodes. `answers`: those of /topic/ages, by node.

    A channel of which a node does not tell it is left out.
    """
    found: dict[str, float] = {}
    unknown: set[str] = set()
    for answer in answers.values():
        channels, changes = answer.get("channels"), answer.get("changes")
        for name in channels if isinstance(channels, dict) else ():
            told = changes.get(name) if isinstance(changes, dict) else None
            gain = _gain(*told) if isinstance(told, list) and len(told) == 2 else None
            if gain is None:
                unknown.add(name)
            else:
                found[name] = found.get(name, 0.0) + gain
    return {name: gain for name, gain in found.items() if name not in unknown}


def slower(one: int, other: int) -> int:
    """Return which of two drains, as nodes tell them, is the slower one. One that is not known may be slower than none."""
    return max(one, other, key=lambda drain: (drain != 0, rank_of(drain) or 0.0))


def rank_of(drain: int) -> float | None:
    """Return the rank (admin.nodes.views.drain_rank) of a drain that a node tells; None: not known."""
    return _RANKS.get(drain, min(drain, STALLED / 2) if drain > 0 else None)


def _gain(change: object, seconds: object) -> float | None:
    if type(change) is not int or type(seconds) is not int or not 0 < seconds <= LONGEST_SPAN or abs(change) > _MOST:
        return None
    return -change / seconds
