"""The frames about closed logs: what is packed is read again, and nothing else is accepted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqd.core.message.epoch import Epoch
from nsqd.protocols.peer.closed import (
    MOST_EPOCHS,
    Closed,
    is_kept,
    make_closed,
    pack_closed,
    pack_closed_kept,
    unpack_closed,
)
from nsqd.protocols.peer.frames import PeerError
from tests.cases import each
from tests.nsqd.protocols.peer.test_claims import EPOCHS, HEAD, LOG_IDS, POSITIONS

LOG = b"l" * 16
FIRST = Epoch(1, 0, bytes(8))


@given(LOG_IDS, st.lists(EPOCHS, min_size=1, max_size=4), st.lists(POSITIONS, min_size=5, max_size=5))
def test_what_was_packed_is_read(log_id: bytes, epochs: list[Epoch], positions: list[int]) -> None:
    *starts, end = sorted(positions)
    word = make_closed(log_id, end, list(zip(epochs, starts, strict=False)))
    assert unpack_closed(pack_closed(word)[HEAD:]) == word
    assert word.epoch == max(epochs)
    assert pack_closed_kept(log_id)[HEAD:] == log_id
    assert is_kept(log_id)
    assert not is_kept(pack_closed(word)[HEAD:])


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    try:
        unpack_closed(content)
    except PeerError:
        pass


def test_of_many_epochs_the_latest_are_told_and_more_are_refused() -> None:
    epochs = [(Epoch(number, 0, bytes(8)), number) for number in range(1, MOST_EPOCHS + 3)]
    word = make_closed(LOG, 10_000, epochs)
    assert word.epochs == tuple(epochs[2:])
    with pytest.raises(PeerError, match="whole"):
        unpack_closed(pack_closed(Closed(LOG, 10_000, tuple(epochs)))[HEAD:])


@each(
    "word",
    [
        Closed(LOG, 10, ((FIRST, 4), (FIRST, 3))),
        Closed(LOG, 10, ((FIRST, 11),)),
        Closed(LOG, 1 << 63, ((FIRST, 0),)),
        Closed(LOG, 10, ((Epoch(1, 1024, bytes(8)), 0),)),
    ],
)
def test_positions_and_numbers_that_no_log_has_are_refused(word: Closed) -> None:
    with pytest.raises(PeerError):
        unpack_closed(pack_closed(word)[HEAD:])
