"""Read the arguments of Disque's commands, and find a command by its name.

`arguments` is a whole request: the command's name is arguments[0], and its arity has been checked. The functions decide in
the order of Disque 1.0-rc1 and with its texts. They know no queue, no job and no cluster, and allocate nothing by a number
that a client sent.
"""

import re
from dataclasses import dataclass
from typing import Literal, NamedTuple

from nsqd.core.message.attributes import ASKING
from penstock.protocol.headers import Headers, check_headers
from shared.auth.verbs import Verb

SYNTAX_ERROR = b"ERR syntax error"
BAD_ID = b"BADID Invalid Job ID format."
DEFAULT_TTL = 24 * 3600  # s
DEFAULT_SCAN = 100  # COUNT of a scan
STATES = frozenset((b"wait-repl", b"active", b"queued", b"acked"))
NOT_AN_INTEGER = b"ERR value is not an integer or out of range"
_BAD_COUNT = b"ERR COUNT must be a number greater than zero"
_BAD_TIMEOUT, _NEGATIVE_TIMEOUT = b"ERR timeout is not an integer or out of range", b"ERR timeout is negative"
_BAD_CURSOR = b"ERR invalid cursor or option name"
_BAD_STATE, _BAD_REPLY = b"ERR Invalid job state name", b"ERR Invalid REPLY type, try ID or ALL"
# two spaces, as in Disque
_COPIES_WITHOUT_RETRY = b"ERR With RETRY set to 0 please explicitly set  REPLICATE to 1 (at-most-once delivery)"
_BAD_HEADER = b"ERR HEADER must be a name and a value that a message may have"
_LATE = b"ERR The specified DELAY is greater than TTL. Job refused since would never be delivered"
_U32, _U64, _I63 = (1 << 32) - 1, (1 << 64) - 1, (1 << 63) - 1
_NUMBER = re.compile(rb"([+-]?)0*([0-9]{1,20})")
_JOB_ID = re.compile(rb"D-.{8}-.{24}-.{4}", re.DOTALL)
# Least, most and error of each option of ADDJOB. Disque keeps 32 bits of TTL, RETRY and DELAY, and drops the others silently.
_RANGES = {
    b"replicate": (1, 65_535, b"ERR REPLICATE must be between 1 and 65535"),
    b"ttl": (1, _U32, b"ERR TTL must be a number > 0"),
    b"retry": (0, _U32, b"ERR RETRY time must be a non negative number"),
    b"delay": (0, _U32, b"ERR DELAY time must be a non negative number"),
    b"maxlen": (1, _I63, b"ERR MAXLEN must be a positive number"),
}
_PAUSED_IN, _PAUSED_OUT = 1, 2
_PAUSES = {b"none": 0, b"in": _PAUSED_IN, b"out": _PAUSED_OUT, b"all": _PAUSED_IN | _PAUSED_OUT}
_PAUSE_WORDS = {bits: word for word, bits in _PAUSES.items()}


class Refused(Exception):
    """The command is answered with an error, and does nothing."""

    def __init__(self, text: bytes) -> None:
        super().__init__(text)
        self.text = text  # the error with its code, without "-" and CR LF


class AddJob(NamedTuple):
    """The arguments of an ADDJOB, read and checked."""

    queue: bytes
    body: bytes
    timeout: int  # ms; 0: no limit
    replicate: int | None  # copies; None: as many as the cluster's size suggests
    delay: int  # s
    retry: int | None  # s; 0: deliver at most once; None: derive it from the ttl
    ttl: int  # s
    maxlen: int | None  # jobs; None: no limit
    is_async: bool
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class GetJob:
    """The arguments of a GETJOB, read and checked."""

    nohang: bool
    timeout: int  # ms; 0: no limit
    count: int
    with_counters: bool
    queues: list[bytes]
    with_headers: bool = False


@dataclass(frozen=True, slots=True)
class QPeek:
    """The arguments of a QPEEK: the next `count` jobs, or the newest ones."""

    queue: bytes
    count: int
    newest_first: bool


@dataclass(frozen=True, slots=True)
class QScan:
    """The arguments of a QSCAN. As in Disque, a count below 0 is no limit, and a limit of -1 is none."""

    cursor: int
    count: int
    busyloop: bool  # all queues in one reply
    minlen: int | None
    maxlen: int | None
    importrate: int | None  # the least


@dataclass(frozen=True, slots=True)
class JScan:
    """The arguments of a JSCAN. As in Disque, a count below 0 is no limit."""

    cursor: int
    count: int
    busyloop: bool  # all jobs in one reply
    queue: bytes | None
    states: frozenset[bytes]  # some of STATES; empty: any state
    reply: Literal["id", "all"]


class PauseCommand(NamedTuple):
    """The arguments of a PAUSE, read and checked."""

    queue: bytes
    state: bytes  # none, in, out or all: the new state; state: the queue stays as it is
    bcast: bool


class Need(NamedTuple):
    """The right that a command needs, and on what; neither queue nor job: on the node."""

    verb: Verb | None  # None: none, but the client must be known
    queue: int = 0  # which argument is the name of a queue
    jobs: int = 0  # from which argument on there are ids of jobs
    behind: bytes = b""  # the word that the names of queues follow
    has_bodies: bool = False  # the client gets the bodies of others' jobs: it needs READ, too


class Command(NamedTuple):
    """A command as the checks before its execution see it."""

    name: bytes
    arity: int  # arguments, with the name; negative: at least as many; 0: any
    need: Need = Need(Verb.ADMIN)
    needs_memory: bool = False  # it is refused when memory is full

    def arity_ok(self, count: int) -> bool:
        """Return whether a request of `count` arguments, with the name, may be executed."""
        return count == self.arity if self.arity > 0 else count >= -self.arity


_FREE, _STATS, _ON_JOBS = Need(None), Need(Verb.STATS), Need(Verb.CONSUME, jobs=1)
# Disque's table. HELLO has the arity 1 there; clients of today send a version of RESP and more.
COMMANDS = {
    command.name: command
    for command in (
        Command(b"auth", 2, _FREE),
        Command(b"ping", -1, _FREE),
        Command(b"info", -1, _STATS),
        Command(b"shutdown", -1),
        Command(b"monitor", 1, Need(Verb.ADMIN, has_bodies=True)),
        Command(b"debug", -2),
        Command(b"config", -2),
        Command(b"cluster", -2),
        Command(b"client", -2),
        Command(b"slowlog", -2),
        Command(b"time", 1, _FREE),
        Command(b"command", 0, _FREE),
        Command(b"latency", -2),
        Command(b"hello", -1, _FREE),
        Command(b"addjob", -4, Need(Verb.PUBLISH, queue=1), needs_memory=True),
        Command(b"getjob", -2, Need(Verb.CONSUME, behind=b"from")),
        Command(b"ackjob", -1, _ON_JOBS),
        Command(b"fastack", -1, _ON_JOBS),
        Command(b"deljob", -1, _ON_JOBS),
        Command(b"show", 2, Need(Verb.READ, jobs=1)),
        Command(b"loadjob", 2),
        Command(b"bgrewriteaof", 1),
        Command(b"qlen", 2, Need(Verb.STATS, queue=1)),
        Command(b"qpeek", 3, Need(Verb.READ, queue=1)),
        Command(b"qstat", 2, Need(Verb.STATS, queue=1)),
        Command(b"qscan", -1, _STATS),
        Command(b"jscan", -1, Need(Verb.BROWSE)),
        Command(b"enqueue", -1, Need(Verb.ACT, jobs=1), needs_memory=True),
        Command(b"nack", -1, _ON_JOBS, needs_memory=True),
        Command(b"dequeue", -1, Need(Verb.ACT, jobs=1)),
        Command(b"working", 2, _ON_JOBS),
        Command(b"pause", -3, Need(Verb.ACT, queue=1)),
    )
}


def _magnitude(text: bytes) -> tuple[int, bool] | None:
    """Read digits as C's strtoll does, without spaces: return the number and whether it follows a "-"; None if it is none.

    A sign and zeros may precede the digits. An empty text is 0, because strtoll stops at its end and finds nothing wrong.
    """
    match = _NUMBER.fullmatch(text)
    if match is not None:
        return int(match[2]), match[1] == b"-"
    return None if text else (0, False)


def _integer(text: bytes, least: int, most: int, refusal: bytes) -> int:
    """Return a number from `least` to `most`. Raises Refused with the refusal."""
    if text.isdigit() and len(text) < 19:
        number = int(text)
    else:
        found = _magnitude(text)
        if found is None:
            raise Refused(refusal)
        number = -found[0] if found[1] else found[0]
    if not least <= number <= most:
        raise Refused(refusal)
    return number


def any_integer(text: bytes) -> int:
    """Return a number of 64 bits with a sign. Raises Refused."""
    return _integer(text, -_I63 - 1, _I63, NOT_AN_INTEGER)


def timeout_of(text: bytes) -> int:
    """Return a timeout in ms. Raises Refused."""
    timeout = _integer(text, -_I63 - 1, _I63, _BAD_TIMEOUT)
    if timeout < 0:
        raise Refused(_NEGATIVE_TIMEOUT)
    return timeout


def addjob(arguments: list[bytes], copies: int = 1) -> AddJob:
    """Read an ADDJOB. copies: those of a job without REPLICATE, for the check of RETRY 0. Raises Refused."""
    found: dict[bytes, int] = {}
    headers: list[tuple[bytes, bytes]] = []
    is_async, at = False, 4
    while at < len(arguments):
        option = arguments[at].lower()
        bounds = _RANGES.get(option)
        if bounds is not None and at + 1 < len(arguments):
            found[option] = _integer(arguments[at + 1], *bounds)
            at += 2
        elif option == b"header" and at + 2 < len(arguments):
            headers.append((arguments[at + 1], arguments[at + 2]))
            at += 3
        elif option == b"async":
            is_async = True
            at += 1
        else:
            raise Refused(SYNTAX_ERROR)
    timeout = timeout_of(arguments[3])
    replicate, retry = found.get(b"replicate"), found.get(b"retry")
    delay, ttl = found.get(b"delay", 0), found.get(b"ttl", DEFAULT_TTL)
    if retry == 0 and (copies if replicate is None else replicate) > 1:
        raise Refused(_COPIES_WITHOUT_RETRY)
    if delay >= ttl:
        raise Refused(_LATE)
    place, maxlen = (arguments[1], arguments[2], timeout), found.get(b"maxlen")
    return AddJob(*place, replicate, delay, retry, ttl, maxlen, is_async, _headers(headers))


def _headers(pairs: list[tuple[bytes, bytes]]) -> Headers:
    """Return the headers that HEADER options name. Raises Refused, also for those that options ask for."""
    try:
        headers = tuple((name.decode().lower(), value.decode()) for name, value in pairs)
        check_headers(headers)
    except ValueError:
        raise Refused(_BAD_HEADER) from None
    if not ASKING.isdisjoint(dict(headers)):
        raise Refused(_BAD_HEADER)
    return headers


def getjob(arguments: list[bytes]) -> GetJob:
    """Read the words of a GETJOB, the command first. Raises Refused for a wrong option, number or missing FROM."""
    nohang, timeout, count, with_counters, with_headers, at = False, 0, 1, False, False, 1
    last = len(arguments) - 1
    while at < last:  # an option that stands last leaves no room for FROM and a queue
        option = arguments[at].lower()
        if option == b"from":
            return GetJob(nohang, timeout, count, with_counters, arguments[at + 1 :], with_headers)
        if option == b"timeout":
            at += 1
            timeout = timeout_of(arguments[at])
        elif option == b"count":
            at += 1
            count = _integer(arguments[at], 1, _I63, _BAD_COUNT)
        elif option == b"nohang":
            nohang = True
        elif option == b"withcounters":
            with_counters = True
        elif option == b"withheaders":
            with_headers = True
        else:
            break
        at += 1
    raise Refused(SYNTAX_ERROR)


def job_ids(arguments: list[bytes]) -> list[bytes]:
    """Return the job ids, which as in Disque only need the length, the beginning and the hyphens of one. Raises Refused."""
    ids = arguments[1:]
    if not all(map(_JOB_ID.fullmatch, ids)):
        raise Refused(BAD_ID)
    return ids


def qpeek(arguments: list[bytes]) -> QPeek:
    """Read a QPEEK, whose count is negative if the newest jobs come first. Raises Refused."""
    count = any_integer(arguments[2])
    return QPeek(arguments[1], abs(count), count < 0)


def _cursor(text: bytes, earlier: int | None) -> int:
    """Read a cursor as strtoul does: a number after "-" is subtracted from 2**64. Raises Refused, also for a second one."""
    if earlier is not None:
        raise Refused(SYNTAX_ERROR)
    found = _magnitude(text)
    if found is None or found[0] > _U64:
        raise Refused(_BAD_CURSOR)
    return -found[0] & _U64 if found[1] else found[0]


def qscan(arguments: list[bytes]) -> QScan:
    """Read a QSCAN. An argument that is no option with its value is the cursor. Raises Refused."""
    numbers = {b"count": DEFAULT_SCAN, b"minlen": -1, b"maxlen": -1, b"importrate": -1}
    busyloop, cursor, at = False, None, 1
    while at < len(arguments):
        option = arguments[at].lower()
        if option in numbers and at + 1 < len(arguments):
            at += 1
            numbers[option] = any_integer(arguments[at])
        elif option == b"busyloop":
            busyloop = True
        else:
            cursor = _cursor(arguments[at], cursor)
        at += 1
    count, *limits = numbers.values()
    minlen, maxlen, importrate = (None if limit == -1 else limit for limit in limits)
    return QScan(cursor or 0, count, busyloop, minlen, maxlen, importrate)


def jscan(arguments: list[bytes]) -> JScan:
    """Read a JSCAN. An argument that is no option with its value is the cursor. Raises Refused."""
    count, busyloop, cursor, queue, at = DEFAULT_SCAN, False, None, None, 1
    states = set[bytes]()
    reply: Literal["id", "all"] = "id"
    while at < len(arguments):
        option, value = arguments[at].lower(), arguments[at + 1] if at + 1 < len(arguments) else None
        if option == b"busyloop":
            busyloop = True
        elif value is None or option not in (b"count", b"queue", b"state", b"reply"):
            cursor = _cursor(arguments[at], cursor)
        else:
            at += 1
            if option == b"count":
                count = any_integer(value)
            elif option == b"queue":
                queue = value
            elif option == b"state":
                states.add(_state(value))
            else:
                reply = _reply(value)
        at += 1
    return JScan(cursor or 0, count, busyloop, queue, frozenset(states), reply)


def _state(word: bytes) -> bytes:
    """Return the state of a job that the word names. Raises Refused."""
    state = word.lower()
    if state not in STATES:
        raise Refused(_BAD_STATE)
    return state


def _reply(word: bytes) -> Literal["id", "all"]:
    """Return the REPLY type of a JSCAN. Raises Refused."""
    match word.lower():
        case b"id":
            return "id"
        case b"all":
            return "all"
    raise Refused(_BAD_REPLY)


def pause(arguments: list[bytes]) -> PauseCommand:
    """Read a PAUSE. The words add up to the new state, and `none` takes back those before it. Raises Refused."""
    paused, bcast, changes = 0, False, False
    for argument in arguments[2:]:
        word = argument.lower()
        if word in _PAUSES:
            paused = paused | _PAUSES[word] if word != b"none" else 0
            changes = True
        elif word == b"bcast":
            bcast = True
        elif word != b"state":
            raise Refused(SYNTAX_ERROR)
    return PauseCommand(arguments[1], _PAUSE_WORDS[paused] if changes else b"state", bcast)
