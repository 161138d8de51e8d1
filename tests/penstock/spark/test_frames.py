"""Answers of /topic/read become columns of Arrow."""

import msgpack
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqd.core.message.frame import encode_one
from penstock.spark.frames import PLAIN, WITH_HEADERS, batches, schema_of

bodies = st.one_of(
    st.lists(st.binary(max_size=40), min_size=1, max_size=30), st.lists(st.binary(min_size=5, max_size=5), min_size=1)
)


def answer(first: int, messages: list[bytes], **attributes: object) -> bytes:
    frames = b"".join(
        encode_one(body, b"%016x" % number, 1_700_000_000_123_456_789 + number) for number, body in enumerate(messages)
    )
    packed: bytes = msgpack.packb([first, len(messages), frames, *([attributes] if attributes else [])])
    return packed


@given(bodies, bodies, st.booleans())
def test_every_message_is_a_row(one: list[bytes], other: list[bytes], with_headers: bool) -> None:
    content = answer(7, one) + answer(7 + len(one), other, producer="p", headers={"trace": "x"})
    first, second = batches(content, "t", "617", "log", WITH_HEADERS if with_headers else PLAIN)
    table = pa.Table.from_batches([first, second])
    assert table.column("body").to_pylist() == one + other
    assert table.column("offset").to_pylist() == list(range(7, 7 + len(one) + len(other)))
    assert (
        table.column("message_id").to_pylist()[:2] == [f"{number:016x}" for number in range(len(one))][:2]
        or len(one) == 1
    )
    assert table.column("timestamp")[0].value == 1_700_000_000_123_456
    assert set(table.column("producer").to_pylist()[len(one) :]) == {"p"}
    assert table.column("producer")[0].as_py() is None
    assert table.column("attempts").null_count == len(table)
    assert set(table.column("topic").to_pylist()) == {"t"}
    assert ("headers" in table.column_names) == with_headers
    if with_headers:
        assert table.column("headers")[0].as_py() == []
        assert table.column("headers")[len(one)].as_py() == [("trace", "x")]


def test_bodies_are_cut_where_they_end_and_half_an_answer_is_no_message() -> None:
    messages = [b"a" * 10, b"b" * 20, b"c" * 0]
    assert batches_of(answer(0, messages)) == messages
    content = answer(0, [b"x" * 50])
    for cut in (1, 20, 60):  # the reader sees that the offset has not moved
        assert batches_of(content[:-cut]) == []


def batches_of(content: bytes) -> list[bytes]:
    return [body for batch in batches(content, "t", "1", "l", PLAIN) for body in batch.column("body").to_pylist()]


def test_a_job_is_due_after_its_delay_and_odd_headers_are_text() -> None:
    content = answer(0, [b"x", b"y"], delay=5, key="k") + answer(2, [b"z"], headers={"a": "b"}).replace(b"b", b"\xff")
    first, second = batches(content, "t", "1", "l", schema_of("timestamp", "due", "key", "headers"))
    assert [row["due"].timestamp() - row["timestamp"].timestamp() for row in first.to_pylist()] == [5, 5]
    assert first.column("key").to_pylist() == ["k", "k"]
    assert second.to_pylist()[0]["due"] is None
    assert second.column("headers").to_pylist() == [[("a", "\ufffd")]]


def test_more_messages_than_bytes_are_refused() -> None:
    content = msgpack.packb([0, 1 << 40, b"short"])
    with pytest.raises(ValueError, match="messages in 5 bytes"):
        batches_of(content)
