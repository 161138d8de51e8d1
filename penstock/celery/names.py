"""Names of queues and exchanges, which may have any characters, as names of tubes, topics and channels. Pure.

Two names never become one, except by a collision of 128 bits of SHA-256.
"""

import hashlib
import re

MAX_TUBE = 200  # bytes
MAX_TOPIC = 64  # bytes, with #ephemeral
EPHEMERAL = "#ephemeral"
_NOT_TUBE = re.compile(rb"[^A-Za-z0-9+/;._()-]|^-")
_NOT_TOPIC = re.compile(r"[^.a-zA-Z0-9_-]")


def tube_of(queue: str) -> str:
    """Return the tube of a queue: other characters become $ and two hex digits; a long name is shortened with a hash."""
    name = _NOT_TUBE.sub(lambda match: b"$%02x" % match[0][0], queue.encode()).decode()
    if not name:
        return "$"
    return name if len(name) <= MAX_TUBE else f"{name[: MAX_TUBE - 34]}$_{_hash(queue)}"


def ephemeral(name: str) -> str:
    """Return the name of the ephemeral topic of an exchange, or of the ephemeral channel of a queue."""
    plain = _NOT_TOPIC.sub("_", name)
    most = MAX_TOPIC - len(EPHEMERAL)
    if plain != name or plain in ("", ".", "..") or len(plain) > most or re.search(r"-[0-9a-f]{32}$", plain):
        plain = f"{plain[: most - 33]}-{_hash(name)}"
    return plain + EPHEMERAL


def _hash(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:32]
