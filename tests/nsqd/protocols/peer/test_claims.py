"""The frames about who owns which log: refused contents. test_fuzz.py tests packing and reading."""

import pytest

from nsqd.core.message.epoch import Epoch
from nsqd.protocols.peer import claims
from nsqd.protocols.peer.claims import Answer, Counts, Owned, Vote
from nsqd.protocols.peer.frames import PeerError
from tests.cases import each

HEAD = 5  # bytes of a frame before its content


EPOCH = Epoch(1, 2, bytes(8))
LOG_ID = bytes(range(16))


@each(
    "unpack, content",
    [
        (claims.unpack_owners, claims.pack_owners([Owned(LOG_ID, Epoch(1, 1024, bytes(8)))])[HEAD:]),
        (claims.unpack_owners, claims.pack_owners([Owned(LOG_ID, EPOCH)])[HEAD:-1] + b"\x09"),
        (claims.unpack_owners, bytes(31)[1:]),
        (claims.unpack_owners, bytes(31 * (claims.MOST_LOGS + 1))),
        (claims.unpack_counts, claims.pack_counts(Counts(LOG_ID, EPOCH, 0, frozenset(range(17)), True))[HEAD:]),
        (claims.unpack_counts, claims.pack_counts(Counts(LOG_ID, EPOCH, 0, frozenset({1024}), True))[HEAD:]),
        (claims.unpack_counts, claims.pack_counts(Counts(LOG_ID, EPOCH, 1 << 63, frozenset(), True))[HEAD:]),
        (
            claims.unpack_vote,
            claims.pack_vote(Vote(LOG_ID, 1, 1, Answer.HEARD, counts=Counts(bytes(16), EPOCH, 0, frozenset(), True)))[
                HEAD:
            ],
        ),
        (claims.unpack_claim, b""),
    ],
)
def test_what_is_not_one_is_refused(unpack: object, content: bytes) -> None:
    with pytest.raises(PeerError):
        unpack(content)  # type: ignore[operator]
