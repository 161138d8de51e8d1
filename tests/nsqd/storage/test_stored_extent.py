"""Reference counts: a message that is finished by itself counts as one that is finished in a range."""

from hypothesis import given
from hypothesis import strategies as st

from nsqd.storage.stored_extent import StoredExtent


def extent_of(count: int, references: int, in_memory: bool) -> StoredExtent:
    stored = StoredExtent(7, False)
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
