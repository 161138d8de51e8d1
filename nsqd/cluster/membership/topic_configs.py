"""The configurations of topics, as one node knows them: for each topic the latest that an operator has set at any node.

They are merged by the greatest version (time, node number), so connected nodes agree. They hold for every log: for a
node's own topics, also for one that it creates later, and for those of the logs that it has promoted.

A node that does not know them yet could take a message with fewer copies than its topic asks for. So it takes none until
it has them from another node, unless it is the first of its cluster: no node that it knows has any.

    CONFIGS  how messages of topics are kept, in msgpack: for each topic its name, the version (ms since the epoch, node
             number), and its own settings by name (shared/topic_config.py). An empty list: the end. nil: the sender does
             not know them, because it has only begun

See docs/contributing/design/cluster-protocol.md#configurations-of-topics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

import msgpack

from nsqd.cluster.wire.fields import checked_list, is_int, unpack_message
from nsqd.cluster.wire.frames import FrameKind, PeerError, encode
from nsqd.cluster.wire.link import Link
from nsqd.cluster.wire.node_identity import MOST_NUMBER
from nsqd.cluster.wire.part import Part
from nsqd.core.broker import Broker
from nsqd.core.topic import Topic
from penstock.protocol.names import is_valid_name
from shared.topic_config import TopicConfig, dump, load

AHEAD = 86_400_000  # ms by which the time of a configuration may be ahead of this node's clock
MOST_IN_FRAME = 50  # with settings of MOST_CHANNELS each, a frame may have 1 MiB
MOST_SETTINGS = 100  # of a topic, those of a later version included
MOST_CONFIGS = 10_000  # topics of which a node remembers the configuration
MOST_VALUE = (1 << 62) - 1
FIELDS = 4  # of a configuration
RETENTION = ("retention", "retention_bytes")  # settings


class VersionedConfig(NamedTuple):
    """The configuration of a topic. Of two versions the greater one (time, node) holds."""

    topic: str
    at: int  # ms since the epoch
    node: int  # number of the node at which it was set
    config: TopicConfig

    @property
    def version(self) -> tuple[int, int]:
        """Return the order of the versions of one topic."""
        return self.at, self.node


class TopicConfigs(Part):
    """The configurations of at most MOST_CONFIGS topics: of more, those that were set last."""

    takes = (FrameKind.CONFIGS,)
    shown_as = "knows_configs"

    def __init__(
        self,
        links: Mapping[int, Link],
        known: Iterable[VersionedConfig] = (),
        is_complete: bool = False,
        wall: Callable[[], int] = lambda: MOST_VALUE,
        parts: Sequence[Part] = (),
    ) -> None:
        """Begin with what an earlier run knew.

        `links`: the connections to other nodes, by their numbers; `wall`: returns the time in ms since the epoch;
        `parts`: are notified when another node has sent all its configurations.
        """
        self.known: dict[str, VersionedConfig] = {record.topic: record for record in known}  # by topic
        self.is_complete = is_complete  # another node has sent all its configurations, or this is the first one
        self.ignorant: set[int] = set()  # numbers of nodes that have reported that they do not know them either
        self._links, self._wall = links, wall
        self._brokers: list[Broker] = []  # of the logs to which the configurations are applied
        self._parts = parts

    # exchange among nodes

    def admitted(self, link: Link) -> None:
        """Send a connected node all configurations, and whether they are complete."""
        self.ignorant.discard(link.node.number)  # it says so again
        self._send(link, self.known.values())
        link.send_first(pack_configs([] if self.is_complete else None))

    def receive(self, link: Link, kind: FrameKind, content: bytes, now: int) -> None:
        records = unpack_configs(content)
        if records is None:
            self.ignorant.add(link.node.number)
        elif records:
            self._learn(link, [record for record in records if record.at <= self._wall() + AHEAD])
        else:
            self.ignorant.discard(link.node.number)
            self.complete()

    def complete(self) -> None:
        """Record that no node knows more, and notify the nodes that do not know that."""
        if not self.is_complete:
            self.is_complete = True
            for link in self._links.values():
                link.send_first(pack_configs([]))
            for part in self._parts:
                part.configured()

    def configure(self, topic: str, config: TopicConfig, at: int, node: int) -> None:
        """Record an operator's configuration of a topic at this node, whose number is `node`, and send it to all.

        `at`: ms since the epoch.
        """
        self._learn(None, [self.change(topic, config, at, node)])

    def _learn(self, source: Link | None, records: list[VersionedConfig]) -> None:
        """Record configurations, and send changes to all nodes except their source."""
        news = [record for record in records if self.learn(record)]
        for link in self._links.values():
            if link is not source:
                self._send(link, news)
        for broker in self._brokers:
            for record in news:
                use(record, broker.topics.get(record.topic))

    @staticmethod
    def _send(link: Link, records: Iterable[VersionedConfig]) -> None:
        """Send a node configurations, if there are any."""
        rest = iter(records)
        while batch := list(islice(rest, MOST_IN_FRAME)):
            link.send_first(pack_configs(batch))

    # what holds

    def learn(self, record: VersionedConfig) -> bool:
        """Note the configuration of a topic. Returns True if it is news."""
        known = self.known.get(record.topic)
        if known is not None and known.version >= record.version:
            return False
        if known is None and len(self.known) >= MOST_CONFIGS:
            oldest = min(self.known.values(), key=lambda one: (one.version, one.topic))
            if (oldest.version, oldest.topic) > (record.version, record.topic):
                return False
            del self.known[oldest.topic]
        self.known[record.topic] = record
        return True

    def change(self, topic: str, config: TopicConfig, at: int, node: int) -> VersionedConfig:
        """Return the versioned configuration of a topic at a node, at `at` (ms since the epoch), without recording it.

        It is later than what is known, whatever the clocks say.
        """
        known = self.known.get(topic)
        least = known.at + 1 if known is not None else 0
        return VersionedConfig(topic, min(max(at, least), MOST_VALUE), node, config)

    def figures(self) -> bool:
        return self.is_complete

    def attached(self, broker: Broker) -> None:
        """Have the topics of a log as they are configured, from now on."""
        self._brokers.append(broker)
        for record in self.known.values():
            use(record, broker.topics.get(record.topic))

    def detached(self, broker: Broker) -> None:
        self._brokers.remove(broker)

    def use_for(self, topic: Topic) -> None:
        """Have a topic that was created as it is configured in the cluster, within a turn."""
        record = self.known.get(topic.name)
        if record is not None:
            use(record, topic)


def use(record: VersionedConfig, topic: Topic | None) -> None:
    """Have a topic of a log as `record` says, if the log has it, within a turn.

    Retention that `record` leaves to the node's setting stays as the log has it: a default never discards messages.
    """
    if topic is None:
        return
    kept = {name: getattr(topic.config, name) for name in RETENTION if getattr(record.config, name) is None}
    config = replace(record.config, **kept)
    if config != topic.config and not topic.ephemeral:
        topic.configure(config)


def to_fields(versioned: VersionedConfig) -> list[Any]:
    """Return a configuration as a list, for the frame and for cluster.json."""
    return [versioned.topic, versioned.at, versioned.node, dump(versioned.config)]


def from_fields(fields: Any) -> VersionedConfig:
    """Return the configuration in a list. Raises ValueError."""
    if not isinstance(fields, list) or len(fields) != FIELDS:
        raise ValueError(f"a configuration has {FIELDS} fields")
    topic, at, node, config = fields
    if type(topic) is not str or not is_valid_name(topic):
        raise ValueError("a configuration is of no topic")
    if not is_int(at, MOST_VALUE) or not is_int(node, MOST_NUMBER):
        raise ValueError("a configuration has no version")
    return VersionedConfig(topic, at, node, load(config))


def pack_configs(configs: Iterable[VersionedConfig] | None) -> bytes:
    """Return the frame of up to MOST_IN_FRAME topics: empty at the end, None if the sender does not know them yet."""
    return encode(FrameKind.CONFIGS, msgpack.packb(None if configs is None else [to_fields(one) for one in configs]))


def unpack_configs(content: bytes) -> list[VersionedConfig] | None:
    """Return the configurations that the peer has sent, as for `pack_configs`. Raises PeerError."""
    found = unpack_message(content, MOST_IN_FRAME, most_keys=MOST_SETTINGS)
    if found is None:
        return None
    try:
        return [from_fields(fields) for fields in checked_list(found)]
    except ValueError as error:
        raise PeerError(str(error)) from None
