"""Each command as a value: the bytes to send, how to read the answer, and what may be done if the answer is lost.

Pure: `session` performs calls, for the blocking and the async client alike. Each function raises TypeError for an argument of
the wrong type and ValueError for a value that can never be valid.
"""

import math
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from penstock.jobs.errors import refusal
from penstock.protocol import ProtocolError, beanstalk
from penstock.protocol.beanstalk import Reply

T = TypeVar("T")
Figures = dict[str, int | float | str]
Pair = tuple[int, bytes]  # a job's id and body


class Call(NamedTuple, Generic[T]):
    """One command and how to perform it; a tuple, because one is made for each command."""

    command: bytes
    decode: Callable[[Reply], T]  # raises Refused, or ProtocolError for a reply that answers another command
    repeatable: bool = False  # True: executing it twice does what executing it once does
    wait_s: int = 0  # s that the server may wait before it answers
    tube: str = ""  # the tube that must be used; "": any
    epoch: int = 0  # the connection that must still stand, else the reservation is lost; 0: any
    unique: bool = False  # True: the server must have put-unique


def _ends_with(word: str) -> Callable[[Reply], None]:
    def decode(reply: Reply) -> None:
        if reply.word != word:
            raise refusal(reply)

    return decode


def _number_after(word: str) -> Callable[[Reply], int]:
    def decode(reply: Reply) -> int:
        if reply.word != word:
            raise refusal(reply)
        return reply.number

    return decode


def _job_or_none(word: str, none: str) -> Callable[[Reply], Pair | None]:
    def decode(reply: Reply) -> Pair | None:
        if reply.word == none:
            return None
        if reply.word != word:
            raise refusal(reply)
        return reply.number, reply.body

    return decode


def _unless_duplicate(reply: Reply) -> int | None:
    return None if reply.word == "DUPLICATE" else _INSERTED(reply)


def _released(reply: Reply) -> bool:
    if reply.word not in ("RELEASED", "BURIED"):
        raise refusal(reply)
    return reply.word == "RELEASED"


def _batch(reply: Reply) -> list[Pair]:
    if reply.word == "RESERVED_BATCH":
        return list(reply.jobs)
    found = _RESERVED(reply)
    return [] if found is None else [found]


def _figures(reply: Reply) -> Figures:
    if reply.word != "OK":
        raise refusal(reply)
    return beanstalk.parse_stats(reply.body)


def _names(reply: Reply) -> list[str]:
    if reply.word != "OK":
        raise refusal(reply)
    return beanstalk.parse_list(reply.body)


def _ids(reply: Reply) -> list[int]:
    names = _names(reply)
    if not all(name.isascii() and name.isdigit() and len(name) <= 20 for name in names):
        raise ProtocolError("not a list of ids")
    return [int(name) for name in names]


_INSERTED, _KICKED_COUNT, _WATCHING = _number_after("INSERTED"), _number_after("KICKED"), _number_after("WATCHING")
_DELETED_COUNT, _CLEARED, _MOVED = _number_after("DELETED_BATCH"), _number_after("CLEARED"), _number_after("MOVED")
_DELETED, _BURIED, _TOUCHED, _KICKED = map(_ends_with, ("DELETED", "BURIED", "TOUCHED", "KICKED"))
_USING, _PAUSED = map(_ends_with, ("USING", "PAUSED"))
_RESERVED, _FOUND = _job_or_none("RESERVED", "TIMED_OUT"), _job_or_none("FOUND", "NOT_FOUND")
_TAKEN = _job_or_none("RESERVED", "NOT_FOUND")


def _seconds(value: float) -> int:
    """Return whole seconds, rounded up. Raises TypeError and ValueError."""
    if not isinstance(value, int | float):
        raise TypeError(f"a time must be a number of seconds, not {type(value).__name__}")
    if not math.isfinite(value):
        raise ValueError(f"a time must be a finite number of seconds: {value}")
    return math.ceil(value)


def _whole(value: int, what: str) -> int:
    """Return the value itself if it is an int. Raises TypeError."""
    if not isinstance(value, int):
        raise TypeError(f"{what} must be an int, not {type(value).__name__}")
    return value


def _id(job_id: int) -> int:
    return _whole(job_id, "a job's id")


def _text(value: str, what: str) -> str:
    """Return the value itself if it is a str. Raises TypeError."""
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a str, not {type(value).__name__}")
    return value


def _tube(name: str) -> str:
    return _text(name, "a tube's name")


def _bytes(body: bytes) -> bytes:
    """Return the body as bytes. Raises TypeError for what is not a buffer of bytes."""
    if not isinstance(body, bytes | bytearray | memoryview):
        raise TypeError(f"a body must be bytes, not {type(body).__name__}")
    return bytes(body)


def put(tube: str, body: bytes, priority: int, delay: float, ttr: float) -> Call[int]:
    """Return a put; its result is the job's id. Times are in seconds and are rounded up."""
    command = beanstalk.put(_bytes(body), _whole(priority, "a priority"), _seconds(delay), _seconds(ttr))
    return Call(command, _INSERTED, tube=tube)


def put_unique(tube: str, key: str, body: bytes, priority: int, delay: float, ttr: float) -> Call[int | None]:
    """Return a put-unique; its result is the id, or None for a job that the tube has got before."""
    command = beanstalk.put_unique(
        _text(key, "a key"), _bytes(body), _whole(priority, "a priority"), _seconds(delay), _seconds(ttr)
    )
    return Call(command, _unless_duplicate, repeatable=True, tube=tube, unique=True)


def use(tube: str) -> Call[None]:
    """Return a use."""
    return Call(beanstalk.use(_tube(tube)), _USING, repeatable=True)


def watch(tube: str) -> Call[int]:
    """Return a watch; its result is the number of watched tubes."""
    return Call(beanstalk.watch(_tube(tube)), _WATCHING, repeatable=True)


def ignore(tube: str) -> Call[int]:
    """Return an ignore; its result is the number of watched tubes."""
    return Call(beanstalk.ignore(_tube(tube)), _WATCHING, repeatable=True)


def reserve(timeout_s: int) -> Call[Pair | None]:
    """Return a reserve. A lost one may be repeated: the server releases what it reserved for the lost connection."""
    return Call(beanstalk.reserve(timeout_s), _RESERVED, repeatable=True, wait_s=timeout_s)


def reserve_job(job_id: int) -> Call[Pair | None]:
    """Return a reserve-job; its result is None if the job cannot be reserved."""
    return Call(beanstalk.reserve_job(_id(job_id)), _TAKEN, repeatable=True)


def reserve_batch(count: int, timeout_s: int) -> Call[list[Pair]]:
    """Return a reserve-batch."""
    wait_s = _seconds(timeout_s)
    return Call(beanstalk.reserve_batch(_whole(count, "a count"), wait_s), _batch, repeatable=True, wait_s=wait_s)


def delete(job_id: int) -> Call[None]:
    """Return a delete. It may be sent over a new connection, because a ready job can be deleted as well."""
    return Call(beanstalk.delete(_id(job_id)), _DELETED)


def delete_batch(job_ids: Sequence[int]) -> Call[int]:
    """Return a delete-batch; its result is the number of deleted jobs."""
    return Call(beanstalk.delete_batch([_id(job_id) for job_id in job_ids]), _DELETED_COUNT)


def release(job_id: int, priority: int, delay: float, epoch: int) -> Call[bool]:
    """Return a release; its result is False if the server buried the job instead."""
    return Call(beanstalk.release(_id(job_id), _whole(priority, "a priority"), _seconds(delay)), _released, epoch=epoch)


def bury(job_id: int, priority: int, epoch: int) -> Call[None]:
    """Return a bury."""
    return Call(beanstalk.bury(_id(job_id), _whole(priority, "a priority")), _BURIED, epoch=epoch)


def touch(job_id: int, epoch: int) -> Call[None]:
    """Return a touch."""
    return Call(beanstalk.touch(_id(job_id)), _TOUCHED, epoch=epoch)


def kick(tube: str, count: int) -> Call[int]:
    """Return a kick; its result is the number of jobs."""
    return Call(beanstalk.kick(_whole(count, "a count")), _KICKED_COUNT, tube=tube)


def kick_job(job_id: int) -> Call[None]:
    """Return a kick-job."""
    return Call(beanstalk.kick_job(_id(job_id)), _KICKED)


def peek(job_id: int) -> Call[Pair | None]:
    """Return a peek."""
    return Call(beanstalk.peek(_id(job_id)), _FOUND, repeatable=True)


def peek_first(tube: str, state: str) -> Call[Pair | None]:
    """Return a peek-ready, peek-delayed or peek-buried."""
    return Call(beanstalk.peek_first(state), _FOUND, repeatable=True, tube=tube)


def stats() -> Call[Figures]:
    """Return a stats."""
    return Call(beanstalk.stats(), _figures, repeatable=True)


def stats_job(job_id: int) -> Call[Figures]:
    """Return a stats-job."""
    return Call(beanstalk.stats_job(_id(job_id)), _figures, repeatable=True)


def stats_tube(tube: str) -> Call[Figures]:
    """Return a stats-tube."""
    return Call(beanstalk.stats_tube(_tube(tube)), _figures, repeatable=True)


def list_tubes() -> Call[list[str]]:
    """Return a list-tubes."""
    return Call(beanstalk.list_tubes(), _names, repeatable=True)


def list_jobs(tube: str, state: str, limit: int, after: int) -> Call[list[int]]:
    """Return a list-jobs."""
    return Call(
        beanstalk.list_jobs(_tube(tube), state, _whole(limit, "limit"), _whole(after, "after")), _ids, repeatable=True
    )


def pause_tube(tube: str, seconds: float) -> Call[None]:
    """Return a pause-tube."""
    return Call(beanstalk.pause_tube(_tube(tube), _seconds(seconds)), _PAUSED, repeatable=True)


def clear_tube(tube: str) -> Call[int]:
    """Return a clear-tube; its result is the number of deleted jobs."""
    return Call(beanstalk.clear_tube(_tube(tube)), _CLEARED)


def move_job(job_id: int, tube: str) -> Call[int]:
    """Return a move-job; its result is the new id."""
    return Call(beanstalk.move_job(_id(job_id), _tube(tube)), _MOVED)
