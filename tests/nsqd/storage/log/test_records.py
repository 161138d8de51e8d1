"""The log's bytes: records are read as they were written, and nothing else passes as one."""

from dataclasses import replace
from itertools import pairwise
from struct import Struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqd.core import records
from nsqd.core.records import RecordKind, runs
from nsqd.storage.log.epochs import Epoch
from nsqd.storage.log.records import (
    HEADER_SIZE,
    PREFIX_SIZE,
    NewRecord,
    NotASegment,
    SegmentHeader,
    decode,
    decode_header,
    encode,
    encode_all,
    repaired,
)

LIMITS = {"B": 1 << 8, "H": 1 << 16, "I": 1 << 32, "Q": 1 << 64, "q": 1 << 63}
CONTENTS = {
    RecordKind.GROUP: records.GROUP, RecordKind.LEASE: records.LEASE, RecordKind.TOPIC: records.TOPIC,
    RecordKind.PAUSE: records.PAUSE, RecordKind.PUBLISH: records.PUBLISH, RecordKind.DISTRIBUTE: records.DISTRIBUTE,
    RecordKind.ADVANCE: records.ADVANCE, RecordKind.FINISH: records.CHANNEL_OF,
    RecordKind.REQUEUE: records.CHANNEL_OF, RecordKind.BURY: records.BURY, RecordKind.FINISH_ALL: records.FINISH_ALL,
    RecordKind.HOLE: records.HOLE, RecordKind.DROP_CHANNEL: records.CHANNEL_OF, RecordKind.DROP_TOPIC: records.TOPIC,
    RecordKind.STATE: records.STATE, RecordKind.STATE_TOPIC: Struct(">"), RecordKind.STATE_END: Struct(">"),
    RecordKind.CONFIG: records.CONFIG, RecordKind.FIRST: records.FIRST, RecordKind.ANCHOR: records.ANCHOR,
    RecordKind.CURSOR: records.CURSOR, RecordKind.SEEN: records.SEEN, RecordKind.JOB: records.CHANNEL_OF,
    RecordKind.JOBS: records.JOBS, RecordKind.NEXT_ID: records.NEXT_ID, RecordKind.READER: records.READER,
    RecordKind.CHUNK: records.CHUNK, RecordKind.EPOCH: records.EPOCH, RecordKind.FOLLOWERS: records.FOLLOWERS,
    RecordKind.PARENT: records.PARENT, RecordKind.BATCH: Struct(">"), RecordKind.FOLLOW_UP: Struct(">"),
    RecordKind.FOLLOWED: Struct(">"), RecordKind.SCHEDULE: Struct(">"), RecordKind.TICKS: Struct(">"),
}  # fmt: skip
HEADER = SegmentHeader(node=7, generation=2, log_id=bytes(range(16)), base=1 << 40, epoch=Epoch(3, 7, b"eightby!"))


def fields(layout: Struct) -> st.SearchStrategy[tuple[object, ...]]:
    codes = layout.format.lstrip(">").replace("16s", "s").replace("8s", "e")
    sizes = {"s": 16, "e": 8}
    parts = [
        st.binary(min_size=sizes[c], max_size=sizes[c]) if c in sizes else st.integers(0, LIMITS[c] - 1) for c in codes
    ]
    return st.tuples(*parts)


def test_every_kind_has_a_layout() -> None:
    assert set(CONTENTS) == set(RecordKind)


@given(
    st.data(), st.sampled_from(list(RecordKind)), st.binary(max_size=40), st.binary(max_size=40),
    st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_a_record_is_read_as_it_was_written(
    data: st.DataObject, kind: RecordKind, rest: bytes, frames: bytes, seed: int
) -> None:
    layout = CONTENTS[kind]
    values = data.draw(fields(layout))
    content = layout.pack(*values) + rest
    before, start = data.draw(st.binary(max_size=9)), data.draw(st.integers(0, 1 << 33))
    written = b"".join(encode(seed, start + len(before), kind, content, frames))
    end = decode(before + written + b"more", len(before), seed, start)
    assert (end, written[PREFIX_SIZE]) == (len(before) + len(written), kind)
    assert written[PREFIX_SIZE + 1 :] == content + frames
    assert layout.unpack_from(written, PREFIX_SIZE + 1) == values


@given(
    st.integers(0, 2**32 - 1),
    st.integers(0, 1 << 33),
    st.lists(
        st.tuples(st.sampled_from((RecordKind.GROUP, RecordKind.PUBLISH, RecordKind.FINISH)), st.binary(), st.binary())
    ),
)
def test_records_of_a_group_are_what_each_is_alone(seed: int, start: int, group: list[NewRecord]) -> None:
    pieces, published, end = encode_all(seed, start, group)
    at, places, alone = start, [], b""
    for kind, content, frames in group:
        record = b"".join(encode(seed, at, kind, content, frames))
        places += [(at, at + len(record))] * (kind == RecordKind.PUBLISH)
        at, alone = at + len(record), alone + record
    assert (b"".join(pieces), published, end) == (alone, places, at)


@given(st.integers(0, 2**32 - 1), st.binary(max_size=30), st.data())
def test_a_record_with_any_wrong_bit_or_cut_short_is_none(seed: int, content: bytes, data: st.DataObject) -> None:
    written = b"".join(encode(seed, 0, RecordKind.TOPIC, content))
    bit = data.draw(st.integers(0, len(written) * 8 - 1))
    wrong = bytearray(written)
    wrong[bit // 8] ^= 1 << bit % 8
    assert decode(bytes(wrong), 0, seed) == 0
    for size in range(len(written)):
        assert decode(written[:size], 0, seed) == 0


def test_a_record_of_another_segment_is_none() -> None:
    seeds = {
        one.seed
        for one in (
            HEADER, replace(HEADER, base=HEADER.base + 1), replace(HEADER, generation=3),
            replace(HEADER, log_id=bytes(16)), replace(HEADER, epoch=Epoch(4, 7, b"eightby!")),
            replace(HEADER, epoch=Epoch(3, 8, b"eightby!")), replace(HEADER, epoch=Epoch(3, 7, b"eightbyt")),
        )
    }  # fmt: skip
    assert len(seeds) == 7
    assert decode(bytes(100), 0, 0) == 0
    written = b"".join(encode(HEADER.seed, 0, RecordKind.TOPIC, b"content"))
    assert [decode(written, 0, seed) > 0 for seed in sorted(seeds)].count(True) == 1


@given(
    st.builds(
        SegmentHeader, node=st.integers(0, 2**16 - 1), generation=st.integers(0, 2**32 - 1),
        log_id=st.binary(min_size=16, max_size=16), base=st.integers(0, 2**64 - 1), state=st.booleans(),
        former=st.integers(0, 2**32 - 1),
        epoch=st.builds(Epoch, st.integers(0, 2**32 - 1), st.integers(0, 2**16 - 1), st.binary(min_size=8, max_size=8)),
    )
)  # fmt: skip
def test_a_header_is_read_as_it_was_written(header: SegmentHeader) -> None:
    assert (len(header.encode()), decode_header(header.encode() + b"more")) == (HEADER_SIZE, header)


def test_a_record_at_another_place_of_the_segment_is_none() -> None:
    written = b"".join(encode(HEADER.seed, 64, RecordKind.TOPIC, b"content"))
    assert [at for at in range(200) if decode(bytes(at) + written, at, HEADER.seed)] == [64]


def test_a_header_with_any_wrong_bit_is_none_and_can_be_repaired() -> None:
    for bit in range(HEADER_SIZE * 8):
        wrong = bytearray(HEADER.encode())
        wrong[bit // 8] ^= 1 << bit % 8
        with pytest.raises(NotASegment):
            decode_header(bytes(wrong))
        assert decode_header(repaired(bytes(wrong))) == HEADER
    assert repaired(bytes(HEADER_SIZE)) == bytes(HEADER_SIZE)
    assert repaired(b"x" * HEADER_SIZE) == b"x" * HEADER_SIZE
    for size in range(HEADER_SIZE):
        with pytest.raises(NotASegment):
            decode_header(HEADER.encode()[:size])


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(1, 5)), max_size=20))
def test_runs_hold_the_same_messages_with_neighbours_in_one(steps: list[tuple[int, int]]) -> None:
    ranges, at = [], 0
    for gap, count in steps:
        at += gap - 1
        ranges.append((at, count))
        at += count
    packed = list(records.RUN.iter_unpack(runs(ranges)))
    assert [o for first, count in packed for o in range(first, first + count)] == [
        o for first, count in ranges for o in range(first, first + count)
    ]
    assert all(first + count < following for (first, count), (following, _) in pairwise(packed))


@given(
    fields(records.PUBLISH), st.booleans(), st.binary(max_size=50),
    st.none() | st.lists(st.integers(0, (1 << 32) - 1), max_size=4, unique=True),
)  # fmt: skip
def test_a_publish_separates_its_attributes_and_owners(
    values: tuple[object, ...], distributed: bool, attributes: bytes, owners: list[int] | None
) -> None:
    topic, first, count, due, largest = (int(str(value)) for value in values[:5])
    head = records.pack_publish(topic, first, count, due, largest, distributed, attributes, owners)
    *found, flags = records.PUBLISH.unpack_from(b"x" + head, 1)
    assert (found, bool(flags & records.DISTRIBUTED)) == ([topic, first, count, due, largest], distributed)
    assert records.owners_of(b"x" + head + b"frames", 1, flags) == (None if owners is None else frozenset(owners))
    assert records.attributes_of(b"x" + head + b"frames", 1, flags) == (attributes, 1 + len(head))


def test_the_messages_that_a_record_names() -> None:
    channel = records.CHANNEL_OF.pack(1, 2)
    assert records.named_spans(RecordKind.FINISH, channel + records.RUN.pack(5, 3)) == [(5, 8)]
    assert records.named_spans(RecordKind.REQUEUE, channel + records.RETURNED.pack(5, 3, 1, 0)) == [(5, 6)]
    assert records.named_spans(RecordKind.BURY, records.BURY.pack(1, 2, 5, 3, 1, 7, bytes(16))) == [(5, 6)]
    assert records.named_spans(RecordKind.ADVANCE, records.ADVANCE.pack(1, 2, 5)) == []
