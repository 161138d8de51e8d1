"""The client's side of nsqlookupd's TCP protocol V1 (specs/nsq.md c1): what an nsqd says, and the replies.

Pure. Replies come in the order of the commands and carry no type: one that starts with `E_` is an error, after which
nsqlookupd closes the connection, but for E_REGISTER_FAILED, which is Penstock's: one name is refused, and the rest stays.
"""

import json
from collections.abc import Mapping

from penstock.protocol.framing import LengthPrefixed, pack_length
from penstock.protocol.names import is_valid_name

MAGIC_V1 = b"  V1"
OK = b"OK"


class ReplyDecoder:
    """Bytes from nsqlookupd into replies. A reply longer than max_size is a ProtocolError."""

    __slots__ = ("_payloads",)

    def __init__(self, max_size: int) -> None:
        self._payloads = LengthPrefixed(max_size)

    def receive(self, data: bytes) -> list[bytes]:
        """The replies that `data` completes, in order. Raises ProtocolError; do not call again after that."""
        return self._payloads.receive(data)


def is_error(reply: bytes) -> bool:
    """True for a refusal, which ends the connection."""
    return reply.startswith(b"E_") and not is_refusal(reply)


def is_refusal(reply: bytes) -> bool:
    """True for a REGISTER beyond nsqlookupd's limits; the connection goes on."""
    return reply.startswith(b"E_REGISTER_FAILED")


def identify(info: Mapping[str, object]) -> bytes:
    """IDENTIFY: `info` needs broadcast_address, version, tcp_port and http_port; the reply is the lookupd's JSON."""
    body = json.dumps(info, separators=(",", ":")).encode()
    return b"IDENTIFY\n" + pack_length(len(body)) + body


def register(topic: str, channel: str | None = None) -> bytes:
    """REGISTER: this nsqd has the topic, or the topic and the channel."""
    return b"REGISTER %b\n" % _words(topic, channel)


def unregister(topic: str, channel: str | None = None) -> bytes:
    """UNREGISTER: of a channel, only the channel; of a topic, all of its channels too."""
    return b"UNREGISTER %b\n" % _words(topic, channel)


def ping() -> bytes:
    """PING: still here."""
    return b"PING\n"


def _words(topic: str, channel: str | None) -> bytes:
    names = [topic] if channel is None else [topic, channel]
    for name in names:
        if not is_valid_name(name):
            raise ValueError(f"not a legal topic or channel name: {name!r}")
    return " ".join(names).encode()
