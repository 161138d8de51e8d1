"""Messages that are older than the setting `ttl` of their topic: they are never delivered.

A channel looks at what leaves its backlog, so none is delivered late. The scan drops ready messages that have expired, also
from a channel without consumers. It reads nothing from disk: messages that are there only go when their extent has expired.
"""

from nsqd.core.channel.backlog import Backlog, ReadyMessages
from nsqd.core.message.frame import ID_SIZE, STAMP

EXPIRED = "expired"  # why a message is buried
EVERY = 1_000_000_000  # ns between two looks of the scan at one channel, at least


def leading(frames: list[bytes], oldest: int) -> tuple[int, int]:
    """Return the number of frames before the first that was not, or else was, published before `oldest`, and which of both.

    The second number is 1 if the leading frames have expired, else 0. `oldest`: ns since the epoch.
    """
    stamp = oldest.to_bytes(8, "big")
    is_expired = frames[0][STAMP] < stamp
    for count, frame in enumerate(frames):
        if (frame[STAMP] < stamp) != is_expired:
            return count, is_expired
    return len(frames), is_expired


def cut(backlog: Backlog, taken: ReadyMessages, count: int) -> ReadyMessages:
    """Return the first `count` of the messages that were just taken from the sequence, and give the others back."""
    message, first, frames, ids, extent = taken
    if count < len(frames):
        backlog.untake(len(frames) - count)
    return message, first, frames[:count], ids[: count * ID_SIZE], extent
