"""The frames by which nodes lend each other jobs, and send each other commands about jobs.

| frame | content, in msgpack unless it says otherwise |
|---|---|
| WANT | name of a queue; how many clients of the sender wait for its jobs |
| BODY | bytes: a part of the body of the next LOAN |
| LOAN | number of the loan, queue, message id, ttl, retry, reservation, nacks, deliveries, rest of headers and body, times |
| TOOK | number of the last loan that came; one byte more: its client has the job only until it disconnects |
| RETURN | number of the loan, message id, reservation; whether a client had the job, and is gone: else no client waited |
| ASK | number of the request; size and text of the rights of the client (Rights.dump); bytes: a command of Disque, as clients
  send it, or reservation and command of beanstalkd |
| SAID | number of the request; bytes: the reply, as clients get it |

The times of a LOAN: when it was lent (monotonic), and when it ends. See docs/contributing/design/cluster-protocol.md#lending.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

import msgpack

from nsqd.cluster.wire.fields import checked_int, unpack_fields
from nsqd.cluster.wire.frames import FrameKind, PeerError, encode
from nsqd.core.work_queue.loan import Loan

MOST_NAME = 200  # characters of the name of a queue
MOST_WANTED = 1024  # clients in a WANT
MOST_PART = 256 * 1024  # bytes of a body in one frame
MOST_REPLY = 512 * 1024  # bytes
LOAN_FIELDS = 11
_U32, _U64 = (1 << 32) - 1, (1 << 64) - 1
_NUMBER, _SIZE = Struct(">Q"), Struct(">I")


def pack_want(queue: str, count: int) -> bytes:
    """Return the frame with the number of clients that wait for jobs of a queue."""
    return encode(FrameKind.WANT, msgpack.packb([queue, min(count, MOST_WANTED)]))


def unpack_want(content: bytes) -> tuple[str, int]:
    """Return the name of the queue, and how many clients wait. Raises PeerError."""
    queue, count = unpack_fields(content, 2, 2)
    return _queue(queue), checked_int(count, MOST_WANTED)


def pack_loan(loan: Loan) -> Iterator[bytes]:
    """Yield the frames of a loan, BODYs and then LOAN."""
    at, last = 0, max(0, len(loan.content) - MOST_PART)
    while at < last:
        yield encode(FrameKind.BODY, loan.content[at : at + MOST_PART])
        at += MOST_PART
    place = loan.number, loan.queue, loan.message_id
    counts = loan.ttl, loan.retry, loan.reservation, loan.nacks, loan.additional_deliveries
    yield encode(FrameKind.LOAN, msgpack.packb([*place, *counts, loan.content[at:], loan.lent, loan.ends]))


def unpack_loan(content: bytes, before: bytes) -> Loan:
    """Return the loan in a LOAN frame. `before`: the parts of its body in BODY frames. Raises PeerError."""
    number, queue, message_id, *counts, body, lent, ends = unpack_fields(content, LOAN_FIELDS, LOAN_FIELDS)
    times = checked_int(lent, _U64), checked_int(ends, _U64)
    if type(body) is not bytes:
        raise PeerError("the body of a loan is not bytes")
    ttl, retry, reservation, nacks, more = (checked_int(one, _U32) for one in counts)
    place = checked_int(number, _U64), _queue(queue), checked_int(message_id, _U64)
    return Loan(*place, ttl, retry, reservation, nacks, more, before + body, *times)


def pack_return(loan: Loan, was_taken: bool) -> bytes:
    """Return the frame that gives a lent job back. `was_taken`: a client had it, and is gone."""
    return encode(FrameKind.RETURN, msgpack.packb([loan.number, loan.message_id, loan.reservation, was_taken]))


def unpack_return(content: bytes) -> tuple[int, int, int, bool]:
    """Return number of the loan, message id, reservation, and whether a client had the job. Raises PeerError."""
    number, message_id, reservation, was_taken = unpack_fields(content, 4, 4)
    if type(was_taken) is not bool:
        raise PeerError("a frame about jobs has a field of another kind")
    return checked_int(number, _U64), checked_int(message_id, _U64), checked_int(reservation, _U32), was_taken


def pack_number(kind: FrameKind, number: int, data: bytes = b"") -> bytes:
    """Return a frame that begins with a number: TOOK, ASK or SAID."""
    return encode(kind, _NUMBER.pack(number) + data)


def pack_ask(number: int, rights: bytes, request: bytes) -> bytes:
    """Return the frame that asks for a command of a client. `rights`: on which tubes it may have that done."""
    return pack_number(FrameKind.ASK, number, _SIZE.pack(len(rights)) + rights + request)


def unpack_ask(content: bytes) -> tuple[int, bytes, bytes]:
    """Return the number of the request, the rights of the client, and the command. Raises PeerError."""
    number, rest = unpack_number(content)
    size = int(_SIZE.unpack_from(rest)[0]) if len(rest) >= _SIZE.size else len(rest)
    if len(rest) < _SIZE.size + size:
        raise PeerError("a frame about jobs is too short")
    return number, rest[_SIZE.size : _SIZE.size + size], rest[_SIZE.size + size :]


def unpack_number(content: bytes) -> tuple[int, bytes]:
    """Return the number, and the bytes that follow it. Raises PeerError."""
    if len(content) < _NUMBER.size:
        raise PeerError("a frame about jobs is too short")
    return int(_NUMBER.unpack_from(content)[0]), content[_NUMBER.size :]


def _queue(value: object) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= MOST_NAME or not value.isascii() or not value.isprintable():
        raise PeerError("the name of a queue is not one")
    return value
