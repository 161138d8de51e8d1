"""Rows as bodies of /mpub: Arrow's columns in, what nsqd takes apart out."""

import struct

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.chunks import Chunk, Chunker
from tests.cases import each


def bodies_of(chunk: Chunk) -> list[bytes]:
    payload = chunk.payload()
    (count,) = struct.unpack_from(">I", payload)
    found, at = [], 4
    for _ in range(count):
        (size,) = struct.unpack_from(">I", payload, at)
        found.append(payload[at + 4 : at + 4 + size])
        at += 4 + size
    assert at == len(payload)
    assert count == chunk.count
    return found


def chunks_of(chunker: Chunker, batches: list[pa.RecordBatch]) -> list[Chunk]:
    return [*(chunk for batch in batches for chunk in chunker.add(batch)), *chunker.rest()]


BODIES = st.lists(st.binary(min_size=1, max_size=40), max_size=30)


@given(st.lists(BODIES, max_size=5), st.integers(1, 10), st.integers(1, 120))
def test_all_rows_in_their_order(batches: list[list[bytes]], most: int, most_bytes: int) -> None:
    tables = [pa.record_batch({"body": pa.array(rows, pa.binary())}) for rows in batches]
    chunks = chunks_of(Chunker("t", most, most_bytes), tables)
    assert [body for chunk in chunks for body in bodies_of(chunk)] == [body for rows in batches for body in rows]
    for chunk in chunks:
        assert chunk.topic == "t"
        assert 1 <= chunk.count <= most
        assert chunk.count == 1 or chunk.size <= most_bytes
    fused = pa.Table.from_batches(tables).combine_chunks().to_batches() if tables else []
    again = chunks_of(Chunker("t", most, most_bytes), fused)
    assert list(map(bodies_of, again)) == list(map(bodies_of, chunks))  # however Spark cuts its batches


@given(st.lists(st.tuples(st.sampled_from("ab"), st.binary(min_size=1, max_size=9)), max_size=40), st.integers(1, 5))
def test_rows_that_name_their_topics(rows: list[tuple[str, bytes]], most: int) -> None:
    table = pa.record_batch(
        {"topic": pa.array([t for t, _ in rows], pa.string()), "body": pa.array([b for _, b in rows], pa.binary())}
    )
    chunks = chunks_of(Chunker("", most, 1 << 20), [table.slice(0, 7), table.slice(7)])
    for topic in "ab":
        mine = [body for chunk in chunks if chunk.topic == topic for body in bodies_of(chunk)]
        assert mine == [body for name, body in rows if name == topic]


def test_rows_with_other_headers_or_another_key_are_another_chunk() -> None:
    kind = pa.map_(pa.string(), pa.string())
    headers = pa.array([[("a", "1")], [("a", "1")], None, [], [("a", "1")]], kind)
    keys = pa.array([None, None, None, "k", None])
    table = pa.record_batch({"body": pa.array([b"0", b"1", b"2", b"3", b"4"]), "headers": headers, "key": keys})
    chunks = chunks_of(Chunker("t", 10, 1000), [table.slice(0, 1), table.slice(1)])
    assert [(chunk.label, bodies_of(chunk)) for chunk in chunks] == [
        (((("a", "1"),), ""), [b"0", b"1"]), (((), ""), [b"2"]), (((), "k"), [b"3"]), (((("a", "1"),), ""), [b"4"]),
    ]  # fmt: skip


def test_text_is_utf8() -> None:
    (chunk,) = chunks_of(Chunker("t", 10, 1000), [pa.record_batch({"body": pa.array(["ä", "b"])})])
    assert bodies_of(chunk) == ["ä".encode(), b"b"]


@each("columns, why", [
    ({"body": pa.array([b"x", b""])}, "body is empty"), ({"body": pa.array([b"x", None], pa.binary())}, "body is null"),
    ({"body": pa.array([b"x"]), "topic": pa.array([None], pa.string())}, "has no topic"),
    ({"body": pa.array([b"x"]), "topic": pa.array([""])}, "has no topic"),
])  # fmt: skip
def test_rows_that_are_no_messages(columns: dict[str, pa.Array], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        chunks_of(Chunker("" if "topic" in columns else "t", 10, 1000), [pa.record_batch(columns)])
