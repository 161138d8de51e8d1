"""nsqlookupd's registry: topics and producers, and how long they are known."""

import contextlib
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lookupd.producers import Full, Limits, Peer, PeerInfo
from lookupd.registry import NEVER, Counts, Registry

SECOND = 1_000_000_000
INACTIVE = 300 * SECOND
LIFETIME = 45 * SECOND
T0 = 1_700_000_000 * SECOND

INFO = PeerInfo("10.0.0.1:5001", "host1", "node1", 4150, 4151, "1.3.0")
OTHER = PeerInfo("10.0.0.2:5002", "host2", "node2", 4150, 4151, "1.3.0")


@pytest.fixture
def registry() -> Iterator[Registry]:
    made = Registry(INACTIVE, LIFETIME)
    yield made
    made.check()


@pytest.fixture
def peer(registry: Registry) -> Peer:
    return registry.identify(INFO, T0)


def test_a_tombstone_hides_from_lookups_and_is_shown_by_nodes_until_it_expires(registry: Registry, peer: Peer) -> None:
    registry.register(peer, "t")
    registry.register(peer, "u")
    assert registry.tombstone("t", "node1:4150", T0) == 0  # an unknown node
    assert registry.tombstone("v", "node1:4151", T0) == 0
    assert registry.producers("t", T0) == [INFO]
    assert registry.tombstone("t", "node1:4151", T0) == 1
    assert registry.producers("t", T0 + LIFETIME - 1) == []
    assert registry.producers("u", T0) == [INFO]
    (node,) = registry.nodes(T0)
    assert (node.topics, node.tombstones) == (("t", "u"), (True, False))
    assert registry.producers("t", T0 + LIFETIME) == [INFO]
    assert registry.nodes(T0 + LIFETIME)[0].tombstones == (False, False)
    assert [one.tombstoned_at for one in registry.registrations()["topic:t:"]] == [T0]
    registry.register(peer, "t", "c")  # which it outlives, but not a new connection
    assert registry.producers("t", T0) == []
    registry.disconnect(peer)
    registry.register(registry.identify(INFO, T0), "t")
    assert registry.producers("t", T0) == [INFO]


def test_unregistering_a_topic_takes_its_channels_along(registry: Registry, peer: Peer) -> None:
    registry.register(peer, "t", "c")
    registry.register(peer, "u", "c")
    assert registry.unregister_topic(peer, "t")
    assert not registry.unregister_topic(peer, "t")
    assert list(registry.registrations()) == ["client::", "topic:u:", "channel:u:c"]
    assert registry.topics() == ["t", "u"]


def test_unregistering_keeps_the_key_unless_it_is_ephemeral_and_empty(registry: Registry, peer: Peer) -> None:
    other = registry.identify(OTHER, T0)
    for channel in ("c", "x#ephemeral"):
        registry.register(peer, "t", channel)
        registry.register(other, "t", channel)
        assert registry.unregister_channel(peer, "t", channel)
        assert not registry.unregister_channel(peer, "t", channel)
    assert registry.channels("t") == ["c", "x#ephemeral"]
    registry.unregister_channel(other, "t", "c")
    registry.unregister_channel(other, "t", "x#ephemeral")
    assert registry.channels("t") == ["c"]
    assert registry.producers("t", T0) == [INFO, OTHER]
    for one in (peer, other):
        registry.register(one, "t#ephemeral")
    registry.unregister_topic(peer, "t#ephemeral")
    assert registry.topics() == ["t", "t#ephemeral"]
    registry.unregister_topic(other, "t#ephemeral")
    assert registry.topics() == ["t"]


class Plain:
    """The original's registration_db.go word for word: one flat map, searched. The slow path of the indexed one."""

    def __init__(self) -> None:
        self.map: dict[tuple[str, str, str], dict[int, int]] = {}  # (category, topic, channel) -> peer -> tombstone

    def add(self, key: tuple[str, str, str], peer: int) -> None:
        self.map.setdefault(key, {}).setdefault(peer, NEVER)

    def remove(self, key: tuple[str, str, str], peer: int) -> int:
        self.map.get(key, {}).pop(peer, None)
        return len(self.map.get(key, {}))

    def unregister(self, peer: int, topic: str, channel: str) -> None:
        if channel:
            if self.remove(("channel", topic, channel), peer) == 0 and channel.endswith("#ephemeral"):
                self.map.pop(("channel", topic, channel), None)
            return
        for key in list(self.map):
            if key[:2] == ("channel", topic):
                self.remove(key, peer)
        if self.remove(("topic", topic, ""), peer) == 0 and topic.endswith("#ephemeral"):
            self.map.pop(("topic", topic, ""), None)

    def delete(self, category: str, topic: str, channel: str = "*") -> None:
        for key in [k for k in self.map if k[0] == category and k[1] == topic and channel in ("*", k[2])]:
            del self.map[key]

    def rows(self) -> list[tuple[str, int, int]]:
        return sorted((":".join(key), peer, at) for key, peers in self.map.items() for peer, at in peers.items())


PEERS = st.integers(0, 2)
TOPICS = st.sampled_from(["t", "u#ephemeral"])
CHANNELS = st.sampled_from(["", "c", "d#ephemeral"])
VERBS = st.sampled_from(["register", "unregister", "disconnect", "create", "delete", "tombstone"])
STEPS = st.tuples(VERBS, PEERS, TOPICS, CHANNELS)


@given(st.lists(STEPS, max_size=40))
def test_the_indexes_and_the_original_flat_map_agree(steps: list[tuple[str, int, str, str]]) -> None:
    registry, plain = Registry(INACTIVE, LIFETIME), Plain()
    infos = [replace(INFO, broadcast_address=f"node{i}") for i in range(3)]
    peers = [registry.identify(info, T0) for info in infos]
    for i in range(3):
        plain.add(("client", "", ""), i)
    for now, (verb, i, topic, channel) in enumerate(steps, T0):
        apply_to_registry(registry, peers, i, verb, topic, channel, now)
        apply_to_plain(plain, i, verb, topic, channel, now)
        registry.check()
    found = registry.registrations().items()
    rows = sorted((key, infos.index(one.info), one.tombstoned_at) for key, ones in found for one in ones)
    assert rows == plain.rows()
    assert registry.topics() == sorted(key[1] for key in plain.map if key[0] == "topic")
    for topic in ("t", "u#ephemeral"):
        assert registry.channels(topic) == sorted(key[2] for key in plain.map if key[:2] == ("channel", topic))


def apply_to_registry(
    registry: Registry, peers: list[Peer], i: int, verb: str, topic: str, channel: str, now: int
) -> None:
    if verb == "register":
        registry.register(peers[i], topic, channel)
    elif verb == "unregister" and channel:
        registry.unregister_channel(peers[i], topic, channel)
    elif verb == "unregister":
        registry.unregister_topic(peers[i], topic)
    elif verb == "disconnect":
        registry.disconnect(peers[i])
        peers[i] = registry.identify(peers[i].info, now)
    elif verb == "create":
        registry.create_channel(topic, channel) if channel else registry.create_topic(topic)
    elif verb == "delete":
        registry.delete_channel(topic, channel) if channel else registry.delete_topic(topic)
    else:
        registry.tombstone(topic, peers[i].info.node, now)


def apply_to_plain(plain: Plain, i: int, verb: str, topic: str, channel: str, now: int) -> None:
    if verb == "register":
        if channel:
            plain.add(("channel", topic, channel), i)
        plain.add(("topic", topic, ""), i)
    elif verb == "unregister":
        plain.unregister(i, topic, channel)
    elif verb == "disconnect":
        for key in plain.map:
            plain.remove(key, i)
        plain.add(("client", "", ""), i)
    elif verb == "create":
        if channel:
            plain.map.setdefault(("channel", topic, channel), {})
        plain.map.setdefault(("topic", topic, ""), {})
    elif verb == "delete" and channel:
        plain.delete("channel", topic, channel)
    elif verb == "delete":
        plain.delete("channel", topic)
        plain.delete("topic", topic)
    else:
        for key, producers in plain.map.items():
            if key[0] == "topic" and topic == key[1] and i in producers:
                producers[i] = now


def a_small_registry(total: int, per_producer: int) -> tuple[Registry, Peer]:
    registry = Registry(INACTIVE, LIFETIME, Limits(total, per_producer))
    return registry, registry.identify(INFO, T0)


def test_the_producers_of_one_address_leave_room_for_others() -> None:
    registry, peer = a_small_registry(total=40, per_producer=10)
    twin = registry.identify(replace(INFO, remote_address="10.0.0.1:6000"), T0)
    for index in range(7):
        registry.register(peer, f"a{index}")
    for index in range(3):
        registry.register(twin, f"b{index}")
    with pytest.raises(Full, match="an address carry 10"):
        registry.register(twin, "b3")
    registry.register(registry.identify(OTHER, T0), "b3")
    registry.disconnect(peer)
    registry.register(twin, "b4")
    registry.check()


def test_at_the_limit_orphans_are_forgotten_the_oldest_first() -> None:
    registry, peer = a_small_registry(total=8, per_producer=2)
    registry.create_topic("created")
    registry.register(peer, "old", "c")
    registry.disconnect(peer)
    other = registry.identify(INFO, T0)
    registry.register(other, "young")
    registry.disconnect(other)
    assert registry.counts() == Counts(3, 1, 0, 4)
    last = registry.identify(OTHER, T0)
    registry.register(last, "new", "c")  # 4 more entries
    registry.check()
    assert registry.topics() == ["created", "new", "old", "young"]
    assert registry.register(registry.identify(INFO, T0), "young")  # it is carried again, and no orphan
    registry.check()
    assert registry.channels("old") == []
    with pytest.raises(Full, match="8 topics, channels and producers"):
        registry.create_channel("more", "than fits")
    registry.check()


def test_a_name_that_is_registered_again_does_not_make_room_for_itself() -> None:
    registry, peer = a_small_registry(total=5, per_producer=4)
    registry.register(peer, "t")
    registry.disconnect(peer)
    registry.create_channel("u", "c")
    registry.create_channel("u", "d")
    registry.register(registry.identify(INFO, T0), "t")
    assert registry.topics() == ["t", "u"]
    registry.check()


@given(st.lists(STEPS, max_size=60))
def test_no_step_leads_beyond_the_limits(steps: list[tuple[str, int, str, str]]) -> None:
    registry = Registry(INACTIVE, LIFETIME, Limits(total=8, per_producer=3))
    peers = [registry.identify(replace(INFO, broadcast_address=f"node{i}"), T0) for i in range(3)]
    for now, (verb, i, topic, channel) in enumerate(steps, T0):
        with contextlib.suppress(Full):
            apply_to_registry(registry, peers, i, verb, topic, channel, now)
        registry.check()


def test_inactive_topics_come_in_pages_with_their_channels(registry: Registry, peer: Peer) -> None:
    registry.register(peer, "carried", "c")
    for topic in ("b", "a", "d"):
        registry.create_channel(topic, "y")
        registry.create_channel(topic, "x")
    registry.create_topic("c")
    every = [("a", ["x", "y"]), ("b", ["x", "y"]), ("c", []), ("d", ["x", "y"])]
    for after, limit, found in (
        ("", 10, (every, False)), ("", 9, (every[:3], True)), ("", 6, (every[:2], True)), ("b", 1, (every[2:3], True)),
        ("c", 1, (every[3:], False)),  # a topic is not cut
        ("d", 1, ([], False)),
    ):  # fmt: skip
        assert registry.inactive(after, limit, T0) == found


def test_a_topic_is_inactive_when_lookup_names_no_producer(registry: Registry, peer: Peer) -> None:
    registry.register(peer, "t")
    assert registry.inactive("", 9, T0 + INACTIVE) == ([], False)
    assert registry.inactive("", 9, T0 + INACTIVE + 1) == ([("t", [])], False)
    registry.tombstone("t", INFO.node, T0)
    assert registry.inactive("", 9, T0) == ([("t", [])], False)
    assert registry.inactive("", 9, T0 + LIFETIME) == ([], False)
