"""An extent of messages, and what is owed of it.

Beside each message stands one byte: how many channels still owe it. Finishing a stretch is one bytes.translate, whatever its
length; frames that nobody owes become b"" at once. With more channels than a byte counts it keeps a list of numbers instead.
"""

from operator import add

from nsqd.core.message.frame import STAMP
from nsqd.core.sequence.extent import Extent

Piece = tuple[int, int, int, int]  # of the log: a segment's base, its generation, and a range of bytes in that file
EXTENT_MESSAGES = 1024  # a growing extent is closed at this many: finishing walks within one
EXTENT_BYTES = 1024 * 1024  # likewise: it is read back, and kept in memory, as a whole
GAP = 32 * 1024  # bytes of other records that are read rather than a range is begun
MOST_IN_A_BYTE = 255
_ONE_LESS = bytes([0, *range(MOST_IN_A_BYTE)])
_ONE_MORE = bytes([*range(1, MOST_IN_A_BYTE + 1), 0])


class Held:
    """An extent, and what is owed of it. Its frames may be on disk only: then `extent` is None."""

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
        self.count = 0  # messages
        self.delayed = delayed  # see Extent
        self.extent: Extent | None = Extent(first, delayed)
        self.owed = bytearray()  # for each message, how many channels have not finished it
        self.counts: list[int] | None = None  # the same once there are more channels than a byte counts
        self.freed = 0  # messages that nobody owes any more; in memory their frames are b""
        self.size = 0  # bytes of all frames, freed or not
        self.bulk = 0  # bytes of frames, at most: when it is to be closed
        self.pieces: list[Piece] = []  # where its records are on disk; none: nowhere
        self.attributed = False  # True: some of its messages have attributes, which are on disk only
        self.oldest = self.newest = 0  # when its messages were published (ns since the epoch); 0: none is on disk
        self.logged_first = self.logged_last = 0  # likewise in the log's time (ns): retention counts from then

    @property
    def end(self) -> int:
        """The ordinal after the last."""
        return self.first + self.count

    def takes(self, first: int, delayed: bool) -> bool:
        """True if message `first` may be added at the end. What is not in memory grows no more."""
        if self.extent is None or self.delayed != delayed or self.first + self.count != first:
            return False
        return self.freed < self.count < EXTENT_MESSAGES and self.bulk < EXTENT_BYTES

    def takes_cold(self, first: int, delayed: bool) -> bool:
        """The same for a message that is on disk only."""
        if self.extent is not None or self.delayed != delayed or self.end != first:
            return False
        return self.freed < self.count < EXTENT_MESSAGES and self.bulk < EXTENT_BYTES

    def append(self, frames: list[bytes], ids: bytes, largest: int, owing: int) -> None:
        """Messages at the end, owed by so many readers. They are in memory."""
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
        """As `append`, for a quarter of what that costs."""
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
        """One channel more owes messages first..end (indexes)."""
        if self.counts is None and max(self.owed[first:end], default=0) < MOST_IN_A_BYTE:
            self.owed[first:end] = self.owed[first:end].translate(_ONE_MORE)
            return
        if self.counts is None:
            self.counts = list(self.owed)
        self.counts[first:end] = [count + 1 for count in self.counts[first:end]]

    def owe_flagged(self, flags: bytes) -> None:
        """One channel more owes the messages whose flag is 1; there is one for each."""
        if self.counts is None and max(self.owed, default=0) < MOST_IN_A_BYTE:
            self.owed = bytearray(map(add, self.owed, flags)) if any(self.owed) else bytearray(flags)
            return
        counts = self.counts if self.counts is not None else list(self.owed)
        self.counts = list(map(add, counts, flags))

    def owe(self, first: int, end: int, channels: int) -> None:
        """Messages first..end (indexes) are owed by so many channels."""
        if channels <= MOST_IN_A_BYTE and self.counts is None:
            self.owed[first:end] = bytes((channels,)) * (end - first)
            return
        if self.counts is None:
            self.counts = list(self.owed)
        self.counts += [0] * (end - len(self.counts))
        self.counts[first:end] = [channels] * (end - first)

    def finish(self, first: int, end: int) -> bool:
        """One channel less owes messages first..end. True if nothing of the extent is left."""
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
        """Nobody will owe the messages from `first` (an index) on. True if nothing of the extent is left."""
        self.freed += self.count - first
        if self.extent is not None:
            self.extent.frames[first:] = [b""] * (self.count - first)
        return self.freed == self.count

    def part(self, start: int, end: int, edge: int) -> "Held":
        """An extent on disk of messages start..end (indexes) only. `edge`: messages before it were given to channels."""
        part = Held(self.first + start, self.delayed)
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
        """How many messages it may still get."""
        return EXTENT_MESSAGES - self.count

    @property
    def disk_bytes(self) -> int:
        """Of its records, and of what stands between them."""
        return sum(end - start for _, _, start, end in self.pieces)

    def place(self, segment: int, start: int, end: int, size: int, wall: int, logged: int) -> None:
        """Messages that were added, `size` bytes of frames, stand there in a segment since then: see `published`."""
        self.published(wall, logged)
        self.size += size
        add_piece(self.pieces, segment, 0, start, end)

    def published(self, at: int, logged: int) -> None:
        """What was added came then: ns since the epoch, and in the log's time."""
        self.oldest = self.oldest or at
        self.newest = at
        self.logged_first = self.logged_first or logged
        self.logged_last = logged

    def published_at(self, index: int) -> int:
        """When a message was published: by its frame; on disk, as if they had come evenly from `oldest` to `newest`."""
        frame = self.extent.frames[index] if self.extent is not None else b""
        if frame:
            return int.from_bytes(frame[STAMP], "big")
        return self.oldest + (self.newest - self.oldest) * index // max(1, self.count - 1)

    def retain_only(self) -> None:
        """Nobody owes anything of it any more."""
        self.extent, self.counts, self.owed, self.freed = None, None, bytearray(), self.count

    def come_back(self) -> None:
        """Somebody owes something of it again, though it was only retained."""
        self.extent, self.counts, self.owed = None, None, bytearray(self.count)
        self.bulk = EXTENT_BYTES  # it grows no more

    def count_freed(self, edge: int) -> None:
        """What is before `edge` was given to channels; what of that is owed by none is freed."""
        owed = self.counts if self.counts is not None else self.owed
        self.freed = sum(not number for number in owed[: max(0, min(self.count, edge - self.first))])

    def join(self, other: "Held") -> None:
        """The messages behind its own, likewise only retained, are its own."""
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
        """True if some channel owes that message, or it was given to none yet."""
        return bool(self.counts[index] if self.counts is not None else self.owed[index])


def add_piece(pieces: list[Piece], segment: int, generation: int, start: int, end: int) -> None:
    """One more place of records; what stands behind the last one, or nearly, is one with it."""
    if pieces and pieces[-1][:2] == (segment, generation) and 0 <= start - pieces[-1][3] <= GAP:
        pieces[-1] = segment, generation, pieces[-1][2], end
    else:
        pieces.append((segment, generation, start, end))


def _free(frames: list[bytes], first: int, owed: bytearray, done: int) -> None:
    """Of the frames from `first` on, those that nobody owes give their memory back."""
    if done == len(owed):
        frames[first : first + done] = [b""] * done
        return
    at = owed.find(0)
    while at >= 0:
        frames[first + at] = b""
        at = owed.find(0, at + 1)


def messages_of(size: int) -> int:
    """How many messages of that size an extent may have."""
    return max(1, min(EXTENT_MESSAGES, EXTENT_BYTES // max(1, size)))
