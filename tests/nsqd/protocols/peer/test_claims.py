"""The frames about who owns which log: what is packed is read again, and nothing else is accepted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nsqd.core.message.epoch import MOST_NUMBER as MOST_EPOCH
from nsqd.core.message.epoch import Epoch
from nsqd.protocols.peer import claims
from nsqd.protocols.peer.claims import Answer, Claim, Counts, Extent, Hold, Owned, Stage, Vote
from nsqd.protocols.peer.frames import PeerError
from tests.cases import each

HEAD = 5  # bytes of a frame before its content
EPOCHS = st.builds(Epoch, st.integers(0, MOST_EPOCH), st.integers(0, 1023), st.binary(min_size=8, max_size=8))
LOG_IDS = st.binary(min_size=16, max_size=16)
POSITIONS = st.integers(0, claims.MOST_POSITION)
NUMBERS, NS = st.integers(0, MOST_EPOCH), st.integers(0, claims.NEVER)
EXTENTS = st.builds(Extent, EPOCHS, POSITIONS)
NAMED = st.frozensets(st.integers(0, 1023), max_size=claims.MOST_NAMED)


def counts(log_ids: st.SearchStrategy[bytes]) -> st.SearchStrategy[Counts]:
    return st.builds(Counts, log_ids, EPOCHS, POSITIONS, NAMED, st.booleans())


CLAIMS = st.builds(Claim, LOG_IDS, NUMBERS, NUMBERS, EPOCHS, EXTENTS, NS, st.sampled_from(Stage))
VOTES = LOG_IDS.flatmap(
    lambda one: st.builds(
        Vote,
        st.just(one),
        NUMBERS,
        NUMBERS,
        st.sampled_from(Answer),
        NUMBERS,
        NS,
        EXTENTS,
        st.none() | counts(st.just(one)),
    )
)
UNPACK = (claims.unpack_owners, claims.unpack_counts, claims.unpack_claim, claims.unpack_vote)


@given(st.lists(st.builds(Owned, LOG_IDS, EPOCHS, st.sampled_from(Hold)), max_size=3), counts(LOG_IDS), CLAIMS, VOTES)
def test_what_was_packed_is_read(words: list[Owned], counted: Counts, claim: Claim, vote: Vote) -> None:
    assert claims.unpack_owners(claims.pack_owners(words)[HEAD:]) == words
    assert claims.unpack_counts(claims.pack_counts(counted)[HEAD:]) == counted
    assert claims.unpack_claim(claims.pack_claim(claim)[HEAD:]) == claim
    assert claims.unpack_vote(claims.pack_vote(vote)[HEAD:]) == vote


@given(st.binary(max_size=200), st.sampled_from(UNPACK))
def test_any_bytes_are_read_or_refused(content: bytes, unpack: object) -> None:
    try:
        unpack(content)  # type: ignore[operator]
    except PeerError:
        pass


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
