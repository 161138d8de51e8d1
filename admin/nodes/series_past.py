"""The series of nodes as charts showed them, so that the past of a node that is gone is not lost. In bounded memory.

nsqd keeps its series in memory only. The series of topics and channels whose charts were open are kept, compressed, for a day
after the node's last answer. Beyond MOST_BYTES the topics and channels whose charts were open longest ago are forgotten.
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
SILENT = 30  # s between the last answer of a node and its end that are not reported as missing
MOST_MISSING = 20  # nodes that are reported as missing
_OVERHEAD = 500  # bytes of each topic or channel in addition to the compressed ones, and of five nodes
_MEMORY = 40  # bytes in memory per byte that is kept, roughly


class MissingNode(TypedDict):
    """A node that is not in the sums of a time. The times are s since the epoch."""

    node: str  # address
    since: int | None  # None: no earlier answer is known
    until: int  # when it was gone


@dataclass(frozen=True, slots=True)
class KeptSeries:
    """The series of one topic or channel that are kept."""

    packed: bytes = b""  # the lives of each node by its address; b"": none
    answered_at: Mapping[str, int] = field(default_factory=dict)  # by address: the last answer, s since the epoch

    @property
    def memory(self) -> int:
        """Return about how many bytes it takes when it is unpacked."""
        return len(self.packed) * _MEMORY

    @property
    def size(self) -> int:
        """Return about how many bytes it takes as long as it is kept."""
        return len(self.packed) + _OVERHEAD + len(self.answered_at) * _OVERHEAD // 5

    def lives(self) -> dict[str, Lives]:
        """Return the lives of each node. It takes about a millisecond for three nodes."""
        lives: dict[str, Lives] = json.loads(zlib.decompress(self.packed)) if self.packed else {}
        return lives


def summed_up(kept: KeptSeries, answers: Mapping[str, JsonObject], now: int) -> tuple[JsonObject, KeptSeries]:
    """Return the sums of all spans, and the series to keep from now on.

    `answers`: the responses of /topic/series at `now` (s since the epoch), by address.
    """
    answered_at = {node: at for node, at in kept.answered_at.items() if now - at < KEPT} | dict.fromkeys(answers, now)
    lives = {node: one for node, one in kept.lives().items() if node in answered_at}
    lives |= {node: extended(lives.get(node, {}), answer) for node, answer in answers.items()}
    lives = {node: recent(one, now) for node, one in lives.items()}
    found = spans(lives[node] for node in sorted(lives, key=lambda node: -answered_at[node]))
    return found, KeptSeries(zlib.compress(json.dumps(lives).encode(), 1), answered_at)


class SeriesPast:
    """The series of all topics and channels that are kept."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str], KeptSeries] = (
            OrderedDict()
        )  # by topic and channel; the last one shown last
        self._bytes = 0

    def find(self, topic: str, channel: str) -> KeptSeries:
        """Return the series of a topic, or of its channel if there is a name."""
        return self._kept.get((topic, channel)) or KeptSeries()

    def keep(self, topic: str, channel: str, kept: KeptSeries) -> None:
        """Keep these series, and forget others if there is too much."""
        before = self._kept.pop((topic, channel), None)
        self._bytes += kept.size - (before.size if before is not None else 0)
        self._kept[topic, channel] = kept
        while self._bytes > MOST_BYTES:
            self._bytes -= self._kept.popitem(last=False)[1].size

    def missing(self, topic: str, channel: str, gone: Mapping[str, int], now: int) -> list[MissingNode]:
        """Return the nodes that the sums lack, and the times, within the last day.

        `gone`: since when nodes that had the topic are down. The sums include a node up to its last answer, which is at most
        SILENT s before that if the chart was open.
        """
        answered_at = self.find(topic, channel).answered_at
        found: list[MissingNode] = [
            {"node": node, "since": answered_at.get(node), "until": until}
            for node, until in gone.items()
            if until - answered_at.get(node, 0) > SILENT and now - until < KEPT
        ]
        return found[:MOST_MISSING]
