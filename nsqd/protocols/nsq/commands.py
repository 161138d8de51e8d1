"""Read single commands exactly out of the buffer: lines, numbers, bodies, and the pieces of an MPUB.

The functions here look at bytes and raise WireError. The only state that changes is the scan of an MPUB, which resumes where
its bytes ran out, so that input in small pieces costs no more than input in one piece.
"""

from struct import Struct

from nsqd.core.message.attributes import NONE, Attributes, is_word, read_sequence
from nsqd.protocols.nsq.batch import SLICE
from nsqd.protocols.nsq.errors import Dropped, WireError, quote
from nsqd.protocols.nsq.settings import MAX_LINE
from penstock.protocol.headers import MOST_PACKED_BYTES, Headers, unpack_headers
from penstock.protocol.names import is_valid_name

INT32 = Struct(">i")
BYTES_OF_A_BODY = 41  # bytes that CPython takes for a body beyond its content, including its place in a list
_DIGITS = frozenset(b"0123456789")
_UINT64 = (1 << 64) - 1


class NeedMore(Exception):
    """The command needs `size` bytes from its beginning, or from `start` on. `at_eof`: the error if no more input comes."""

    def __init__(self, size: int, at_eof: WireError | None = None, start: int = 0) -> None:
        super().__init__(size)
        self.size = size
        self.at_eof = at_eof
        self.start = start  # position in the buffer; 0: where the command began


class Later(Exception):
    """Enough was done for a turn: the command continues in the next one, with the input from `start` on."""

    def __init__(self, start: int) -> None:
        super().__init__(start)
        self.start = start


def read_line(data: bytes, start: int) -> tuple[list[bytes], int]:
    """Return the words of the command line at `start`, and where it ends. Raises NeedMore, or Dropped if it is too long."""
    newline = data.find(b"\n", start, start + MAX_LINE)
    if newline < 0:
        if len(data) - start >= MAX_LINE:
            raise Dropped
        raise NeedMore(len(data) - start + 1)
    line = data[start:newline]
    if line.endswith(b"\r"):
        line = line[:-1]
    return line.split(b" "), newline + 1


def require(allowed: bool, command: str) -> None:
    """Raise WireError if the state of the connection does not allow the command."""
    if not allowed:
        raise WireError("E_INVALID", f"cannot {command} in current state")


def read_name(word: bytes, code: str, what: str) -> str:
    """Return a valid topic or channel name. Raises WireError with `code` if the name is not valid."""
    name = word.decode("latin-1")
    if not is_valid_name(name):
        raise WireError(code, f"{what} name {quote(word)} is not valid")
    return name


def read_body(data: bytes, start: int, at: int, words: "BodyWords", limit: int) -> tuple[bytes, int]:
    """Return the body (int32 length, bytes) at `at` of the command at `start`, and its end. Raises NeedMore, WireError."""
    size = read_size(data, start, at, words.at_eof_size)
    if size <= 0:
        raise words.invalid(size)
    if size > limit:
        raise words.too_big(size, limit)
    end = at + 4 + size
    if len(data) < end:
        raise NeedMore(end - start, words.at_eof_body)
    return data[at + 4 : end], end


def read_headers(data: bytes, start: int, at: int) -> tuple[Headers, int]:
    """Return the headers (int32 length, msgpack) at `at` of the command at `start`, and their end. Raises as `read_body`."""
    packed, end = read_body(data, start, at, HEADERS, MOST_PACKED_BYTES)
    try:
        return unpack_headers(packed), end
    except ValueError as error:
        raise WireError("E_BAD_MESSAGE", f"headers are not valid: {error}") from None


def read_size(data: bytes, start: int, at: int, at_eof: WireError) -> int:
    """Return the int32 at `at`. Raises NeedMore with `at_eof`."""
    if len(data) < at + 4:
        raise NeedMore(at + 4 - start, at_eof)
    size: int = INT32.unpack_from(data, at)[0]
    return size


class BodyWords:
    """The errors of one command's body, in the wording of the original, which differs from command to command."""

    def __init__(self, code: str, command: str, noun: str, big: str) -> None:
        self._code = code
        self._invalid = f"{command} invalid {noun} size"
        self._big = f"{command} {big} too big"
        self.at_eof_size = WireError(code, f"{command} failed to read {noun} size")
        self.at_eof_body = WireError(code, f"{command} failed to read {noun}")

    def invalid(self, size: int) -> WireError:
        """Return the error for a size that is not positive."""
        return WireError(self._code, f"{self._invalid} {size}")

    def too_big(self, size: int, limit: int) -> WireError:
        """Return the error for a size above the limit."""
        return WireError(self._code, f"{self._big} {size} > {limit}")


IDENTIFY_BODY = BodyWords("E_BAD_BODY", "IDENTIFY", "body", "body")
AUTH_BODY = BodyWords("E_BAD_BODY", "AUTH", "body", "body")
PUB_BODY = BodyWords("E_BAD_MESSAGE", "PUB", "message body", "message")
DPUB_BODY = BodyWords("E_BAD_MESSAGE", "DPUB", "message body", "message")
HEADERS = BodyWords("E_BAD_MESSAGE", "PUB", "headers", "headers")
MPUB_BODY = BodyWords("E_BAD_BODY", "MPUB", "body", "body")
_MPUB_COUNT_EOF = WireError("E_BAD_BODY", "MPUB failed to read message count")
_MPUB_MESSAGE_EOF = WireError("E_BAD_MESSAGE", "MPUB failed to read message body")


class MpubScan:
    """The messages of one MPUB, collected as they arrive.

    The inner lengths decide, not the outer one, as in the original. Unlike there, their sum is bounded by the body limit,
    because a peer must not make the daemon collect without end.
    """

    def __init__(
        self, topic: str, count: int, max_msg_size: int, max_body_size: int, attributes: Attributes = NONE
    ) -> None:
        self.topic = topic
        self.attributes = attributes
        self.bodies: list[bytes] = []
        self.size = 0  # bytes of bodies collected so far
        self.memory = 0  # bytes of memory that the whole MPUB will take, according to its outer length
        self._count = count
        self._max_msg_size = max_msg_size
        self._max_body_size = max_body_size

    def feed(self, data: bytes, at: int) -> int:
        """Take the complete messages from `at` on, up to SLICE; return where the rest begins. Raises WireError."""
        bodies, limit = self.bodies, self._max_msg_size
        count = min(self._count, len(bodies) + SLICE)
        available = len(data)
        while len(bodies) < count:
            if available < at + 4:
                return at
            size = INT32.unpack_from(data, at)[0]
            if not 0 < size <= limit:
                raise self._bad_size(size)
            end = at + 4 + size
            self.size += size
            if self.size > self._max_body_size:
                raise MPUB_BODY.too_big(self.size, self._max_body_size)
            if available < end:
                self.size -= size
                return at
            bodies.append(data[at + 4 : end])
            at = end
        return at

    def need(self, data: bytes, at: int) -> NeedMore:
        """Return the NeedMore for the next message, after `feed` stopped at `at` because input ran out."""
        index = len(self.bodies)
        if len(data) < at + 4:
            return NeedMore(4, WireError("E_BAD_MESSAGE", f"MPUB failed to read message({index}) body size"), at)
        return NeedMore(4 + INT32.unpack_from(data, at)[0], _MPUB_MESSAGE_EOF, at)

    @property
    def complete(self) -> bool:
        """Return True when all messages have arrived."""
        return len(self.bodies) == self._count

    def _bad_size(self, size: int) -> WireError:
        if size <= 0:
            return WireError("E_BAD_MESSAGE", f"MPUB invalid message({len(self.bodies)}) body size {size}")
        return WireError("E_BAD_MESSAGE", f"MPUB message too big {size} > {self._max_msg_size}")


def read_mpub_count(data: bytes, start: int, at: int, max_body_size: int) -> tuple[int, int]:
    """Read the outer length and the count of an MPUB. Return the count and where the first message begins."""
    size = read_size(data, start, at, MPUB_BODY.at_eof_size)
    if size <= 0:
        raise MPUB_BODY.invalid(size)
    if size > max_body_size:
        raise MPUB_BODY.too_big(size, max_body_size)
    count = read_size(data, start, at + 4, _MPUB_COUNT_EOF)
    if not 0 < count <= (max_body_size - 4) // 5:
        raise WireError("E_BAD_BODY", f"MPUB invalid message count {count}")
    return count, at + 8


def read_attributes(words: list[bytes], command: str) -> Attributes:
    """Parse the words after a publishing command's own: none, a key, or a producer and a sequence. Raises WireError."""
    texts = [word.decode("latin-1") for word in words]
    if not texts:
        return NONE
    if len(texts) == 1 and is_word(texts[0]):
        return Attributes(key=texts[0])
    number = read_sequence(texts[1]) if len(texts) == 2 and is_word(texts[0]) else None
    if number is None:
        raise WireError("E_INVALID", f"{command} wants a key, or a producer and a sequence")
    return Attributes(producer=texts[0], sequence=number)


def parse_number(word: bytes) -> int | None:
    """Return the number of these digits, wrapped at 64 bits as in the original; "" is 0; None if there is another character."""
    if not _DIGITS.issuperset(word):
        return None
    return int(word or b"0") & _UINT64 if len(word) < 4000 else None
