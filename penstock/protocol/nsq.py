"""The client's side of nsqd's TCP protocol V2: commands as bytes, frames as values.

An encoder never lets its arguments become a second command: it checks names, ids and numbers, and
sends bodies after their length; it raises ValueError for an argument that can never be legal. Limits that only the
server knows (body sizes, RDY, timeouts) are left to the server.

See docs/contributing/design/nsq-protocol.md.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from struct import Struct
from typing import NamedTuple, TypeAlias

from penstock.protocol.framing import LengthPrefixed, ProtocolError, pack_length
from penstock.protocol.headers import Headers, pack_headers, split_headers
from penstock.protocol.names import is_valid_name

MAGIC_V2 = b"  V2"
OK = b"OK"
HEARTBEAT = b"_heartbeat_"
CLOSE_WAIT = b"CLOSE_WAIT"
ID_LENGTH = 16  # bytes
_NAMES = 4096  # names that are not checked again

# After any other error nsqd closes the connection (docs/contributing/design/nsq-protocol.md#frames).
NON_FATAL = frozenset(("E_FIN_FAILED", "E_REQ_FAILED", "E_TOUCH_FAILED"))


@dataclass(frozen=True, slots=True)
class Response:
    """The answer to a command, in the order of the commands; or a heartbeat, at any time."""

    data: bytes


@dataclass(frozen=True, slots=True)
class ErrorFrame:
    """A refusal by the server: `code` is the protocol's (E_...), `text` is for people."""

    code: str
    text: str

    @property
    def fatal(self) -> bool:
        """Return True if the server closes the connection after this frame."""
        return self.code not in NON_FATAL

    def __str__(self) -> str:
        return f"{self.code} {self.text}".rstrip()


class Message(NamedTuple):
    """One delivery of one message (docs/contributing/design/nsq-protocol.md)."""

    timestamp: int  # ns since the epoch, set at publish
    attempts: int  # 1 at the first delivery
    id: bytes  # ID_LENGTH bytes
    body: bytes
    headers: Headers = ()


Frame: TypeAlias = Response | ErrorFrame | Message

# The name of a producer and the number of its first message in a publish. A server that agreed to deduplication takes a message
# whose number is not above the last one of that producer and topic for a repeated one.
Number: TypeAlias = tuple[str, int]

BEAT = Response(HEARTBEAT)  # the object for each heartbeat
_COMMON = {OK: Response(OK), HEARTBEAT: BEAT}

_TYPE = Struct(">i")  # of a frame: the int32 after its length
_RESPONSE, _ERROR, _MESSAGE_TYPE, _MESSAGE_WITH_HEADERS = 0, 1, 2, 3
MAX_ATTEMPTS = 65535  # which 16 bits can hold
_MESSAGE = Struct(">iqH16s")  # type, timestamp, attempts, id; then the body


class FrameDecoder:
    """A decoder of nsqd's frames. A frame larger than max_frame_size bytes (type and data) is a ProtocolError."""

    __slots__ = ("_payloads",)

    def __init__(self, max_frame_size: int) -> None:
        self._payloads = LengthPrefixed(max_frame_size, min_size=_TYPE.size)

    def receive(self, data: bytes) -> list[Frame]:
        """Return the frames that `data` completes, in order. Raises ProtocolError; do not call it again after that."""
        return [_frame(payload) for payload in self._payloads.receive(data)]


def _frame(payload: bytes) -> Frame:
    kind = _TYPE.unpack_from(payload)[0]
    if kind == _MESSAGE_TYPE:  # checked first, since this is the hot path
        return _message(payload)
    if kind == _MESSAGE_WITH_HEADERS:
        message = _message(payload)
        try:
            headers, body = split_headers(message.body)
        except ValueError as error:
            raise ProtocolError(f"message frame: {error}") from error
        return message._replace(headers=headers, body=body)
    if kind == _RESPONSE:
        data = payload[4:]
        return _COMMON.get(data) or Response(data)
    if kind == _ERROR:
        code, _, text = payload[4:].decode("utf-8", "replace").partition(" ")
        return ErrorFrame(code, text)
    raise ProtocolError(f"frame type {kind}")


def _message(payload: bytes) -> Message:
    if len(payload) < _MESSAGE.size:
        raise ProtocolError(f"message frame of {len(payload)} bytes")
    _, timestamp, attempts, id = _MESSAGE.unpack_from(payload)
    return Message(timestamp, attempts, id, payload[_MESSAGE.size :])


def identify(settings: Mapping[str, object]) -> bytes:
    """Encode IDENTIFY with `settings` as its JSON body (the keys are in docs/reference/client-settings.md)."""
    return b"IDENTIFY\n" + _counted(json.dumps(settings, separators=(",", ":")).encode())


def auth(secret: bytes) -> bytes:
    """Encode AUTH, needed before SUB and every publish if IDENTIFY answered auth_required."""
    return b"AUTH\n" + _counted(secret)


def check_topic(topic: str) -> None:
    """Raise ValueError for a name that no topic can have."""
    _name(topic)


def sub(topic: str, channel: str) -> bytes:
    """Encode SUB, which a connection may send once."""
    return b"SUB %b %b\n" % (_name(topic), _name(channel))


def pub(topic: str, body: bytes, number: Number | None = None) -> bytes:
    """Encode PUB, which publishes one message."""
    return b"PUB %b%b\n%b%b" % (_name(topic), _number(number), pack_length(len(body)), body)


def mpub(topic: str, bodies: Sequence[bytes], number: Number | None = None) -> bytes:
    """Encode MPUB, which publishes all of the bodies or none of them. `number` is that of the first."""
    packed = b"".join([pack_length(len(body)) + body for body in bodies])
    head = b"MPUB %b%b\n%b%b" % (_name(topic), _number(number), pack_length(4 + len(packed)), pack_length(len(bodies)))
    return head + packed


def dpub(topic: str, delay_ms: int, body: bytes, number: Number | None = None) -> bytes:
    """Encode DPUB, which publishes one message that is not delivered before delay_ms have passed."""
    return b"DPUB %b %d%b\n" % (_name(topic), _natural(delay_ms), _number(number)) + _counted(body)


def with_headers(command: bytes, headers: Headers) -> bytes:
    """Return a PUB, MPUB or DPUB with valid headers for its messages, for a server that agreed to headers."""
    line, _, rest = command.partition(b"\n")
    return b"H%b\n%b%b" % (line, pack_headers(headers), rest)


def rdy(n: int) -> bytes:
    """Encode RDY: the server keeps at most n messages in flight from now on.

    RDY is a window and not a credit: deliveries do not use it up.
    """
    return b"RDY %d\n" % _natural(n)


def fin(id: bytes) -> bytes:
    """Encode FIN, which finishes the message."""
    return b"FIN %b\n" % _id(id)


def req(id: bytes, ms: int) -> bytes:
    """Encode REQ, which asks the server to deliver the message again after `ms` milliseconds."""
    return b"REQ %b %d\n" % (_id(id), _natural(ms))


def touch(id: bytes) -> bytes:
    """Encode TOUCH, which gives the message more time."""
    return b"TOUCH %b\n" % _id(id)


def cls() -> bytes:
    """Encode CLS, which asks for no more messages; the server answers CLOSE_WAIT. It is legal once, and only after SUB."""
    return b"CLS\n"


def nop() -> bytes:
    """Encode NOP, the answer to a heartbeat."""
    return b"NOP\n"


def _number(number: Number | None) -> bytes:
    return b"" if number is None else b" %b %d" % (_producer(number[0]), _natural(number[1]))


@lru_cache(_NAMES)
def _producer(name: str) -> bytes:
    if not (name.isascii() and name.isprintable() and name and " " not in name):
        raise ValueError(f"not a producer's name: {name!r}")
    return name.encode()


def _counted(body: bytes) -> bytes:
    return pack_length(len(body)) + body


@lru_cache(_NAMES)
def _name(name: str) -> bytes:
    if not is_valid_name(name):
        raise ValueError(f"not a legal topic or channel name: {name!r}")
    return name.encode()


def _id(id: bytes) -> bytes:
    if len(id) != ID_LENGTH:
        raise ValueError(f"a message id has {ID_LENGTH} bytes: {id!r}")
    return id


def _natural(n: int) -> int:
    if n < 0:
        raise ValueError(f"must not be negative: {n}")
    return n
