"""Memory is a cache with a budget: what it is believed to hold it holds, and it holds no more than it may."""

import errno
from collections.abc import Callable

import pytest

from nsqd.core.timing.deferred import Message
from nsqd.storage.log import cache
from nsqd.storage.log.files import SegmentFile
from shared.topic_config import Durability
from tests.nsqd.core.node import SECOND, Inbox
from tests.nsqd.storage.sim_disk import SimDisk
from tests.nsqd.storage.sim_node import SimNode

BUDGET = 400_000  # bytes: 1,500 of the messages below
BODY = b"x" * 200


def new_node(disk: SimDisk | None = None) -> SimNode:
    return SimNode(disk, Durability.OS, segment_size=1 << 20, budget=BUDGET)


def held(node: SimNode) -> int:
    """Bytes that are in memory: looked at, not counted."""
    sequences = [node.store.find_sequence(topic) for topic in node.store.logged()]
    live = [one for sequence in sequences if sequence is not None for one in sequence.live()]
    return sum(one.size for one in live if one.extent is not None)


def restarted(node: SimNode) -> SimNode:
    node.log.close()
    return new_node(node.disk.kill())


def test_topics_that_are_published_to_in_turns_keep_to_the_budget_and_give_it_back() -> None:
    node = new_node()
    for name in ("a", "b"):
        node.broker.topic(name).channel("c")
    for _ in range(1000):
        node.publish(1, "a", BODY)
        node.publish(1, "b", BODY)
    assert node.cache.cached_bytes == held(node) <= BUDGET
    assert sum(map(len, (node.cache._new, node.cache._old, node.cache._read_back))) <= 10, "extents are remembered"
    for name in ("a", "b"):
        node.turn(node.broker.topics[name].channels["c"].empty)
    assert node.cache.cached_bytes == held(node) == 0


def test_what_is_read_back_keeps_to_the_budget_though_nothing_is_published() -> None:
    node = new_node()
    node.broker.topic("a").channel("slow")
    for _ in range(20):
        node.publish(500, "a", BODY)
    node = restarted(node)
    topic = node.broker.topics["a"]
    position, most = 0, 0
    while position < topic.offsets.end:
        extent = topic.journal.read(position)
        if extent is not None:
            position = extent.end
        node.cache.step()
        node.turn()
        most = max(most, node.cache.cached_bytes)
        assert node.cache.cached_bytes == held(node)
    assert BUDGET // 2 < most <= BUDGET + 2 * 1024 * 300  # and what one turn brings


def test_a_turn_reads_few_extents_and_none_that_the_thread_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "MOST_INLINE", 2)
    node = new_node()
    node.broker.topic("a").channel("slow")
    for _ in range(20):
        node.publish(500, "a", BODY)
    node = restarted(node)
    node.disk.cached, journal = 1.0, node.broker.topics["a"].journal
    first, second, third, *_ = (one.first for one in journal.sequence.extents)
    assert [journal.read(one) is not None for one in (first, second, third)] == [True, True, False]
    node.turn()
    assert journal.read(third) is None  # the thread reads it


def test_what_could_not_be_written_yet_is_never_given_up() -> None:
    node = new_node()
    node.publish(1, "slow", BODY)
    node.publish(1000, "fast", BODY)
    assert len(node.cache._old) == 1  # the extent of "slow", which still grows
    node.disk.capacity = 0
    node.publish(1, "slow", BODY)
    node.cache.budget = 0
    node.cache.share(0)
    node.turn()
    topic = node.broker.topics["slow"]
    extent = topic.journal.read(1)
    assert extent.frames[1].endswith(BODY)


def cold_node() -> tuple[SimNode, Inbox]:
    """Ten messages that are on disk only, and a consumer."""
    node = new_node()
    node.broker.topic("a").channel("c")
    node.publish(10, "a", BODY)
    node = restarted(node)
    _, inbox = node.subscribe("a", "c")
    return node, inbox


def read(node: SimNode, times: int = 3) -> None:
    for _ in range(times):
        node.turn()
        node.cache.step()
    node.turn()


def test_a_read_that_fails_is_tried_again_until_it_succeeds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "PAUSE", 0)
    for operation, code in (("read", errno.EIO), ("open", errno.EIO), ("open", errno.EMFILE), ("open", errno.EACCES)):
        node, inbox = cold_node()
        node.disk.fail(operation, 1, code, times=3)
        read(node, 10)
        assert len(inbox.take()) == 10
        assert node.cache.retries == 3 - (operation == "open")  # the turn itself had tried that once
        assert node.cache.failures == 0


class Replica:
    """A replica that has the corrupt bytes, unreachable at first. Implements nsqd.storage.log.files.ByteRepair."""

    def __init__(self, disk: SimDisk, name: str) -> None:
        self._disk, self._name, self._content = disk, name, disk.content(name)
        self.is_reachable, self.is_patient = False, True

    def __call__(self, base: int, file: SegmentFile, start: int, stop: int) -> bool:
        if self.is_reachable:
            present = self._disk.content(self._name) if self._name in self._disk.names() else self._content[:start]
            self._disk.put(self._name, present[:start] + self._content[start:stop] + present[stop:])
        return self.is_reachable

    def fetch(self, base: int, file: SegmentFile, start: int) -> None: ...
    def is_awaited(self, file: SegmentFile, start: int) -> bool:
        return self.is_patient and not self.is_reachable


def flip(disk: SimDisk, name: str) -> None:
    disk.overwrite(name, disk.content(name).index(BODY), b"?")


def cut(disk: SimDisk, name: str) -> None:
    disk.shorten(name, disk.content(name).rindex(BODY) + 1)


@pytest.mark.parametrize("is_reached", [True, False])
@pytest.mark.parametrize("damage", [flip, cut, SimDisk.vanish])
def test_damaged_messages_wait_for_a_node_that_may_have_them(
    damage: Callable[[SimDisk, str], None], is_reached: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "PAUSE", 0)
    node, inbox = cold_node()
    disk = node.disk
    name = next(name for name in disk.names() if BODY in disk.content(name))
    node.log.writer.files.repair = replica = Replica(disk, name)
    damage(disk, name)
    read(node)
    assert (inbox.take(), node.cache.failures) == ([], 0)
    replica.is_reachable, replica.is_patient = is_reached, False
    read(node)
    assert len(inbox.take()) == (10 if is_reached else 0)
    assert node.cache.failures == (0 if is_reached else 10)


def test_of_an_extent_in_two_files_one_of_which_is_missing_the_other_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "PAUSE", 0)
    node = SimNode(None, Durability.OS, segment_size=2000)
    node.broker.topic("a").channel("c")
    for _ in range(10):
        node.publish(1, "a", BODY)
    node.log.close()
    node = SimNode(node.disk.kill(), Durability.OS)
    _, inbox = node.subscribe("a", "c")
    first, *others = [name for name in node.disk.names() if BODY in node.disk.content(name)]
    assert others
    left = sum(node.disk.content(name).count(BODY) for name in others)
    node.disk.vanish(first)
    read(node, 6)
    assert (len(inbox.take()), node.cache.failures) == (left, 10 - left)


def test_what_waits_for_a_time_takes_from_the_budget_but_not_all_of_it() -> None:
    node = new_node()
    names = [f"a{number}" for number in range(10)]
    for name in names:
        node.broker.topic(name).channel("c")
        node.publish(150, name, BODY)
    channel = node.broker.topics["a0"].channels["c"]
    deferred = channel.deferred
    channel.schedule_scan(node.clock.now + 3600 * SECOND)
    for waiting in (BUDGET // 4, BUDGET // 2, BUDGET * 10):
        while deferred.memory < waiting:
            deferred.push(node.clock.now + 3600 * SECOND, Message(0, 1), node.clock.now)
        node.clock.advance(2 * SECOND)
        node.log.timer()
        node.publish(1, "a0", BODY)
        least = max(BUDGET // 8, BUDGET - deferred.memory)
        assert least * 7 // 8 - 50_000 < node.cache.cached_bytes <= least
