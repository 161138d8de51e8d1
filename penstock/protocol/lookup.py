"""The client's side of nsqlookupd's TCP protocol V1: the commands that an nsqd sends, and the replies.

Replies come in the order of the commands, after their length (`LengthPrefixed` decodes them), and carry no type. A reply that
starts with `E_` is an error, after which nsqlookupd closes the connection. The exception is E_REGISTER_FAILED, which is
Penstock's own: it refuses one name, and the connection stays.

See docs/contributing/design/nsqlookupd.md#tcp-protocol.
"""

import json
import re
from collections.abc import Mapping

from penstock.protocol.framing import pack_length
from penstock.protocol.names import is_valid_name

MAGIC_V1 = b"  V1"
OK = b"OK"

_REGISTERED = re.compile(rb"OK (\d{1,9}) (\d{1,9})")


def is_error(reply: bytes) -> bool:
    """Return True for an error that ends the connection."""
    return reply.startswith(b"E_") and not is_refusal(reply)


def is_refusal(reply: bytes) -> bool:
    """Return True for the refusal of a REGISTER beyond nsqlookupd's limits; the connection stays."""
    return reply.startswith(b"E_REGISTER_FAILED")


def identify(info: Mapping[str, object]) -> bytes:
    """Encode IDENTIFY; the reply is nsqlookupd's own description, in JSON.

    `info` needs broadcast_address, version, tcp_port and http_port.
    """
    body = json.dumps(info, separators=(",", ":")).encode()
    return b"IDENTIFY\n" + pack_length(len(body)) + body


def register(topic: str, channel: str | None = None) -> bytes:
    """Encode REGISTER, which says that this nsqd has the topic, or the topic and the channel."""
    return b"REGISTER %b\n" % _names(topic, channel)


def unregister(topic: str, channel: str | None = None) -> bytes:
    """Encode UNREGISTER, which removes the channel if one is named, and else the topic and all of its channels."""
    return b"UNREGISTER %b\n" % _names(topic, channel)


def ping() -> bytes:
    """Encode PING, which shows that this nsqd is alive, and asks for its numbers of registered topics and channels.

    The original ignores the argument.
    """
    return b"PING registered\n"


def registered(reply: bytes) -> tuple[int, int] | None:
    """Return the numbers of topics and channels in a reply to PING; None if it has none."""
    match = _REGISTERED.fullmatch(reply)
    return (int(match[1]), int(match[2])) if match else None


def _names(topic: str, channel: str | None) -> bytes:
    names = [topic] if channel is None else [topic, channel]
    for name in names:
        if not is_valid_name(name):
            raise ValueError(f"not a legal topic or channel name: {name!r}")
    return " ".join(names).encode()
