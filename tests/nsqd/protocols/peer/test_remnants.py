"""The frame about remnants: what is packed is read again, and nothing else is accepted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqd.core.message.epoch import Epoch
from nsqd.protocols.peer.frames import PeerError
from nsqd.protocols.peer.remnants import Answer, Question, Verdict, pack_answer, pack_question, unpack
from tests.cases import each
from tests.nsqd.protocols.peer.test_claims import EPOCHS, HEAD, LOG_IDS, POSITIONS

LOG = b"l" * 16
FIRST = Epoch(1, 0, bytes(8))
SERIALS = st.integers(0, 2**32 - 1)


@given(
    SERIALS,
    LOG_IDS,
    POSITIONS,
    st.lists(EPOCHS, max_size=4),
    st.lists(POSITIONS, min_size=4, max_size=4),
    st.none() | POSITIONS,
    st.booleans(),
)
def test_what_was_packed_is_read(
    serial: int, log_id: bytes, end: int, epochs: list[Epoch], starts: list[int], taken: int | None, is_copied: bool
) -> None:
    told = tuple(zip(epochs, sorted(starts), strict=False))
    question = Question(serial, log_id, end, told, taken, is_copied)
    assert unpack(pack_question(question)[HEAD:]) == question


@given(SERIALS, LOG_IDS, st.sampled_from(Verdict), POSITIONS)
def test_an_answer_that_was_packed_is_read(serial: int, log_id: bytes, verdict: Verdict, start: int) -> None:
    answer = Answer(serial, log_id, verdict, start)
    assert unpack(pack_answer(answer)[HEAD:]) == answer


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    try:
        unpack(content)
    except PeerError:
        pass


@each(
    "question",
    [
        Question(1, LOG, 10, ((FIRST, 4), (FIRST, 3))),
        Question(1, LOG, 1 << 63, ((FIRST, 0),)),
        Question(1, LOG, 10, ((FIRST, 0),), 1 << 63),
        Question(1, LOG, 10, ((Epoch(1, 1024, bytes(8)), 0),)),
    ],
)
def test_positions_and_numbers_that_no_log_has_are_refused(question: Question) -> None:
    with pytest.raises(PeerError):
        unpack(pack_question(question)[HEAD:])


def test_an_unknown_verdict_is_refused() -> None:
    content = bytearray(pack_answer(Answer(1, LOG, Verdict.LET_GO))[HEAD:])
    content[1 + 4 + 16] = 9
    with pytest.raises(PeerError, match="verdict 9"):
        unpack(bytes(content))
