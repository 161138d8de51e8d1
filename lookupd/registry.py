"""Which nsqd carries which topics and channels: nsqlookupd's whole state, in memory only.

Pure: no clock, socket or log; `now` is ns since the epoch. One thread calls it; what it hands out is immutable.

Law: a producer leaves with its connection, a key (topic or channel) stays until it is deleted by name; only an
`#ephemeral` key goes with the last producer that unregisters from it. (specs/nsq.md c; nsqlookupd/registration_db.go)
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from penstock.protocol.names import is_ephemeral, is_valid_name

ANY = "*"  # as a topic asked for over HTTP: every topic. No topic can be named so.
NEVER = 0  # of a tombstone: there is none


@dataclass(frozen=True, slots=True)
class PeerInfo:
    """What an nsqd said of itself in IDENTIFY, and where its connection comes from."""

    remote_address: str  # "ip:port" of the connection: the producer's identity in every answer
    hostname: str  # may be empty; the other texts may not
    broadcast_address: str
    tcp_port: int  # never 0, otherwise unchecked, as in the original
    http_port: int  # never 0
    version: str
    node_id: int | None = None  # what its messages' offsets are told by; an original nsqd tells none, nor the next
    capabilities: tuple[str, ...] = ()  # what it can do beyond NSQ, e.g. "log"

    @property
    def node(self) -> str:
        """How /topic/tombstone names it. No brackets around an IPv6 address, as in the original."""
        return f"{self.broadcast_address}:{self.http_port}"


@dataclass(slots=True, eq=False)  # compared by identity: two connections are two peers whatever their addresses
class Peer:
    """One identified connection."""

    info: PeerInfo
    last_update: int  # ns; when it last sent IDENTIFY or PING
    topics: dict[str, None] = field(default_factory=dict)  # in order of registration; mirrors Registry._topics
    channels: dict[tuple[str, str], None] = field(default_factory=dict)  # likewise; each one's topic is in `topics`


@dataclass(frozen=True, slots=True)
class Node:
    """A producer as /nodes shows it."""

    info: PeerInfo
    tombstones: tuple[bool, ...]  # parallel to `topics`
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Registration:
    """One producer of one key as /debug shows it."""

    key: str  # category:topic:channel
    info: PeerInfo
    last_update: int
    tombstoned_at: int  # NEVER, or ns; stays after it has expired


@dataclass(frozen=True, slots=True)
class Counts:
    """What /metrics shows."""

    topics: int
    channels: int
    producers: int


class Registry:
    """The registrations, and how long silence and tombstones count (ns)."""

    __slots__ = ("_channels", "_inactive_after", "_peers", "_tombstone_lifetime", "_topics")

    def __init__(self, inactive_after: int, tombstone_lifetime: int) -> None:
        self._inactive_after = inactive_after
        self._tombstone_lifetime = tombstone_lifetime
        self._peers: dict[Peer, None] = {}  # every identified connection, in order of IDENTIFY
        self._topics: dict[str, dict[Peer, int]] = {}  # valid name -> producer in _peers -> its tombstone or NEVER
        # valid topic -> valid name -> producers, each also in _topics[topic]; no topic here is without a channel
        self._channels: dict[str, dict[str, dict[Peer, None]]] = {}

    # Commands of a connection

    def identify(self, info: PeerInfo, now: int) -> Peer:
        """A new producer."""
        peer = Peer(info, now)
        self._peers[peer] = None
        return peer

    def ping(self, peer: Peer, now: int) -> None:
        """The producer lives."""
        peer.last_update = now

    def register(self, peer: Peer, topic: str, channel: str = "") -> bool:
        """The producer carries the topic, and the channel if given. False if that was known; a tombstone then stays."""
        before = len(peer.topics) + len(peer.channels)
        if channel:
            self._channels.setdefault(topic, {}).setdefault(channel, {})[peer] = None
            peer.channels[topic, channel] = None
        self._topics.setdefault(topic, {}).setdefault(peer, NEVER)
        peer.topics[topic] = None
        return len(peer.topics) + len(peer.channels) > before

    def unregister_channel(self, peer: Peer, topic: str, channel: str) -> bool:
        """The producer carries the channel no more; the topic stays. False if it did not."""
        known = (topic, channel) in peer.channels
        if known:
            del peer.channels[topic, channel]
            del self._channels[topic][channel][peer]
        if is_ephemeral(channel) and self._channels.get(topic, {}).get(channel) == {}:
            self._drop_channel(topic, channel)
        return known

    def unregister_topic(self, peer: Peer, topic: str) -> bool:
        """The producer carries neither the topic nor any of its channels. False if it did not."""
        for key in [key for key in peer.channels if key[0] == topic]:
            del peer.channels[key]
            del self._channels[topic][key[1]][peer]
        known = topic in peer.topics
        if known:
            del peer.topics[topic]
            del self._topics[topic][peer]
        if is_ephemeral(topic) and self._topics.get(topic) == {}:
            del self._topics[topic]  # its channels' keys stay behind, as in the original
        return known

    def disconnect(self, peer: Peer) -> None:
        """The producer is gone from everything; all keys stay."""
        for topic in peer.topics:
            del self._topics[topic][peer]
        for topic, channel in peer.channels:
            del self._channels[topic][channel][peer]
        peer.topics.clear()
        peer.channels.clear()
        del self._peers[peer]

    # Commands of an operator; names are valid where something is created

    def create_topic(self, topic: str) -> None:
        """A key without producers, unless it exists."""
        self._topics.setdefault(topic, {})

    def create_channel(self, topic: str, channel: str) -> None:
        """Both keys."""
        self._channels.setdefault(topic, {}).setdefault(channel, {})
        self.create_topic(topic)

    def delete_topic(self, topic: str) -> list[str]:
        """Remove the topic (ANY: all of them) and its channels, whoever carries them. Returns the topics removed."""
        for name in _matching(topic, self._channels):
            for channel in list(self._channels[name]):
                self._drop_channel(name, channel)
        removed = _matching(topic, self._topics)
        for name in removed:
            for peer in self._topics.pop(name):
                del peer.topics[name]
        return removed

    def delete_channel(self, topic: str, channel: str) -> bool:
        """Remove the channel, whoever carries it. False if there is none."""
        known = channel in self._channels.get(topic, {})
        if known:
            self._drop_channel(topic, channel)
        return known

    def tombstone(self, topic: str, node: str, now: int) -> int:
        """Hide the node's registration of the topic (ANY: of all) from lookups for a while. Returns how many."""
        matched = 0
        for name in _matching(topic, self._topics):
            producers = self._topics[name]
            for peer in producers:
                if peer.info.node == node:
                    producers[peer] = now
                    matched += 1
        return matched

    # Queries

    def topics(self) -> list[str]:
        """Every topic, sorted."""
        return sorted(self._topics)

    def channels(self, topic: str) -> list[str]:
        """The topic's channels, sorted; [] for an unknown topic. ANY: of all topics, a name once for each."""
        return sorted(channel for name in _matching(topic, self._channels) for channel in self._channels[name])

    def producers(self, topic: str, now: int) -> list[PeerInfo] | None:
        """Who carries the topic and may be asked for it: neither silent nor tombstoned. None for an unknown topic."""
        names = _matching(topic, self._topics)
        if not names:
            return None
        found: dict[Peer, int] = {}
        for name in names:
            for peer, tombstoned_at in self._topics[name].items():
                found.setdefault(peer, tombstoned_at)  # ANY: each producer once, with one of its tombstones
        return [p.info for p, at in found.items() if self._is_active(p, now) and not self._is_tombstoned(at, now)]

    def nodes(self, now: int) -> list[Node]:
        """Every producer that is not silent, with its topics; tombstones are shown, not applied."""
        return [self._node(peer, now) for peer in self._peers if self._is_active(peer, now)]

    def registrations(self) -> list[Registration]:
        """Everything that has a producer, for /debug."""
        rows = [_row("client::", peer, NEVER) for peer in self._peers]
        for topic, producers in self._topics.items():
            rows += [_row(f"topic:{topic}:", peer, at) for peer, at in producers.items()]
        for topic, channels in self._channels.items():
            for channel, carriers in channels.items():
                rows += [_row(f"channel:{topic}:{channel}", peer, NEVER) for peer in carriers]
        return rows

    def counts(self) -> Counts:
        """How much there is of each."""
        return Counts(len(self._topics), sum(map(len, self._channels.values())), len(self._peers))

    def check(self) -> None:
        """Assert every field's sentence. Tests call it last."""
        for topic, producers in self._topics.items():
            assert is_valid_name(topic)
            assert all(peer in self._peers and topic in peer.topics and at >= 0 for peer, at in producers.items())
        for topic, channels in self._channels.items():
            assert channels, f"{topic} is kept without a channel"
            assert is_valid_name(topic)
            assert all(map(is_valid_name, channels))
            for channel, carriers in channels.items():
                assert all((topic, channel) in peer.channels for peer in carriers)
        for peer in self._peers:
            assert all(peer in self._topics[topic] for topic in peer.topics)
            assert all(peer in self._channels[topic][channel] for topic, channel in peer.channels)
            assert all(topic in peer.topics for topic, _ in peer.channels)
            assert peer.info.broadcast_address
            assert peer.info.version
            assert peer.info.tcp_port != 0 != peer.info.http_port

    # Helpers

    def _is_active(self, peer: Peer, now: int) -> bool:
        return now - peer.last_update <= self._inactive_after

    def _is_tombstoned(self, at: int, now: int) -> bool:
        return at != NEVER and now - at < self._tombstone_lifetime

    def _node(self, peer: Peer, now: int) -> Node:
        topics = tuple(sorted(peer.topics))
        return Node(peer.info, tuple(self._is_tombstoned(self._topics[t][peer], now) for t in topics), topics)

    def _drop_channel(self, topic: str, channel: str) -> None:
        for peer in self._channels[topic].pop(channel):
            del peer.channels[topic, channel]
        if not self._channels[topic]:
            del self._channels[topic]


def _row(key: str, peer: Peer, tombstoned_at: int) -> Registration:
    return Registration(key, peer.info, peer.last_update, tombstoned_at)


def _matching(topic: str, known: Collection[str]) -> list[str]:
    if topic == ANY:
        return list(known)
    return [topic] if topic in known else []
