"""An extent of messages, and a reference count for each of them.

Each message has a byte that counts the channels that still owe it. Finishing a range of messages is one bytes.translate,
whatever the range's length; the frame of a message that no channel owes becomes b"" at once. With more channels than a byte can
count, the extent keeps a list of numbers instead.

See docs/design/channel.md#fan-out-without-copies.
"""

from operator import add

from nsqd.core.message.frame import STAMP
from nsqd.core.sequence.extent import Extent

# a place in the log: a segment's base, its generation, and a range of bytes in that file
Location = tuple[int, int, int, int]
EXTENT_MESSAGES = 1024  # a growing extent is closed at this many messages: finishing walks within one extent
EXTENT_BYTES = 1024 * 1024  # a growing extent is closed at this size: it is read back and cached as a whole
GAP = 32 * 1024  # bytes of other records that a piece may span before a new piece begins
MOST_IN_A_BYTE = 255
_ONE_LESS = bytes([0, *range(MOST_IN_A_BYTE)])
_ONE_MORE = bytes([*range(1, MOST_IN_A_BYTE + 1), 0])


class StoredExtent:
    """An extent with its reference counts. Its frames may be on disk only: then `extent` is None."""

    __slots__ = (
        "attributed",
        "bulk",
        "count",
        "counts",
        "delayed",
        "extent",
        "first",
        "freed",
        "logged_first",
        "logged_last",
        "newest",
        "oldest",
        "owed",
        "pieces",
        "size",
    )

    def __init__(self, first: int, delayed: bool) -> None:
        self.first = first  # ordinal of the first message
        self.count = 0  # number of messages
        self.delayed = delayed  # True: the messages were published with a delay, see Extent
        self.extent: Extent | None = Extent(first, delayed)
        self.owed = bytearray()  # for each message, how many channels have not finished it
        # used instead of `owed` once there are more channels than a byte can count
        self.counts: list[int] | None = None
        self.freed = 0  # number of messages that no channel owes any more; in memory their frames are b""
        self.size = 0  # bytes of all frames, freed or not, with OVERHEAD (locations.py) for each
        self.bulk = 0  # upper bound of the frames' bytes: it decides when the extent is closed
        self.pieces: list[Location] = []  # where the extent's records are on disk; empty: they are not written yet
        self.attributed = False  # True: some messages have attributes, which are on disk only
        self.oldest = self.newest = 0  # when the messages were published (ns since the epoch); 0: none is on disk
        self.logged_first = self.logged_last = 0  # the same in the log's time (ns), from which retention counts

    @property
    def end(self) -> int:
        """Return the ordinal after the last message."""
        return self.first + self.count

    def takes(self, first: int, delayed: bool) -> bool:
        """Return True if message `first` can be appended. An extent that is not in memory does not grow."""
        if self.extent is None or self.delayed != delayed or self.first + self.count != first:
            return False
        return self.freed < self.count < EXTENT_MESSAGES and self.bulk < EXTENT_BYTES

    def takes_cold(self, first: int, delayed: bool) -> bool:
        """Return True if message `first`, which is on disk only, can be appended to this extent on disk."""
        if self.extent is not None or self.delayed != delayed or self.end != first:
            return False
        return self.freed < self.count < EXTENT_MESSAGES and self.bulk < EXTENT_BYTES

    def append(self, frames: list[bytes], ids: bytes, largest: int, owing: int) -> None:
        """Append messages that are in memory and that `owing` readers owe.

        `ids`: 16 bytes for each message; `largest`: bytes of the largest frame.
        """
        extent = self.extent
        assert extent is not None
        extent.frames += frames
        extent.ids += ids
        extent.largest = max(extent.largest, largest)
        count, self.count = self.count, self.count + len(frames)
        self.bulk += len(frames) * largest
        self.owed += bytes(len(frames))
        if owing:
            self.owe(count, self.count, owing)

    def append_one(self, frame: bytes, message_id: bytes, owing: int) -> None:
        """Append one message, for a quarter of the cost of `append`."""
        extent = self.extent
        assert extent is not None
        size = len(frame)
        extent.frames.append(frame)
        extent.ids += message_id
        if size > extent.largest:
            extent.largest = size
        self.count += 1
        self.bulk += size
        if owing <= MOST_IN_A_BYTE and self.counts is None:
            self.owed.append(owing)
        else:
            self.owed.append(0)
            self.owe(self.count - 1, self.count, owing)

    def owe_one_more(self, first: int, end: int) -> None:
        """Note that one more channel owes messages first..end (indexes)."""
        if self.counts is None and max(self.owed[first:end], default=0) < MOST_IN_A_BYTE:
            self.owed[first:end] = self.owed[first:end].translate(_ONE_MORE)
            return
        if self.counts is None:
            self.counts = list(self.owed)
        self.counts[first:end] = [count + 1 for count in self.counts[first:end]]

    def owe_flagged(self, flags: bytes) -> None:
        """Note that one more channel owes the messages whose flag is 1. `flags` has a byte for each message."""
        if self.counts is None and max(self.owed, default=0) < MOST_IN_A_BYTE:
            self.owed = bytearray(map(add, self.owed, flags)) if any(self.owed) else bytearray(flags)
            return
        counts = self.counts if self.counts is not None else list(self.owed)
        self.counts = list(map(add, counts, flags))

    def owe(self, first: int, end: int, channels: int) -> None:
        """Note that `channels` channels owe messages first..end (indexes)."""
        if channels <= MOST_IN_A_BYTE and self.counts is None:
            self.owed[first:end] = bytes((channels,)) * (end - first)
            return
        if self.counts is None:
            self.counts = list(self.owed)
        self.counts += [0] * (end - len(self.counts))
        self.counts[first:end] = [channels] * (end - first)

    def finish(self, first: int, end: int) -> bool:
        """Note that one channel no longer owes messages first..end (indexes). Returns True if every message is freed."""
        if self.counts is not None:
            return self._finish_counted(self.counts, first, end)
        owed = self.owed[first:end].translate(_ONE_LESS)
        self.owed[first:end] = owed
        done = owed.count(0)
        if done:
            self.freed += done
            if self.extent is not None:
                _free(self.extent.frames, first, owed, done)
        return self.freed == self.count

    def _finish_counted(self, counts: list[int], first: int, end: int) -> bool:
        for index in range(first, end):
            counts[index] -= 1
            if not counts[index]:
                self.freed += 1
                if self.extent is not None:
                    self.extent.frames[index] = b""
        return self.freed == self.count

    def cut(self, first: int) -> bool:
        """Free the messages from index `first` on, which no channel will owe. Returns True if every message is freed."""
        self.freed += self.count - first
        if self.extent is not None:
            self.extent.frames[first:] = [b""] * (self.count - first)
        return self.freed == self.count

    def part(self, start: int, end: int, edge: int) -> "StoredExtent":
        """Return a new extent, on disk only, of messages start..end (indexes).

        `edge`: the ordinal before which messages were given to channels.
        """
        part = StoredExtent(self.first + start, self.delayed)
        part.extent = None
        part.count = end - start
        part.owed = self.owed[start:end]
        part.counts = None if self.counts is None else self.counts[start:end]
        part.pieces = list(self.pieces)
        part.size = self.size * part.count // self.count
        part.oldest, part.newest, part.attributed = self.oldest, self.newest, self.attributed
        part.logged_first, part.logged_last = self.logged_first, self.logged_last
        given = max(0, min(part.count, edge - part.first))
        part.freed = sum(not part.owed_at(index) for index in range(given))
        return part

    @property
    def room(self) -> int:
        """Return how many more messages the extent can take."""
        return EXTENT_MESSAGES - self.count

    @property
    def disk_bytes(self) -> int:
        """Return the bytes of the extent's pieces: its records and what lies between them."""
        return sum(end - start for _, _, start, end in self.pieces)

    def place(self, segment: int, start: int, end: int, size: int, wall: int, logged: int) -> None:
        """Note that appended messages, `size` bytes of frames, stand at start..end of a segment.

        `wall`, `logged`: see `published`.
        """
        self.published(wall, logged)
        self.size += size
        add_piece(self.pieces, segment, 0, start, end)

    def published(self, at: int, logged: int) -> None:
        """Note when the appended messages were published: `at` in ns since the epoch, `logged` in the log's time."""
        self.oldest = self.oldest or at
        self.newest = at
        self.logged_first = self.logged_first or logged
        self.logged_last = logged

    def published_at(self, index: int) -> int:
        """Return when a message was published, ns since the epoch.

        A frame in memory tells it. On disk it is an estimate, as if messages had come evenly from `oldest` to `newest`.
        """
        frame = self.extent.frames[index] if self.extent is not None else b""
        if frame:
            return int.from_bytes(frame[STAMP], "big")
        return self.oldest + (self.newest - self.oldest) * index // max(1, self.count - 1)

    def retain_only(self) -> None:
        """Mark all messages as freed: no channel owes any of them, and they are only retained."""
        self.extent, self.counts, self.owed, self.freed = None, None, bytearray(), self.count

    def come_back(self) -> None:
        """Prepare a retained extent for channels that owe its messages again."""
        self.extent, self.counts, self.owed = None, None, bytearray(self.count)
        self.bulk = EXTENT_BYTES  # the extent grows no more

    def count_freed(self, edge: int) -> None:
        """Count the freed messages anew: those before `edge` were given to channels, and are freed if none owes them."""
        owed = self.counts if self.counts is not None else self.owed
        self.freed = sum(not number for number in owed[: max(0, min(self.count, edge - self.first))])

    def join(self, other: "StoredExtent") -> None:
        """Add the messages of `other`, the next extent. Both extents are only retained."""
        self.count += other.count
        self.freed = self.count
        self.size += other.size
        self.oldest, self.newest = min(self.oldest, other.oldest), max(self.newest, other.newest)
        self.logged_first = min(self.logged_first, other.logged_first)
        self.logged_last = max(self.logged_last, other.logged_last)
        self.attributed |= other.attributed
        for piece in other.pieces:
            add_piece(self.pieces, *piece)

    def owed_at(self, index: int) -> bool:
        """Return True if some channel owes the message at `index`."""
        return bool(self.counts[index] if self.counts is not None else self.owed[index])


def add_piece(pieces: list[Location], segment: int, generation: int, start: int, end: int) -> None:
    """Add a place of records. A place at or shortly after the end of the last piece (up to GAP bytes) extends that piece."""
    if pieces and pieces[-1][:2] == (segment, generation) and 0 <= start - pieces[-1][3] <= GAP:
        pieces[-1] = segment, generation, pieces[-1][2], end
    else:
        pieces.append((segment, generation, start, end))


def _free(frames: list[bytes], first: int, owed: bytearray, done: int) -> None:
    """Give back the memory of those frames from index `first` on whose count in `owed` is 0. `done`: how many there are."""
    if done == len(owed):
        frames[first : first + done] = [b""] * done
        return
    at = owed.find(0)
    while at >= 0:
        frames[first + at] = b""
        at = owed.find(0, at + 1)


def messages_of(size: int) -> int:
    """Return how many messages of `size` bytes an extent can have, at least 1."""
    return max(1, min(EXTENT_MESSAGES, EXTENT_BYTES // max(1, size)))
