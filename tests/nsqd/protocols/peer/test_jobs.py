"""The frames about jobs: what is packed is read again, and nothing else is accepted."""

from __future__ import annotations

from random import Random

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqd.core.work_queue.loan import Loan
from nsqd.protocols.peer.frames import AFTER_PROOF, FrameKind, FrameReader, PeerError
from nsqd.protocols.peer.jobs import (
    MOST_PART,
    MOST_WANTED,
    pack_ask,
    pack_loan,
    pack_number,
    pack_return,
    pack_want,
    unpack_ask,
    unpack_loan,
    unpack_number,
    unpack_return,
    unpack_want,
)
from tests.cases import each
from tests.effort import tries

HEAD = 5  # bytes of a frame before its content
FUZZED = tries(20000)
U32, U64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
NAMES = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=200)
ONE = Loan(7, "mail", 5 << 48 | 9, 86_400, 300, 4, 1, 2, b"a body")


def carried(frames: bytes) -> Loan:
    """The loan that comes out of these frames at the other end."""
    reader = FrameReader()
    reader.limit = AFTER_PROOF
    before = b""
    for kind, content in reader.feed(frames):
        if kind is FrameKind.BODY:
            before += content
        else:
            assert kind is FrameKind.LOAN
            return unpack_loan(content, before)
    raise AssertionError("there is no loan")


@given(st.builds(Loan, U64, NAMES, U64, U32, U32, U32, U32, U32, st.binary(max_size=50), U64, U64))
def test_a_loan_comes_as_it_was_given(loan: Loan) -> None:
    assert carried(b"".join(pack_loan(loan))) == loan


@each("size", [0, 1, MOST_PART - 1, MOST_PART, MOST_PART + 1, 3 * MOST_PART + 5])
def test_a_large_body_comes_in_parts(size: int) -> None:
    loan = Loan(1, "q", 2, 0, 0, 0, 0, 0, Random(size).randbytes(size))
    frames = list(pack_loan(loan))
    assert max(map(len, frames)) < MOST_PART + 300
    assert carried(b"".join(frames)) == loan


@given(NAMES, st.integers(0, 3 * MOST_WANTED), U64, st.binary(max_size=20))
def test_the_other_frames(name: str, count: int, number: int, data: bytes) -> None:
    assert unpack_want(pack_want(name, count)[HEAD:]) == (name, min(count, MOST_WANTED))
    content = pack_number(FrameKind.SAID, number, data)[HEAD:]
    assert unpack_number(content) == (number, data)
    with pytest.raises(PeerError):
        unpack_number(content[:7])


@given(U64, st.binary(max_size=20), st.binary(max_size=20))
def test_a_question_comes_with_the_rights_of_its_client(number: int, rights: bytes, data: bytes) -> None:
    content = pack_ask(number, rights, data)[HEAD:]
    assert unpack_ask(content) == (number, rights, data)
    for size in range(12 + len(rights)):
        with pytest.raises(PeerError):
            unpack_ask(content[:size])


@given(st.builds(Loan, U64, NAMES, U64, U32, U32, U32, U32, U32, st.binary(max_size=5)), st.booleans())
def test_a_return_comes_as_it_was_given(loan: Loan, was_taken: bool) -> None:
    content = pack_return(loan, was_taken)[HEAD:]
    assert unpack_return(content) == (loan.number, loan.message_id, loan.reservation, was_taken)


@each(
    "fields",
    [(1, 1, 1), (1, 1, 1, 1), (-1, 1, 1, True), (1, 1 << 63, 1 << 32, True), (1, True, 1, True), (1, 1, "1", False)],
)
def test_what_is_no_return_is_refused(fields: tuple[object, ...]) -> None:
    with pytest.raises(PeerError):
        unpack_return(msgpack.packb(fields))


@each(
    "fields",
    [
        (7, "", 1, 0, 0, 1, 0, 0, b""),
        (7, "x" * 201, 1, 0, 0, 1, 0, 0, b""),
        (7, "a\nb", 1, 0, 0, 1, 0, 0, b""),
        (7, "é", 1, 0, 0, 1, 0, 0, b""),
        (7, b"q", 1, 0, 0, 1, 0, 0, b""),
        (-1, "q", 1, 0, 0, 1, 0, 0, b""),
        (7, "q", 1, 1 << 32, 0, 1, 0, 0, b""),
        (7, "q", 1, 0, True, 1, 0, 0, b""),
        (7, "q", 1, 0, 0, -1, 0, 0, b""),
        (7, "q", 1, 0, 0, 1, 0.5, 0, b""),
        (7, "q", 1, 0, 0, 1, 0, 0, "text"),
        (7, "q", 1, 0, 0, 1, 0, b""),
    ],
)
def test_what_is_no_loan_is_refused(fields: tuple[object, ...]) -> None:
    with pytest.raises(PeerError):
        unpack_loan(msgpack.packb((*fields, 0, 0)), b"")


@each("times", [(), (0,), (0, 0, 0), (-1, 0), (0.5, 0), (0, "0")])
def test_the_times_of_a_loan_are_numbers(times: tuple[object, ...]) -> None:
    fields = (7, "q", 1, 0, 0, 1, 0, 0, b"")
    assert unpack_loan(msgpack.packb((*fields, 3, 4)), b"").lent == 3
    with pytest.raises(PeerError):
        unpack_loan(msgpack.packb((*fields, *times)), b"")


def test_any_bytes_are_read_or_refused() -> None:
    random = Random(1)
    wholes = [next(iter(pack_loan(ONE)))[HEAD:], pack_want("mail", 3)[HEAD:]]
    read = 0
    for _ in range(FUZZED):
        place = random.randrange(2)
        content = bytearray(wholes[place])
        for _ in range(random.randrange(3)):
            content[random.randrange(len(content))] = random.randrange(256)
        piece = bytes(content[: random.choice((len(content), random.randrange(len(content) + 1)))])
        try:
            if place:
                name, count = unpack_want(piece)
                assert 0 < len(name) <= 200
                assert 0 <= count <= MOST_WANTED
            else:
                loan = unpack_loan(piece, b"")
                assert 0 <= loan.ttl < 1 << 32
        except PeerError:
            continue
        read += 1
    assert 0 < read < FUZZED
