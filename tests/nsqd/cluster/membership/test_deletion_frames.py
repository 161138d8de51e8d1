"""The frame about deletions: bounds and refused contents. test_fuzz.py tests packing and reading."""

import pytest

from nsqd.cluster.membership.deletion_frames import (
    is_kept,
    pack_content,
    pack_deleted,
    pack_deleted_kept,
    unpack_deleted,
)
from nsqd.cluster.wire.frames import AFTER_PROOF, PeerError
from nsqd.core.message.deletion import MOST_DELETIONS, Deletion, DeletionKind, LogDeletions
from nsqd.core.message.epoch import Epoch
from tests.cases import each
from tests.nsqd.cluster.ownership.test_election_frames import HEAD

LOG = b"l" * 16
FIRST = Epoch(1, 0, bytes(8))
ONE = Deletion(DeletionKind.CHANNEL_EMPTIED, 1, 2, 3)


def test_an_answer_is_only_the_id_of_the_log() -> None:
    assert not is_kept(pack_deleted(LOG, LogDeletions(FIRST, 9, (ONE,)))[HEAD:])
    assert is_kept(pack_deleted_kept(LOG)[HEAD:])


def test_more_deletions_than_a_log_may_have_are_not_told_and_refused() -> None:
    most = LogDeletions(FIRST, 9, (ONE,) * (MOST_DELETIONS + 1))
    frame = pack_deleted(LOG, most)
    assert len(unpack_deleted(frame[HEAD:])[1].deletions) == MOST_DELETIONS
    assert len(frame) < AFTER_PROOF
    with pytest.raises(PeerError, match="whole"):
        unpack_deleted(frame[HEAD:] + frame[-17:])


@each(
    "word, why",
    [
        (LogDeletions(FIRST, 9, ()), "whole"),
        (LogDeletions(FIRST, 1 << 63, (ONE,)), "no log has"),
        (LogDeletions(FIRST._replace(node=1024), 9, (ONE,)), "no log has"),
        (LogDeletions(FIRST, 9, (Deletion(9, 1),)), "kind"),  # type: ignore[arg-type]
    ],
)
def test_what_no_log_has_is_refused(word: LogDeletions, why: str) -> None:
    with pytest.raises(PeerError, match=why):
        unpack_deleted(pack_content(LOG, word))
