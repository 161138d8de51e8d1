"""Each command of beanstalkd's protocol as a value: the bytes to send, how to read the reply, and whether it may be repeated.

Pure: `session` performs calls, for the blocking and the async client alike. Each function raises TypeError for an argument of
the wrong type and ValueError for a value that can never be valid, so that an argument never becomes a second command.

The extensions exist in Penstock's nsqd and beanstalkd only (docs/reference/compatibility-beanstalkd.md). The original answers
them with UNKNOWN_COMMAND, but would execute the body of a put_unique as a command: a session sends `PROBE_UNIQUE` first.
"""

import math
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Generic, NamedTuple, TypeVar

from penstock.jobs.errors import refusal
from penstock.protocol import ProtocolError
from penstock.protocol.beanstalk import MAX_BATCH, MAX_ID, Reply, Stats, check_name, parse_list, parse_stats
from penstock.protocol.headers import Headers, pack_headers

MAX_COMMAND = 224  # bytes of a command's line with its CR LF, as beanstalkd reads it
MAX_U32 = (1 << 32) - 1  # of a priority, a count, and of a delay and a time to run in seconds
MAX_TIMEOUT_S = (1 << 31) - 1  # of a reserve
MAX_BATCH_NAME = 64  # characters
MAX_LISTED = 1000  # ids in the reply to a list-jobs
STATES = ("ready", "reserved", "delayed", "buried")

_KEY = re.compile(r"[!-~]{1,128}")

T = TypeVar("T")


class FoundJob(NamedTuple):
    """A job that a peek found: it is not reserved.

    >>> job_id = jobs.put(b"work")
    >>> jobs.peek(job_id).body
    b'work'
    """

    id: int
    body: bytes
    headers: Headers = ()  # if the client's settings ask for them


class Call(NamedTuple, Generic[T]):
    """One command and how to perform it; a tuple, because one is made for each command."""

    command: bytes
    decode: Callable[[Reply], T]  # raises Refused, or ProtocolError for a reply that answers another command
    repeatable: bool = False  # True: executing it twice does what executing it once does
    wait_s: int = 0  # s that the server may wait before it answers
    tube: str = ""  # the tube that must be used; "": any
    epoch: int = 0  # the connection that must still be open, else the reservation is lost; 0: any
    unique: bool = False  # True: the server must have put-unique
    headers: Headers | None = None  # of the job that the command puts; None: it puts none
    needs_headers: bool = False  # True: the server must take them


def noting(call: Call[T], note: Callable[[], object]) -> Call[T]:
    """Return the same call, which calls `note` when the server has done what was asked."""

    def decode(reply: Reply) -> T:
        result = call.decode(reply)
        note()
        return result

    return call._replace(decode=decode)


def with_headers(call: Call[T]) -> bytes:
    """Return the command of a put with the headers in front of the body, as a server expects that takes headers."""
    assert call.headers is not None
    line, _, body = call.command.partition(b"\r\n")
    words, _, size = line.rpartition(b" ")
    packed = pack_headers(call.headers)
    return b"%b %d\r\n%b%b" % (words, int(size) + len(packed), packed, body)


# replies


@cache
def _done(word: str) -> Callable[[Reply], None]:
    def decode(reply: Reply) -> None:
        if reply.word != word:
            raise refusal(reply)

    return decode


@cache
def _number(word: str) -> Callable[[Reply], int]:
    def decode(reply: Reply) -> int:
        if reply.word != word:
            raise refusal(reply)
        return reply.number

    return decode


@cache
def _job(word: str, none: str) -> Callable[[Reply], FoundJob | None]:
    def decode(reply: Reply) -> FoundJob | None:
        if reply.word not in (word, none):
            raise refusal(reply)
        return None if reply.word == none else FoundJob(reply.number, reply.body, reply.headers)

    return decode


def _has_headers(reply: Reply) -> bool:
    if reply.word not in ("HEADERS", "UNKNOWN_COMMAND"):
        raise refusal(reply)
    return reply.word == "HEADERS"


def _unless_duplicate(reply: Reply) -> int | None:
    return None if reply.word == "DUPLICATE" else _number("INSERTED")(reply)


def _released(reply: Reply) -> bool:
    return reply.word != "BURIED" and _done("RELEASED")(reply) is None


def _batch(reply: Reply) -> list[FoundJob]:
    if reply.word == "RESERVED_BATCH":
        return [FoundJob(*job) for job in reply.jobs]
    found = _job("RESERVED", "TIMED_OUT")(reply)
    return [] if found is None else [found]


def _stats(reply: Reply) -> Stats:
    _done("OK")(reply)
    return parse_stats(reply.body)


def _names(reply: Reply) -> list[str]:
    _done("OK")(reply)
    return parse_list(reply.body)


def _ids(reply: Reply) -> list[int]:
    names = _names(reply)
    if not all(name.isascii() and name.isdigit() and len(name) <= 20 for name in names):
        raise ProtocolError("not a list of ids")
    return [int(name) for name in names]


# arguments


def _whole(value: int, what: str, most: int = MAX_U32, least: int = 0) -> int:
    """Return the value itself if it is an int within bounds. Raises TypeError, ValueError."""
    if not isinstance(value, int):
        raise TypeError(f"{what} must be an int, not {type(value).__name__}")
    if not least <= value <= most:
        raise ValueError(f"{what} must be {least} to {most}: {value}")
    return value


def _seconds(value: float, most: int = MAX_U32) -> int:
    """Return whole seconds, rounded up. Raises TypeError, ValueError."""
    if not isinstance(value, int | float):
        raise TypeError(f"a time must be a number of seconds, not {type(value).__name__}")
    if not math.isfinite(value):
        raise ValueError(f"a time must be a finite number of seconds: {value}")
    return _whole(math.ceil(value), "a time in seconds", most)


def _id(job_id: int) -> int:
    return _whole(job_id, "a job's id", MAX_ID)


def _text(value: str, what: str) -> str:
    """Return the value itself if it is a str. Raises TypeError."""
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a str, not {type(value).__name__}")
    return value


def _tube(name: str) -> str:
    return check_name(_text(name, "a tube's name"))


def _key(value: str, what: str, most: int = 128) -> str:
    if len(_text(value, what)) > most or _KEY.fullmatch(value) is None:
        raise ValueError(f"not {what} of 1 to {most} printable ASCII characters: {value[:200]!r}")
    return value


def _batch_name(name: str) -> str:
    return _key(name, "a batch's name", MAX_BATCH_NAME)


def _line(*words: str | int) -> bytes:
    """Return the line of a command. Raises ValueError for one that is too long."""
    line = " ".join(map(str, words)).encode() + b"\r\n"
    if len(line) > MAX_COMMAND:
        raise ValueError(f"a command of more than {MAX_COMMAND} bytes: {words[0]}")
    return line


def _new_job(body: bytes, priority: int, delay: float, ttr: float) -> bytes:
    """Return the part of a put and of a put-unique that describes the job, and its body."""
    if not isinstance(body, bytes | bytearray | memoryview):
        raise TypeError(f"a body must be bytes, not {type(body).__name__}")
    data = bytes(body)
    numbers = _whole(priority, "a priority"), _seconds(delay), _seconds(ttr), len(data)
    return b"%d %d %d %d\r\n%b\r\n" % (*numbers, data)


# commands of one job or one tube


def _of_job(verb: str, decode: Callable[[Reply], T], repeatable: bool = False) -> Callable[[int], Call[T]]:
    """Return a function that makes the call for the id of a job."""
    return lambda job_id: Call(_line(verb, _id(job_id)), decode, repeatable)


def _of_tube(verb: str, decode: Callable[[Reply], T], repeatable: bool = False) -> Callable[[str], Call[T]]:
    """Return a function that makes the call for the name of a tube."""
    return lambda tube: Call(_line(verb, _tube(tube)), decode, repeatable)


delete = _of_job("delete", _done("DELETED"))  # also over a new connection, because a ready job can be deleted as well
kick_job = _of_job("kick-job", _done("KICKED"))
peek = _of_job("peek", _job("FOUND", "NOT_FOUND"), repeatable=True)
reserve_job = _of_job("reserve-job", _job("RESERVED", "NOT_FOUND"), repeatable=True)  # None: it cannot be reserved
stats_job = _of_job("stats-job", _stats, repeatable=True)

clear_tube = _of_tube("clear-tube", _number("CLEARED"))  # extension; the number of deleted jobs
ignore = _of_tube("ignore", _number("WATCHING"), repeatable=True)  # the number of watched tubes
stats_tube = _of_tube("stats-tube", _stats, repeatable=True)
use = _of_tube("use", _done("USING"), repeatable=True)
watch = _of_tube("watch", _number("WATCHING"), repeatable=True)  # the number of watched tubes

STATS = Call(_line("stats"), _stats, repeatable=True)
HEADERS = Call(_line("headers"), _has_headers, repeatable=True)  # extension: jobs have headers from then on
LIST_TUBES = Call(_line("list-tubes"), _names, repeatable=True)

# commands of producers


def put(tube: str, body: bytes, priority: int, delay: float, ttr: float) -> Call[int]:
    """Return a put; its result is the job's id. Times are in seconds and are rounded up."""
    return Call(b"put " + _new_job(body, priority, delay, ttr), _number("INSERTED"), tube=tube, headers=())


def put_batch(tube: str, batch: str, body: bytes, priority: int, delay: float, ttr: float) -> Call[int]:
    """Return a put-batch (extension): a put of a member of a batch."""
    command = b"put-batch %b %b" % (_batch_name(batch).encode(), _new_job(body, priority, delay, ttr))
    return Call(command, _number("INSERTED"), tube=tube, unique=True, headers=())


def put_grouped(tube: str, group: str, body: bytes, priority: int, delay: float, ttr: float) -> Call[int]:
    """Return a put-grouped (extension): in the channels of the topic the job is a message of the group."""
    command = b"put-grouped %b %b" % (_key(group, "a group").encode(), _new_job(body, priority, delay, ttr))
    return Call(command, _number("INSERTED"), tube=tube, unique=True, headers=())


def put_unique(
    tube: str, key: str, body: bytes, priority: int, delay: float, ttr: float, while_pending: bool = False
) -> Call[int | None]:
    """Return a put-unique (extension); its result is None if the tube has had a job with that key before.

    `key`: 1 to 128 printable ASCII characters without spaces. `while_pending`: a put-unless-pending, whose result is None if
    the tube has a job with that key.
    """
    verb = b"put-unless-pending" if while_pending else b"put-unique"
    command = b"%b %b %b" % (verb, _key(key, "a key").encode(), _new_job(body, priority, delay, ttr))
    return Call(command, _unless_duplicate, repeatable=True, tube=tube, unique=True, headers=())


def close_batch(name: str) -> Call[None]:
    """Return a close-batch (extension): the batch is done when none of its members is pending."""
    return Call(_line("close-batch", _batch_name(name)), _done("CLOSED"), repeatable=True)


def stats_batch(name: str) -> Call[Stats]:
    """Return a stats-batch (extension); its result is the state of a batch, and counts of its members."""
    return Call(_line("stats-batch", _batch_name(name)), _stats, repeatable=True)


# commands of workers


def reserve(timeout_s: int) -> Call[FoundJob | None]:
    """Return a reserve-with-timeout. It may be repeated: the server releases what a lost connection had reserved."""
    wait_s = _seconds(timeout_s, MAX_TIMEOUT_S)
    return Call(_line("reserve-with-timeout", wait_s), _job("RESERVED", "TIMED_OUT"), repeatable=True, wait_s=wait_s)


def reserve_batch(count: int, timeout_s: int) -> Call[list[FoundJob]]:
    """Return a reserve-batch of 1 to 100 jobs (extension). Its result is [] after `timeout_s`. Raises ValueError."""
    wait_s = _seconds(timeout_s, MAX_TIMEOUT_S)
    command = _line("reserve-batch", _whole(count, "a count", MAX_BATCH, 1), wait_s)
    return Call(command, _batch, repeatable=True, wait_s=wait_s)


def delete_batch(job_ids: Sequence[int]) -> Call[int]:
    """Return a delete-batch (extension); its result is the number of deleted jobs."""
    _whole(len(job_ids), "the number of jobs of a batch", MAX_BATCH, 1)
    return Call(_line("delete-batch", *map(_id, job_ids)), _number("DELETED_BATCH"))


def release(job_id: int, priority: int, delay: float, epoch: int) -> Call[bool]:
    """Return a release; its result is False if the server buried the job instead."""
    command = _line("release", _id(job_id), _whole(priority, "a priority"), _seconds(delay))
    return Call(command, _released, epoch=epoch)


def bury(job_id: int, priority: int, epoch: int) -> Call[None]:
    """Return a bury. `epoch`: of the connection on which the job was reserved."""
    return Call(_line("bury", _id(job_id), _whole(priority, "a priority")), _done("BURIED"), epoch=epoch)


def touch(job_id: int, epoch: int) -> Call[None]:
    """Return a touch. `epoch`: of the connection on which the job was reserved."""
    return Call(_line("touch", _id(job_id)), _done("TOUCHED"), epoch=epoch)


# commands that show and change tubes


def kick(tube: str, count: int) -> Call[int]:
    """Return a kick; its result is the number of kicked jobs."""
    return Call(_line("kick", _whole(count, "a count")), _number("KICKED"), tube=tube)


def peek_first(tube: str, state: str) -> Call[FoundJob | None]:
    """Return a peek-ready, peek-delayed or peek-buried."""
    if state not in ("ready", "delayed", "buried"):
        raise ValueError(f"not ready, delayed or buried: {state!r}")
    return Call(_line(f"peek-{state}"), _job("FOUND", "NOT_FOUND"), repeatable=True, tube=tube)


def list_jobs(tube: str, state: str, limit: int, after: int) -> Call[list[int]]:
    """Return a list-jobs (extension): at most `limit` (1 to 1000) ids of jobs that were put after the job `after`."""
    if state not in STATES:
        raise ValueError(f"not one of {', '.join(STATES)}: {state!r}")
    limits = _whole(limit, "limit", MAX_LISTED, 1), _whole(after, "after", MAX_ID)
    return Call(_line("list-jobs", _tube(tube), state, *limits), _ids, repeatable=True)


def pause_tube(tube: str, seconds: float) -> Call[None]:
    """Return a pause-tube; 0 ends the pause."""
    return Call(_line("pause-tube", _tube(tube), _seconds(seconds)), _done("PAUSED"), repeatable=True)


def move_job(job_id: int, tube: str) -> Call[int]:
    """Return a move-job (extension); its result is the new id."""
    return Call(_line("move-job", _id(job_id), _tube(tube)), _number("MOVED"))
