"""The Store in memory: extents of frames, each frame freed when no channel owes it any more.

Beside each extent stands one byte a message: how many channels still owe it. Finishing a stretch is one bytes.translate,
whatever its length; frames that nobody owes become b"" at once, and an extent of only such frames is dropped. With more
channels than a byte counts the extent keeps a list of numbers instead.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable

from nsqd.core.frame import ID_SIZE
from nsqd.core.store import Extent

EXTENT_MESSAGES = 1024  # a growing extent is closed at this many: finishing walks within one
MOST_IN_A_BYTE = 255
_ONE_LESS = bytes([0, *range(MOST_IN_A_BYTE)])


class _Held:
    """An extent, and what is owed of it."""

    __slots__ = ("counts", "extent", "freed", "owed")

    def __init__(self, extent: Extent) -> None:
        self.extent = extent
        self.owed = bytearray()  # for each frame, how many channels have not finished it
        self.counts: list[int] | None = None  # the same once there are more channels than a byte counts
        self.freed = 0  # frames that are b""

    def takes(self, first: int, delayed: bool) -> bool:
        """True if message `first` may be added at the end."""
        extent = self.extent
        return (
            extent.delayed == delayed
            and extent.end == first
            and len(extent.frames) - self.freed > 0
            and len(extent.frames) < EXTENT_MESSAGES
        )

    def owe(self, first: int, end: int, channels: int) -> None:
        """Frames first..end (indexes) are owed by so many channels."""
        if channels <= MOST_IN_A_BYTE and self.counts is None:
            self.owed[first:end] = bytes((channels,)) * (end - first)
            return
        if self.counts is None:
            self.counts = list(self.owed)
        self.counts += [0] * (end - len(self.counts))
        self.counts[first:end] = [channels] * (end - first)

    def finish(self, first: int, end: int) -> bool:
        """One channel less owes frames first..end. True if nothing of the extent is left."""
        if self.counts is not None:
            return self._finish_counted(self.counts, first, end)
        owed = self.owed[first:end].translate(_ONE_LESS)
        self.owed[first:end] = owed
        done = owed.count(0)
        if done == end - first:
            self.extent.frames[first:end] = [b""] * done
            self.freed += done
        elif done:
            self._free_some(first, owed)
        return self.freed == len(self.extent.frames)

    def _finish_counted(self, counts: list[int], first: int, end: int) -> bool:
        for index in range(first, end):
            counts[index] -= 1
            if not counts[index]:
                self.extent.frames[index] = b""
                self.freed += 1
        return self.freed == len(self.extent.frames)

    def _free_some(self, first: int, owed: bytearray) -> None:
        frames = self.extent.frames
        at = owed.find(0)
        while at >= 0:
            if frames[first + at]:
                frames[first + at] = b""
                self.freed += 1
            at = owed.find(0, at + 1)


class _Sequence:
    """One topic's extents, ascending."""

    __slots__ = ("_dead", "_end", "_firsts", "_held")

    def __init__(self) -> None:
        self._held: list[_Held] = []
        self._firsts: list[int] = []  # extent.first of each
        self._end = 0  # ordinal after the last message
        self._dead = 0  # extents in _held of which nothing is left; swept when they are half

    def append(self, first: int, frames: list[bytes], ids: bytes, largest: int, delayed: bool) -> None:
        """Messages at the end, in extents that bound what a channel standing in one of them keeps alive."""
        for start in range(0, len(frames), EXTENT_MESSAGES):
            stop = start + EXTENT_MESSAGES
            self._append(first + start, frames[start:stop], ids[start * ID_SIZE : stop * ID_SIZE], largest, delayed)
        self._end = first + len(frames)

    def _append(self, first: int, frames: list[bytes], ids: bytes, largest: int, delayed: bool) -> None:
        held = self._held[-1] if self._held else None
        if held is None or not held.takes(first, delayed):
            held = _Held(Extent(first, delayed))
            self._held.append(held)
            self._firsts.append(first)
        extent = held.extent
        extent.frames += frames
        extent.ids += ids
        extent.largest = max(extent.largest, largest)
        held.owed += bytes(len(frames))

    def spans(self, first: int, end: int) -> list[tuple[_Held, int, int]]:
        """The extents that hold first..end, with the indexes in each."""
        place = bisect_right(self._firsts, first) - 1
        found = []
        while first < end:
            held = self._held[place]
            stop = min(end, held.extent.end)
            found.append((held, first - held.extent.first, stop - held.extent.first))
            first = stop
            place += 1
        return found

    def at(self, ordinal: int) -> Extent:
        """The extent that holds it, else the next, else an empty one at the end."""
        place = bisect_right(self._firsts, ordinal) - 1
        if place >= 0 and ordinal < self._held[place].extent.end:
            return self._held[place].extent
        return self._held[place + 1].extent if place + 1 < len(self._held) else Extent(self._end, False)

    def drop(self) -> None:
        """Nothing is left of one of the extents. Deleting each from the lists at once would cost their length."""
        self._dead += 1
        if self._dead > len(self._held) // 2:
            self._held = [held for held in self._held if held.freed < len(held.extent.frames)]
            self._firsts = [held.extent.first for held in self._held]
            self._dead = 0

    def cut(self, first: int) -> None:
        """Forget everything from `first` on; nobody owes it."""
        while self._held and self._held[-1].extent.end > first:
            held = self._held[-1]
            keep = max(0, first - held.extent.first)
            held.extent.frames[keep:] = [b""] * (len(held.extent.frames) - keep)
            held.freed += len(held.extent.frames) - keep
            if held.freed < len(held.extent.frames):
                return
            self._held.pop()
            self._firsts.pop()


class MemoryStore:
    """Implements nsqd.core.store.Store. Nothing of it survives the process but the id lease, by way of `write_lease`."""

    def __init__(self, write_lease: Callable[[int], bool]) -> None:
        self._write_lease = write_lease
        self._topics: dict[int, _Sequence] = {}
        self._position = 0

    @property
    def durable(self) -> int:
        """All there is: memory promises nothing beyond the process, and that at once."""
        return self._position

    def commit(self) -> int:
        return self._position

    def lease(self, ceiling: int) -> bool:
        return self._write_lease(ceiling)

    def publish(self, topic: int, first: int, frames: list[bytes], ids: bytes, largest: int, due: int) -> None:
        self._position += 1
        sequence = self._topics.get(topic)
        if sequence is None:
            sequence = self._topics[topic] = _Sequence()
        sequence.append(first, frames, ids, largest, due != 0)

    def distribute(self, topic: int, first: int, end: int, channels: int) -> None:
        self._position += 1
        for held, start, stop in self._topics[topic].spans(first, end):
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

    def bury(self, topic: int, channel: int, ordinal: int, attempts: int, reason: str) -> None:
        self._position += 1

    def finish_all(self, topic: int, channel: int, end: int, owed: Iterable[tuple[int, int]]) -> None:
        for first, count in owed:
            self.finish(topic, channel, first, count)

    def hole(self, topic: int, first: int, end: int) -> None:
        self._position += 1
        self._topics[topic].cut(first)

    def drop_topic(self, topic: int) -> None:
        self._position += 1
        self._topics.pop(topic, None)

    def read(self, topic: int, ordinal: int) -> Extent | None:
        sequence = self._topics.get(topic)
        return sequence.at(ordinal) if sequence else Extent(0, False)

    def held(self) -> tuple[int, int]:
        """Messages in memory, and the bytes of their frames. Walks everything: for tests and figures."""
        frames = [f for sequence in self._topics.values() for held in sequence._held for f in held.extent.frames if f]
        return len(frames), sum(map(len, frames))
