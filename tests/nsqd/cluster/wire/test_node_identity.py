"""An identity is read as it was sent; anything else is refused by its rule, and raises nothing else."""

from typing import Any

import pytest

from nsqd.cluster.wire.fields import unpack_message
from nsqd.cluster.wire.frames import PeerError
from nsqd.cluster.wire.node_identity import pack, unpack
from tests.cases import each
from tests.nsqd.cluster.wire.identities import node


@each("place, value", [
    (0, 1024), (0, -1), (0, True), (0, "7"), (0, 7.0), (1, -1), (1, 2**63), (1, None), (2, b"short"), (2, "x" * 16),
    (3, bytes(13)), (3, None), (4, -1), (4, 65536), (5, ""), (5, "x" * 301), (5, b"host:1"), (5, "host:1\n"),
    (7, None), (7, [[1, 2]]), (7, [[1, 2, 1 << 48, 4]]), (7, [[1, -1, 2]]), (7, [[1, 0, (1 << 48) + 1]]),
    (7, [[1, 0, 2]] * 7),
])  # fmt: skip
def test_a_field_that_cannot_be_right_is_refused(place: int, value: Any) -> None:
    fields = pack(node(7))
    fields[place] = value
    with pytest.raises(PeerError):
        unpack(fields)


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(PeerError):
        unpack_message(b"\x91" * 1000)
