"""Messages that are older than the setting `ttl` of their topic: they are never delivered.

A channel looks at what leaves its backlog, so none is delivered late. The scan drops ready messages that have expired, also
from a channel without consumers. It reads nothing from disk: messages that are there only go when their extent has expired.
"""

from nsqd.core.channel.backlog import Backlog, ReadyMessages
from nsqd.core.message.frame import ID_SIZE, STAMP

EVERY = 1_000_000_000  # ns between two looks of the scan at one channel, at least


class Expiry:
    """Which messages of one channel have expired, and when the scan looks for them."""

    __slots__ = ("_ttl", "due")

    def __init__(self, ttl: int) -> None:
        """`ttl`: ns after its publish in which a message may be delivered."""
        self._ttl = ttl
        self.due: int | None = None  # when the scan looks (monotonic ns); None: nothing is ready

    def cut(self, backlog: Backlog, taken: ReadyMessages, wall: int) -> tuple[ReadyMessages, bool]:
        """Return the first of the messages that were just taken, and True if they have expired at `wall` (ns since the epoch).

        It is all up to the first message for which the answer differs. The others go back into the backlog.
        """
        message, first, frames, ids, extent = taken
        count, is_expired = leading(frames, wall - self._ttl)
        if count < len(frames):
            backlog.untake(len(frames) - count)
        return (message, first, frames[:count], ids[: count * ID_SIZE], extent), is_expired

    def drop(self, backlog: Backlog, wall: int) -> list[tuple[int, int]]:
        """Drop ready messages that have expired at `wall`. Return their spans."""
        self.due = None
        return backlog.drop_published_before(wall - self._ttl)

    def watch(self, backlog: Backlog, now: int, wall: int) -> int | None:
        """Return the time at which the scan is to look (monotonic ns), if that was not known and a ready message may expire."""
        if self.due is not None or not backlog.can_deliver:
            return None
        published = backlog.extents.published_plain(backlog.cursor) or wall
        self.due = now + max(published + self._ttl - wall, EVERY)
        return self.due


def leading(frames: list[bytes], oldest: int) -> tuple[int, bool]:
    """Return the number of frames before the first that was not, or else was, published before `oldest`, and which of both.

    The answer is True if the leading frames have expired. `oldest`: ns since the epoch.
    """
    stamp = oldest.to_bytes(8, "big")
    is_expired = frames[0][STAMP] < stamp
    for count, frame in enumerate(frames):
        if (frame[STAMP] < stamp) != is_expired:
            return count, is_expired
    return len(frames), is_expired
