"""The registry: which nsqd has which topics and channels. It is nsqlookupd's whole state, in memory only.

Pure: no clock, socket or log; `now` is ns since the epoch. One thread calls it, and what it returns is immutable. A producer
(an nsqd) "carries" the topics and channels that it has registered.

Invariant: a producer's registrations end with its connection. A key (a topic or a channel) stays until it is deleted by name;
only an `#ephemeral` key is removed with the last producer that unregisters from it. (nsqlookupd/registration_db.go)

Limits bounds the memory. At the limit the registry forgets keys that no producer carries and that no operator
created, the oldest first; the original would keep them.

See docs/contributing/design/nsqlookupd.md#registrations.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace

from lookupd.producer_slots import ProducerSlots
from lookupd.producers import DEFAULT_LIMITS, Full, Limits, Peer, PeerInfo, count_down
from penstock.protocol.names import is_ephemeral, is_valid_name

NEVER = 0  # in place of a tombstone's time: there is no tombstone
FOREVER = 1 << 62  # ns


@dataclass(frozen=True, slots=True)
class Node:
    """A producer as /nodes shows it."""

    info: PeerInfo
    tombstones: tuple[bool, ...]  # parallel to `topics`
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Registration:
    """A producer of a key as /debug shows it. All keys of a producer share one object, except those with a tombstone."""

    info: PeerInfo
    last_update: int
    tombstoned_at: int  # NEVER, or ns since the epoch; kept after the tombstone has expired


@dataclass(frozen=True, slots=True)
class Counts:
    """The number of topics, channels, producers and entries that /metrics shows."""

    topics: int
    channels: int
    producers: int
    entries: int  # keys, and producers of keys


class Registry:
    """All registrations, with the times (ns) after which a silent producer and a tombstone no longer count."""

    def __init__(self, inactive_after: int, tombstone_lifetime: int, limits: Limits = DEFAULT_LIMITS) -> None:
        self._inactive_after = inactive_after
        self._tombstone_lifetime = tombstone_lifetime
        self._limits = limits
        self.slots = ProducerSlots(limits)  # the slots of the producers in _peers
        # Refusals because of a limit: see `make_room` and REGISTER.
        self.refused = Counter({"identify": 0, "silent": 0, "register": 0})
        self._peers: dict[Peer, None] = {}  # every identified connection, in order of IDENTIFY
        # Valid name -> producer in _peers -> time of its tombstone, or NEVER.
        self._topics: dict[str, dict[Peer, int]] = {}
        # valid topic -> valid name -> producers, each also in _topics[topic]; every topic here has a channel
        self._channels: dict[str, dict[str, dict[Peer, None]]] = {}
        self._entries = 0  # keys, and producers of keys
        self._by_host: Counter[str] = Counter()  # number of keys carried, by the producer's IP address; holds no zeros
        # "Orphans": keys without a producer, as (topic, channel or ""), the one that lost its last producer first in
        # front.
        self._orphans: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._watches: dict[str, Callable[[], None]] = {}  # topic, known or not -> called at its next change, once
        self._is_closing = False

    # Commands of a connection

    def identify(self, info: PeerInfo, now: int, hang_up: Callable[[], None] = lambda: None) -> Peer:
        """Add a producer and return it. A silent producer may lose its slot, and its connection, to it. Raises Full."""
        try:
            self.refused["silent"] += self.slots.make_room(info)
        except Full:
            self.refused["identify"] += 1
            raise
        peer = Peer(info, now, hang_up=hang_up)
        self._peers[peer] = None
        self.slots.add(peer)
        return peer

    def ping(self, peer: Peer, now: int) -> None:
        """Note that the producer is alive."""
        if self._watches and not self._is_active(peer, now):
            for topic in peer.topics:
                self._changed(topic)
        peer.last_update = now
        peer.silent = False

    def register(self, peer: Peer, topic: str, channel: str = "") -> bool:
        """Register a topic, and a channel if given. Returns False if it was known: it keeps its tombstone. Raises Full."""
        peer.silent = False
        carries_topic = topic in peer.topics
        if carries_topic and (not channel or (topic, channel) in peer.channels):
            return False
        try:
            self._check_limits(peer, topic, channel)
        except Full:
            self.refused["register"] += 1
            raise
        before = len(peer.topics) + len(peer.channels)
        if channel:
            self._add_channel(topic, channel)[peer] = None
            peer.channels[topic, channel] = None
            self._orphans.pop((topic, channel), None)
        if not carries_topic:
            self._add_topic(topic)[peer] = NEVER
            peer.topics[topic] = None
            self._orphans.pop((topic, ""), None)
        carried = len(peer.topics) + len(peer.channels) - before
        self._entries += carried
        self._by_host[peer.info.host] += carried
        self._changed(topic)
        return True

    def unregister_channel(self, peer: Peer, topic: str, channel: str) -> bool:
        """Remove the channel from the producer, which keeps the topic. Returns False if it did not have the channel."""
        known = (topic, channel) in peer.channels
        if known:
            self._remove_from_channel(peer, topic, channel)
        if is_ephemeral(channel) and self._channels.get(topic, {}).get(channel) == {}:
            self._drop_channel(topic, channel)
        return known

    def unregister_topic(self, peer: Peer, topic: str) -> bool:
        """Remove the topic and all of its channels from the producer. Returns False if it did not have the topic."""
        for key in [key for key in peer.channels if key[0] == topic]:
            self._remove_from_channel(peer, *key)
        known = topic in peer.topics
        if known:
            self._remove_from_topic(peer, topic)
        if is_ephemeral(topic) and self._topics.get(topic) == {}:
            self._drop_topic(topic)  # the keys of its channels stay, as in the original
        return known

    def disconnect(self, peer: Peer) -> None:
        """Remove the producer and all of its registrations; all keys stay."""
        for topic, channel in list(peer.channels):
            self._remove_from_channel(peer, topic, channel)
        for topic in list(peer.topics):
            self._remove_from_topic(peer, topic)
        del self._peers[peer]
        self.slots.remove(peer)

    # Commands of an operator; callers check the names where something is created

    def create_topic(self, topic: str) -> None:
        """Add a key without producers, unless it exists. Raises Full."""
        if topic not in self._topics:
            self._make_room(1)
        self._add_topic(topic)
        self._orphans.pop((topic, ""), None)  # no longer an orphan: it stays until it is deleted

    def create_channel(self, topic: str, channel: str) -> None:
        """Add a key without producers, and one for the topic if it is not known. Raises Full."""
        self._make_room((topic not in self._topics) + (channel not in self._channels.get(topic, {})))
        self._add_channel(topic, channel)
        self._orphans.pop((topic, channel), None)
        self.create_topic(topic)

    def delete_topic(self, topic: str) -> bool:
        """Remove the topic and its channels, even if producers carry them. Returns False if there is no such topic."""
        for channel in list(self._channels.get(topic, ())):
            self._drop_channel(topic, channel)
        is_known = topic in self._topics
        if is_known:
            self._drop_topic(topic)
        return is_known

    def delete_channel(self, topic: str, channel: str) -> bool:
        """Remove the channel, even if producers carry it. Returns False if it does not exist."""
        known = channel in self._channels.get(topic, {})
        if known:
            self._drop_channel(topic, channel)
        return known

    def tombstone(self, topic: str, node: str, now: int) -> int:
        """Hide the node's registration of the topic from lookups for a while. Returns how many were hidden."""
        producers = self._topics.get(topic, {})
        hidden = [peer for peer in producers if peer.info.node == node]
        for peer in hidden:
            producers[peer] = now
        self._changed(topic)
        return len(hidden)

    # Long polls

    def watch(self, topic: str, notify: Callable[[], None], now: int) -> int:
        """Have `notify` called at the next change of a topic, which may be unknown; it replaces an earlier function.

        Returns the ns after which time alone changes the topic, because a producer falls silent or a tombstone ends; 0
        after `close`.
        """
        if self._is_closing:
            return 0
        self._watches[topic] = notify
        ends = [FOREVER]
        for peer, at in self._topics.get(topic, {}).items():
            if self._is_active(peer, now):
                ends.append(peer.last_update + self._inactive_after + 1)
            if self._is_tombstoned(at, now):
                ends.append(at + self._tombstone_lifetime)
        return min(ends) - now

    def unwatch(self, topic: str) -> None:
        """Forget the function of `watch`, if there is one."""
        self._watches.pop(topic, None)

    def close(self) -> None:
        """Call the functions of `watch` now, and take no more of them."""
        self._is_closing = True
        for topic in list(self._watches):
            self._changed(topic)

    # Queries

    def topics(self) -> list[str]:
        """Return the names of all topics, sorted."""
        return sorted(self._topics)

    def channels(self, topic: str) -> list[str]:
        """Return the topic's channels, sorted; [] for an unknown topic."""
        return sorted(self._channels.get(topic, ()))

    def producers(self, topic: str, now: int) -> list[PeerInfo] | None:
        """Return the producers of the topic that are neither silent nor tombstoned, or None for an unknown topic."""
        found = self._topics.get(topic)
        if found is None:
            return None
        return [p.info for p, at in found.items() if self._is_active(p, now) and not self._is_tombstoned(at, now)]

    def inactive(self, after: str, names: int, now: int) -> tuple[list[tuple[str, list[str]]], bool]:
        """Return topics behind `after` that have no active producer, with their channels, sorted; and whether more follow.

        The answer holds at most `names` topics and channels together, or one topic if it has more channels.
        """
        found: list[tuple[str, list[str]]] = []
        for topic in sorted(topic for topic in self._topics if topic > after):
            producers = self._topics[topic].items()
            if any(self._is_active(peer, now) and not self._is_tombstoned(at, now) for peer, at in producers):
                continue
            channels = sorted(self._channels.get(topic, ()))
            names -= 1 + len(channels)
            if names < 0 and found:
                return found, True
            found.append((topic, channels))
        return found, False

    def nodes(self, now: int) -> list[Node]:
        """Return every producer that is not silent, with its topics. Tombstones are shown, not applied."""
        return [self._node(peer, now) for peer in self._peers if self._is_active(peer, now)]

    def registrations(self) -> dict[str, list[Registration]]:
        """Return the registrations of every key that has a producer, by category:topic:channel, for /debug."""
        plain = {peer: Registration(peer.info, peer.last_update, NEVER) for peer in self._peers}
        found = {"client::": list(plain.values())} if plain else {}
        for topic, producers in self._topics.items():
            if producers:
                found[f"topic:{topic}:"] = [
                    plain[peer] if at == NEVER else replace(plain[peer], tombstoned_at=at)
                    for peer, at in producers.items()
                ]
        for topic, channels in self._channels.items():
            for channel, carriers in channels.items():
                if carriers:
                    found[f"channel:{topic}:{channel}"] = [plain[peer] for peer in carriers]
        return found

    def counts(self) -> Counts:
        """Return the numbers of topics, channels, producers and entries."""
        return Counts(len(self._topics), sum(map(len, self._channels.values())), len(self._peers), self._entries)

    def check(self) -> None:
        """Assert the invariants that the comments on the fields state. Tests call it at the end."""
        for topic, producers in self._topics.items():
            assert is_valid_name(topic)
            assert all(peer in self._peers and topic in peer.topics and at >= 0 for peer, at in producers.items())
        for topic, channels in self._channels.items():
            assert channels, f"{topic} is kept without a channel"
            assert is_valid_name(topic)
            assert all(map(is_valid_name, channels))
            for channel, carriers in channels.items():
                assert all((topic, channel) in peer.channels for peer in carriers)
        keys = {(topic, ""): producers for topic, producers in self._topics.items()} | {
            (topic, channel): carriers
            for topic, channels in self._channels.items()
            for channel, carriers in channels.items()
        }
        assert self._entries == len(keys) + sum(map(len, keys.values())) <= self._limits.total
        assert all(not keys[orphan] for orphan in self._orphans)
        carried: Counter[str] = Counter()
        for peer in self._peers:
            carried[peer.info.host] += len(peer.topics) + len(peer.channels)
        assert self._by_host == +carried
        for peer in self._peers:
            assert all(peer in self._topics[topic] for topic in peer.topics)
            assert all(peer in self._channels[topic][channel] for topic, channel in peer.channels)
            assert all(topic in peer.topics for topic, _ in peer.channels)
            assert peer.info.broadcast_address
            assert peer.info.version
            assert peer.info.tcp_port != 0 != peer.info.http_port

    # Helpers

    def _changed(self, topic: str) -> None:
        notify = self._watches.pop(topic, None)
        if notify is not None:
            notify()

    def _is_active(self, peer: Peer, now: int) -> bool:
        return now - peer.last_update <= self._inactive_after

    def _is_tombstoned(self, at: int, now: int) -> bool:
        return at != NEVER and now - at < self._tombstone_lifetime

    def _node(self, peer: Peer, now: int) -> Node:
        topics = tuple(sorted(peer.topics))
        return Node(peer.info, tuple(self._is_tombstoned(self._topics[t][peer], now) for t in topics), topics)

    def _check_limits(self, peer: Peer, topic: str, channel: str) -> None:
        """Raise Full if the producer may not carry this topic and channel in addition."""
        limits = self._limits
        more = (topic not in peer.topics) + (bool(channel) and (topic, channel) not in peer.channels)
        if len(peer.topics) + len(peer.channels) + more > limits.per_producer:
            raise Full(f"a producer carries {limits.per_producer} topics and channels at most")
        if self._by_host[peer.info.host] + more > limits.per_host:
            raise Full(f"the producers of an address carry {limits.per_host} topics and channels at most")
        keys = (topic not in self._topics) + (bool(channel) and channel not in self._channels.get(topic, {}))
        self._make_room(more + keys, keep=(topic, channel))

    def _make_room(self, entries: int, keep: tuple[str, str] = ("", "")) -> None:
        """Forget orphans until `entries` more entries fit, but not `keep` and its topic. Raises Full."""
        while self._entries + entries > self._limits.total:
            orphan = next((key for key in self._orphans if key != keep and key != (keep[0], "")), None)
            if orphan is None:
                raise Full(f"{self._limits.total} topics, channels and producers of them are known")
            topic, channel = orphan
            if channel:
                self._drop_channel(topic, channel)
            else:
                self._drop_topic(topic)

    def _count_down_entry(self, peer: Peer) -> None:
        self._entries -= 1
        count_down(self._by_host, peer.info.host)

    def _add_topic(self, topic: str) -> dict[Peer, int]:
        producers = self._topics.get(topic)
        if producers is None:
            producers = self._topics[topic] = {}
            self._entries += 1
            self._changed(topic)
        return producers

    def _add_channel(self, topic: str, channel: str) -> dict[Peer, None]:
        channels = self._channels.setdefault(topic, {})
        producers = channels.get(channel)
        if producers is None:
            producers = channels[channel] = {}
            self._entries += 1
            self._changed(topic)
        return producers

    def _remove_from_topic(self, peer: Peer, topic: str) -> None:
        del peer.topics[topic]
        del self._topics[topic][peer]
        self._count_down_entry(peer)
        self._changed(topic)
        if not self._topics[topic]:
            self._topics[topic] = {}  # a new dict, because the old one keeps the memory of its former entries
            self._orphans[topic, ""] = None

    def _remove_from_channel(self, peer: Peer, topic: str, channel: str) -> None:
        del peer.channels[topic, channel]
        del self._channels[topic][channel][peer]
        self._count_down_entry(peer)
        if not self._channels[topic][channel]:
            self._channels[topic][channel] = {}
            self._orphans[topic, channel] = None

    def _drop_topic(self, topic: str) -> None:
        for peer in self._topics.pop(topic):
            del peer.topics[topic]
            self._count_down_entry(peer)
        self._orphans.pop((topic, ""), None)
        self._entries -= 1
        self._changed(topic)

    def _drop_channel(self, topic: str, channel: str) -> None:
        for peer in self._channels[topic].pop(channel):
            del peer.channels[topic, channel]
            self._count_down_entry(peer)
        self._orphans.pop((topic, channel), None)
        self._entries -= 1
        if not self._channels[topic]:
            del self._channels[topic]
        self._changed(topic)
