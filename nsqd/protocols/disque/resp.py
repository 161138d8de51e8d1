"""Read requests and write replies of RESP, the protocol of Redis that Disque's clients speak.

The functions here look at bytes, and change no state. They decide as Disque 1.0-rc1 does, with two bounds of ours: a request
has at most 1,024 arguments, and may need 64 KiB more than the largest argument that is allowed.
"""

import re
from collections.abc import Iterable

from shared.foreign import MOST_LOOKED_AT, Foreign, recognize, recognize_line

MOST_ARGUMENTS = 1024  # of a request; Disque takes 1,048,576, each of which costs memory even if it is empty
MOST_LINE = 64 * 1024  # bytes of an inline request, a count or a length that may come before the line ends
MOST_OVERHEAD = 64 * 1024  # bytes of a request without one argument of the largest size: lengths, queues, 1,000 job ids
NIL, NIL_ARRAY = b"$-1\r\n", b"*-1\r\n"
NULL3 = b"_\r\n"  # nil for a client that asked for RESP3
_DOLLAR, _STAR, _CR = b"$*\r"
# The lines of nearly all requests: finding one here costs a third of reading the number.
_COUNTS = {b"*%d" % count: count for count in range(1, 64)}
_LENGTHS = {b"$%d" % length: length for length in range(1024)}
_NUMBER = re.compile(rb"0|-?[1-9][0-9]{0,18}")
_OWN = (None, Foreign.RESP, Foreign.PING, Foreign.BEANSTALK)  # protocols that an inline command may seem to be
# A word of an inline request, and a quoted part at which it ends; a space or nothing must follow the closing quote.
_WORD = re.compile(
    rb"""([^ \t\n\r"']*)"""
    rb"""(?:"([^"\\]*(?:\\.[^"\\]*)*)"(?!\S)|'([^'\\]*(?:\\(?:'|(?!'))[^'\\]*)*)'(?!\S))?""",
    re.DOTALL,
)
_ESCAPE = re.compile(rb"\\(?:x([0-9a-fA-F]{2})|(.))", re.DOTALL)
ESCAPED = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"a": b"\a"}
_NEWLINES = bytes.maketrans(b"\r\n", b"  ")


class ProtocolError(Exception):
    """The bytes are no request: the peer sends `line` and closes the connection."""

    def __init__(self, text: bytes) -> None:
        super().__init__(text)
        self.text = text  # the error in Disque's words, without "-ERR Protocol error: "

    @property
    def line(self) -> bytes:
        """Return the whole reply, with the end of its line."""
        return error(b"ERR Protocol error: " + self.text)


class ForeignRequest(ProtocolError):
    """A line of another protocol, perhaps of a browser's page: nothing that follows it is executed."""

    def __init__(self) -> None:
        super().__init__(b"only RESP is supported")


def read_request(data: bytes, at: int, most_bytes: int) -> tuple[list[bytes], int] | int:
    """Return the arguments of the request that begins at `at`, and where it ends. most_bytes: the limit for one argument.

    If the request is not complete, return the number of bytes from `at` on that another call needs at least.
    A bulk is waited for as a whole, so a request is read again at most once for each byte of its counts and lengths. The list
    is empty for a request that is to be ignored: a blank line, or a count below 1. Raises ProtocolError.
    """
    start, size = at, len(data)
    if at >= size:
        return 1
    if data[at] != _STAR:
        return _read_inline(data, at)
    line_end = data.find(b"\r", at, at + MOST_LINE + 1)
    if not 0 <= line_end < size - 1:
        return _wait_for_line(data, start, at, line_end, b"too big mbulk count string")
    count = _COUNTS.get(data[at:line_end]) or _read_count(data[at + 1 : line_end])
    at = line_end + 2  # Disque does not look at the byte after CR, nor at the two after a bulk
    limit = start + most_bytes + MOST_OVERHEAD
    arguments = []
    for _ in range(count):
        line_end = data.find(b"\r", at, at + MOST_LINE + 1)
        if not 0 <= line_end < size - 1:
            return _wait_for_line(data, start, at, line_end, b"too big bulk count string")
        length = _LENGTHS.get(data[at:line_end])
        if length is None:
            length = _read_length(data[at : line_end + 1])
        begin = line_end + 2
        at = begin + length
        if length > most_bytes or at > limit:
            raise ProtocolError(b"invalid bulk length")
        if at + 2 > size:
            return at + 2 - start
        arguments.append(data[begin:at])
        at += 2
    return arguments, at


def _wait_for_line(data: bytes, start: int, at: int, line_end: int, text: bytes) -> int:
    """Return the bytes from `start` on that the line at `at` needs. line_end: of its CR, or -1. Raises ProtocolError(text)."""
    if line_end < 0 and len(data) - at > MOST_LINE:
        raise ProtocolError(text)
    return len(data) + 1 - start


def _read_number(text: bytes) -> int | None:
    """Return the number, or None if it is not written in the one way that Disque accepts, or needs more than 64 bits."""
    if _NUMBER.fullmatch(text) is None:
        return None
    number = int(text)
    return number if -(1 << 63) <= number < 1 << 63 else None


def _read_count(text: bytes) -> int:
    """Return the number of arguments; 0 or less: there are none. Raises ProtocolError."""
    count = _read_number(text)
    if count is None or count > MOST_ARGUMENTS:
        raise ProtocolError(b"invalid multibulk length")
    return count


def _read_length(line: bytes) -> int:
    """Return the length of a bulk. line: from "$" to CR, both included. Raises ProtocolError."""
    if line[0] != _DOLLAR:
        raise ProtocolError(b"expected '$', got '%c'" % line[0])
    length = _read_number(line[1:-1])
    if length is None or length < 0:
        raise ProtocolError(b"invalid bulk length")
    return length


def _read_inline(data: bytes, at: int) -> tuple[list[bytes], int] | int:
    """Return the words of the line that begins at `at`, and where it ends; or as read_request does. Raises ProtocolError."""
    newline = data.find(b"\n", at, at + MOST_LINE + 1)
    if newline < 0:
        if recognize(data[at : at + MOST_LOOKED_AT]) not in _OWN:
            raise ForeignRequest
        return _wait_for_line(data, at, at, newline, b"too big inline request")
    line_end = newline - 1 if newline > at and data[newline - 1] == _CR else newline
    line = data[at:line_end]
    if recognize_line(line) not in _OWN:
        raise ForeignRequest
    words = split_words(line)
    if words is None:
        raise ProtocolError(b"unbalanced quotes in request")
    if len(words) > MOST_ARGUMENTS:
        raise ProtocolError(b"too big inline request")
    return [word for word in words if word], newline + 1


def split_words(line: bytes) -> list[bytes] | None:
    """Return the words of a line, without quotes and escapes; None: quotes are unbalanced, or followed by no space."""
    words, at = list[bytes](), 0
    line = line.strip()
    while at < len(line):
        match = _WORD.match(line, at)
        assert match is not None  # every part of the pattern may be empty
        at = match.end()
        if line.startswith((b'"', b"'"), at):
            return None
        word, double, single = match.groups(b"")
        words.append(word + _ESCAPE.sub(_unescape, double) + single.replace(b"\\'", b"'"))
        while line[at : at + 1].isspace():
            at += 1
    return words


def _unescape(match: re.Match[bytes]) -> bytes:
    if match[1] is not None:
        return bytes((int(match[1], 16),))
    return ESCAPED.get(match[2], match[2])


def status(text: bytes) -> bytes:
    """Return a status reply. text: without CR and LF."""
    return b"+%b\r\n" % text


def error(text: bytes) -> bytes:
    """Return an error reply. text: with its code, such as ERR. As in Disque, CR and LF become spaces: it may quote a client."""
    return b"-%b\r\n" % text.translate(_NEWLINES)


def integer(number: int) -> bytes:
    """Return the reply that is this whole number."""
    return b":%d\r\n" % number


def bulk(body: bytes | None) -> bytes:
    """Return a bulk reply; None is nil."""
    return NIL if body is None else b"$%d\r\n%b\r\n" % (len(body), body)


def array(items: Iterable[bytes]) -> bytes:
    """Return an array of the items, which are replies themselves."""
    encoded = list(items)
    return b"*%d\r\n%b" % (len(encoded), b"".join(encoded))


def words(items: Iterable[bytes]) -> bytes:
    """Return an array with a bulk for each item."""
    return array(map(bulk, items))


def mapping(pairs: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return a map of RESP3. pairs: keys and values, which are replies themselves."""
    encoded = [key + value for key, value in pairs]
    return b"%%%d\r\n%b" % (len(encoded), b"".join(encoded))
