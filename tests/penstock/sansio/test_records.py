"""Answers of /topic/read as records, whole and broken."""

from contextlib import suppress
from struct import pack

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.sansio.errors import ReadError
from penstock.sansio.records import Record, records_of
from tests.cases import each


def frame(body: bytes, number: int) -> bytes:
    return pack(">iiqH16s", 30 + len(body), 2, number, 0, b"%016d" % number) + body


ANSWER = msgpack.packb([5, 2, frame(b"a", 1) + frame(b"", 2)]) + msgpack.packb(
    [9, 2, frame(b"c", 3) + frame(b"d", 4), {"producer": "p", "sequence": 7, "headers": {"h": "v"}}]
)


def test_records() -> None:
    assert list(records_of(ANSWER)) == [
        Record(5, 1, b"%016d" % 1, b"a"),
        Record(6, 2, b"%016d" % 2, b""),
        Record(9, 3, b"%016d" % 3, b"c", {"h": "v"}, "", "p", 7),
        Record(10, 4, b"%016d" % 4, b"d", {"h": "v"}, "", "p", 8),
    ]
    assert list(records_of(b"")) == []


@each(
    "answer",
    [
        b"<html>", msgpack.packb(3), msgpack.packb([1, 2]), msgpack.packb([1, 2, b"short"]),
        msgpack.packb([1, 9, frame(b"a", 1)]),
    ] + [msgpack.packb([1, 1, pack(">i", -1) + b"x" * 60]), msgpack.packb(["a", 1, frame(b"a", 1)]), b"\xc1"],
)  # fmt: skip
def test_an_answer_of_another_form_is_an_error(answer: bytes) -> None:
    with pytest.raises(ReadError):
        list(records_of(answer))


@given(st.integers(0, len(ANSWER) - 1), st.binary(min_size=1, max_size=3))
def test_a_corrupt_answer_is_read_or_refused(at: int, change: bytes) -> None:
    with suppress(ReadError):
        list(records_of(ANSWER[:at] + change + ANSWER[at + len(change) :]))
