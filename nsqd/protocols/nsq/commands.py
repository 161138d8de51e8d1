"""Reading single commands out of the buffer, exactly: lines, numbers, bodies, and the pieces of an MPUB.

Everything here looks at bytes and raises WireError; nothing changes any state but the scan of an MPUB, which resumes where
its bytes ran out, so that input in small pieces costs no more than input in one.
"""

from struct import Struct

from nsqd.core.message.attributes import NONE, Attributes, is_word, read_sequence
from nsqd.protocols.nsq.batch import PORTION
from nsqd.protocols.nsq.errors import Dropped, WireError, quote
from nsqd.protocols.nsq.settings import MAX_LINE
from penstock.protocol.names import is_valid_name

INT32 = Struct(">i")
BYTES_OF_A_BODY = 41  # that CPython takes for a body beside its bytes, with its place in a list
_DIGITS = frozenset(b"0123456789")
_UINT64 = (1 << 64) - 1


class NeedMore(Exception):
    """The command is not complete: come back with at least `size` bytes from its beginning, or from `start` on.

    `at_eof` is what the peer is told if no more comes; None: nothing.
    """

    def __init__(self, size: int, at_eof: WireError | None = None, start: int = 0) -> None:
        super().__init__(size)
        self.size = size
        self.at_eof = at_eof
        self.start = start  # in the buffer; 0: where the command began


class Later(Exception):
    """Enough was done for a turn: the command goes on in the next one, with the input from `start` on."""

    def __init__(self, start: int) -> None:
        super().__init__(start)
        self.start = start


def read_line(data: bytes, start: int) -> tuple[list[bytes], int]:
    """The words of the command line at `start`, and where the next byte is. Raises NeedMore, or Dropped if too long."""
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
    """WireError if the state of the connection does not allow the command."""
    if not allowed:
        raise WireError("E_INVALID", f"cannot {command} in current state")


def read_name(word: bytes, code: str, what: str) -> str:
    """A valid topic or channel name, or the error that it is none."""
    name = word.decode("latin-1")
    if not is_valid_name(name):
        raise WireError(code, f"{what} name {quote(word)} is not valid")
    return name


def read_body(data: bytes, start: int, at: int, words: "BodyWords", limit: int) -> tuple[bytes, int]:
    """A body (int32 length, bytes) at `at`, of a command that began at `start`. Lengths are checked before bytes are
    waited for. Returns the body and where the next byte is."""
    size = read_size(data, start, at, words.at_eof_size)
    if size <= 0:
        raise words.invalid(size)
    if size > limit:
        raise words.too_big(size, limit)
    end = at + 4 + size
    if len(data) < end:
        raise NeedMore(end - start, words.at_eof_body)
    return data[at + 4 : end], end


def read_size(data: bytes, start: int, at: int, at_eof: WireError) -> int:
    """The int32 at `at`."""
    if len(data) < at + 4:
        raise NeedMore(at + 4 - start, at_eof)
    size: int = INT32.unpack_from(data, at)[0]
    return size


class BodyWords:
    """The errors of one command's body, in its own words: they differ from command to command."""

    def __init__(self, code: str, command: str, noun: str, big: str) -> None:
        self._code = code
        self._invalid = f"{command} invalid {noun} size"
        self._big = f"{command} {big} too big"
        self.at_eof_size = WireError(code, f"{command} failed to read {noun} size")
        self.at_eof_body = WireError(code, f"{command} failed to read {noun}")

    def invalid(self, size: int) -> WireError:
        """A size that is not positive."""
        return WireError(self._code, f"{self._invalid} {size}")

    def too_big(self, size: int, limit: int) -> WireError:
        """A size above the limit."""
        return WireError(self._code, f"{self._big} {size} > {limit}")


IDENTIFY_BODY = BodyWords("E_BAD_BODY", "IDENTIFY", "body", "body")
AUTH_BODY = BodyWords("E_BAD_BODY", "AUTH", "body", "body")
PUB_BODY = BodyWords("E_BAD_MESSAGE", "PUB", "message body", "message")
DPUB_BODY = BodyWords("E_BAD_MESSAGE", "DPUB", "message body", "message")
MPUB_BODY = BodyWords("E_BAD_BODY", "MPUB", "body", "body")
_MPUB_COUNT_EOF = WireError("E_BAD_BODY", "MPUB failed to read message count")
_MPUB_MESSAGE_EOF = WireError("E_BAD_MESSAGE", "MPUB failed to read message body")


class MpubScan:
    """The messages of one MPUB, collected as they arrive.

    The inner lengths decide, not the outer one (as in the original); unlike there their sum is bounded by the body limit,
    for a peer must not make the daemon collect without end.
    """

    def __init__(
        self, topic: str, count: int, max_msg_size: int, max_body_size: int, attributes: Attributes = NONE
    ) -> None:
        self.topic = topic
        self.attributes = attributes
        self.bodies: list[bytes] = []
        self.size = 0  # bytes of body so far
        self.memory = 0  # bytes that all of it will take, as far as its outer length tells
        self._count = count
        self._max_msg_size = max_msg_size
        self._max_body_size = max_body_size

    def feed(self, data: bytes, at: int) -> int:
        """Take what is complete from `at` on, up to PORTION messages; return where the rest begins. Raises WireError."""
        bodies, limit = self.bodies, self._max_msg_size
        count = min(self._count, len(bodies) + PORTION)
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
        """What the next message wants, when `feed` stopped at `at` for want of input."""
        index = len(self.bodies)
        if len(data) < at + 4:
            return NeedMore(4, WireError("E_BAD_MESSAGE", f"MPUB failed to read message({index}) body size"), at)
        return NeedMore(4 + INT32.unpack_from(data, at)[0], _MPUB_MESSAGE_EOF, at)

    @property
    def complete(self) -> bool:
        """True when all messages are here."""
        return len(self.bodies) == self._count

    def _bad_size(self, size: int) -> WireError:
        if size <= 0:
            return WireError("E_BAD_MESSAGE", f"MPUB invalid message({len(self.bodies)}) body size {size}")
        return WireError("E_BAD_MESSAGE", f"MPUB message too big {size} > {self._max_msg_size}")


def read_mpub_count(data: bytes, start: int, at: int, max_body_size: int) -> tuple[int, int]:
    """The outer length and the count of an MPUB. Returns the count and where the first message begins."""
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
    """What stands behind a publishing command's own words: nothing, a key, or a producer and a sequence."""
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
    """Digits only, wrapping silently at 64 bits as the original's parser does; None if it is no number. "" is 0."""
    if not _DIGITS.issuperset(word):
        return None
    return int(word or b"0") & _UINT64 if len(word) < 4000 else None
