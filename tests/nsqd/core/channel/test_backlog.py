"""The ready messages: the sequence from the cursor on, its holes, and what comes back."""

import pytest

from nsqd.core.channel.backlog import LOST_AT_ONCE, Backlog
from nsqd.core.sequence.extent import Extent
from nsqd.core.sequence.offsets import TopicOffsets
from nsqd.core.timing.deferred import Message
from tests.cases import each

ROOM = 1 << 20
WAIT = 3  # messages that the cursor passes before one that comes back has its turn


class Shelf:
    """A topic's extents: some delayed, some gone, some not in memory."""

    def __init__(self) -> None:
        self.all: list[Extent] = []
        self.cold_ones: set[int] = set()  # first ordinals of extents that must be fetched
        self.reads = 0

    def read(self, ordinal: int) -> Extent | None:
        self.reads += 1
        found = next((one for one in self.all if one.end > ordinal), Extent(1 << 40, False))
        return None if found.first in self.cold_ones else found

    def extents(self, first: int, end: int) -> list[tuple[int, int, bool]]:
        parts = [(max(first, one.first), min(end, one.end), one.delayed) for one in self.all]
        return [part for part in parts if part[0] < part[1]]

    def cold(self, first: int, end: int) -> int:
        return sum(max(0, min(end, one.end) - max(first, one.first)) for one in self.all if one.first in self.cold_ones)


class World:
    """A topic of which the backlog sees the edge and the extents."""

    def __init__(self, wait: int = WAIT) -> None:
        self.offsets, self.shelf = TopicOffsets(1), Shelf()
        self.backlog = Backlog(self.offsets, self.shelf, wait)

    def put(self, count: int, delayed: bool = False, size: int = 100) -> None:
        extent = Extent(self.offsets.distributed, delayed)
        extent.frames = [b"%d" % number for number in range(extent.first, extent.first + count)]
        extent.ids += b"".join(b"%016d" % number for number in range(extent.first, extent.first + count))
        extent.largest = size
        self.shelf.all.append(extent)
        self.offsets.distributed += count
        self.offsets.end = self.offsets.distributed
        self.offsets.ordinary += 0 if delayed else count

    def take(self, count: int = 100, room: int = ROOM) -> list[int]:
        """The ordinals of what comes next; those that come back are negative, so is not 0."""
        taken = self.backlog.pop_ready(count, room)
        self.backlog.check()
        if taken is None:
            return []
        message, first, frames, ids, _ = taken
        assert frames == [b"%d" % (first + index) for index in range(len(frames))]
        assert ids == b"".join(b"%016d" % (first + index) for index in range(len(frames)))
        if message is not None:
            assert (message.ordinal, len(frames)) == (first, 1)
            return [-first]
        return list(range(first, first + len(frames)))

    def take_all(self) -> list[int]:
        found = []
        while taken := self.take(1):
            found += taken
        return found

    @property
    def depth(self) -> int:
        return self.offsets.ordinary - self.backlog.passed + len(self.backlog.retry)


@pytest.fixture
def world():  # type: ignore[no-untyped-def]
    world = World()
    yield world
    world.backlog.check()


def test_a_stretch_is_bounded_by_count_room_and_extent_which_is_read_once_and_let_go_at_its_end(world: World) -> None:
    world.put(10)
    world.put(5)
    assert world.take(3) == [0, 1, 2]
    assert world.take(100, room=250) == [3, 4]
    assert world.take(100, room=1) == [5]  # one at least
    assert world.depth == 9
    assert (world.shelf.reads, world.backlog._extent) == (1, world.shelf.all[0])
    assert world.take() == [6, 7, 8, 9]
    assert (world.shelf.reads, world.backlog._extent) == (1, None)
    assert world.take() == [10, 11, 12, 13, 14]
    assert (world.take(), world.depth) == ([], 0)


def test_what_comes_back_has_its_turn_after_a_bounded_number_and_at_the_end_at_once(world: World) -> None:
    world.put(9)
    assert world.take(1) == [0]
    world.backlog.put_back(Message(0, 1))
    assert world.depth == 9
    assert world.take() == [1, 2, 3]
    assert world.take() == [0]
    assert world.take() == [4, 5, 6, 7, 8]
    world.backlog.put_back(Message(1, 1))
    assert (world.take(), world.depth) == ([-1], 0)


def test_holes_are_passed_over_and_adjacent_ones_are_one(world: World) -> None:
    world.put(5)
    world.put(2)
    world.backlog.skip(5, 6, 1)
    world.backlog.skip(6, 7, 1)
    world.put(3)
    assert world.depth == 8
    assert [ordinal for ordinal in (1, 1, 6, 10) if world.backlog.pull(ordinal)] == [1]
    assert world.backlog.holes == [(1, 2), (5, 7)]
    assert list(world.backlog.ahead(0)) == [(0, 1), (2, 3), (7, 3)]
    assert world.depth == 7
    assert world.take(1) == [0]
    assert not world.backlog.pull(0), "it was taken"
    assert world.take_all() == [2, 3, 4, 7, 8, 9]
    assert (world.depth, world.backlog.holes) == (0, [])


def test_a_hole_among_dropped_messages_is_forgotten(world: World) -> None:
    world.put(10)
    world.backlog.skip(3, 5, 2)
    assert world.backlog.drop_oldest(6) == [(0, 3), (5, 8)]
    assert (world.backlog.holes, world.take()) == ([], [8, 9])


def test_delayed_messages_are_left_to_the_delay_queue(world: World) -> None:
    world.put(2)
    world.put(3, delayed=True)
    world.put(1)
    assert (world.depth, list(world.backlog.ahead(0))) == (3, [(0, 2), (5, 1)])
    assert not world.backlog.pull(3)
    assert world.take_all() == [0, 1, 5]
    world.backlog.put_back(Message(3, 0))
    assert world.take_all() == [-3]


@each("gone", [False, True], world=World)
def test_the_cursor_stops_for_what_comes_back_amid_delayed_ones(world: World, gone: bool) -> None:
    """Also where they are finished, and their extent is gone."""
    world.put(1)
    world.put(6, delayed=True)
    world.put(1)
    assert world.take() == [0]
    world.backlog.put_back(Message(2, 0))
    taken = world.shelf.all.pop(1) if gone else None
    assert world.backlog.retry[0][0] == 4
    world.backlog.cursor = 3
    if taken is not None:
        world.shelf.all.insert(1, taken)
    assert world.take() == [-2]
    assert world.backlog.cursor == 4
    assert world.take_all() == [7]


def test_corrupt_messages_are_passed_over_in_the_retry_queue_by_a_bounded_number_at_once(world: World) -> None:
    world.put(LOST_AT_ONCE + 5)
    world.take_all()
    world.put(3)
    world.put(1)
    del world.shelf.all[:2]
    for ordinal in range(LOST_AT_ONCE + 5):
        world.backlog.put_first(Message(ordinal, 1))
    assert world.take() == []
    assert world.depth == 5 + 3 + 1
    assert world.take_all() == [LOST_AT_ONCE + 8]
    assert world.depth == 0


def test_a_backlog_that_was_given_up_stands_at_the_edge(world: World) -> None:
    world.put(5)
    world.take(2)
    world.backlog.put_back(Message(0, 1))
    world.backlog.pull(3)
    ahead, retry = world.backlog.give_up()
    assert ([span for spans in ahead.spans() for span in spans], len(retry)) == ([(2, 3), (4, 5)], 1)
    assert (world.depth, world.take(), world.backlog.cursor, world.backlog.holes) == (0, [], 5, [])
    world.put(1)
    assert (world.depth, world.take()) == (1, [5])
    assert repr(world.backlog) == "<Backlog from 6 of 6, 0 come back>"
