"""The next good record behind wrong bytes is found, wherever they are, and nothing else is taken for one."""

from hypothesis import given
from hypothesis import strategies as st

from nsqd.core.records import GROUP, RecordKind
from nsqd.storage.log.records import HEADER_SIZE, NewRecord, encode_all
from nsqd.storage.log.scan import highest_mark, resume

SEED = 12345
CONTENTS = st.binary(max_size=60)


def segment(contents: list[bytes]) -> tuple[bytes, list[int]]:
    """A segment's bytes with a group of these records after each two, and where its records begin."""
    records: list[NewRecord] = []
    for number, content in enumerate(contents):
        if number % 2 == 0:
            records.append((RecordKind.GROUP, GROUP.pack(number, 0), b""))
        records.append((RecordKind.FINISH, content, b""))
    data, starts = bytes(HEADER_SIZE), list[int]()
    for record in records:
        starts.append(len(data))
        data += b"".join(encode_all(SEED, len(data), [record])[0])
    return data, starts


@given(st.lists(CONTENTS, min_size=2, max_size=8), st.data())
def test_behind_wrong_bytes_the_next_good_record_is_found(contents: list[bytes], data: st.DataObject) -> None:
    whole, starts = segment(contents)
    place = data.draw(st.integers(0, len(starts) - 1))
    at, end = starts[place], [*starts, len(whole)][place + 1]
    wrong = data.draw(st.integers(at, end - 1))
    spoiled = whole[:wrong] + bytes((whole[wrong] ^ 0x55,)) + whole[wrong + 1 :]
    assert resume(spoiled, at, SEED) == end


def test_a_wrong_length_that_leads_to_a_later_record_skips_none() -> None:
    whole, starts = segment([b"x", b"x", b"x", b"x", b"x", b"x"])
    length = starts[5] - starts[2] - 8
    spoiled = whole[: starts[2]] + length.to_bytes(4, "big") + whole[starts[2] + 4 :]
    assert resume(spoiled, starts[2], SEED) == starts[3]


@given(st.lists(CONTENTS, min_size=1, max_size=8), st.integers(1, 2**32 - 1))
def test_records_of_another_segment_are_not_found(contents: list[bytes], other: int) -> None:
    whole, _ = segment(contents)
    assert resume(whole, HEADER_SIZE, SEED ^ other) == len(whole)
    assert highest_mark(whole, 0, SEED ^ other) == 0
    assert highest_mark(whole, 0, SEED) == (len(contents) - 1) // 2 * 2
