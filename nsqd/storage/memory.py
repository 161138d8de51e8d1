"""The Store in memory: extents of frames, each frame freed when no channel owes it any more.

Beside each extent stands one byte a message: how many channels still owe it. Finishing a stretch is one bytes.translate,
whatever its length; frames that nobody owes become b"" at once, and an extent of only such frames is dropped. With more
channels than a byte counts the extent keeps a list of numbers instead.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable
from operator import add

from nsqd.core.frame import ID_SIZE
from nsqd.core.keeping import Keeping, TopicConfig
from nsqd.core.store import Extent

Piece = tuple[int, int, int, int]  # of the log: a segment's base, its generation, and a range of bytes in that file
EXTENT_MESSAGES = 1024  # a growing extent is closed at this many: finishing walks within one
EXTENT_BYTES = 1024 * 1024  # likewise: it is read back, and kept in memory, as a whole
RUN_BYTES = 16 * 1024 * 1024  # neighbours that are retained only are noted as one, up to this size
GRAINS = 16  # ... and up to this part of what is retained
FOREVER = 1 << 62  # ns
GAP = 32 * 1024  # bytes of other records that are read rather than a range is begun
MOST_IN_A_BYTE = 255
_ONE_LESS = bytes([0, *range(MOST_IN_A_BYTE)])
_ONE_MORE = bytes([*range(1, MOST_IN_A_BYTE + 1), 0])


class Held:
    """An extent, and what is owed of it. Its frames may be on disk only: then `extent` is None."""

    __slots__ = (
        "bulk",
        "count",
        "counts",
        "delayed",
        "extent",
        "first",
        "freed",
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
        self.oldest = self.newest = 0  # when its messages were published (ns since the epoch); 0: none is on disk

    @property
    def end(self) -> int:
        """The ordinal after the last."""
        return self.first + self.count

    def takes(self, first: int, delayed: bool) -> bool:
        """True if message `first` may be added at the end. What is not in memory grows no more."""
        return self.extent is not None and self._has_room(first, delayed)

    def takes_cold(self, first: int, delayed: bool) -> bool:
        """The same for a message that is on disk only."""
        return self.extent is None and self._has_room(first, delayed)

    def _has_room(self, first: int, delayed: bool) -> bool:
        if self.delayed != delayed or self.end != first:
            return False
        return self.freed < self.count < EXTENT_MESSAGES and self.bulk < EXTENT_BYTES

    def append(self, frames: list[bytes], ids: bytes, largest: int) -> None:
        """Messages at the end. They are in memory."""
        extent = self.extent
        assert extent is not None
        extent.frames += frames
        extent.ids += ids
        extent.largest = max(extent.largest, largest)
        self.owed += bytes(len(frames))
        self.count += len(frames)
        self.bulk += len(frames) * largest

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
        part.oldest, part.newest = self.oldest, self.newest
        given = max(0, min(part.count, edge - part.first))
        part.freed = sum(not part.owed_at(index) for index in range(given))
        return part

    @property
    def disk_bytes(self) -> int:
        """Of its records, and of what stands between them."""
        return sum(end - start for _, _, start, end in self.pieces)

    def published(self, at: int) -> None:
        """What was added came then (ns since the epoch)."""
        self.oldest = self.oldest or at
        self.newest = at

    def retain_only(self) -> None:
        """Nobody owes anything of it any more."""
        self.extent, self.counts, self.owed, self.freed = None, None, bytearray(), self.count

    def join(self, other: "Held") -> None:
        """The messages behind its own, likewise only retained, are its own."""
        self.count += other.count
        self.freed = self.count
        self.size += other.size
        self.oldest, self.newest = min(self.oldest, other.oldest), max(self.newest, other.newest)
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


def _step(size: int) -> int:
    """How many messages of that size an extent may have."""
    return max(1, min(EXTENT_MESSAGES, EXTENT_BYTES // max(1, size)))


class Sequence:
    """One topic's extents, ascending."""

    __slots__ = ("_dead", "_firsts", "_grain", "edge", "end", "first", "held", "kept")

    def __init__(self) -> None:
        self.edge = 0  # messages before it were given to channels
        self.held: list[Held] = []
        self.first: int | None = None  # finished messages from it on are retained; None: none is
        self.kept: list[Held] = []  # what is only retained; in order after `settle`
        self._grain = 0, 0  # ns and bytes that neighbours may span which are noted as one
        self._firsts: list[int] = []  # first of each
        self.end = 0  # ordinal after the last message
        self._dead = 0  # extents in `held` of which nothing is left; swept when they are half

    def append(self, first: int, frames: list[bytes], ids: bytes, largest: int, delayed: bool) -> list[Held]:
        """Messages at the end, in extents that bound what a channel standing in one of them keeps alive. Returns these."""
        if len(frames) == 1:
            held = self.last_for(first, delayed)
            held.append(frames, ids, largest)
            self.end = first + 1
            return [held]
        touched = []
        step = _step(largest)
        for start in range(0, len(frames), step):
            stop = start + step
            held = self.last_for(first + start, delayed)
            held.append(frames[start:stop], ids[start * ID_SIZE : stop * ID_SIZE], largest)
            touched.append(held)
        self.end = first + len(frames)
        return touched

    def append_cold(self, first: int, count: int, delayed: bool, size: int) -> list[Held]:
        """Messages (`size` bytes in all) at the end that are on disk only. Returns the extents that hold them."""
        touched = []
        end, each = first + count, size // count
        while first < end:
            held = self.held[-1] if self.held else None
            if held is None or not held.takes_cold(first, delayed):
                held = Held(first, delayed)
                held.extent = None
                self.add(held)
            part = min(end - first, EXTENT_MESSAGES - held.count, _step(each))
            held.owed += bytes(part)
            held.count += part
            held.bulk += part * each
            touched.append(held)
            first += part
        self.end = end
        return touched

    def last_for(self, first: int, delayed: bool) -> Held:
        """The extent that message `first`, the next one, belongs to."""
        held = self.held[-1] if self.held else None
        if held is None or not held.takes(first, delayed):
            held = Held(first, delayed)
            self.add(held)
        return held

    def add(self, held: Held) -> None:
        """An extent at the end."""
        self.held.append(held)
        self._firsts.append(held.first)
        self.end = max(self.end, held.end)

    def spans(self, first: int, end: int) -> list[tuple[Held, int, int]]:
        """The extents that hold first..end, with the indexes in each."""
        place = bisect_right(self._firsts, first) - 1
        found = []
        while first < end:
            held = self.held[place]
            stop = min(end, held.end)
            found.append((held, first - held.first, stop - held.first))
            first = stop
            place += 1
        return found

    def present(self, first: int, end: int) -> list[tuple[int, int]]:
        """The parts of first..end that are here."""
        return [(start, stop) for start, stop, _ in self.kinds(first, end)]

    def kinds(self, first: int, end: int) -> list[tuple[int, int, bool]]:
        """The parts of first..end that are here, and for each whether it was published with a delay."""
        return [
            (held.first + start, held.first + stop, held.delayed)
            for held, start, stop in self.present_spans(first, end)
            if held.freed < held.count
        ]

    def plain(self, first: int, end: int) -> list[tuple[int, int]]:
        """The parts of first..end that were published without a delay."""
        return [(start, stop) for start, stop, delayed in self.kinds(first, end) if not delayed]

    def present_spans(self, first: int, end: int) -> list[tuple[Held, int, int]]:
        """As `spans`, for messages that need not all be here."""
        found = []
        for place in range(max(0, bisect_right(self._firsts, first) - 1), len(self.held)):
            held = self.held[place]
            if held.first >= end:
                break
            start, stop = max(first, held.first), min(end, held.end)
            if start < stop:
                found.append((held, start - held.first, stop - held.first))
        return found

    def cold(self, first: int, end: int) -> int:
        """How many of first..end are on disk only."""
        spans = self.present_spans(first, end)
        return sum(stop - start for held, start, stop in spans if held.extent is None and held.freed < held.count)

    def count_freed(self) -> None:
        """What was given to channels and is owed by none is freed."""
        for held in self.held:
            given = max(0, min(held.count, self.edge - held.first))
            owed = held.counts if held.counts is not None else held.owed
            held.freed = sum(not number for number in owed[:given])

    def without(self, held: Held, lost: set[int]) -> None:
        """Messages of an extent on disk (`lost`: indexes) are not there: what is left of it become extents of their own."""
        kept = [index for index in range(held.count) if index not in lost]
        starts = [index for index in kept if index - 1 in lost or index == 0]
        ends = [index + 1 for index in kept if index + 1 in lost or index + 1 == held.count]
        parts = [held.part(start, end, self.edge) for start, end in zip(starts, ends, strict=True)]
        place = self.held.index(held)
        self.held[place : place + 1] = parts
        self._firsts[place : place + 1] = [part.first for part in parts]

    def live(self) -> list[Held]:
        """The extents of which something is left."""
        return [held for held in self.held if held.freed < held.count]

    def place(self, ordinal: int) -> int:
        """The index in `held` of the extent that holds it, else of the next there is; len(held) if there is none."""
        place = bisect_right(self._firsts, ordinal) - 1
        if place < 0 or ordinal >= self.held[place].end:
            place += 1
        while place < len(self.held) and self.held[place].freed == self.held[place].count:
            place += 1
        return place

    def at(self, ordinal: int) -> Extent | None:
        """The extent that holds it, else the next, else an empty one at the end. None: it is on disk only."""
        place = self.place(ordinal)
        return self.held[place].extent if place < len(self.held) else self.nothing()

    def nothing(self) -> Extent:
        """An empty extent at the end."""
        return Extent(self.end, False)

    def drop(self) -> None:
        """Nothing is left of one of the extents. Deleting each from the lists at once would cost their length."""
        self._dead += 1
        if self._dead > len(self.held) // 2:
            self.sweep()

    def sweep(self) -> None:
        """Of what nothing is left goes, or is retained."""
        self.kept += self._dead_and_retained()
        self.held = self.live()
        self._firsts = [held.first for held in self.held]
        self._dead = 0

    def settle(self) -> None:
        """What is retained stands in order, neighbours as one. Not while groups wait to be written."""
        self.sweep()
        joined: list[Held] = []
        span, most = self._grain
        for held in sorted(self.kept, key=lambda held: held.first):
            held.retain_only()
            last = joined[-1] if joined else None
            near = last is not None and last.end == held.first and held.newest - last.oldest <= span
            if last is not None and near and last.size + held.size <= most:
                last.join(held)
            else:
                joined.append(held)
        self.kept = joined

    def retire(self, oldest: int, most: int) -> bool:
        """Finished messages go that were published before `oldest` (ns since the epoch), or before the newest `most` bytes.

        True if more may go than before. Neither bound cuts through what was finished together.
        """
        assert self.first is not None
        self.settle()
        before, first = self.first, self.first
        entries = sorted((*self.kept, *self.held), key=lambda held: held.first)
        room = most
        for held in reversed(entries):
            room -= held.disk_bytes
            if room < 0 or held.newest < oldest:
                first = max(first, held.end)
                break
        self.retain(first)
        return first > before

    def keep(self, keeping: Keeping) -> None:
        """How finished messages are retained, if they are. A run of them goes as a whole: it must not be too long."""
        self._grain = (
            keeping.retention // GRAINS or FOREVER,
            min(RUN_BYTES, keeping.retention_bytes // GRAINS or RUN_BYTES),
        )

    def retain(self, first: int | None) -> None:
        """Finished messages from `first` on shall stay; None: none of them."""
        self.first = first
        self.kept = [] if first is None else [held for held in self.kept if held.end > first]

    def retained(self) -> list[Held]:
        """The extents of which something is retained and nothing owed."""
        return self.kept + self._dead_and_retained()

    def _dead_and_retained(self) -> list[Held]:
        """What of `held` is not owed, but retained."""
        first = self.first
        return [] if first is None else [one for one in self.held if one.freed == one.count and one.end > first]

    def wanted(self, held: Held) -> float:
        """The part of an extent, 0 to 1, that somebody owes or that is retained."""
        owed = 1 - held.freed / held.count
        if self.first is None:
            return owed
        return max(owed, min(1.0, (held.end - self.first) / held.count))

    def cut(self, first: int) -> None:
        """Forget everything from `first` on; nobody owes it."""
        while self.held and self.held[-1].end > first:
            held = self.held[-1]
            if not held.cut(max(0, first - held.first)):
                return
            self.held.pop()
            self._firsts.pop()
            if self.first is not None and held.end > self.first:
                self.kept.append(held)


class MemoryStore:
    """Implements nsqd.core.store.Store. Nothing of it survives the process but the id lease, by way of `write_lease`."""

    def __init__(self, write_lease: Callable[[int], bool]) -> None:
        self._write_lease = write_lease
        self._topics: dict[int, Sequence] = {}
        self._position = 0

    @property
    def durable(self) -> int:
        """All there is: memory promises nothing beyond the process, and that at once."""
        return self._position

    def begin(self, now: int, wall: int) -> None:
        pass

    @property
    def refusal(self) -> str:
        return ""

    @property
    def broken(self) -> bool:
        return False

    @property
    def stuck(self) -> bool:
        return False

    def promise(self, topic: int) -> None:
        pass

    def keep(self, topic: int, keeping: Keeping) -> None:
        pass

    def configure(self, topic: int, config: TopicConfig) -> None:
        self._position += 1

    def commit(self) -> int:
        return self._position

    def lease(self, ceiling: int) -> bool:
        return self._write_lease(ceiling)

    def publish(self, topic: int, first: int, frames: list[bytes], ids: bytes, largest: int, due: int) -> None:
        self._position += 1
        self.sequence(topic).append(first, frames, ids, largest, due != 0)

    def distribute(self, topic: int, first: int, end: int, channels: int) -> None:
        self._position += 1
        sequence = self._topics[topic]
        sequence.edge = end
        for held, start, stop in sequence.spans(first, end):
            held.owe(start, stop, channels)

    def finish(self, topic: int, channel: int, first: int, count: int) -> None:
        self._position += 1
        sequence = self._topics[topic]
        for held, start, stop in sequence.spans(first, first + count):
            if held.finish(start, stop):
                sequence.drop()

    def create_topic(self, topic: int, name: str) -> None:
        self._position += 1

    def create_channel(self, topic: int, channel: int, name: str, start: int) -> None:
        self._position += 1

    def drop_channel(self, topic: int, channel: int) -> None:
        self._position += 1

    def pause(self, topic: int, channel: int, paused: bool) -> None:
        self._position += 1

    def advance(self, topic: int, channel: int, cursor: int) -> None:
        self._position += 1

    def requeue(self, topic: int, channel: int, ordinal: int, attempts: int, due: int) -> None:
        self._position += 1

    def bury(self, topic: int, channel: int, ordinal: int, message_id: bytes, attempts: int, reason: str) -> None:
        self._position += 1

    def finish_all(self, topic: int, channel: int, end: int, owed: Iterable[tuple[int, int]]) -> None:
        for first, count in owed:
            self.finish(topic, channel, first, count)

    def hole(self, topic: int, first: int, end: int) -> None:
        self._position += 1
        if topic in self._topics:
            self._topics[topic].cut(first)

    def drop_topic(self, topic: int) -> None:
        self._position += 1
        self._topics.pop(topic, None)

    def read(self, topic: int, ordinal: int) -> Extent | None:
        sequence = self._topics.get(topic)
        return sequence.at(ordinal) if sequence else Extent(0, False)

    def take_over(self, other: "MemoryStore") -> None:
        """All that `other` holds; it is not used any more."""
        self._topics = other._topics

    def sequence(self, topic: int) -> Sequence:
        """The topic's extents; for storage that knows more of them."""
        found = self._topics.get(topic)
        if found is None:
            found = self._topics[topic] = Sequence()
        return found

    def adopt(self, topic: int, sequence: Sequence) -> None:
        """These are the topic's extents."""
        self._topics[topic] = sequence

    def cold(self, topic: int, first: int, end: int) -> int:
        sequence = self._topics.get(topic)
        return sequence.cold(first, end) if sequence else 0

    def extents(self, topic: int, first: int, end: int) -> list[tuple[int, int, bool]]:
        sequence = self._topics.get(topic)
        return sequence.kinds(first, end) if sequence else []

    def present(self, topic: int, first: int, end: int) -> list[tuple[int, int]]:
        """The parts (first, end) of first..end that are in extents there are."""
        sequence = self._topics.get(topic)
        return sequence.present(first, end) if sequence else []

    def plain_spans(self, topic: int, end: int) -> list[tuple[int, int]]:
        """(first, end) of all extents before `end` that were published without a delay."""
        sequence = self._topics.get(topic)
        return sequence.plain(0, end) if sequence else []

    def held(self) -> tuple[int, int]:
        """Messages in memory, and the bytes of their frames. Walks everything: for tests and figures."""
        extents = [held.extent for sequence in self._topics.values() for held in sequence.held if held.extent]
        frames = [frame for extent in extents for frame in extent.frames if frame]
        return len(frames), sum(map(len, frames))
