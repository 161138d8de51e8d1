"""The identity of a node, and its membership in the cluster."""

from __future__ import annotations

import re
from dataclasses import astuple, dataclass
from enum import IntEnum
from typing import Any

from nsqd.cluster.wire.fields import is_int
from nsqd.cluster.wire.frames import PeerError
from nsqd.core.message.id_ranges import MOST_RANGES, NO_END, IdRange

MOST_NUMBER = 1023  # node numbers are those of -node-id
FIELDS = 9  # of an identity
MOST_ADDRESS = 300  # characters: a host name has at most 253
MOST_ZONE = 100  # bytes
LOG_ID_SIZE, EPOCH_SIZE = 16, 14  # bytes
MOST_INCARNATION = (1 << 63) - 1
NO_LOG = bytes(LOG_ID_SIZE)  # the log id of a visitor, which has no incarnation either: no run of the node has begun
_ADDRESS = re.compile(r"[!-~]+:[1-9][0-9]{0,4}", re.ASCII)


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """One run of one node: its number, which run it is, the log that it publishes into, and where it is reached."""

    number: int
    incarnation: int  # greater than that of every earlier run of a node with this number
    log_id: bytes  # LOG_ID_SIZE bytes
    epoch: bytes  # the epoch of the log that began with this run, packed (docs/contributing/design/log.md#epochs)
    address: str  # host:port of -cluster-address
    http: str = ""  # host:port of its HTTP clients; "": it serves none
    zone: str = ""  # -topology-zone; "": none is known
    ids: tuple[IdRange, ...] = ()  # message ids that its log held at the start of the run, or may issue in it
    disque: str = ""  # host:port of its Disque clients; "": it serves none

    @property
    def is_visitor(self) -> bool:
        """Return True if it is a node that has not read its log: it only asks, or is asked, what nodes have of logs."""
        return self.incarnation == 0


def visitor(number: int, address: str) -> NodeIdentity:
    """Return the identity of a visitor. `address`: host:port of its -cluster-address."""
    return NodeIdentity(number, 0, NO_LOG, bytes(EPOCH_SIZE), address)


class Standing(IntEnum):
    """The standing of a node in the cluster. Of two records of one run, the greater standing is the later one."""

    MEMBER = 0
    LEFT = 1  # it has left permanently
    FORGOTTEN = 2  # an operator said that it will not come back


@dataclass(frozen=True, slots=True)
class Member:
    """The identity of a node, with its standing as a member."""

    node: NodeIdentity
    standing: Standing = Standing.MEMBER

    def is_later_than(self, other: Member) -> bool:
        """Return True if this record replaces the other one of the same node number."""
        return self._order() > other._order()

    def _order(self) -> tuple[object, ...]:
        # The standing is last: if the log of both records is forgotten, their order stays what it was.
        node = self.node
        place = node.address, node.http, node.zone, node.disque
        return node.incarnation, node.log_id, node.epoch, *place, node.ids, self.standing


def pack(identity: NodeIdentity) -> list[Any]:
    """Return the identity as a list for msgpack."""
    return list(astuple(identity))


def unpack(fields: Any) -> NodeIdentity:
    """Return the identity that a peer has sent. Raises PeerError."""
    if not isinstance(fields, list) or len(fields) != FIELDS:
        raise PeerError(f"an identity has {FIELDS} fields")
    number, incarnation, log_id, epoch, address, http, zone, ids, disque = fields
    if not is_int(number, MOST_NUMBER) or not is_int(incarnation, MOST_INCARNATION):
        raise PeerError("an identity's number or incarnation is not one")
    if type(log_id) is not bytes or type(epoch) is not bytes or (len(log_id), len(epoch)) != (LOG_ID_SIZE, EPOCH_SIZE):
        raise PeerError("an identity's log id or epoch is not one")
    if not is_address(address) or not all(one == "" or is_address(one) for one in (http, disque)):
        raise PeerError("an identity's address is not host:port")
    if not isinstance(zone, str) or len(zone.encode(errors="replace")) > MOST_ZONE or not zone.isprintable():
        raise PeerError("an identity's zone is not one")
    return NodeIdentity(number, incarnation, log_id, epoch, address, http, zone, _id_ranges(ids), disque)


def _id_ranges(fields: Any) -> tuple[IdRange, ...]:
    if not isinstance(fields, list) or len(fields) > MOST_RANGES:
        raise PeerError(f"an identity has up to {MOST_RANGES} ranges of message ids")
    for one in fields:
        if (
            not isinstance(one, list)
            or len(one) != len(IdRange._fields)
            or not all(is_int(part, NO_END) for part in one)
        ):
            raise PeerError("a range of message ids is not one")
    return tuple(IdRange(*one) for one in fields)


def is_address(text: object) -> bool:
    """Return True if this is the text host:port."""
    return type(text) is str and len(text) <= MOST_ADDRESS and _ADDRESS.fullmatch(text) is not None
