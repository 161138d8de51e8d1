"""An extent of messages, and a reference count for each of them.

Each message has a byte that counts the channels that still reference it. Finishing a range of messages is one bytes.translate,
whatever the range's length; the frame of a message that no channel references becomes b"" at once. With more channels than a
byte can count, the extent keeps a list of numbers instead.

See docs/contributing/design/channel.md#fan-out-without-copies.
"""

from operator import add

from nsqd.core.message.attributes import concern_channels
from nsqd.core.message.frame import STAMP
from nsqd.core.sequence.extent import Extent

# a place in the log: a segment's base, the edition of its file (log/files.py), and a range of bytes in that file
Location = tuple[int, int, int, int]
EXTENT_MESSAGES = 1024  # a growing extent is closed at this many messages: finishing walks within one extent
EXTENT_BYTES = 1024 * 1024  # a growing extent is closed at this size: it is read back and cached as a whole
GAP = 32 * 1024  # bytes of other records that a location may span before a new location begins
MOST_IN_A_BYTE = 255
_ONE_LESS = bytes([0, *range(MOST_IN_A_BYTE)])
_ONE_MORE = bytes([*range(1, MOST_IN_A_BYTE + 1), 0])


class StoredExtent:
    """An extent with its reference counts. Its frames may be on disk only: then `extent` is None."""

    __slots__ = (
        "attributed", "bulk", "count", "delayed", "extent", "first", "large_refcounts", "locations", "logged_first",
        "logged_last", "newest", "oldest", "refcounts", "released", "size",
    )  # fmt: skip

    def __init__(self, first: int, delayed: bool, extent: Extent | None = None) -> None:
        self.first = first  # ordinal of the first message
        self.count = 0  # number of messages
        self.delayed = delayed  # True: the messages were published with a delay, see Extent
        self.extent = extent
        self.refcounts = bytearray()  # for each message, how many channels have not finished it
        # used instead of `refcounts` once there are more channels than a byte can count
        self.large_refcounts: list[int] | None = None
        self.released = 0  # number of messages that no channel references; in memory their frames are b""
        self.size = 0  # bytes of all frames, released or not, with OVERHEAD (locations.py) for each
        self.bulk = 0  # upper bound of the frames' bytes: it decides when the extent is closed
        self.locations: list[Location] = []  # where the extent's records are on disk; empty: they are not written yet
        self.attributed = False  # True: some messages have attributes, all of which are on disk only but headers
        self.oldest = self.newest = 0  # when the messages were published (ns since the epoch); 0: none is on disk
        self.logged_first = self.logged_last = 0  # the same in the log's time (ns), from which retention counts

    @property
    def end(self) -> int:
        """Return the ordinal after the last message."""
        return self.first + self.count

    def can_append(self, first: int, delayed: bool) -> bool:
        """Return True if message `first` can be appended. An extent that is not in memory does not grow."""
        if self.extent is None or self.delayed != delayed or self.first + self.count != first:
            return False
        return self.released < self.count < EXTENT_MESSAGES and self.bulk < EXTENT_BYTES

    def can_append_cold(self, first: int, delayed: bool) -> bool:
        """Return True if message `first`, which is on disk only, can be appended to this extent on disk."""
        if self.extent is not None or self.delayed != delayed or self.end != first:
            return False
        return self.released < self.count < EXTENT_MESSAGES and self.bulk < EXTENT_BYTES

    def append(self, frames: list[bytes], ids: bytes, largest: int, references: int) -> None:
        """Append messages that are in memory and that `references` readers reference.

        `ids`: 16 bytes for each message; `largest`: bytes of the largest frame.
        """
        extent = self.extent
        assert extent is not None
        extent.frames += frames
        extent.ids += ids
        extent.largest = max(extent.largest, largest)
        count, self.count = self.count, self.count + len(frames)
        self.bulk += len(frames) * largest
        self.refcounts += bytes(len(frames))
        if references:
            self.set_references(count, self.count, references)

    def append_one(self, frame: bytes, message_id: bytes, references: int) -> None:
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
        if references <= MOST_IN_A_BYTE and self.large_refcounts is None:
            self.refcounts.append(references)
        else:
            self.refcounts.append(0)
            self.set_references(self.count - 1, self.count, references)

    def keep_headers(self, first: int, end: int, packed: bytes) -> None:
        """Keep the packed attributes of messages first..end (ordinals), just appended, if channels need them."""
        if concern_channels(packed) and self.extent is not None:
            self.extent.keep_headers(first, end, packed)
            self.bulk += len(packed)

    def add_references(self, first: int, end: int) -> None:
        """Note that one more channel references messages first..end (indexes)."""
        if self.large_refcounts is None and MOST_IN_A_BYTE not in self.refcounts[first:end]:
            self.refcounts[first:end] = self.refcounts[first:end].translate(_ONE_MORE)
            return
        if self.large_refcounts is None:
            self.large_refcounts = list(self.refcounts)
        self.large_refcounts[first:end] = [count + 1 for count in self.large_refcounts[first:end]]

    def add_flagged_references(self, flags: bytes) -> None:
        """Note that one more channel references the messages whose flag is 1. `flags` has a byte for each message."""
        if self.large_refcounts is None and MOST_IN_A_BYTE not in self.refcounts:
            self.refcounts = bytearray(map(add, self.refcounts, flags)) if any(self.refcounts) else bytearray(flags)
            return
        counts = self.large_refcounts if self.large_refcounts is not None else list(self.refcounts)
        self.large_refcounts = list(map(add, counts, flags))

    def set_references(self, first: int, end: int, channels: int) -> None:
        """Note that `channels` channels reference messages first..end (indexes)."""
        if channels <= MOST_IN_A_BYTE and self.large_refcounts is None:
            self.refcounts[first:end] = bytes((channels,)) * (end - first)
            return
        if self.large_refcounts is None:
            self.large_refcounts = list(self.refcounts)
        self.large_refcounts += [0] * (end - len(self.large_refcounts))
        self.large_refcounts[first:end] = [channels] * (end - first)

    def drop_references(self, first: int, end: int) -> bool:
        """Note that a channel no longer references messages first..end (indexes). Returns True if all messages are released."""
        if self.large_refcounts is not None:
            return self._drop_large_references(self.large_refcounts, first, end)
        if end - first == 1:  # half the cost of a range: consumers often finish one message at a time
            left = self.refcounts[first] = _ONE_LESS[self.refcounts[first]]
            if not left:
                self.released += 1
                if self.extent is not None:
                    self.extent.frames[first] = b""
            return self.released == self.count
        self.refcounts[first:end] = refcounts = self.refcounts[first:end].translate(_ONE_LESS)
        if done := refcounts.count(0):
            self.released += done
            if self.extent is not None:
                _release_frames(self.extent.frames, first, refcounts, done)
        return self.released == self.count

    def drop_each(self, ordinals: list[int]) -> bool:
        """Do the same for messages that do not follow one another."""
        if self.large_refcounts is not None:
            return [self.drop_references(ordinal - self.first, ordinal - self.first + 1) for ordinal in ordinals][-1]
        first, refcounts = self.first, self.refcounts
        frames = None if self.extent is None else self.extent.frames
        for ordinal in ordinals:
            index = ordinal - first
            left = refcounts[index] = _ONE_LESS[refcounts[index]]
            if not left:
                self.released += 1
                if frames is not None:
                    frames[index] = b""
        return self.released == self.count

    def _drop_large_references(self, counts: list[int], first: int, end: int) -> bool:
        for index in range(first, end):
            counts[index] -= 1
            if not counts[index]:
                self.released += 1
                if self.extent is not None:
                    self.extent.frames[index] = b""
        return self.released == self.count

    def release_from(self, first: int) -> bool:
        """Release the messages from index `first` on, which no channel will reference. Returns True if all are released."""
        self.released += self.count - first
        if self.extent is not None:
            self.extent.frames[first:] = [b""] * (self.count - first)
        return self.released == self.count

    def part(self, start: int, end: int, distributed: int) -> "StoredExtent":
        """Return a new extent, on disk only, of messages start..end (indexes).

        `distributed`: the ordinal before which messages were given to channels.
        """
        part = StoredExtent(self.first + start, self.delayed)
        part.count = end - start
        part.refcounts = self.refcounts[start:end]
        part.large_refcounts = None if self.large_refcounts is None else self.large_refcounts[start:end]
        part.locations = list(self.locations)
        part.size = self.size * part.count // self.count
        part.oldest, part.newest, part.attributed = self.oldest, self.newest, self.attributed
        part.logged_first, part.logged_last = self.logged_first, self.logged_last
        given = max(0, min(part.count, distributed - part.first))
        part.released = sum(not part.references(index) for index in range(given))
        return part

    @property
    def disk_bytes(self) -> int:
        """Return the bytes of the extent's locations: its records and what lies between them."""
        return sum(end - start for _, _, start, end in self.locations)

    def note_location(self, segment: int, start: int, end: int, size: int, wall: int, logged: int) -> None:
        """Note that appended messages, `size` bytes of frames, are at start..end of a segment. For the times see below."""
        self.note_published(wall, logged)
        self.size += size
        add_location(self.locations, segment, 0, start, end)

    def note_published(self, at: int, logged: int) -> None:
        """Note when the appended messages were published: `at` in ns since the epoch, `logged` in the log's time."""
        self.oldest = self.oldest or at
        self.newest = at
        self.logged_first = self.logged_first or logged
        self.logged_last = logged

    def published_at(self, index: int) -> int:
        """Return the time at which a message was published, in ns since the epoch.

        For a message on disk it is an estimate, as if messages had come evenly from `oldest` to `newest`.
        """
        if frame := self.extent.frames[index] if self.extent is not None else b"":
            return int.from_bytes(frame[STAMP], "big")
        return self.oldest + (self.newest - self.oldest) * index // max(1, self.count - 1)

    def retain_only(self) -> None:
        """Mark all messages as released: no channel references any of them, and they are only retained."""
        self.extent, self.large_refcounts, self.refcounts, self.released = None, None, bytearray(), self.count

    def reset_refcounts(self) -> None:
        """Prepare a retained extent for channels that reference its messages again."""
        self.extent, self.large_refcounts, self.refcounts = None, None, bytearray(self.count)
        self.bulk = EXTENT_BYTES  # the extent grows no more

    def count_released(self, distributed: int) -> None:
        """Recount the released messages: those before `distributed` that no channel references."""
        refcounts = self.large_refcounts if self.large_refcounts is not None else self.refcounts
        self.released = refcounts[: max(0, min(self.count, distributed - self.first))].count(0)

    def join(self, other: "StoredExtent") -> None:
        """Add the messages of `other`, the next extent. Both extents are only retained."""
        self.count += other.count
        self.released = self.count
        self.size += other.size
        self.oldest, self.newest = min(self.oldest, other.oldest), max(self.newest, other.newest)
        self.logged_first = min(self.logged_first, other.logged_first)
        self.logged_last = max(self.logged_last, other.logged_last)
        self.attributed |= other.attributed
        for location in other.locations:
            add_location(self.locations, *location)

    def references(self, index: int) -> int:
        """Return the number of readers that reference the message at `index`."""
        return self.large_refcounts[index] if self.large_refcounts is not None else self.refcounts[index]


def add_location(locations: list[Location], segment: int, edition: int, start: int, end: int) -> None:
    """Add a location. One at or shortly after the end of the last one (up to GAP bytes) extends that."""
    if locations and locations[-1][:2] == (segment, edition) and 0 <= start - locations[-1][3] <= GAP:
        locations[-1] = segment, edition, locations[-1][2], end
    else:
        locations.append((segment, edition, start, end))


def _release_frames(frames: list[bytes], first: int, refcounts: bytearray, done: int) -> None:
    """Release the frames from index `first` on whose count in `refcounts` is 0. `done`: how many there are."""
    if done == len(refcounts):
        frames[first : first + done] = [b""] * done
        return
    at = refcounts.find(0)
    while at >= 0:
        frames[first + at] = b""
        at = refcounts.find(0, at + 1)


def messages_of(size: int) -> int:
    """Return the number of messages of `size` bytes that fill an extent, at least 1."""
    return max(1, min(EXTENT_MESSAGES, EXTENT_BYTES // max(1, size)))
