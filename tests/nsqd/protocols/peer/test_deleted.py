"""The frame about deletions: what is packed is read again, and nothing else is accepted."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqd.core.message.deletion import MOST_DELETIONS, Deletion, DeletionKind, LogDeletions
from nsqd.core.message.epoch import Epoch
from nsqd.protocols.peer.deleted import is_kept, pack_content, pack_deleted, pack_deleted_kept, unpack_deleted
from nsqd.protocols.peer.frames import AFTER_PROOF, PeerError
from tests.cases import each
from tests.effort import tries
from tests.nsqd.protocols.peer.test_claims import EPOCHS, HEAD, LOG_IDS, POSITIONS

LOG = b"l" * 16
FIRST = Epoch(1, 0, bytes(8))
NUMBERS, ORDINALS = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
DELETIONS = st.builds(Deletion, st.sampled_from(DeletionKind), NUMBERS, NUMBERS, ORDINALS)
ONE = Deletion(DeletionKind.CHANNEL_EMPTIED, 1, 2, 3)
FUZZED = tries(20000)


@given(LOG_IDS, EPOCHS, POSITIONS, st.lists(DELETIONS, min_size=1, max_size=5))
def test_what_was_packed_is_read(log_id: bytes, epoch: Epoch, position: int, deletions: list[Deletion]) -> None:
    word = LogDeletions(epoch, position, tuple(deletions))
    content = pack_deleted(log_id, word)[HEAD:]
    assert unpack_deleted(content) == (log_id, word)
    assert not is_kept(content)
    assert is_kept(pack_deleted_kept(log_id)[HEAD:])


def test_any_bytes_are_read_or_refused() -> None:
    random = Random(1)
    whole = pack_content(LOG, LogDeletions(FIRST, 9, (ONE, ONE)))
    read = 0
    for _ in range(FUZZED):
        content = bytearray(whole)
        for _ in range(random.randrange(3)):
            content[random.randrange(len(content))] = random.randrange(256)
        piece = bytes(content[: random.choice((len(content), random.randrange(len(content) + 1)))])
        piece += random.randbytes(random.choice((0, 0, 1, 17)))
        try:
            log_id, word = unpack_deleted(piece)
        except PeerError:
            continue
        assert pack_content(log_id, word) == piece
        read += 1
    assert 0 < read < FUZZED


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
