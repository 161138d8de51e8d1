"""Reference counts: a message that is finished by itself counts as one that is finished in a range."""

from hypothesis import given
from hypothesis import strategies as st

from nsqd.core.sequence.extent import Extent
from nsqd.storage.sequence import SWEPT_AT_ONCE, Sequence
from nsqd.storage.stored_extent import EXTENT_MESSAGES, StoredExtent
from tests.cases import each


def extent_of(count: int, references: int, in_memory: bool) -> StoredExtent:
    stored = StoredExtent(7, False, Extent(7, False))
    stored.append([b"%034d" % number for number in range(count)], bytes(16 * count), 34, references)
    if not in_memory:
        stored.extent = None
    return stored


@given(st.integers(1, 9), st.integers(1, 3), st.booleans(), st.data())
def test_one_by_one_is_the_same_as_a_range(count: int, references: int, in_memory: bool, data: st.DataObject) -> None:
    one_by_one, at_once = extent_of(count, references, in_memory), extent_of(count, references, in_memory)
    for _ in range(references):
        first = data.draw(st.integers(0, count - 1))
        end = data.draw(st.integers(first + 1, count))
        results = [one_by_one.drop_references(index, index + 1) for index in range(first, end)]
        assert at_once.drop_references(first, end) == results[-1]
        assert one_by_one.refcounts == at_once.refcounts
        assert one_by_one.released == at_once.released == at_once.refcounts.count(0)
        if in_memory:
            assert one_by_one.extent.frames == at_once.extent.frames
            assert at_once.extent.frames.count(b"") == at_once.released


@given(st.integers(1, 9), st.sampled_from((1, 2, 300)), st.booleans(), st.data())
def test_one_by_one_is_the_same_as_many_that_do_not_follow_one_another(
    count: int, references: int, in_memory: bool, data: st.DataObject
) -> None:
    one_by_one, at_once = extent_of(count, references, in_memory), extent_of(count, references, in_memory)
    for _ in range(min(references, 2)):
        chosen = sorted(data.draw(st.sets(st.integers(0, count - 1), min_size=1)))
        results = [one_by_one.drop_references(index, index + 1) for index in chosen]
        assert at_once.drop_each([7 + index for index in chosen]) == results[-1]
        assert [at_once.references(index) for index in range(count)] == list(map(one_by_one.references, range(count)))
        assert one_by_one.released == at_once.released
        if in_memory:
            assert one_by_one.extent.frames == at_once.extent.frames


def test_what_corruption_leaves_of_an_extent_keeps_its_counts() -> None:
    sequence = Sequence()
    (stored,) = sequence.append(100, [b"%034d" % number for number in range(12)], bytes(16 * 12), 34, False)
    stored.extent = None
    sequence.distribute(100, 108, 1)
    sequence.drop_references(103, 105)
    sequence.without(stored, {0, 5, 6, 9})
    found = [(part.first, part.end, part.released, bytes(part.refcounts)) for part in sequence.extents]
    assert found == [
        (101, 105, 2, b"\1\1\0\0"),
        (107, 109, 0, b"\1\0"),  # 108 is not distributed yet, so nothing of it is released
        (110, 112, 0, b"\0\0"),
    ]
    assert [sequence.extent_of(ordinal) for ordinal in (101, 107, 111)] == sequence.extents
    assert sequence.extent_of(105) is sequence.extent_of(109) is None
    sequence.drop_references(100, 101)  # a reader is done with one that is lost, before all others
    assert [bytes(part.refcounts) for part in sequence.extents] == [b"\1\1\0\0", b"\1\0", b"\0\0"]
    sequence.drop_each([100, 101, 105, 107, 109])
    assert [bytes(part.refcounts) for part in sequence.extents] == [b"\0\1\0\0", b"\0\0", b"\0\0"]
    Sequence().drop_references(100, 101)
    Sequence().drop_each([100])


@each("first", [None, 0, 10 * EXTENT_MESSAGES])
def test_finished_extents_leave_the_sequence_before_they_are_half_of_it(first: int | None) -> None:
    sequence, count = Sequence(), 3 * SWEPT_AT_ONCE
    sequence.retain(first)
    for number in range(count):
        sequence.append_cold(number * EXTENT_MESSAGES, EXTENT_MESSAGES, False, 1)
    sequence.distributed = sequence.end
    for stored in sequence.extents:
        stored.set_references(0, stored.count, 1)
    sequence.drop_references(0, EXTENT_MESSAGES // 2)
    for number in range(1, SWEPT_AT_ONCE):
        sequence.drop_references(number * EXTENT_MESSAGES, (number + 1) * EXTENT_MESSAGES)
    assert len(sequence.extents) == count
    sequence.drop_references(EXTENT_MESSAGES // 2, EXTENT_MESSAGES)
    assert len(sequence.extents) == count - SWEPT_AT_ONCE
    assert len(sequence.retained) == (0 if first is None else SWEPT_AT_ONCE - first // EXTENT_MESSAGES)
    assert sequence.references(0) == 0
    assert sequence.references(SWEPT_AT_ONCE * EXTENT_MESSAGES) == 1
