"""Drain times of the parts of a topic: its channels, and the messages that no channel was given. Pure; nodes may lie.

A topic takes as long as its slowest part. Penstock's nodes report the change of each backlog over up to five minutes, because
two samples that are seconds apart say nothing about a backlog that comes in bursts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from admin.nodes.merge import LONGEST_NAME, fields
from admin.nodes.views import EMPTY, GROWING, STALLED, drain_rank
from shared.json_fields import JsonObject, objects, text

MOST_BACKLOGS = 10  # parts of a topic that one node lists
LONGEST_SPAN = 3600  # s
UNKNOWN_DRAIN = -1  # a node's code for an unknown number of seconds until the slowest part of a topic is empty
_RANKS = {0: EMPTY, -2: STALLED, -3: GROWING}  # by the node's code
_MOST = 1 << 62  # messages, and seconds


@dataclass(frozen=True, slots=True)
class PartBacklog:
    """A part of a topic, on one node or on all."""

    depth: int  # messages that wait
    gain: float | None  # decrease of the messages that it holds, per second; None: not known

    def plus(self, other: PartBacklog) -> PartBacklog:
        """Return the sum of a part on several nodes."""
        known = self.gain is not None and other.gain is not None
        return PartBacklog(self.depth + other.depth, (self.gain or 0.0) + (other.gain or 0.0) if known else None)


def add_backlogs(parts: dict[str, PartBacklog], backlogs: object) -> None:
    """Add the `backlogs` in a row of /topics/rows to the parts of the topic, by channel."""
    for one in objects(backlogs)[:MOST_BACKLOGS]:
        name, depth = text(one.get("channel"))[:LONGEST_NAME], one.get("depth")
        if type(depth) is int and 0 <= depth < _MOST:
            backlog = PartBacklog(depth, _gain(one.get("change"), one.get("seconds")))
            parts[name] = parts[name].plus(backlog) if name in parts else backlog


def slowest(parts: Iterable[PartBacklog]) -> PartBacklog | None:
    """Return the part whose drain time is known and longest; None if it is known for none that has messages."""
    ranked = [(rank, one.depth, one) for one in parts if (rank := drain_rank(one.depth, one.gain)) is not None]
    worst = max(ranked, key=lambda one: one[:2], default=None)
    return worst[2] if worst is not None and worst[2].depth else None


def gains_of(answers: Mapping[str, JsonObject]) -> dict[str, float]:
    """Return by channel the decrease of its messages on all nodes, per second, where all nodes report it.

    `answers`: the responses to /topic/ages, by node.
    """
    found: dict[str, float] = {}
    unknown: set[str] = set()
    for answer in answers.values():
        changes = fields(answer.get("changes"))
        for name in fields(answer.get("channels")):
            change = changes.get(name)
            gain = _gain(*change) if isinstance(change, list) and len(change) == 2 else None
            if gain is None:
                unknown.add(name)
            else:
                found[name] = found.get(name, 0.0) + gain
    return {name: gain for name, gain in found.items() if name not in unknown}


def slower(one: int, other: int) -> int:
    """Return the slower of two drain times in the form that nodes report; an unknown one is slower than none."""
    return max(one, other, key=lambda drain: (drain != 0, rank_of(drain) or 0.0))


def rank_of(drain: int) -> float | None:
    """Return the rank (admin.nodes.views.drain_rank) of a drain time that a node reports; None: unknown."""
    return _RANKS.get(drain, min(drain, STALLED / 2) if drain > 0 else None)


def _gain(change: object, seconds: object) -> float | None:
    if type(change) is not int or type(seconds) is not int or not 0 < seconds <= LONGEST_SPAN or abs(change) > _MOST:
        return None
    return -change / seconds
