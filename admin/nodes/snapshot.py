"""A snapshot of all nodes, as far as alarms need it. Pure; nodes may lie.

A channel is in a snapshot only if a node lists it as worth attention (/channels/attention of nsqd), or an original node has
it. Its counts are summed up over the nodes. All times are ns since the epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from admin.nodes.inventory import NodeRecord, NodeState
from admin.nodes.merge import LONGEST_NAME
from admin.nodes.overview import older
from shared.cluster.state import ClusterState, MemberState
from shared.json_fields import JsonObject, number, objects, text

MOST_LISTED = 1000  # channels, topics or tubes of one node: as many as it is asked for
MOST_KEPT = 10_000  # channels, topics, tubes or cursors of all nodes together
MOST_CERTIFICATES = 20  # of a daemon
OWN = "nsqadmin"  # the daemon that is nsqadmin itself
Key = tuple[str, str]  # topic and channel
K = TypeVar("K")
V = TypeVar("V")


class ChannelFigures(NamedTuple):
    """A channel over all nodes. All but `oldest`, `paused_at` and `paused` are counts, which come first."""

    depth: int
    in_flight: int
    deferred: int
    buried: int
    requeued: int  # since the nodes started
    timed_out: int
    messages: int
    clients: int
    lost_consumers: int  # consumers that disconnected with messages in flight, since the nodes started
    orphaned: int  # messages in flight whose consumers have disconnected
    oldest: int  # when the longest waiting message was published; 0: none waits, or unknown
    paused_at: int  # 0: not known
    paused: bool

    @property
    def unfinished(self) -> int:
        """The messages that are not finished, in any state."""
        return self.depth + self.in_flight + self.deferred + self.buried

    def plus(self, other: ChannelFigures) -> ChannelFigures:
        """Return the sum of the channel on several nodes."""
        counts = [one + more for one, more in zip(self[:COUNTS], other[:COUNTS], strict=True)]
        oldest, paused_at = older(self.oldest, other.oldest), older(self.paused_at, other.paused_at)
        return ChannelFigures._make([*counts, oldest, paused_at, self.paused or other.paused])


COUNTS = ChannelFigures._fields.index("oldest")  # number of fields that are counts


class TopicFigures(NamedTuple):
    """A topic that has messages and no channel, or is paused."""

    depth: int  # messages that no channel has been given
    oldest: int
    paused_at: int
    paused: bool


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """A node at the time of a snapshot."""

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
    storage_at: int = 0  # when it was asked for its disk and log, from `refusal` to `torn`; 0: never
    channels_at: int = 0  # when it was asked for its channels; 0: never


@dataclass(frozen=True, slots=True)
class CursorFigures:
    """The lag of a reader with a cursor on one node, in messages."""

    topic: str
    name: str
    node: str
    lag: int


@dataclass(slots=True)
class Snapshot:
    """The answers of all nodes to one check. `at` is in ns since the epoch."""

    at: int
    nodes: dict[str, NodeFacts] = field(default_factory=dict)  # by address
    answered: frozenset[str] = frozenset()  # the nodes whose channels are in it
    lookupds: dict[str, str] = field(default_factory=dict)  # by address: why it does not answer, "" if it does
    channels: dict[Key, ChannelFigures] = field(default_factory=dict)  # summed up over the nodes
    parts: dict[str, dict[Key, ChannelFigures]] = field(default_factory=dict)  # by node, unless it lists too many
    topics: dict[str, TopicFigures] = field(default_factory=dict)
    tubes: dict[Key, int] = field(default_factory=dict)  # buried jobs, by tube and node
    paused_tubes: dict[Key, int] = field(default_factory=dict)  # ready jobs, by tube and node
    cursors: list[CursorFigures] = field(default_factory=list)
    clusters: list[ClusterState] = field(default_factory=list)
    given_up: dict[tuple[str, int], int] = field(default_factory=dict)  # replies since the start, by cluster and node
    certificates: dict[Key, int] = field(default_factory=dict)  # when they end, s since the epoch; by daemon and option
    left_out: int = 0  # channels that nodes did not list because there are too many
    in_parts: int = 0  # channels in `parts`

    def member(self, address: str) -> tuple[ClusterState, MemberState] | None:
        """Return the cluster of the node with this HTTP address, and its state as a member."""
        every = ((cluster, one) for cluster in self.clusters for one in cluster.nodes)
        found = [pair for pair in every if address in (pair[1].http_address, pair[1].asked)]
        # a node may have had another number before, under which its log is promoted
        return min(found, key=lambda pair: (pair[1].asked != address, pair[1].led_by is not None), default=None)

    def add_clusters(self, clusters: list[ClusterState]) -> None:
        """Add the clusters, and how many replies to publishes each of their nodes has given up."""
        self.clusters = clusters
        self.given_up = {
            (cluster.name, one.node): one.replies_given_up
            for cluster in clusters
            for one in cluster.nodes
            if one.replies_given_up is not None
        }

    def add_attention(self, node: str, data: JsonObject) -> None:
        """Add a node's answer of /channels/attention."""
        self.parts.setdefault(node, {})
        self.add_certificates(node, data)
        for one in objects(data.get("channels"))[:MOST_LISTED]:
            topic, channel = _name(one, "topic"), _name(one, "channel")
            if topic and channel:
                self._put(node, (topic, channel), _channel_of(one))
        for one in objects(data.get("topics"))[:MOST_LISTED]:
            if topic := _name(one, "topic"):
                times = _count(one, "oldest"), _paused_at(one)
                self._put_topic(topic, TopicFigures(_count(one, "depth"), *times, one.get("paused") is True))
        for one in objects(data.get("tubes"))[:MOST_LISTED]:
            key = _name(one, "tube"), node
            if key[0] and _count(one, "buried"):
                _set(self.tubes, key, _count(one, "buried"))
            if key[0] and one.get("paused") is True:
                _set(self.paused_tubes, key, _count(one, "ready"))
        self.left_out += _count(data, "left_out") + max(0, len(objects(data.get("channels"))) - MOST_LISTED)

    def add_certificates(self, daemon: str, data: JsonObject) -> None:
        """Add the certificates that a daemon reports."""
        for one in objects(data.get("certificates"))[:MOST_CERTIFICATES]:
            if ends := number(one.get("ends")):
                _set(self.certificates, (daemon, text(one.get("option"))[:LONGEST_NAME]), ends)

    def add_original(self, topics: Iterable[JsonObject]) -> None:
        """Add the topics of an original node, in the form of admin.nodes.merge."""
        listed = list(topics)
        for node in {text(topic["node"]) for topic in listed}:
            self.parts.setdefault(node, {})
        for topic in listed:
            name, node, channels = topic["topic_name"], text(topic["node"]), topic["channels"] or ()
            if topic["paused"] or (topic["depth"] and not channels):
                self._put_topic(name, TopicFigures(max(0, topic["depth"]), 0, 0, topic["paused"]))
            for one in channels:
                counts = (one["depth"], one["in_flight_count"], one["deferred_count"], 0, one["requeue_count"])
                more = (one["timeout_count"], one["message_count"], one["client_count"])
                figures = (max(0, each) for each in (*counts, *more))
                self._put(
                    node, (name, one["channel_name"]), ChannelFigures._make((*figures, 0, 0, 0, 0, one["paused"]))
                )

    def _put(self, node: str, key: Key, figures: ChannelFigures) -> None:
        part = self.parts.get(node)
        if part is not None and key not in part and self.in_parts >= MOST_KEPT:
            self.in_parts -= len(self.parts.pop(node))  # a part of what it lists cannot be compared
        elif part is not None:
            self.in_parts += key not in part
            part[key] = part[key].plus(figures) if key in part else figures
        known = self.channels.get(key)
        if known is not None:
            self.channels[key] = known.plus(figures)
        elif len(self.channels) < MOST_KEPT:
            self.channels[key] = figures
        else:
            self.left_out += 1

    def _put_topic(self, topic: str, figures: TopicFigures) -> None:
        known = self.topics.get(topic, TopicFigures(0, 0, 0, False))
        times = older(known.oldest, figures.oldest), older(known.paused_at, figures.paused_at)
        _set(self.topics, topic, TopicFigures(known.depth + figures.depth, *times, known.paused or figures.paused))


def _set(bounded: dict[K, V], key: K, value: V) -> None:
    if key in bounded or len(bounded) < MOST_KEPT:
        bounded[key] = value


def _channel_of(one: JsonObject) -> ChannelFigures:
    # as `_count`, without a call for each of them: there are a thousand of each node
    counts = [
        value if type(value := one.get(name)) is int and 0 <= value < 1 << 64 else 0
        for name in ChannelFigures._fields[: COUNTS + 1]
    ]
    return ChannelFigures._make((*counts, _paused_at(one), one.get("paused") is True))


def _name(one: JsonObject, key: str) -> str:
    """Return the name of a topic, channel or tube, or "" if no node has such a name."""
    name = one.get(key)
    return text(name) if isinstance(name, str) and len(name) <= LONGEST_NAME else ""


def _count(one: Mapping[str, object], key: str) -> int:
    """Return a count, or 0 if the value is none."""
    return max(0, number(one.get(key)))


def facts_of(
    record: NodeRecord, state: NodeState, health: str, storage: Mapping[str, object], clock_ahead: int | None
) -> NodeFacts:
    """Return a node's facts from its health, its answer of /storage, and its clock."""
    p99 = storage.get("sync_p99_ms")
    return NodeFacts(
        record, state, health[:200], text(storage.get("refusal"))[:200], clock_ahead=clock_ahead,
        sync_p99_ms=float(p99) if isinstance(p99, int | float) and 0 <= p99 < 1e12 else 0.0,
        **{name: _count(storage, name) for name in ("disk_free", "disk_total", "damage", "torn")},
    )  # fmt: skip


def _paused_at(one: JsonObject) -> int:
    """Return the time of the pause in ns."""
    at = number(one.get("paused_at"))
    return at * 1_000_000_000 if 0 < at < 1 << 33 else 0
