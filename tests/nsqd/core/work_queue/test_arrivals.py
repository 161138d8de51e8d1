"""Messages that are not jobs yet: positions, holes and terms, over extents that are a list."""

from collections import deque
from collections.abc import Iterator
from copy import copy

from hypothesis import given
from hypothesis import strategies as st

from nsqd.core.sequence.extent import Extent
from nsqd.core.sequence.offsets import TopicOffsets
from nsqd.core.sequence.put_batch import JobOptions
from nsqd.core.timing.deferred import Message
from nsqd.core.work_queue.arrivals import Arrivals


class Extents:
    """Messages by ordinal; None: it is finished. Each extent has `size` of them."""

    def __init__(self, frames: list[bytes | None], size: int = 4) -> None:
        self.frames = frames
        self.size = size
        self.on_disk: set[int] = set()  # numbers of extents

    def read(self, ordinal: int) -> Extent | None:
        while ordinal < len(self.frames):
            number = ordinal // self.size
            span = self.frames[number * self.size : (number + 1) * self.size]
            if any(frame is not None for frame in span):
                if number in self.on_disk:
                    return None
                extent = Extent(number * self.size, False)
                extent.frames = [frame or b"" for frame in span]
                return extent
            ordinal = (number + 1) * self.size
        return Extent(len(self.frames), False)

    def extents(self, first: int, end: int) -> Iterator[tuple[int, int, bool]]:
        for ordinal in range(first, min(end, len(self.frames))):
            if self.frames[ordinal] is not None:
                yield ordinal, ordinal + 1, False


def arrivals(frames: list[bytes | None], start: int = 0, size: int = 4) -> tuple[Arrivals, Extents]:
    """Of a topic that has distributed all of these; the queue began at `start`."""
    offsets, extents = TopicOffsets(1), Extents(frames, size)
    offsets.end = len(frames)
    offsets.distributed = start
    made = Arrivals(offsets, extents)  # type: ignore[arg-type]
    offsets.distributed = len(frames)
    return made, extents


def taken(some: Arrivals, most: int = 100) -> dict[int, bytes]:
    """Return all jobs that arrive, in the order of their ordinals."""
    found: dict[int, bytes] = {}
    while not some.is_complete:
        first, frames = some.read_next(most) or (0, None)
        assert len(frames) <= most
        for ordinal, frame in enumerate(frames, first):
            some.options.pop(ordinal, None)
            assert ordinal not in found
            if frame:
                found[ordinal] = frame
        some.check()
    return found


@given(
    gone=st.sets(st.integers(0, 30)),
    start=st.integers(0, 30),
    spans=st.lists(st.tuples(st.integers(0, 30), st.integers(1, 5))),
    most=st.integers(1, 9),
    size=st.integers(1, 9),
)
def test_everything_comes_once_but_for_holes_and_what_is_gone(
    gone: set[int], start: int, spans: list[tuple[int, int]], most: int, size: int
) -> None:
    some, _ = arrivals([None if ordinal in gone else b"%d" % ordinal for ordinal in range(31)], start, size)
    some.expect(start, 31 - start, JobOptions(3))
    left = set(range(start, 31)) - gone
    covered: set[int] = set()
    for first, count in spans:
        span = range(max(start, first), min(31, first + count))
        if span and covered.isdisjoint(span):
            covered.update(span)
            some.skip(span.start, span.stop)
    assert set(some.options) == set(range(start, 31)) - covered
    other = copy(some)
    other.holes, other.options = deque(some.holes), dict(some.options)
    given_up = [span for spans in other.give_up().spans() for span in spans]
    assert {ordinal for first, end in given_up for ordinal in range(first, end)} == left - covered
    other.check()
    assert taken(some, most) == {ordinal: b"%d" % ordinal for ordinal in left - covered}
    assert some.position == 31
    assert not some.options
    assert not some.holes
    assert not list(some.give_up().spans())


def test_it_begins_at_the_edge_and_with_the_delays_beyond_it_or_goes_on_where_it_was() -> None:
    offsets = TopicOffsets(1)
    offsets.end, offsets.distributed = 9, 5
    for ordinal, due in ((3, 70), (5, 80), (8, 90)):
        offsets.delay_queue.waiting.push(due, Message(ordinal, 0), 0)
    some = Arrivals(offsets, Extents([]))  # type: ignore[arg-type]
    assert some.position == 5
    assert some.options == {5: JobOptions(due=80), 8: JobOptions(due=90)}
    some, _ = arrivals([b"%d" % ordinal for ordinal in range(8)])
    some.resume(2, [(3, 5), (7, 8)])
    assert taken(some) == {2: b"2", 5: b"5", 6: b"6"}
