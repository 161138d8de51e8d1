"""Messages that are older than the setting `ttl` of their topic, or than their header `ttl`: they are never delivered.

A channel looks at what leaves its backlog, so none is delivered late. The scan ends the next messages of the sequence that have
expired, also in a channel without consumers. To drop messages it reads nothing from disk: those that are there only go when
their extent has expired, or are dropped when they are taken for a consumer. So are messages with a shorter ttl behind others.
"""

from operator import itemgetter

from nsqd.core.channel.backlog import Backlog, GroupBatch, ReadyMessages
from nsqd.core.message.frame import ID_SIZE, STAMP
from nsqd.core.sequence.extent import limit_at

_stamp = itemgetter(STAMP)
EVERY = 1_000_000_000  # ns between two scans of one channel, at least
DROPPED_AT_ONCE, MIXED_AT_ONCE = 25_000, 1200  # messages in a scan: 5 ms, also if each of them has its own ttl
SOON = EVERY // 40  # ns until the next scan if more messages are to be dropped: it comes no earlier in any case
AGAIN = EVERY // 20  # ns until the next scan if more messages are to be buried, or must be read first


class Expiry:
    """Which messages of one channel have expired, and when the scan looks for them."""

    __slots__ = ("_ttl", "due", "is_mixed")

    def __init__(self, ttl: int, is_mixed: bool) -> None:
        """`ttl`: ns after its publish in which a message may be delivered; 0: any number. `is_mixed`: some have their own."""
        self._ttl = ttl
        self.is_mixed = is_mixed
        self.due: int | None = None  # when the scan looks (monotonic ns); None: nothing is ready

    def cut(self, backlog: Backlog, taken: ReadyMessages, wall: int) -> tuple[ReadyMessages, bool]:
        """Return the first of the messages that were just taken, and True if they have expired at `wall` (ns since the epoch).

        It is all up to the first message for which the answer differs. The others go back into the backlog.
        """
        message, first, frames, ids, extent = taken
        if not extent.has_ttl and min(map(_stamp, frames)) >= limit_at(wall, self._ttl):
            return taken, False  # nearly always
        if isinstance(message, GroupBatch):
            each = [holder.leading(one, one + 1, wall, self._ttl)[1] for holder, one in message.each()]
            expired = each[0]
            count = each.index(not expired) if (not expired) in each else len(each)
            backlog.untake_batch(message.cut(count))
        else:
            count, expired = extent.leading(first, first + len(frames), wall, self._ttl)
            if count == len(frames):
                return taken, expired
            backlog.untake(len(frames) - count)
        return (message, first, frames[:count], ids[: count * ID_SIZE], extent), expired

    def drop(self, backlog: Backlog, now: int, wall: int) -> list[tuple[int, int]]:
        """Take the next messages of the backlog out of it that have expired at `wall`. Return their spans.

        Look again soon if there may be more.
        """
        first, _ = next(backlog.ahead(backlog.cursor), (backlog.cursor, 0))
        spans = backlog.drop_expired(wall, self._ttl, first + (MIXED_AT_ONCE if self.is_mixed else DROPPED_AT_ONCE))
        self.due = now + SOON if spans else None
        return spans

    def drop_in_memory(self, backlog: Backlog, now: int, wall: int, most: int) -> list[tuple[int, int]]:
        """Do the same with up to `most` messages that are in memory, and look again soon if there may be more."""
        self.due = None
        found = next(backlog.ahead(backlog.cursor), None)
        if found is None:
            return []
        first, _ = found
        extent = backlog.extents.read(first)
        spans = [] if extent is None else backlog.drop_expired(wall, self._ttl, min(first + most, extent.end))
        if extent is None or spans:
            self.due = now + AGAIN
        return spans

    def watch(self, backlog: Backlog, now: int, wall: int) -> int | None:
        """Return the time at which the scan is to look (monotonic ns), if that was not known and a ready message may expire."""
        if self.due is not None or not backlog.can_deliver:
            return None
        published = backlog.extents.published_plain(backlog.cursor) or wall
        self.due = now + (EVERY if self.is_mixed else max(published + self._ttl - wall, EVERY))
        return self.due
