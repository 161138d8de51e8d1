"""Decode the replies of beanstalkd's protocol; `penstock.jobs.calls` encodes the commands.

The work of `ReplyDecoder` is linear in the bytes fed, however they are cut; a length is checked before any byte of a body is
kept.
"""

import re
from typing import NamedTuple, TypeAlias

from penstock.protocol.framing import ProtocolError
from penstock.protocol.headers import Headers, split_headers

MAX_REPLY_LINE = 256  # bytes of a reply's line with its CR LF; the longest is USING with a name of 200 bytes
MAX_BATCH = 100  # jobs in a reserve-batch or a delete-batch
MAX_ID = (1 << 64) - 1
MAX_BODY = 64 << 20  # bytes of a reply's body that a decoder takes unless it is given another limit
PROBE_UNIQUE = b"put-unique \r\n"  # BAD_FORMAT from a server that has put-unique, UNKNOWN_COMMAND from any other

Stats: TypeAlias = dict[str, int | float | str]

_NAME = re.compile(r"[A-Za-z0-9+/;.$_()][A-Za-z0-9\-+/;.$_()]{0,199}")

_BARE = (
    b"DELETED RELEASED TOUCHED PAUSED NOT_FOUND NOT_IGNORED TIMED_OUT DEADLINE_SOON EXPECTED_CRLF JOB_TOO_BIG DRAINING"
    b" CLOSED HEADERS BATCH_DONE OUT_OF_MEMORY INTERNAL_ERROR BAD_FORMAT UNKNOWN_COMMAND"
).split()
_NUMBERS = {  # word of a reply: how many numbers may follow it
    b"INSERTED": (1,), b"BURIED": (0, 1), b"KICKED": (0, 1), b"WATCHING": (1,), b"RESERVED": (2,), b"FOUND": (2,), b"OK": (1,),
    b"RESERVED_BATCH": (1,), b"DELETED_BATCH": (1,), b"CLEARED": (1,), b"MOVED": (1,),
    b"DUPLICATE": (0, 1), **dict.fromkeys(_BARE, (0,)),
}  # fmt: skip
_HEAD = re.compile(rb"([A-Z_]{2,20})(?: ([0-9]{1,20}))?(?: ([0-9]{1,20}))?")
_USING = re.compile(rb"USING ([A-Za-z0-9+/;.$_()][A-Za-z0-9\-+/;.$_()]{0,199})")
_INT, _FLOAT = re.compile(r"-?[0-9]{1,20}"), re.compile(r"-?[0-9]{1,20}\.[0-9]{1,20}")
_STAT = re.compile(r"([A-Za-z0-9_-]{1,64}): ?(.*)")


class Reply(NamedTuple):
    """One reply of the server: its word, and what follows it."""

    word: str  # RESERVED, INSERTED ...
    number: int = 0  # the id or the count
    body: bytes = b""  # of RESERVED, FOUND and OK
    text: str = ""  # the name after USING
    # of RESERVED_BATCH: ids, bodies, and any headers
    jobs: tuple[tuple[int, bytes] | tuple[int, bytes, Headers], ...] = ()
    headers: Headers = ()  # of RESERVED and FOUND, see `with_headers`


def with_headers(reply: Reply) -> Reply:
    """Return a reply whose bodies of jobs begin with headers, with these apart. Raises ProtocolError if they do not."""
    try:
        if reply.word in ("RESERVED", "FOUND"):
            headers, body = split_headers(reply.body)
            return reply._replace(body=body, headers=headers)
        split = [(number, *split_headers(content)) for number, content, *_ in reply.jobs]
    except ValueError as error:
        raise ProtocolError(f"a job without headers: {error}") from error
    return reply._replace(jobs=tuple((number, body, headers) for number, headers, body in split))


class ReplyDecoder:
    """A decoder of the server's replies. A body of more than `max_body` bytes is refused."""

    __slots__ = ("_batch", "_batch_bytes", "_batch_left", "_buffer", "_max_body", "_need")

    def __init__(self, max_body: int = MAX_BODY) -> None:
        self._max_body = max_body
        self._buffer = bytearray()  # the beginning of one incomplete reply
        self._need = 0  # bytes that the buffer must hold to complete a reply, if known
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
                    raise ProtocolError("no line end after a body")
                reply, end = Reply(reply.word, reply.number, data[end + 2 : stop]), stop
            at = end + 2
            self._add(reply, replies)
        if at < size:
            self._buffer += data[at:]
        return replies

    def _head(self, line: bytes) -> tuple[Reply, int]:
        """Return the reply of a line, and the length of the body that follows it; -1: none. Raises ProtocolError."""
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


# bodies


def parse_list(body: bytes) -> list[str]:
    """Return the items of a YAML list as the server writes it. Raises ProtocolError."""
    lines = _yaml_lines(body)
    if not all(line.startswith("- ") for line in lines):
        raise ProtocolError("not a list")
    return [_unquoted(line[2:]) for line in lines]


def parse_stats(body: bytes) -> Stats:
    """Return a YAML dictionary as the server writes it, with numbers converted. Raises ProtocolError."""
    found: Stats = {}
    for line in _yaml_lines(body):
        match = _STAT.fullmatch(line)
        if match is None:
            raise ProtocolError(f"not a statistic: {line[:40]!r}")
        found[match[1]] = _number(match[2])
    return found


def check_name(tube: str) -> str:
    """Return the tube's name itself if it is valid. Raises ValueError."""
    if _NAME.fullmatch(tube) is None:
        raise ValueError(f"not a name of a tube: {tube[:210]!r}")
    return tube


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
