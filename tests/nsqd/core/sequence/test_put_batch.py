"""Jobs that are put in a turn get their ids at once and their frames together, whatever else gets ids in between."""

from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from nsqd.core.message.frame import encode_one, message_id
from nsqd.core.message.ids import IdSource
from nsqd.core.sequence.put_batch import USUAL, PutBatch

puts = st.lists(st.lists(st.binary(min_size=1, max_size=9), min_size=1, max_size=5), min_size=1, max_size=8)


@given(puts, st.integers(4080, 4100), st.sets(st.integers(0, 7)))
def test_frames_and_ids_equal_single_messages(puts: list[list[bytes]], first: int, others: set[int]) -> None:
    ids, put_batch, numbers = IdSource(3, first, lambda ceiling: True), PutBatch(USUAL, 77), list[int]()
    for turn, bodies in enumerate(puts):
        if turn in others:
            ids.issue_id()  # of a message that is published to another topic
        number = put_batch.add(bodies, ids)
        assert number == ids.id_number(ids.next - len(bodies))
        numbers += range(number, number + len(bodies))
    frames, joined, largest = put_batch.encode()
    each = [b"%016x" % number for number in numbers]
    assert put_batch.numbers == numbers
    assert frames == [encode_one(body, one, 77) for body, one in zip(chain.from_iterable(puts), each, strict=True)]
    assert joined == b"".join(each) == b"".join(map(message_id, frames))
    assert largest == max(map(len, frames))
