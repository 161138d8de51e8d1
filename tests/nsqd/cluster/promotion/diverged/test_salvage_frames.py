"""The frame about diverged copies: refused contents. test_fuzz.py tests packing and reading."""

import pytest

from nsqd.cluster.promotion.diverged.salvage_frames import Answer, Question, Verdict, pack_answer, pack_question, unpack
from nsqd.cluster.wire.frames import PeerError
from nsqd.core.message.epoch import Epoch
from tests.cases import each
from tests.nsqd.cluster.ownership.test_election_frames import HEAD

LOG = b"l" * 16
FIRST = Epoch(1, 0, bytes(8))


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


def test_an_unknown_decision_is_refused() -> None:
    content = bytearray(pack_answer(Answer(1, LOG, Verdict.LET_GO))[HEAD:])
    content[1 + 4 + 16] = 9
    with pytest.raises(PeerError, match="decision 9"):
        unpack(bytes(content))
