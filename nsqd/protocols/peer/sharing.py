"""The frames by which nodes share channels.

| frame | content, in msgpack |
|---|---|
| READ | topic, channel, and how many messages the sender's consumers may have of it at once; 0: none any more |
| MESSAGES | topic, channel, whether more of the same follows, and frames of messages, end to end, or a part of one |
| DONE | topic, channel, ids of finished messages, end to end, and [id, delay in ns] of those that come back |

A delay of -1: the message was not delivered; -2: it was, and did not fail. See docs/design/cluster.md#sharing-channels.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

import msgpack

from nsqd.core.borrowed import NOT_FAILED
from nsqd.core.message.frame import HEADER_SIZE, ID_SIZE, MESSAGE
from nsqd.protocols.peer.fields import checked_int, unpack_fields
from nsqd.protocols.peer.frames import FrameKind, PeerError, encode
from penstock.protocol.names import is_valid_name

MOST_AT_ONCE = 256 * 1024  # bytes of messages in a frame
MOST_DONE = 4096  # messages in one DONE
MOST_READY = 1 << 20  # messages
MOST_DELAY = 1 << 60  # ns
_HEAD = Struct(">ii")  # size and type of a message's frame

Key = tuple[str, str]  # topic and channel


def pack_read(key: Key, ready: int) -> bytes:
    """Return the frame that tells how many messages of a channel the sender's consumers may have at once."""
    return encode(FrameKind.READ, msgpack.packb([*key, min(ready, MOST_READY)]))


def unpack_read(content: bytes) -> tuple[Key, int]:
    """Return topic and channel, and the number of messages. Raises PeerError."""
    topic, channel, ready = unpack_fields(content, 3, MOST_DONE)
    return _key(topic, channel), checked_int(ready, MOST_READY)


def pack_messages(key: Key, frames: list[bytes]) -> Iterator[bytes]:
    """Yield the frames that carry messages: several messages in one, or a large one in several."""
    for some in _batches(frames):
        data = b"".join(some)
        for at in range(0, len(data), MOST_AT_ONCE):
            has_more = at + MOST_AT_ONCE < len(data)
            yield encode(FrameKind.MESSAGES, msgpack.packb([*key, has_more, data[at : at + MOST_AT_ONCE]]))


def _batches(frames: list[bytes]) -> Iterator[list[bytes]]:
    """Yield the frames in groups of MOST_AT_ONCE bytes at most, or of a single one that is larger."""
    some: list[bytes] = []
    size = 0
    for frame in frames:
        if some and size + len(frame) > MOST_AT_ONCE:
            yield some
            some, size = [], 0
        some.append(frame)
        size += len(frame)
    yield some


def unpack_messages(content: bytes) -> tuple[Key, bool, bytes]:
    """Return topic and channel, whether more of the same follows, and bytes for `split`. Raises PeerError."""
    topic, channel, has_more, data = unpack_fields(content, 4, MOST_DONE)
    if type(has_more) is not bool or type(data) is not bytes:
        raise PeerError("a frame with messages has fields of another kind")
    return _key(topic, channel), has_more, data


def split(data: bytes) -> list[bytes]:
    """Return the frames of messages that stand end to end. Raises PeerError if these bytes are anything else."""
    frames, at = [], 0
    while at < len(data):
        if len(data) - at < HEADER_SIZE:
            raise PeerError("a message of a shared channel is cut")
        size, kind = _HEAD.unpack_from(data, at)
        end = at + 4 + size
        if kind != MESSAGE or size < HEADER_SIZE - 4 or end > len(data):
            raise PeerError("a message of a shared channel is none")
        frames.append(data[at:end])
        at = end
    return frames


def pack_done(key: Key, finished: bytes, returned: list[tuple[bytes, int]]) -> bytes:
    """Return the frame that tells what became of messages, MOST_DONE of each kind at most."""
    return encode(FrameKind.DONE, msgpack.packb([*key, finished, returned]))


def unpack_done(content: bytes) -> tuple[Key, bytes, list[tuple[bytes, int]]]:
    """Return topic and channel, the ids of finished messages, and id and delay of those that come back. Raises PeerError."""
    topic, channel, finished, returned = unpack_fields(content, 4, MOST_DONE)
    if type(finished) is not bytes or len(finished) % ID_SIZE or len(finished) > MOST_DONE * ID_SIZE:
        raise PeerError("ids of finished messages are none")
    if type(returned) is not list or len(returned) > MOST_DONE:
        raise PeerError("messages that come back are no list")
    pairs = []
    for one in returned:
        if type(one) is not list or len(one) != 2 or type(one[0]) is not bytes or len(one[0]) != ID_SIZE:
            raise PeerError("a message that comes back has no id")
        pairs.append((one[0], checked_int(one[1], MOST_DELAY, NOT_FAILED)))
    return _key(topic, channel), finished, pairs


def _key(topic: object, channel: object) -> Key:
    if (
        not isinstance(topic, str)
        or not isinstance(channel, str)
        or not is_valid_name(topic)
        or not is_valid_name(channel)
    ):
        raise PeerError("a shared channel has no valid name")
    return topic, channel
