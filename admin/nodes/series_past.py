"""What nodes told of the past of topics and channels, for charts: a node that dies does not take it along. In bounded memory.

nsqd keeps its series in its memory only. What it told of a topic or channel that somebody looked at is kept for a day after
its last answer, compressed; nothing is asked for that. Beyond MOST_BYTES the topics and channels that nobody has looked at
for the longest time are forgotten.
"""

from __future__ import annotations

import json
import zlib
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypedDict

from admin.nodes.series import Lives, extended, recent, spans
from shared.json_fields import JsonObject

MOST_BYTES = 32 * 1024 * 1024  # of all together
KEPT = 86_400  # s after its last answer for which a node's past is kept
SILENT = 30  # s between the last answer of a node and its end that are not worth a word
MOST_MISSING = 20  # nodes that are told
_OVERHEAD = 500  # bytes of each topic or channel beside what is compressed, and of five nodes
_MEMORY = 40  # bytes in memory per byte that is kept, roughly


class Missing(TypedDict):
    """A node that is not in the sums of a time. The times are s since the epoch."""

    node: str  # address
    since: int | None  # None: nothing is known of it before
    until: int  # when it was gone


@dataclass(frozen=True, slots=True)
class Kept:
    """What is kept of one topic or channel."""

    packed: bytes = b""  # the lives of each node by its address; b"": none
    told_at: Mapping[str, int] = field(default_factory=dict)  # by address: when it answered last, s since the epoch

    @property
    def memory(self) -> int:
        """Return about how many bytes it takes when it is unpacked."""
        return len(self.packed) * _MEMORY

    @property
    def size(self) -> int:
        """Return about how many bytes it takes as long as it is kept."""
        return len(self.packed) + _OVERHEAD + len(self.told_at) * _OVERHEAD // 5

    def lives(self) -> dict[str, Lives]:
        """Return the lives of each node. It takes about a millisecond for three nodes."""
        lives: dict[str, Lives] = json.loads(zlib.decompress(self.packed)) if self.packed else {}
        return lives


def summed_up(kept: Kept, answers: Mapping[str, JsonObject], channel: str, now: int) -> tuple[JsonObject, Kept]:
    """Return the sums of all spans, and what is to be kept from now on.

    `answers` are those of /topic/series that nodes give at `now` (s since the epoch), by address.
    """
    told_at = {node: at for node, at in kept.told_at.items() if now - at < KEPT} | dict.fromkeys(answers, now)
    lives = {node: one for node, one in kept.lives().items() if node in told_at}
    lives |= {node: extended(lives.get(node, {}), answer, channel) for node, answer in answers.items()}
    lives = {node: recent(one, now) for node, one in lives.items()}
    found = spans(lives[node] for node in sorted(lives, key=lambda node: -told_at[node]))
    return found, Kept(zlib.compress(json.dumps(lives).encode(), 1), told_at)


class SeriesPast:
    """What is kept of all topics and channels."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str], Kept] = OrderedDict()  # by topic and channel; the latest look last
        self._bytes = 0

    def find(self, topic: str, channel: str) -> Kept:
        """Return what is kept of a topic, or of its channel if there is a name."""
        return self._kept.get((topic, channel)) or Kept()

    def keep(self, topic: str, channel: str, kept: Kept) -> None:
        """Keep this, and forget others if there is too much."""
        before = self._kept.pop((topic, channel), None)
        self._bytes += kept.size - (before.size if before is not None else 0)
        self._kept[topic, channel] = kept
        while self._bytes > MOST_BYTES:
            self._bytes -= self._kept.popitem(last=False)[1].size

    def missing(self, topic: str, channel: str, gone: Mapping[str, int], now: int) -> list[Missing]:
        """Return which nodes the sums lack, and from when to when, as far as that is within a day.

        `gone`: nodes that had the topic and are down, and since when. That is at most SILENT s after the last answer of one
        whose chart was open; it is in the sums up to then.
        """
        told_at = self.find(topic, channel).told_at
        found: list[Missing] = [
            {"node": node, "since": told_at.get(node), "until": until}
            for node, until in gone.items()
            if until - told_at.get(node, 0) > SILENT and now - until < KEPT
        ]
        return found[:MOST_MISSING]

    def __repr__(self) -> str:
        return f"<SeriesPast of {len(self._kept)} topics and channels, {self._bytes} B>"
