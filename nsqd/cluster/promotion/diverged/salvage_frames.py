"""The frame about diverged copies, in two forms. All numbers are big-endian.

    SALVAGE  a request: how much may the sender salvage of its diverged copy? A serial number, the id of the log,
             the copy's end, the position from which on the sender has salvaged it already, whether the log made of that is
             copied, and the copy's epochs, each with the position at which it begins
    SALVAGE  the reply of the log's leader: the serial number of the request, the id of the log, a decision, and a position

See docs/contributing/design/cluster-protocol.md#diverged-copies.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from nsqd.cluster.membership.leader_frames import MOST_POSITION
from nsqd.cluster.wire.frames import FrameKind, PeerError, encode
from nsqd.cluster.wire.node_identity import MOST_NUMBER
from nsqd.core.message.epoch import SIZE, Epoch
from nsqd.core.message.epoch import unpack as unpack_epoch

MOST_EPOCHS = 20_000  # of one copy: a frame has space for twice as many
_QUESTION, _ANSWER = 0, 1  # the first byte
_NOT_TAKEN = (1 << 64) - 1
_ASK, _EPOCH = Struct(">BI16sQQ?"), Struct(f">{SIZE}sQ")
_TELL = Struct(">BI16sBQ")


class Verdict(IntEnum):
    """The leader's decision about a diverged copy of its log."""

    WAIT = 0  # keep it, and ask again
    SALVAGE = 1  # salvage it from the position on, and ask again
    LET_GO = 2  # remove it: no node needs it


class Question(NamedTuple):
    """A request about a diverged copy."""

    serial: int  # counts up in each node; the reply repeats it
    log_id: bytes
    end: int  # position at which the copy ends
    epochs: tuple[tuple[Epoch, int], ...]  # with the position at which each begins, ascending
    taken_from: int | None = None  # the copy was salvaged from this position on; None: it was not
    is_copied: bool = False  # the log made of that has as many copies as the log's publishes asked for, or is closed


class Answer(NamedTuple):
    """The reply of the leader of the log."""

    serial: int
    log_id: bytes
    verdict: Verdict
    start: int = 0  # of SALVAGE: position up to which others have the copy's bytes


def pack_question(question: Question) -> bytes:
    """Return the frame of a request."""
    taken = _NOT_TAKEN if question.taken_from is None else question.taken_from
    head = _ASK.pack(_QUESTION, question.serial, question.log_id, question.end, taken, question.is_copied)
    epochs = [_EPOCH.pack(epoch.pack(), start) for epoch, start in question.epochs[-MOST_EPOCHS:]]
    return encode(FrameKind.SALVAGE, b"".join((head, *epochs)))


def pack_answer(answer: Answer) -> bytes:
    """Return the frame of a reply."""
    return encode(FrameKind.SALVAGE, _TELL.pack(_ANSWER, *answer))


def unpack(content: bytes) -> Question | Answer:
    """Return a peer's request or reply. Raises PeerError."""
    if content[:1] == bytes((_ANSWER,)) and len(content) == _TELL.size:
        _, serial, log_id, verdict, start = _TELL.unpack(content)
        if verdict not in list(Verdict):
            raise PeerError(f"the decision {verdict} is not known")
        return Answer(serial, log_id, Verdict(verdict), _position(start))
    size = len(content) - _ASK.size
    if content[:1] != bytes((_QUESTION,)) or not 0 <= size <= MOST_EPOCHS * _EPOCH.size or size % _EPOCH.size:
        raise PeerError("SALVAGE is not whole")
    _, serial, log_id, end, taken, is_copied = _ASK.unpack_from(content)
    epochs = tuple((unpack_epoch(epoch), start) for epoch, start in _EPOCH.iter_unpack(content[_ASK.size :]))
    starts = [start for _, start in epochs]
    if starts != sorted(starts) or any(epoch.node > MOST_NUMBER for epoch, _ in epochs):
        raise PeerError("the epochs of a copy are not those of a log")
    taken_from = None if taken == _NOT_TAKEN else _position(taken)
    return Question(serial, log_id, _position(end), epochs, taken_from, is_copied)


def _position(value: int) -> int:
    if value > MOST_POSITION:
        raise PeerError("a position is not one")
    return value
