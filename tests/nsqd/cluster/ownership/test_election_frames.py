"""The frames of elections: refused contents. test_fuzz.py tests packing and reading."""

import pytest

from nsqd.cluster.ownership import election_frames as elections
from nsqd.cluster.ownership.election_frames import Answer, InSyncReplicas, VoteReply
from nsqd.cluster.wire.frames import PeerError
from nsqd.core.message.epoch import Epoch
from tests.cases import each

HEAD = 5  # bytes of a frame before its content


EPOCH = Epoch(1, 2, bytes(8))
LOG_ID = bytes(range(16))


@each(
    "unpack, content",
    [
        (
            elections.unpack_in_sync,
            elections.pack_in_sync(InSyncReplicas(LOG_ID, EPOCH, 0, frozenset(range(17)), True))[HEAD:],
        ),
        (
            elections.unpack_in_sync,
            elections.pack_in_sync(InSyncReplicas(LOG_ID, EPOCH, 0, frozenset({1024}), True))[HEAD:],
        ),
        (
            elections.unpack_in_sync,
            elections.pack_in_sync(InSyncReplicas(LOG_ID, EPOCH, 1 << 63, frozenset(), True))[HEAD:],
        ),
        (
            elections.unpack_vote_reply,
            elections.pack_vote_reply(
                VoteReply(LOG_ID, 1, 1, Answer.HEARD, in_sync=InSyncReplicas(bytes(16), EPOCH, 0, frozenset(), True))
            )[HEAD:],
        ),
        (elections.unpack_vote_request, b""),
    ],
)
def test_what_is_not_one_is_refused(unpack: object, content: bytes) -> None:
    with pytest.raises(PeerError):
        unpack(content)  # type: ignore[operator]
