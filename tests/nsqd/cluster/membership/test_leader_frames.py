"""The frame about who leads which log: refused contents. tests/nsqd/cluster/wire/test_fuzz.py tests packing and reading."""

import pytest

from nsqd.cluster.membership.leader_frames import MOST_LOGS, Leadership, pack_leaders, unpack_leaders
from nsqd.cluster.wire.frames import PeerError
from nsqd.core.message.epoch import Epoch
from tests.cases import each

HEAD = 5  # bytes of a frame before its content
LOG_ID = bytes(range(16))


@each(
    "content",
    [
        pack_leaders([Leadership(LOG_ID, Epoch(1, 1024, bytes(8)))])[HEAD:],
        pack_leaders([Leadership(LOG_ID, Epoch(1, 2, bytes(8)))])[HEAD:-1] + b"\x09",
        bytes(31)[1:],
        bytes(31 * (MOST_LOGS + 1)),
    ],
)
def test_what_is_no_list_of_logs_is_refused(content: bytes) -> None:
    with pytest.raises(PeerError):
        unpack_leaders(content)
