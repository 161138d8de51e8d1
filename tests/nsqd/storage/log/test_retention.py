"""What stays in the log after it was finished: by time, by bytes, over restarts; and what goes."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqd.core.limits import Limits
from nsqd.core.retention.cursors import Cursor
from nsqd.core.retention.policy import StoragePolicy
from nsqd.storage.log.retention import MOST_ENDS, DurableEnds
from nsqd.storage.sequence import Sequence
from shared.topic_config import Durability, TopicConfig
from tests.nsqd.core.node import MS, SECOND
from tests.nsqd.storage.sim_disk import SimDisk
from tests.nsqd.storage.sim_node import Clock, SimNode
from tests.nsqd.storage.survey import retained

BODY = 200  # bytes
HOUR = 3600 * SECOND


def start(disk: SimDisk, clock: Clock, policy: StoragePolicy | None = None) -> SimNode:
    """Checkpoints come every 5,000 bytes, segments have 2,000."""
    limits = Limits(policy=policy or StoragePolicy())
    node = SimNode(disk, Durability.ALWAYS, clock, Random(1), limits, 2000, tail_records=1 << 30, tail_bytes=5000)
    node.eager = True
    return node


def body(number: int) -> bytes:
    return b"%d." % number + b"x" * BODY


class Reader:
    """Publishes to a topic, and finishes at once what its one channel gets."""

    def __init__(self, node: SimNode) -> None:
        self.node = node
        self.consumer, self.inbox = node.subscribe()
        self.topic = node.broker.topics["t"]
        node.advance(0)

    def work(self, first: int, end: int) -> None:
        """Messages first..end, one a turn, 10 ms apart."""
        for number in range(first, end):
            self.node.publish(body=body(number))
            for message in self.inbox.take():
                self.consumer.finish(message.id)
            self._pass(10 * MS)

    def rest(self, ns: int) -> None:
        """Time passes, and whatever is in progress gets done."""
        self._pass(ns)
        for _ in range(50):
            self._pass(0)

    def _pass(self, ns: int) -> None:
        self.node.advance(ns)
        for _ in range(4):
            self.node.syncer.step()
        self.node.cleaner.step()
        self.node.syncer.timer()

    @property
    def kept(self) -> list[int]:
        self.node.syncer.now()
        return [int(one.split(b".")[0]) for one in retained(self.node, self.topic)]

    @property
    def sequence(self) -> Sequence:
        return self.node.store.find_sequence(self.topic.number)


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk()


@pytest.fixture
def clock() -> Clock:
    return Clock()


def minutes_later(reader: Reader, count: int = 3) -> Reader:
    for _ in range(count):
        reader.rest(61 * SECOND)
    return reader


def files(disk: SimDisk) -> int:
    return sum(disk.size(name) for name in disk.names())


def test_retained_messages_are_read_again_in_order_and_over_restarts(disk: SimDisk, clock: Clock) -> None:
    reader = Reader(start(disk, clock))
    reader.work(0, 50)
    reader.topic.configure(TopicConfig(retention=HOUR))
    reader.work(50, 150)
    assert reader.kept == list(range(50, 150))
    for cut in (False, True, False):
        reader.rest(SECOND)
        disk = disk.crash(Random(1)) if cut else disk.kill()
        clock = clock.after(SECOND, 5 * SECOND, rebooted=cut)
        reader = Reader(start(disk, clock))
        assert (reader.topic.config, reader.kept) == (TopicConfig(retention=HOUR), list(range(50, 150)))
        assert reader.inbox.take() == []


def test_what_is_older_than_the_retention_goes_and_its_space_is_free(disk: SimDisk, clock: Clock) -> None:
    policy = StoragePolicy(retention=SECOND)
    reader = Reader(start(disk, clock, policy))
    reader.work(0, 500)  # 5 s
    kept = reader.kept
    assert set(kept) >= set(range(425, 500)), "messages younger than a second are there"
    assert len(kept) < 250
    assert files(disk) < 250 * (BODY + 100) * 2
    first = reader.sequence.first
    assert first
    disk = disk.crash(Random(1))
    reader = Reader(start(disk, clock.after(0, SECOND, rebooted=True), policy))
    assert reader.sequence.first >= first, "removed messages do not come back"


def test_of_the_newest_bytes_no_more_stay_than_was_said(disk: SimDisk, clock: Clock) -> None:
    reader = Reader(start(disk, clock))
    reader.topic.configure(TopicConfig(retention_bytes=20_000))
    reader.work(0, 600)
    reader.rest(SECOND)
    assert reader.kept == list(range(min(reader.kept), 600))
    assert 20 < len(reader.kept) < 150
    assert files(disk) < 100_000


def test_what_is_owed_stays_whatever_the_retention_is(disk: SimDisk, clock: Clock) -> None:
    reader = Reader(start(disk, clock, StoragePolicy(retention=SECOND)))
    slow = reader.topic.channel("slow")
    reader.work(0, 300)
    reader.rest(10 * SECOND)
    assert slow.depth == 300
    _, inbox = reader.node.subscribe(channel="slow")
    reader.rest(0)
    assert [message.body for message in inbox.take()] == [body(number) for number in range(300)]


def test_what_is_emptied_is_retained_as_what_is_finished(disk: SimDisk, clock: Clock) -> None:
    reader = Reader(start(disk, clock, StoragePolicy(retention=HOUR)))
    reader.node.broker.pause(reader.topic, True)
    reader.work(0, 50)
    reader.node.turn(lambda: reader.topic.empty())
    reader.rest(SECOND)
    assert (reader.topic.depth, reader.kept) == (0, list(range(50)))


def test_a_cursor_holds_what_it_has_not_read_within_its_cap(disk: SimDisk, clock: Clock) -> None:
    reader = Reader(start(disk, clock, StoragePolicy(retention=2 * SECOND)))
    reader.work(0, 100)
    reader.topic.set_cursor("slow", Cursor(30, hold=60 * SECOND))
    reader.topic.set_cursor("capped", Cursor(0, hold_bytes=1))
    reader.topic.set_cursor("idle", Cursor(0))
    reader.work(100, 600)
    reader.rest(SECOND)
    kept = reader.kept
    assert kept == list(range(kept[0], 600))
    assert 0 < kept[0] <= 30, "messages that the slow one has not read are there, others are not"
    reader.topic.set_cursor("slow", Cursor(500, hold=60 * SECOND))
    reader.work(600, 900)
    reader.rest(SECOND)
    assert 300 < reader.kept[0] <= 500
    reader.rest(61 * SECOND)
    reader.work(900, 1000)
    reader.rest(SECOND)
    assert reader.kept[0] > 600, "an abandoned cursor holds nothing indefinitely"


DAY = 24 * HOUR


@pytest.mark.parametrize("jump", [30 * DAY, -30 * DAY])
def test_setting_the_wall_clock_moves_no_retention(disk: SimDisk, clock: Clock, jump: int) -> None:
    policy = StoragePolicy(retention=HOUR)
    reader = Reader(start(disk, clock, policy))
    reader.work(0, 30)
    clock.wall += jump
    reader.work(30, 60)
    assert minutes_later(reader).kept == list(range(60))
    clock = clock.after(SECOND, clock.now + SECOND, rebooted=False)
    clock.wall -= 2 * jump  # it is set while the node is stopped, too
    reader = Reader(start(disk.kill(), clock, policy))
    reader.work(60, 70)
    assert minutes_later(reader).kept == list(range(70)), "by the records"
    reader.node.checkpoint()
    reader.rest(SECOND)
    reader = Reader(start(reader.node.disk.kill(), clock.after(0, clock.now, rebooted=False), policy))
    assert minutes_later(reader).kept == list(range(70)), "by the checkpoint"
    reader.node.advance(HOUR)
    assert minutes_later(reader, 2).kept == [], "an hour has passed"


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 5)), max_size=60), st.data())
def test_exactly_the_messages_that_are_durable_end_there(groups: list[tuple[int, int]], data: st.DataObject) -> None:
    known, position, end = DurableEnds(3), 0, 3
    ends = [(0, 3)]
    for size, count in groups:
        position, end = position + size, end + count
        known.add(position, end)
        ends.append((position, end))
    durable = data.draw(st.integers(0, position))
    assert known.end_at(durable) == max(end for at, end in ends if at <= durable)
    assert known.end_at(position) == end


def test_very_many_ends_are_thinned_out() -> None:
    known = DurableEnds(0)
    for number in range(1, 5 * MOST_ENDS):
        known.add(number, number)
    assert len(known._waiting) <= MOST_ENDS
    half = 5 * MOST_ENDS // 2
    assert half - 100 <= known.end_at(half) <= half
    assert known.end_at(5 * MOST_ENDS) == 5 * MOST_ENDS - 1
