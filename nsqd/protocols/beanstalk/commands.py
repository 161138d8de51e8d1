"""Read a command line as beanstalkd reads it: verbs by their beginning, digits only. VERBS is the table of all commands.

See docs/contributing/design/beanstalkd.md#verbs-and-numbers.
"""

import re
from collections.abc import Callable, Container
from enum import Enum, auto
from typing import Any, NamedTuple

from nsqd.core.batches.batches import BatchRefused, check_name
from nsqd.core.message.attributes import is_word
from shared.auth.verbs import Verb
from shared.foreign import BEGINNINGS, Foreign, recognize, recognize_line
from shared.topic_config import MOST_COPIES

MAX_LINE = 224  # bytes, including CR LF
MOST_JOBS = 100  # jobs in a reserve-batch or a delete-batch
_NAME = re.compile(rb"[A-Za-z0-9+/;.$_()][A-Za-z0-9\-+/;.$_()]{0,199}")
_NAME_BYTES = re.compile(rb"[A-Za-z0-9\-+/;.$_()]+(?= |\Z)|[!-~]+")
# a name that no client of beanstalkd can make, but a client of Disque or NSQ may have made; a tube with # is the node's own
_OTHER_NAME = re.compile(rb"(?!#)[!-~]{1,200}")
_QUOTED = re.compile(r'"((?:[^"\\]|\\["\\])+)"')
_ESCAPED = re.compile(r'\\(["\\])')
_DIGITS = re.compile(rb" *([0-9]+)")
_STRTOUL = re.compile(rb"[ \t\n\v\f\r]*([+-]?)([0-9]+)")
# the lines that workers send all the time, with numbers that are certainly in range
_USUAL = re.compile(rb"(delete |touch |reserve-with-timeout )([0-9]{1,9})")
_RESERVE: tuple[bytes, tuple[int, ...]] = b"reserve", ()
# the part of the line after the verb
_USUAL_PUT = re.compile(rb"([0-9]{1,10}) ([0-9]{1,10}) ([0-9]{1,10}) ([0-9]{1,10})")
_U32, _U64 = (1 << 32) - 1, (1 << 64) - 1
_I31 = (1 << 31) - 1
# input that may come from a client of beanstalkd by mistake, and gets beanstalkd's reply
_OWN = frozenset((None, Foreign.BEANSTALK, Foreign.JOB, Foreign.PING))

Arguments = tuple[Any, ...]


class About(Enum):
    """The object of a command, on which its client needs the right."""

    NODE = auto()
    USED = auto()  # the tube that the client uses
    WATCHED = auto()  # all tubes that the client watches
    TUBE = auto()  # the tube whose name comes first
    JOB = auto()  # the tube of the job whose id comes first
    JOBS = auto()  # those of all jobs that are named
    MOVED = auto()  # the tube of that job, and the tube whose name comes next, into which the job is put


class Need(NamedTuple):
    """The right that a command needs; None: none, but the client must be known."""

    verb: Verb | None
    about: About = About.NODE


class OtherName(str):
    """The name of a tube that beanstalkd does not allow: it stands for a tube only if there is one of that name."""

    __slots__ = ()


class BadFormat(Exception):
    """The verb is known, but the rest of the line is not valid."""


class UnknownCommand(Exception):
    """No verb matches the beginning of the line."""


def is_foreign(line: bytes) -> bool:
    """Return whether the line belongs to another protocol: a browser's page may talk to this port."""
    is_worth_a_look = line.startswith(BEGINNINGS) or line[-9:-3] == b" HTTP/" or line[4:5] == b":"
    return is_worth_a_look and recognize_line(line) not in _OWN


def begins_foreign(data: bytes) -> bool:
    """Return the same for the beginning of a line, whatever follows."""
    return data.startswith(BEGINNINGS) and recognize(data) not in _OWN


def _number(line: bytes, at: int, most: int) -> tuple[int, int]:
    """Return a number of at most `most`, after optional spaces, and where it ends. Raises BadFormat."""
    match = _DIGITS.match(line, at)
    if match is None or len(match[1]) > 200 or int(match[1]) > most:
        raise BadFormat
    return int(match[1]), match.end()


def _numbers(line: bytes, at: int, *mosts: int) -> Arguments:
    """Return one number for each of `mosts`; nothing may follow them. Raises BadFormat."""
    found = []
    for most in mosts:
        number, at = _number(line, at, most)
        found.append(number)
    if at != len(line):
        raise BadFormat
    return tuple(found)


def _put(line: bytes, at: int) -> Arguments:
    """Return priority, delay, ttr, size, and whether something follows them, which counts only if the size is allowed."""
    usual = _USUAL_PUT.fullmatch(line, at)
    if usual is not None:
        priority, delay, ttr, size = map(int, usual.groups())
        if max(priority, delay, ttr, size) <= _U32:
            return priority, delay, ttr, size, False
    found = []
    for _ in range(4):
        number, at = _number(line, at, _U32)
        found.append(number)
    return *found, at != len(line)


def _put_unique(line: bytes, at: int) -> Arguments:
    """Return a key or a group, followed by the arguments of `put`."""
    key, space, _ = line[at:].partition(b" ")
    text = key.decode("latin-1")
    if not space or not is_word(text):
        raise BadFormat
    return text, *_put(line, at + len(key) + 1)


def _put_batch(line: bytes, at: int) -> Arguments:
    """Return the name of a batch, followed by the arguments of `put`."""
    name, *put = _put_unique(line, at)
    return *_batch(name.encode(), 0), *put


def _batch(line: bytes, at: int) -> Arguments:
    name = line[at:].decode("latin-1")
    try:
        check_name(name)
    except BatchRefused:
        raise BadFormat from None
    return (name,)


def _put_replicated(line: bytes, at: int) -> Arguments:
    """Return a number of copies, followed by the arguments of `put`."""
    copies, at = _number(line, at, MOST_COPIES)
    if not copies:
        raise BadFormat
    return copies, *_put(line, at)


def _id(line: bytes, at: int) -> Arguments:
    return _numbers(line, at, _U64)


def _kick(line: bytes, at: int) -> Arguments:
    """Read a number as C's strtoul does: signs are accepted, what follows is ignored, and 32 bits of the number count."""
    match = _STRTOUL.match(line, at)
    if match is None or len(match[2]) > 200 or int(match[2]) > _U64:
        raise BadFormat
    number = -int(match[2]) if match[1] == b"-" else int(match[2])
    return (number & _U32,)


def _timeout(line: bytes, at: int) -> Arguments:
    """Return the seconds of a timeout; what follows them is ignored."""
    return (_number(line, at, _I31)[0],)


def _name(line: bytes, at: int) -> Arguments:
    if _NAME.fullmatch(line, at) is not None:
        return (line[at:].decode(),)
    if _OTHER_NAME.fullmatch(line, at) is None:
        raise BadFormat
    return (OtherName(line[at:].decode()),)


def quoted(text: str) -> str:
    """Return a text as a string of YAML in double quotes."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def shown(name: str) -> str:
    """Return the name of a tube as lists show it: in quotes if it is one that beanstalkd does not allow."""
    return name if _NAME.fullmatch(name.encode()) else quoted(name)


def existing(name: str, names: Container[str]) -> str:
    """Return the name in `names` that an OtherName is, as it is or as lists quote it. Raises BadFormat."""
    if name in names:
        return name
    match = _QUOTED.fullmatch(name)
    unquoted = _ESCAPED.sub(r"\1", match[1]) if match is not None else ""
    if unquoted not in names or shown(unquoted) != name:
        raise BadFormat
    return unquoted


def _pause(line: bytes, at: int) -> Arguments:
    """Return a tube's name, with or without spaces before it, and seconds."""
    while line[at : at + 1] == b" ":
        at += 1
    match = _NAME_BYTES.match(line, at)
    if match is None:
        raise BadFormat
    (delay,) = _numbers(line, match.end(), _U32)
    return *_name(match[0], 0), delay


def _nothing(line: bytes, at: int) -> Arguments:
    if at != len(line):
        raise BadFormat
    return ()


def _reserve_batch(line: bytes, at: int) -> Arguments:
    count, timeout = _numbers(line, at, _U32, _I31)
    if not 1 <= count <= MOST_JOBS:
        raise BadFormat
    return count, timeout


def _id_and_name(line: bytes, at: int) -> Arguments:
    number, at = _number(line, at, _U64)
    if line[at : at + 1] != b" ":
        raise BadFormat
    return number, *_name(line, at + 1)


def _list(line: bytes, at: int) -> Arguments:
    """Return a tube's name, a state, a limit, and an id (0 if there is none)."""
    words = line[at:].split(b" ")
    if not 3 <= len(words) <= 4:
        raise BadFormat
    numbers = [_numbers(word, 0, _U64)[0] for word in words[2:]]
    return *_name(words[0], 0), words[1].decode("latin-1"), numbers[0], numbers[1] if len(numbers) > 1 else 0


def _ids(line: bytes, at: int) -> Arguments:
    words = line[at:].split(b" ")
    if len(words) > MOST_JOBS:
        raise BadFormat
    return (tuple(_numbers(word, 0, _U64)[0] for word in words),)


ArgumentReader = Callable[[bytes, int], Arguments]
_FREE = Need(None)
_PUBLISH, _CONSUME = Need(Verb.PUBLISH, About.USED), Need(Verb.CONSUME, About.WATCHED)
_READ, _ON_JOB = Need(Verb.READ, About.USED), Need(Verb.CONSUME, About.JOB)
# The verbs in the order in which beanstalkd compares them; Penstock's own come before those that they begin with.
VERBS: dict[bytes, tuple[ArgumentReader, Need]] = {
    b"put ": (_put, _PUBLISH),
    b"put-unique ": (_put_unique, _PUBLISH),
    b"put-unless-pending ": (_put_unique, _PUBLISH),
    b"put-batch ": (_put_batch, _PUBLISH),
    b"put-grouped ": (_put_unique, _PUBLISH),
    b"put-replicated ": (_put_replicated, _PUBLISH),
    b"peek ": (_id, Need(Verb.READ, About.JOB)),
    b"peek-ready": (_nothing, _READ),
    b"peek-delayed": (_nothing, _READ),
    b"peek-buried": (_nothing, _READ),
    b"reserve-batch ": (_reserve_batch, _CONSUME),
    b"reserve-with-timeout ": (_timeout, _CONSUME),
    b"reserve-job ": (_id, _ON_JOB),
    b"reserve": (_nothing, _CONSUME),
    b"delete-batch ": (_ids, Need(Verb.CONSUME, About.JOBS)),
    b"delete ": (_id, _ON_JOB),
    b"release ": (lambda line, at: _numbers(line, at, _U64, _U32, _U32), _ON_JOB),
    b"bury ": (lambda line, at: _numbers(line, at, _U64, _U32), _ON_JOB),
    b"kick ": (_kick, Need(Verb.ACT, About.USED)),
    b"kick-job ": (_id, Need(Verb.ACT, About.JOB)),
    b"touch ": (_id, _ON_JOB),
    b"stats-job ": (_id, Need(Verb.STATS, About.JOB)),
    b"stats-tube ": (_name, Need(Verb.STATS, About.TUBE)),
    b"stats-batch ": (_batch, _FREE),  # both check the right to the topics with members
    b"close-batch ": (_batch, _FREE),
    b"stats": (_nothing, Need(Verb.STATS)),
    b"use ": (_name, _FREE),
    b"watch ": (_name, Need(Verb.CONSUME, About.TUBE)),
    b"ignore ": (_name, _FREE),
    b"list-tubes-watched": (_nothing, _FREE),
    b"list-tube-used": (_nothing, _FREE),
    b"list-tubes": (_nothing, Need(Verb.STATS)),
    b"headers": (_nothing, _FREE),
    b"quit": (lambda line, at: (), _FREE),
    b"pause-tube": (_pause, Need(Verb.ACT, About.TUBE)),
    b"clear-tube ": (_name, Need(Verb.DELETE, About.TUBE)),
    b"move-job ": (_id_and_name, Need(Verb.ACT, About.MOVED)),
    b"list-jobs ": (_list, Need(Verb.BROWSE, About.TUBE)),
}
_WITH_ARGUMENTS = {verb: reader for verb, (reader, _) in VERBS.items() if verb.endswith(b" ")}


def read_usual(line: bytes) -> tuple[bytes, tuple[int, ...]] | None:
    """Return verb and arguments of a line that workers send all the time; None: `verb_of` and its reader have to read it."""
    if line == b"reserve":
        return _RESERVE
    match = _USUAL.fullmatch(line)
    return (match[1], (int(match[2]),)) if match is not None else None


def verb_of(line: bytes) -> tuple[bytes, ArgumentReader]:
    """Return the verb that the line begins with, and the reader of the rest. Raises UnknownCommand."""
    space = line.find(b" ")
    reader = _WITH_ARGUMENTS.get(line[: space + 1]) if space > 0 else None
    if reader is not None:
        return line[: space + 1], reader
    for verb, (other, _) in VERBS.items():
        if line.startswith(verb):
            return verb, other
    raise UnknownCommand
