"""The frames about closed logs: bounds and refused contents. test_fuzz.py tests packing and reading."""

import pytest

from nsqd.cluster.membership.closed_frames import (
    MOST_EPOCHS,
    Closed,
    is_kept,
    make_closed,
    pack_closed,
    pack_closed_kept,
    unpack_closed,
)
from nsqd.cluster.wire.frames import PeerError
from nsqd.core.message.epoch import Epoch
from tests.cases import each
from tests.nsqd.cluster.ownership.test_election_frames import HEAD

LOG = b"l" * 16
FIRST = Epoch(1, 0, bytes(8))


def test_a_log_has_its_latest_epoch_and_an_answer_is_only_its_id() -> None:
    word = make_closed(LOG, 9, [(FIRST, 0), (Epoch(2, 1, bytes(8)), 5)])
    assert word.epoch == Epoch(2, 1, bytes(8))
    assert not is_kept(pack_closed(word)[HEAD:])
    assert is_kept(pack_closed_kept(LOG)[HEAD:])


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
