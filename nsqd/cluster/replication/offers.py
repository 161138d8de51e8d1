"""What nodes have of a log, as one asks the other on a visit: what it offers, and the bytes of its replica.

    visitor   ASK_OFFERS  log id (NO_LOG: the lease alone is asked for)
    visited   OFFERS      [lease, offers]; nil for what it cannot say at present. An offer is [end, epochs, leader]
    visitor   FETCH       log id and position
    visited   FETCHED     [segment, offset, bytes], or nil: it has no replica that can be read

A visitor waits for the reply before its next request. Bytes that begin a segment
have the segment's header before them. At the end of the replica there are none.

See docs/contributing/design/cluster-protocol.md#visits.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from struct import Struct
from typing import Any, NamedTuple

import msgpack

from nsqd.cluster.replication.stream import checked_epochs
from nsqd.cluster.wire.fields import checked_int, checked_position, is_int, unpack_fields, unpack_message, unpack_struct
from nsqd.cluster.wire.frames import FrameKind, PeerError, encode
from nsqd.cluster.wire.node_identity import LOG_ID_SIZE, MOST_NUMBER
from nsqd.core.message.ids import MOST_LEASE
from nsqd.storage.log.followers import Followers
from nsqd.storage.log.records import HEADER_SIZE
from nsqd.storage.log.segments import SEGMENT_FILE

MOST_OFFERS = 1024  # of a log, by one node
MOST_EPOCHS = 10_000  # of a log
MOST_FETCHED = 512 * 1024  # bytes, at most
_FETCH = Struct(f">{LOG_ID_SIZE}sQ")


class TransferError(Exception):
    """A replica cannot be fetched. The text says why."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What another node has of a log: a replica, or the log itself, because it leads it."""

    address: str  # host:port at which that node is visited
    end: int
    epochs: tuple[tuple[bytes, int], ...]
    lease: int = 0  # message id below which this node may have issued ids, as that node knows it
    leader: int | None = None  # number of that node, if it says that it leads the log; None: it has a replica


class Fetched(NamedTuple):
    """Bytes of a replica, and where they belong."""

    segment: str  # name of the segment's file in a log
    offset: int  # of the bytes in it
    data: bytes

    @property
    def base(self) -> int | None:
        """Return the position at which the segment begins; None: its leader has rewritten it, so others have it otherwise."""
        match = SEGMENT_FILE.fullmatch(self.segment)
        return int(match[1]) if match is not None and match[2] == "0" else None


def is_enough(followers: Followers, replied: Collection[int]) -> bool:
    """Return True if the nodes that have replied include one with every publish that was acknowledged with n copies.

    `replied`: numbers of these nodes. Of k followers, n - 1 have such a publish, so k - n + 2 replies contain one of them.
    """
    return len(set(followers.numbers) & set(replied)) >= len(followers.numbers) - max(0, followers.fewest - 2)


# offers in the content of /cluster


def find_offers(address: str, figures: dict[str, Any], log_id: bytes, lease: int = 0) -> list[Offer] | None:
    """Return the replica of a log in what /cluster of a node shows, and the log itself if that node leads it.

    Of a log that is closed, it is what its leader had. None: neither can be read now. `lease`: see Offer.
    """
    replicas = [replica for replica in figures["replicas"] if replica["log_id"] == log_id.hex()]
    if any(replica["opening"] or replica["failure"] for replica in replicas):
        return None
    led = [one for one in (*figures["led"], *figures["closed"]) if one["log_id"] == log_id.hex()]
    led = [one for one in led if one.get("state") not in ("lost", "closed")]
    if any(one.get("opening") for one in led):
        return None
    return [
        *(_offer(address, one, one["written"] if one["complete"] else 0, lease) for one in replicas),
        *(_offer(address, one, one["end"], 0, one["node"]) for one in led),
    ]


def _offer(address: str, shown: dict[str, Any], end: int, lease: int, leader: int | None = None) -> Offer:
    return Offer(address, end, tuple((bytes.fromhex(epoch), at) for epoch, at in shown["epochs"]), lease, leader)


# the frames


def pack_ask(log_id: bytes) -> bytes:
    """Return the frame that asks what a node has of a log."""
    return encode(FrameKind.ASK_OFFERS, log_id)


def pack_offers(lease: int | None, offers: list[Offer] | None) -> bytes:
    """Return the frame of the answer; None: not known at present."""
    packed = None if offers is None else [[one.end, one.epochs, one.leader] for one in offers]
    return encode(FrameKind.OFFERS, msgpack.packb([lease, packed]))


def unpack_offers(address: str, content: bytes) -> tuple[int | None, list[Offer] | None]:
    """Return the lease and the offers in the reply of the node at `address`. Raises PeerError."""
    lease, offers = unpack_fields(content, 2, MOST_EPOCHS)
    if lease is not None:
        checked_int(lease, MOST_LEASE)
    if offers is None:
        return lease, None
    if not isinstance(offers, list) or len(offers) > MOST_OFFERS:
        raise PeerError("OFFERS has no list of offers")
    return lease, [_unpack_offer(address, fields, lease or 0) for fields in offers]


def _unpack_offer(address: str, fields: Any, lease: int) -> Offer:
    if not isinstance(fields, list) or len(fields) != 3:
        raise PeerError("an offer has three fields")
    end, leader = checked_position(fields[0]), fields[2]
    epochs = checked_epochs(fields[1])
    starts = [start for _, start in epochs]
    if starts != sorted(starts) or (leader is not None and (not is_int(leader, MOST_NUMBER) or not epochs)):
        raise PeerError("an offer is not that of a log")
    return Offer(address, end, tuple(epochs), lease if leader is None else 0, leader)


def pack_fetch(log_id: bytes, position: int) -> bytes:
    """Return the frame that asks for bytes of a replica, from a position on."""
    return encode(FrameKind.FETCH, _FETCH.pack(log_id, position))


def unpack_fetch(content: bytes) -> tuple[bytes, int]:
    """Return the log id and the position. Raises PeerError."""
    log_id, position = unpack_struct(FrameKind.FETCH, _FETCH, content)
    return log_id, position


def pack_fetched(fetched: Fetched | None) -> bytes:
    """Return the frame of the answer; None: there is no replica that can be read."""
    return encode(FrameKind.FETCHED, msgpack.packb(fetched))


def unpack_fetched(content: bytes) -> Fetched | None:
    """Return the fetched bytes, or None. Raises PeerError."""
    fields = unpack_message(content)
    if fields is None:
        return None
    if not isinstance(fields, list) or len(fields) != 3:
        raise PeerError("FETCHED has three fields")
    segment, offset, data = fields
    if type(segment) is not str or type(data) is not bytes or (data and SEGMENT_FILE.fullmatch(segment) is None):
        raise PeerError("FETCHED has no bytes of a segment")
    return Fetched(segment, checked_position(offset), data)


def following(fetched: Fetched) -> int:
    """Return the position that follows fetched bytes. Raises PeerError."""
    match = SEGMENT_FILE.fullmatch(fetched.segment)
    if match is None:
        raise PeerError("FETCHED has no segment")
    return int(match[1]) + max(0, fetched.offset + len(fetched.data) - HEADER_SIZE)
