"""The frames by which nodes elect who owns a log that lost its owner. All numbers are big-endian.

    COUNTS   from the owner of a log: its id, its epoch; the position from which on the followers that follow count, whether the
             receiver has everything, and the numbers of the followers
    CLAIM    the sender wants to own a log: its id, a number for the next epoch, a serial number of the claim, the epoch that
             ends, the last epoch and the end of the sender's replica, how many ns ago its stream ended, and a Stage
    VOTE     the answer to a claim: log id, number and serial of the claim, the answer, the greatest number that the voter has
             promised, how many ns ago it heard the owner, the last epoch and the end of its replica, and the latest COUNTS that
             it was told by the owner of the epoch that ends

See docs/design/cluster.md#claims.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from struct import Struct

from nsqd.cluster.membership.leader_frames import NO_REPLICA, Extent, checked_epoch, checked_member, checked_position
from nsqd.cluster.wire.frames import FrameKind, PeerError, encode
from nsqd.cluster.wire.node_identity import MOST_NUMBER
from nsqd.core.message.epoch import Epoch

MOST_NAMED = 16  # followers of a log: nsqd.storage.log.followers.MOST
NEVER = (1 << 64) - 1  # in place of ns: the owner was not heard
_COUNTS = Struct(">16s14sQ?")
_CLAIM = Struct(">16sII14s14sQQB")
_VOTE = Struct(">16sIIBIQ14sQ")
_NAMED = Struct(">H")


class Stage(IntEnum):
    """How far a claim is, and why a replica that may lack something is enough for it."""

    CLEAN = 0  # the sender asks for promises; as far as it knows, its replica has all that was acknowledged
    UNCLEAN = 1  # it asks for promises though its replica may lack something
    ORDERED = 2  # likewise, because an operator says so
    PROMOTING = 3  # it has the promises, and promotes the log; said every second


class Answer(IntEnum):
    """What a voter answers to a claim."""

    PROMISED = 0  # it promises, durably, to promise no lower number to anybody and this one to nobody else
    HEARD = 1  # it hears the owner, or waits for a restart that the owner has announced
    LONGER = 2  # its own replica is longer: it claims itself
    TAKEN = 3  # it has promised this number to another node, or a greater one
    OWNED = 4  # it knows a greater epoch, of which it tells
    PROMOTING = 5  # another node has its promises, and promotes the log
    CANNOT = 6  # the number is too far above what is known, so it promises less; or it cannot write, or leaves


@dataclass(frozen=True, slots=True)
class Counts:
    """Which followers of a log count, as its owner tells."""

    log_id: bytes
    epoch: Epoch  # the owner's
    position: int  # end of the log when these began to count
    named: frozenset[int]  # numbers of their nodes
    is_whole: bool  # the receiver has all of the log, and keeps up


@dataclass(frozen=True, slots=True)
class Claim:
    """A node's wish to own a log."""

    log_id: bytes
    number: int  # of the next epoch
    serial: int  # counts up in each node; the answer repeats it
    lost: Epoch  # which ends
    replica: Extent
    ended: int  # ns since the owner's bytes ended; NEVER: they did not
    stage: Stage


@dataclass(frozen=True, slots=True)
class Vote:
    """What a voter answers to a claim, and what it knows of the log."""

    log_id: bytes
    number: int
    serial: int
    answer: Answer
    promised: int = 0  # the greatest number that the voter has promised; 0: none
    heard: int = NEVER  # ns since the voter heard the owner
    replica: Extent = NO_REPLICA
    counts: Counts | None = None


def pack_counts(counts: Counts) -> bytes:
    """Return the frame that tells which followers count."""
    return encode(FrameKind.COUNTS, _counts(counts))


def unpack_counts(content: bytes) -> Counts:
    """Return which followers count. Raises PeerError."""
    if len(content) < _COUNTS.size or (len(content) - _COUNTS.size) % _NAMED.size:
        raise PeerError("COUNTS is not whole")
    log_id, epoch, position, is_whole = _COUNTS.unpack_from(content)
    numbers = [number for (number,) in _NAMED.iter_unpack(content[_COUNTS.size :])]
    if len(numbers) > MOST_NAMED or any(number > MOST_NUMBER for number in numbers):
        raise PeerError("COUNTS names too many followers, or a number that no node has")
    return Counts(log_id, checked_epoch(epoch), checked_position(position), frozenset(numbers), is_whole)


def pack_claim(claim: Claim) -> bytes:
    """Return the frame of a claim."""
    epoch, end = claim.replica
    head = claim.log_id, claim.number, claim.serial, claim.lost.pack()
    return encode(FrameKind.CLAIM, _CLAIM.pack(*head, epoch.pack(), end, claim.ended, claim.stage))


def unpack_claim(content: bytes) -> Claim:
    """Return the claim that a peer has sent. Raises PeerError."""
    if len(content) != _CLAIM.size:
        raise PeerError("CLAIM is not whole")
    log_id, number, serial, lost, epoch, end, ended, stage = _CLAIM.unpack(content)
    replica = Extent(checked_epoch(epoch), checked_position(end))
    return Claim(log_id, number, serial, checked_epoch(lost), replica, ended, checked_member(Stage, stage))


def pack_vote(vote: Vote) -> bytes:
    """Return the frame of an answer."""
    epoch, end = vote.replica
    heard = min(vote.heard, NEVER)
    fields = vote.log_id, vote.number, vote.serial, vote.answer, vote.promised, heard, epoch.pack(), end
    counts = _counts(vote.counts) if vote.counts is not None else b""
    return encode(FrameKind.VOTE, _VOTE.pack(*fields) + counts)


def unpack_vote(content: bytes) -> Vote:
    """Return the answer that a peer has sent. Raises PeerError."""
    if len(content) < _VOTE.size:
        raise PeerError("VOTE is not whole")
    log_id, number, serial, answer, promised, heard, epoch, end = _VOTE.unpack_from(content)
    rest = content[_VOTE.size :]
    counts = unpack_counts(rest) if rest else None
    if counts is not None and counts.log_id != log_id:
        raise PeerError("VOTE is about two logs")
    replica = Extent(checked_epoch(epoch), checked_position(end))
    return Vote(log_id, number, serial, checked_member(Answer, answer), promised, heard, replica, counts)


def _counts(counts: Counts) -> bytes:
    head = _COUNTS.pack(counts.log_id, counts.epoch.pack(), counts.position, counts.is_whole)
    return head + b"".join(map(_NAMED.pack, sorted(counts.named)))
