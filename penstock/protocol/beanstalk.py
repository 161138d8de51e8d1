"""The codec of beanstalkd's protocol, client's side: commands to bytes, and bytes to replies.

Laws: an argument can never become a second command, because names, keys and numbers are checked (ValueError). The work of
`ReplyDecoder` is linear in the bytes fed, however they are cut; a length is checked before any byte of a body is kept.

Commands marked "extension" exist in Penstock's nsqd and beanstalkd only (docs/beanstalkd.md). The original answers them with
UNKNOWN_COMMAND, but would execute the body of a put_unique as a command: send `PROBE_UNIQUE` first.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from penstock.protocol.framing import ProtocolError

MAX_COMMAND = 224  # bytes of a command's line with its CR LF, as beanstalkd reads it
MAX_REPLY_LINE = 256  # bytes of a reply's line with its CR LF; the longest is USING with a name of 200 bytes
MAX_BATCH = 100  # jobs in a reserve-batch or a delete-batch
MAX_SECONDS = MAX_U32 = (1 << 32) - 1  # of a priority, delay, time to run or count
MAX_TIMEOUT = (1 << 31) - 1  # s of a reserve's timeout
MAX_ID = (1 << 64) - 1
MAX_BODY = 64 << 20  # bytes of a reply's body that a decoder takes unless it is given another limit
STATES = ("ready", "reserved", "delayed", "buried")
PROBE_UNIQUE = b"put-unique \r\n"  # BAD_FORMAT from a server that has put-unique, UNKNOWN_COMMAND from any other

_NAME = re.compile(r"[A-Za-z0-9+/;.$_()][A-Za-z0-9\-+/;.$_()]{0,199}")
_KEY = re.compile(r"[!-~]{1,128}")

_NUMBERS = {  # word of a reply: how many numbers may follow it
    b"INSERTED": (1,), b"BURIED": (0, 1), b"KICKED": (0, 1), b"WATCHING": (1,),
    b"RESERVED": (2,), b"FOUND": (2,), b"OK": (1,),
    b"RESERVED_BATCH": (1,), b"DELETED_BATCH": (1,), b"CLEARED": (1,), b"MOVED": (1,),
    **dict.fromkeys(
        (
            b"DELETED", b"RELEASED", b"TOUCHED", b"PAUSED", b"NOT_FOUND", b"NOT_IGNORED", b"TIMED_OUT", b"DEADLINE_SOON",
            b"EXPECTED_CRLF", b"JOB_TOO_BIG", b"DRAINING", b"DUPLICATE", b"OUT_OF_MEMORY", b"INTERNAL_ERROR", b"BAD_FORMAT",
            b"UNKNOWN_COMMAND",
        ),
        (0,),
    ),
}  # fmt: skip
_HEAD = re.compile(rb"([A-Z_]{2,20})(?: ([0-9]{1,20}))?(?: ([0-9]{1,20}))?")
_USING = re.compile(rb"USING ([A-Za-z0-9+/;.$_()][A-Za-z0-9\-+/;.$_()]{0,199})")
_INT, _FLOAT = re.compile(r"-?[0-9]{1,20}"), re.compile(r"-?[0-9]{1,20}\.[0-9]{1,20}")
_FIGURE = re.compile(r"([A-Za-z0-9_-]{1,64}): ?(.*)")


class Reply(NamedTuple):
    """One reply of the server: its word, and what follows it."""

    word: str  # RESERVED, INSERTED ...
    number: int = 0  # the id or the count
    body: bytes = b""  # of RESERVED, FOUND and OK
    text: str = ""  # the name behind USING
    jobs: tuple[tuple[int, bytes], ...] = ()  # of RESERVED_BATCH: ids and bodies


class ReplyDecoder:
    """Decode the server's bytes into replies. A body of more than `max_body` bytes is refused."""

    __slots__ = ("_batch", "_batch_bytes", "_batch_left", "_buffer", "_max_body", "_need")

    def __init__(self, max_body: int = MAX_BODY) -> None:
        self._max_body = max_body
        self._buffer = bytearray()  # the beginning of one incomplete reply
        self._need = 0  # bytes that the buffer must hold before another look can complete anything
        self._batch_left = 0  # jobs of a RESERVED_BATCH that are still to come
        self._batch: list[tuple[int, bytes]] = []
        self._batch_bytes = 0  # bytes of the bodies in _batch

    def receive(self, data: bytes) -> list[Reply]:
        """Return the replies that `data` completes, in order. Raises ProtocolError; do not call it again after that."""
        if self._buffer:
            self._buffer += data
            if len(self._buffer) < self._need:
                return []
            data = bytes(self._buffer)
            self._buffer.clear()
        replies: list[Reply] = []
        at, size = 0, len(data)
        while at < size:
            end = data.find(b"\r\n", at, at + MAX_REPLY_LINE)
            if end < 0:
                if size - at >= MAX_REPLY_LINE:
                    raise ProtocolError(f"a reply's line is longer than {MAX_REPLY_LINE} bytes")
                self._need = 0
                break
            reply, length = self._head(data[at:end])
            if length >= 0:
                stop = end + 2 + length
                if size < stop + 2:
                    self._need = stop + 2 - at
                    break
                if data[stop : stop + 2] != b"\r\n":
                    raise ProtocolError("no line end behind a body")
                reply, end = Reply(reply.word, reply.number, data[end + 2 : stop]), stop
            at = end + 2
            self._add(reply, replies)
        if at < size:
            self._buffer += data[at:]
        return replies

    def _head(self, line: bytes) -> tuple[Reply, int]:
        """Return what the line says, and the length of the body that follows it; -1: none. Raises ProtocolError."""
        match = _HEAD.fullmatch(line)
        if match is None or match[1] == b"USING":  # a tube's name may be a number
            using = _USING.fullmatch(line)
            if using is None:
                raise ProtocolError(f"not a reply: {line[:40]!r}")
            return Reply("USING", text=using[1].decode()), -1
        word, first, second = match.groups()
        count = (first is not None) + (second is not None)
        if count not in _NUMBERS.get(word, ()):
            raise ProtocolError(f"not a reply: {line[:40]!r}")
        number = int(first or 0)
        if number > MAX_ID:
            raise ProtocolError(f"number of more than 64 bits: {line[:40]!r}")
        if word == b"OK":
            return Reply("OK"), self._checked(number)
        return Reply(word.decode(), number), self._checked(int(second)) if second is not None else -1

    def _checked(self, length: int) -> int:
        if length > self._max_body:
            raise ProtocolError(f"a body of {length} bytes is larger than the client's limit of {self._max_body}")
        if self._batch_left and self._batch_bytes + length > self._max_body:
            raise ProtocolError(f"the jobs of a batch are larger than the client's limit of {self._max_body} bytes")
        return length

    def _add(self, reply: Reply, replies: list[Reply]) -> None:
        """Append the reply to the replies, or to the batch that it belongs to."""
        if self._batch_left:
            if reply.word != "RESERVED":
                raise ProtocolError(f"{reply.word} inside a batch")
            self._batch.append((reply.number, reply.body))
            self._batch_bytes += len(reply.body)
            self._batch_left -= 1
            if not self._batch_left:
                replies.append(Reply("RESERVED_BATCH", len(self._batch), jobs=tuple(self._batch)))
                self._batch, self._batch_bytes = [], 0
        elif reply.word == "RESERVED_BATCH":
            if not 1 <= reply.number <= MAX_BATCH:
                raise ProtocolError(f"a batch of {reply.number} jobs")
            self._batch_left = reply.number
        else:
            replies.append(reply)


# commands of producers


def put(body: bytes, priority: int, delay: int, ttr: int) -> bytes:
    """Encode put; `delay` and `ttr` are in seconds."""
    if not (0 <= priority <= MAX_U32 and 0 <= delay <= MAX_SECONDS and 0 <= ttr <= MAX_SECONDS):
        raise ValueError(f"priority, delay and ttr must be 0 to {MAX_U32}: {priority}, {delay}, {ttr}")
    return b"put %d %d %d %d\r\n%b\r\n" % (priority, delay, ttr, len(body), body)


def put_unique(key: str, body: bytes, priority: int, delay: int, ttr: int) -> bytes:
    """Encode put-unique (extension); `key` is 1 to 128 printable ASCII characters without spaces."""
    if _KEY.fullmatch(key) is None:
        raise ValueError(f"not a key of 1 to 128 printable ASCII characters: {key[:200]!r}")
    return b"put-unique %b %b" % (key.encode(), put(body, priority, delay, ttr)[4:])


def use(tube: str) -> bytes:
    """Encode use."""
    return _line("use", check_name(tube))


# commands of workers


def reserve(timeout_s: int) -> bytes:
    """Encode reserve-with-timeout."""
    return b"reserve-with-timeout %d\r\n" % _within(timeout_s, MAX_TIMEOUT)


def reserve_job(job_id: int) -> bytes:
    """Encode reserve-job."""
    return _of_job(b"reserve-job", job_id)


def reserve_batch(count: int, timeout_s: int) -> bytes:
    """Encode reserve-batch (extension)."""
    if not 1 <= count <= MAX_BATCH:
        raise ValueError(f"a batch has 1 to {MAX_BATCH} jobs: {count}")
    return b"reserve-batch %d %d\r\n" % (count, _within(timeout_s, MAX_TIMEOUT))


def delete(job_id: int) -> bytes:
    """Encode delete."""
    return _of_job(b"delete", job_id)


def delete_batch(job_ids: Sequence[int]) -> bytes:
    """Encode delete-batch (extension). Raises ValueError also for ids that do not fit on one line."""
    if not 1 <= len(job_ids) <= MAX_BATCH:
        raise ValueError(f"a batch has 1 to {MAX_BATCH} jobs: {len(job_ids)}")
    return _line("delete-batch", *(str(_within(job_id, MAX_ID)) for job_id in job_ids))


def release(job_id: int, priority: int, delay: int) -> bytes:
    """Encode release; `delay` is in seconds."""
    numbers = _within(job_id, MAX_ID), _within(priority, MAX_U32), _within(delay, MAX_SECONDS)
    return b"release %d %d %d\r\n" % numbers


def bury(job_id: int, priority: int) -> bytes:
    """Encode bury."""
    return b"bury %d %d\r\n" % (_within(job_id, MAX_ID), _within(priority, MAX_U32))


def touch(job_id: int) -> bytes:
    """Encode touch."""
    return _of_job(b"touch", job_id)


def watch(tube: str) -> bytes:
    """Encode watch."""
    return _line("watch", check_name(tube))


def ignore(tube: str) -> bytes:
    """Encode ignore."""
    return _line("ignore", check_name(tube))


# commands that show and change tubes


def peek(job_id: int) -> bytes:
    """Encode peek."""
    return _of_job(b"peek", job_id)


def peek_first(state: str) -> bytes:
    """Encode peek-ready, peek-delayed or peek-buried."""
    if state not in ("ready", "delayed", "buried"):
        raise ValueError(f"not ready, delayed or buried: {state!r}")
    return _line(f"peek-{state}")


def kick(count: int) -> bytes:
    """Encode kick."""
    return b"kick %d\r\n" % _within(count, MAX_U32)


def kick_job(job_id: int) -> bytes:
    """Encode kick-job."""
    return _of_job(b"kick-job", job_id)


def stats() -> bytes:
    """Encode stats."""
    return b"stats\r\n"


def stats_job(job_id: int) -> bytes:
    """Encode stats-job."""
    return _of_job(b"stats-job", job_id)


def stats_tube(tube: str) -> bytes:
    """Encode stats-tube."""
    return _line("stats-tube", check_name(tube))


def list_tubes() -> bytes:
    """Encode list-tubes."""
    return b"list-tubes\r\n"


def pause_tube(tube: str, seconds: int) -> bytes:
    """Encode pause-tube; 0 ends the pause."""
    return _line("pause-tube", check_name(tube), str(_within(seconds, MAX_SECONDS)))


def clear_tube(tube: str) -> bytes:
    """Encode clear-tube (extension)."""
    return _line("clear-tube", check_name(tube))


def move_job(job_id: int, tube: str) -> bytes:
    """Encode move-job (extension)."""
    return _line("move-job", str(_within(job_id, MAX_ID)), check_name(tube))


def list_jobs(tube: str, state: str, limit: int, after: int) -> bytes:
    """Encode list-jobs (extension): at most `limit` (1 to 1000) ids behind the id `after`."""
    if state not in STATES:
        raise ValueError(f"not one of {', '.join(STATES)}: {state!r}")
    if not 1 <= limit <= 1000:
        raise ValueError(f"limit must be 1 to 1000: {limit}")
    return _line("list-jobs", check_name(tube), state, str(limit), str(_within(after, MAX_ID)))


# bodies


def parse_list(body: bytes) -> list[str]:
    """Return the items of a YAML list as the server writes it. Raises ProtocolError."""
    lines = _yaml_lines(body)
    if not all(line.startswith("- ") for line in lines):
        raise ProtocolError("not a list")
    return [_unquoted(line[2:]) for line in lines]


def parse_stats(body: bytes) -> dict[str, int | float | str]:
    """Return the figures of a YAML dictionary as the server writes it; numbers are converted. Raises ProtocolError."""
    found: dict[str, int | float | str] = {}
    for line in _yaml_lines(body):
        match = _FIGURE.fullmatch(line)
        if match is None:
            raise ProtocolError(f"not a figure: {line[:40]!r}")
        found[match[1]] = _number(match[2])
    return found


def check_name(tube: str) -> str:
    """Return the tube's name itself if it is valid. Raises ValueError."""
    if _NAME.fullmatch(tube) is None:
        raise ValueError(f"not a name of a tube: {tube[:210]!r}")
    return tube


def _line(*words: str) -> bytes:
    line = " ".join(words).encode() + b"\r\n"
    if len(line) > MAX_COMMAND:
        raise ValueError(f"a command of more than {MAX_COMMAND} bytes: {words[0]}")
    return line


def _of_job(verb: bytes, job_id: int) -> bytes:
    return b"%b %d\r\n" % (verb, _within(job_id, MAX_ID))


def _within(number: int, most: int) -> int:
    if not 0 <= number <= most:
        raise ValueError(f"must be 0 to {most}: {number}")
    return number


def _yaml_lines(body: bytes) -> list[str]:
    text = body.decode("utf-8", "replace")
    if not text.startswith("---\n"):
        raise ProtocolError("not YAML")
    return [line for line in text[4:].split("\n") if line]


def _number(text: str) -> int | float | str:
    if _INT.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else _unquoted(text)


def _unquoted(text: str) -> str:
    if len(text) >= 2 and text[0] == text[-1] == '"':
        return re.sub(r"\\(.)", r"\1", text[1:-1])
    return text
