"""What one look at all nodes found, as far as alarms need it. Pure; nodes may lie.

A channel is in a snapshot only if a node lists it as worth attention (/channels/attention of nsqd), or an original node has
it. Its figures are summed up over the nodes. All times are ns since the epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from admin.cluster_state import ClusterState
from admin.inventory import NodeRecord, NodeState
from admin.merge import JsonObject, number, objects, text
from admin.overview import older

MOST_LISTED = 10_000  # channels, topics or tubes of one node
Key = tuple[str, str]  # topic and channel


class ChannelFigures(NamedTuple):
    """A channel over all nodes. All but `oldest`, `paused_at` and `paused` are counts."""

    depth: int
    in_flight: int
    deferred: int
    buried: int
    requeued: int  # since the nodes started
    timed_out: int
    messages: int
    clients: int
    oldest: int  # when the longest waiting message was published; 0: none waits, or unknown
    paused_at: int  # 0: not known
    paused: bool

    @property
    def unfinished(self) -> int:
        """The messages that are not finished, in any state."""
        return self.depth + self.in_flight + self.deferred + self.buried

    def plus(self, other: ChannelFigures) -> ChannelFigures:
        """Return the sum of the channel on several nodes."""
        counts = [one + more for one, more in zip(self[:8], other[:8], strict=True)]
        oldest, paused_at = older(self.oldest, other.oldest), older(self.paused_at, other.paused_at)
        return ChannelFigures._make([*counts, oldest, paused_at, self.paused or other.paused])


class TopicFigures(NamedTuple):
    """A topic that has messages and no channel, or is paused."""

    depth: int  # messages that no channel has been given
    oldest: int
    paused_at: int
    paused: bool


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """A node at the time of a look."""

    record: NodeRecord
    state: NodeState
    health: str = "OK"
    refusal: str = ""  # why its log rejects publishes
    disk_free: int = 0  # bytes
    disk_total: int = 0  # 0: unknown
    sync_p99_ms: float = 0.0
    damage: int = 0  # bytes
    torn: int = 0  # bytes
    clock_ahead: int | None = None  # ns by which its clock is ahead of nsqadmin's; None: unknown


@dataclass(frozen=True, slots=True)
class CursorFigures:
    """A reader with a cursor."""

    topic: str
    name: str
    node: str
    lag: int


@dataclass(slots=True)
class Snapshot:
    """One look."""

    at: int
    nodes: dict[str, NodeFacts] = field(default_factory=dict)  # by address
    answered: frozenset[str] = frozenset()  # the nodes whose channels are in it
    lookupds: dict[str, str] = field(default_factory=dict)  # by address: why it does not answer, "" if it does
    channels: dict[Key, ChannelFigures] = field(default_factory=dict)
    topics: dict[str, TopicFigures] = field(default_factory=dict)
    tubes: dict[Key, int] = field(default_factory=dict)  # buried jobs, by tube and node
    paused_tubes: dict[Key, int] = field(default_factory=dict)  # ready jobs, by tube and node
    cursors: list[CursorFigures] = field(default_factory=list)
    clusters: list[ClusterState] = field(default_factory=list)
    left_out: int = 0  # channels that nodes did not list because there are too many

    def add_attention(self, node: str, data: JsonObject) -> None:
        """Add a node's answer of /channels/attention."""
        for one in objects(data.get("channels"))[:MOST_LISTED]:
            self._add_channel(text(one.get("topic")), text(one.get("channel")), one)
        for one in objects(data.get("topics"))[:MOST_LISTED]:
            depth, paused = number(one.get("depth")), one.get("paused") is True
            self._add_topic(text(one.get("topic")), depth, number(one.get("oldest")), _seconds(one), paused)
        for one in objects(data.get("tubes"))[:MOST_LISTED]:
            key = text(one.get("tube")), node
            if number(one.get("buried")) > 0:
                self.tubes[key] = number(one.get("buried"))
            if one.get("paused") not in (False, None, "", "none", 0):
                self.paused_tubes[key] = number(one.get("ready"))
        self.left_out += max(0, number(data.get("left_out")))

    def add_original(self, topics: Iterable[JsonObject]) -> None:
        """Add the topics of an original node, in the form of admin.merge."""
        for topic in topics:
            name, channels = topic["topic_name"], topic["channels"] or ()
            if topic["paused"] or (topic["depth"] and not channels):
                self._add_topic(name, topic["depth"], 0, 0, topic["paused"])
            for one in channels:
                counts = (one["depth"], one["in_flight_count"], one["deferred_count"], 0, one["requeue_count"])
                more = (one["timeout_count"], one["message_count"], one["client_count"], 0, 0)
                self._put(name, one["channel_name"], ChannelFigures(*counts, *more, one["paused"]))

    def _add_channel(self, topic: str, channel: str, one: JsonObject) -> None:
        counts = [max(0, number(one.get(name))) for name in ChannelFigures._fields[:8]]
        oldest = max(0, number(one.get("oldest")))
        self._put(topic, channel, ChannelFigures._make([*counts, oldest, _seconds(one), one.get("paused") is True]))

    def _put(self, topic: str, channel: str, figures: ChannelFigures) -> None:
        known = self.channels.get((topic, channel))
        self.channels[topic, channel] = figures if known is None else known.plus(figures)

    def _add_topic(self, topic: str, depth: int, oldest: int, paused_at: int, paused: bool) -> None:
        known = self.topics.get(topic, TopicFigures(0, 0, 0, False))
        times = older(known.oldest, oldest), older(known.paused_at, paused_at)
        self.topics[topic] = TopicFigures(known.depth + depth, *times, known.paused or paused)


def facts_of(
    record: NodeRecord, state: NodeState, health: str, storage: Mapping[str, object], clock_ahead: int | None
) -> NodeFacts:
    """Return a node's facts from its health, its answer of /storage, and its clock."""
    p99 = storage.get("sync_p99_ms")
    return NodeFacts(
        record, state, health=health[:200], refusal=text(storage.get("refusal"))[:200],
        disk_free=max(0, number(storage.get("disk_free"))), disk_total=max(0, number(storage.get("disk_total"))),
        sync_p99_ms=float(p99) if isinstance(p99, int | float) and 0 <= p99 < 1e12 else 0.0,
        damage=max(0, number(storage.get("damage"))), torn=max(0, number(storage.get("torn"))), clock_ahead=clock_ahead,
    )  # fmt: skip


def _seconds(one: JsonObject) -> int:
    """Return when it was paused, in ns."""
    at = number(one.get("paused_at"))
    return at * 1_000_000_000 if 0 < at < 1 << 33 else 0
