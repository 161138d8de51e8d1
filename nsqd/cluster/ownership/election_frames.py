"""The frames by which nodes elect who leads a log that lost its leader. All numbers are big-endian.

    IN_SYNC       from the leader of a log: its id, its epoch; the position from which on its followers are in sync, whether
                  the receiver has everything, and the numbers of the in-sync followers
    VOTE_REQUEST  the sender wants to lead a log: its id, a number for the next epoch, a serial number of the election, the
                  epoch that ends, the last epoch and the end of the sender's replica, how many ns ago its stream ended, and
                  a Stage
    VOTE_REPLY    the reply to a request: log id, number and serial of the election, the answer, the greatest number for
                  which the voter has voted, ns since its last contact with the leader, the last epoch and the end of its
                  replica, and the latest IN_SYNC that it has received from the leader of the epoch that ends

See docs/contributing/design/cluster-protocol.md#elections.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from struct import Struct

from nsqd.cluster.membership.leader_frames import NO_REPLICA, LogExtent, checked_epoch, checked_member
from nsqd.cluster.wire.fields import checked_position, unpack_struct
from nsqd.cluster.wire.frames import FrameKind, PeerError, encode
from nsqd.cluster.wire.node_identity import MOST_NUMBER
from nsqd.core.message.epoch import Epoch

MOST_NAMED = 16  # followers of a log: nsqd.storage.log.followers.MOST
NEVER = (1 << 64) - 1  # in place of ns: no contact with the leader
_IN_SYNC = Struct(">16s14sQ?")
_VOTE_REQUEST = Struct(">16sII14s14sQQB")
_VOTE_REPLY = Struct(">16sIIBIQ14sQ")
_NAMED = Struct(">H")


class Stage(IntEnum):
    """The stage of an election, and why a replica that may lack messages is enough for it."""

    CLEAN = 0  # the sender asks for votes; as far as it knows, its replica has all acknowledged messages
    UNCLEAN = 1  # it asks for votes though its replica may lack messages
    ORDERED = 2  # the same, on an operator's order
    PROMOTING = 3  # it has won, and promotes the log; announced every second


class Answer(IntEnum):
    """The answer of a voter to a request."""

    GRANTED = 0  # it has voted, durably: it grants no lower number, and this one to no other node
    IN_CONTACT = 1  # it is in contact with the leader, or waits for a restart that the leader has announced
    LONGER = 2  # its own replica is longer: it is a candidate itself
    TAKEN = 3  # it has granted this number to another node, or a greater one
    LED = 4  # it knows a greater epoch, which it sends
    PROMOTING = 5  # another node has the votes, and promotes the log
    # the number is too far above what is known, so it grants a lower one; or it cannot write, leaves, or opens its replica
    CANNOT = 6


@dataclass(frozen=True, slots=True)
class InSyncReplicas:
    """The in-sync followers of a log, as its leader reports them."""

    log_id: bytes
    epoch: Epoch  # the leader's
    position: int  # end of the log when they began to count
    named: frozenset[int]  # numbers of their nodes
    is_whole: bool  # the receiver has all of the log, and keeps up


@dataclass(frozen=True, slots=True)
class VoteRequest:
    """The request of a candidate for a vote."""

    log_id: bytes
    number: int  # of the next epoch
    serial: int  # counts up in each node; the answer repeats it
    lost: Epoch  # which ends
    replica: LogExtent
    ended: int  # ns since the leader's bytes ended; NEVER: they did not
    stage: Stage


@dataclass(frozen=True, slots=True)
class VoteReply:
    """The reply of a voter, with what it knows of the log."""

    log_id: bytes
    number: int
    serial: int
    answer: Answer
    voted: int = 0  # the greatest number for which the voter has voted; 0: none
    contact_age: int = NEVER  # ns since the voter's last contact with the leader
    replica: LogExtent = NO_REPLICA
    in_sync: InSyncReplicas | None = None


def pack_in_sync(in_sync: InSyncReplicas) -> bytes:
    """Return the frame with the in-sync followers."""
    return encode(FrameKind.IN_SYNC, _in_sync(in_sync))


def unpack_in_sync(content: bytes) -> InSyncReplicas:
    """Return the in-sync followers. Raises PeerError."""
    if len(content) < _IN_SYNC.size or (len(content) - _IN_SYNC.size) % _NAMED.size:
        raise PeerError("IN_SYNC is not whole")
    log_id, epoch, position, is_whole = _IN_SYNC.unpack_from(content)
    numbers = [number for (number,) in _NAMED.iter_unpack(content[_IN_SYNC.size :])]
    if len(numbers) > MOST_NAMED or any(number > MOST_NUMBER for number in numbers):
        raise PeerError("IN_SYNC names too many followers, or a number that no node has")
    return InSyncReplicas(log_id, checked_epoch(epoch), checked_position(position), frozenset(numbers), is_whole)


def pack_vote_request(request: VoteRequest) -> bytes:
    """Return the frame of a vote request."""
    epoch, end = request.replica
    head = request.log_id, request.number, request.serial, request.lost.pack()
    return encode(FrameKind.VOTE_REQUEST, _VOTE_REQUEST.pack(*head, epoch.pack(), end, request.ended, request.stage))


def unpack_vote_request(content: bytes) -> VoteRequest:
    """Return the vote request of a peer. Raises PeerError."""
    fields = unpack_struct(FrameKind.VOTE_REQUEST, _VOTE_REQUEST, content)
    log_id, number, serial, lost, epoch, end, ended, stage = fields
    replica = LogExtent(checked_epoch(epoch), checked_position(end))
    return VoteRequest(log_id, number, serial, checked_epoch(lost), replica, ended, checked_member(Stage, stage))


def pack_vote_reply(reply: VoteReply) -> bytes:
    """Return the frame of a reply."""
    epoch, end = reply.replica
    contact_age = min(reply.contact_age, NEVER)
    fields = reply.log_id, reply.number, reply.serial, reply.answer, reply.voted, contact_age, epoch.pack(), end
    in_sync = _in_sync(reply.in_sync) if reply.in_sync is not None else b""
    return encode(FrameKind.VOTE_REPLY, _VOTE_REPLY.pack(*fields) + in_sync)


def unpack_vote_reply(content: bytes) -> VoteReply:
    """Return the reply of a peer. Raises PeerError."""
    if len(content) < _VOTE_REPLY.size:
        raise PeerError("VOTE_REPLY is not whole")
    log_id, number, serial, answer, voted, contact_age, epoch, end = _VOTE_REPLY.unpack_from(content)
    rest = content[_VOTE_REPLY.size :]
    in_sync = unpack_in_sync(rest) if rest else None
    if in_sync is not None and in_sync.log_id != log_id:
        raise PeerError("VOTE_REPLY is about two logs")
    replica = LogExtent(checked_epoch(epoch), checked_position(end))
    return VoteReply(log_id, number, serial, checked_member(Answer, answer), voted, contact_age, replica, in_sync)


def _in_sync(in_sync: InSyncReplicas) -> bytes:
    head = _IN_SYNC.pack(in_sync.log_id, in_sync.epoch.pack(), in_sync.position, in_sync.is_whole)
    return head + b"".join(map(_NAMED.pack, sorted(in_sync.named)))
