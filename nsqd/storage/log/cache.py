"""Which messages are in memory, and how the others are read back. A turn never waits for the disk: a thread reads.

Every frame is on disk as well, so memory is a cache, with one budget for the whole log. Extents that were published last and
that no channel is near are evicted first: a channel that lags behind keeps the extents that it reads next, and a channel that
keeps up has read the others. Extents that were read back are evicted when the channels have passed them. Data in the operating
system's page cache is read in the turn, because handing the read to the thread and back costs more. The thread reads the
requested extent and the next one after it.

See docs/contributing/design/log.md#memory.
"""

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from queue import SimpleQueue

from nsqd.core.message.attributes import concern_channels
from nsqd.core.sequence.extent import Extent
from nsqd.storage.log.disk import Disk
from nsqd.storage.log.files import SegmentFiles
from nsqd.storage.log.locations import OVERHEAD, FoundFrames, collect_frames, no_frames, read_frames, read_frames_cached
from nsqd.storage.sequence import Sequence
from nsqd.storage.stored_extent import Location, StoredExtent
from shared.log import log
from shared.process.listen import OUT_OF_RESOURCES

KEPT_NEW = 4  # the newest extents may have one part in this many of the budget
EVICTED_AT_ONCE = 64  # one part in this many of the budget is evicted in a turn: of 256 MB a few ms
RETRIES_PER_LINE = 100  # one in this many retries is logged: every ten seconds
MOST_INLINE = 8  # extents that are read in a turn, at most: 2 ms
PAUSE = 0.1  # s between two tries after a failed read


@dataclass(slots=True)
class ReadRequest:
    """A request to read an extent back, and its result."""

    topic: int
    sequence: Sequence
    stored: StoredExtent
    locations: list[Location]  # of the extent when the read was requested
    found: FoundFrames | None = None  # the result; None: the read is not done yet, or it failed
    failure: OSError | None = None
    lost: set[int] = field(default_factory=set)  # indexes of messages that are referenced and could not be read
    restores: bool = False  # True: a segment's file is missing, and other nodes are asked for it first


class Cache:
    """The frames in memory. All methods are for the reactor's thread except `_work` and `_do`."""

    def __init__(self, disk: Disk, files: SegmentFiles, budget: int, wake: Callable[[], None]) -> None:
        self.budget = budget  # bytes of frames, at most
        self.limit = budget  # the part of the budget that is left to frames; past it, call `evict`
        self.cached_bytes = 0  # bytes of frames in memory; a referenced extent counts with its released frames
        self.on_read: Callable[[int], None] = lambda topic: (
            None
        )  # called with the topic when a requested extent was read
        self.just_read: list[StoredExtent] = []  # extents read back in this turn; if there are any, call `evict`
        self.done: deque[ReadRequest] = deque()  # filled by the thread; if there are any, call `collect`
        self.inline = 0  # extents read in this turn; the code that begins a turn sets it to 0
        # (messages, extents) of each PUBLISH that is not written yet: these messages exist only in memory
        self.unplaced: list[tuple[int, list[StoredExtent]]] = []
        self.failures = 0  # number of messages that were found corrupt or missing
        self.retries = 0  # number of reads that failed and were tried again
        self._disk, self._files, self._wake = disk, files, wake
        # The extents published last, with the bytes by which each grew. Channels that keep up will read them in a moment.
        self._new: OrderedDict[StoredExtent, int] = OrderedDict()
        self._new_bytes = 0  # bytes of the extents in `_new`
        self._old: dict[StoredExtent, None] = {}  # extents published before those, as far as they are in memory
        self._read_back: OrderedDict[StoredExtent, None] = (
            OrderedDict()
        )  # extents that were read back, the oldest first
        self._reading: dict[int, ReadRequest] = {}  # reads in progress, by id() of the extent
        self._jobs: SimpleQueue[ReadRequest | None] = SimpleQueue()  # reads for the thread; None ends it
        self._thread: threading.Thread | None = None

    # What enters and leaves the memory

    def place(self, places: list[tuple[int, int, int]], wall: int, logged: int) -> None:
        """Note where messages are in the groups just written, and empty `places`. From now on their frames may be evicted.

        `places`: (segment, start, end) of PUBLISH records; `wall`: ns since the epoch; `logged`: the same in the log's time.
        """
        for (count, extents), (segment, start, end) in zip(self.unplaced, places, strict=False):
            size = (end - start + count * OVERHEAD) // len(extents)
            for stored in extents:
                stored.note_location(segment, start, end, size, wall, logged)
                if stored.extent is not None:  # None: all readers finished it in the turn in which it was published
                    self.cached_bytes += size
                    self._new_bytes += size
                    self._new[stored] = self._new.get(stored, 0) + size
        del self.unplaced[: len(places)]
        places.clear()
        if self._new_bytes > self.limit // KEPT_NEW:
            self._age()

    def _age(self) -> None:
        while self._new_bytes > self.limit // KEPT_NEW and len(self._new) > 1:
            oldest, grown = self._new.popitem(last=False)
            self._new_bytes -= grown
            if oldest.extent is not None:
                self._old[oldest] = None

    def share(self, others: int) -> None:
        """Reserve `others` bytes of the budget for other uses. At least an eighth of the budget is left to frames."""
        self.limit = self.budget - min(others, self.budget // 8 * 7)
        self._age()

    def forget_extent(self, stored: StoredExtent) -> None:
        """Forget an extent whose messages are all finished, or that was replaced."""
        if stored.extent is not None:
            self.cached_bytes -= stored.size
            stored.extent = None  # a read of the extent may be in progress
        self._new_bytes -= self._new.pop(stored, 0)
        self._old.pop(stored, None)
        self._read_back.pop(stored, None)

    def evict(self) -> None:
        """Evict extents until there is some room again, or nothing more can be evicted.

        Call this at the end of a turn if `cached_bytes` exceeds `limit`, or if extents are in `just_read`.
        """
        if self.cached_bytes > self.limit:
            unwritten = {stored for _, extents in self.unplaced for stored in extents}
            room = self.limit - self.limit // EVICTED_AT_ONCE
            while self.cached_bytes > room and self._read_back:
                self._evict(self._read_back.popitem(last=False)[0], unwritten)
            while self.cached_bytes > room and self._old:
                self._evict(self._old.popitem()[0], unwritten)
        if self.just_read:
            self._read_back.update((stored, None) for stored in self.just_read if stored.extent is not None)
            self.just_read.clear()

    def _evict(self, stored: StoredExtent, unwritten: set[StoredExtent]) -> None:
        if stored.extent is None or not stored.locations or stored.released == stored.count or stored in unwritten:
            return
        stored.extent = None  # a channel that reads the extent keeps its own reference
        self.cached_bytes -= stored.size

    # Reading back

    def fetch(self, topic: int, sequence: Sequence, place: int) -> None:
        """Start to read back the extent at index `place` of the sequence, and the next one, which is needed soon."""
        for stored in sequence.extents[place : place + 2]:
            if stored.extent is None and stored.released < stored.count and id(stored) not in self._reading:
                self._request(topic, sequence, stored)

    def read_now(self, topic: int, sequence: Sequence, stored: StoredExtent) -> Extent | None:
        """Return the extent if the page cache holds it and this turn may read one more, otherwise None."""
        if self.inline >= MOST_INLINE or not stored.locations or id(stored) in self._reading:
            return None
        self.inline += 1
        try:
            found = read_frames_cached(self._disk, self._files, topic, stored, stored.locations)
        except OSError:  # the thread tries again, and handles the error
            return None
        if found is None:
            return None
        self._install(ReadRequest(topic, sequence, stored, [], found))
        return stored.extent

    def _request(self, topic: int, sequence: Sequence, stored: StoredExtent, restores: bool = False) -> None:
        self._reading[id(stored)] = read = ReadRequest(
            topic, sequence, stored, list(stored.locations), restores=restores
        )
        self._start(read)

    def _start(self, read: ReadRequest | None) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="read", daemon=True)
            self._thread.start()
        self._jobs.put(read)

    def _work(self) -> None:
        while (read := self._jobs.get()) is not None:
            self._do(read)
            self.done.append(read)
            self._wake()

    def _do(self, read: ReadRequest) -> None:
        """Read one extent from its locations, and set `found` or `failure`. Any thread may call this."""
        try:
            if read.restores:
                read.found = self._restore(read)
            else:
                read.found = read_frames(self._disk, self._files, read.topic, read.stored, read.locations)
        except OSError as error:
            read.failure = error
            is_tried_again = not isinstance(error, FileNotFoundError)
        else:
            is_tried_again = not all(read.found.frames) and self._is_awaited(read)
        if is_tried_again:
            time.sleep(PAUSE)

    def _restore(self, read: ReadRequest) -> FoundFrames:
        """Read an extent one of whose files is missing: from that of another node, or without it. Raises OSError."""
        repair, found = self._files.repair, no_frames(read.stored.first, read.stored.count)
        for location in read.locations:
            base, _, start, end = location
            try:
                file = self._files.at(base)
                if repair is not None:
                    repair(base, file, start, end)
                collect_frames(self._disk, file, location, read.topic, found)
            except FileNotFoundError as error:
                read.failure = error
        return found

    def collect(self) -> list[ReadRequest]:
        """Install the extents that the thread has read. Returns the reads with `lost` messages: corrupt or missing."""
        failed = []
        topics = dict[int, None]()
        while self.done:
            read = self.done.popleft()
            del self._reading[id(read.stored)]
            stored = read.stored
            is_live = not read.sequence.is_dropped and stored.released < stored.count and stored.extent is None
            may_succeed_later = self._may_succeed_later(read)
            restores = is_live and not may_succeed_later and _lacks_a_file(read)
            read.lost = _lost(read) if is_live and not may_succeed_later else set()
            if may_succeed_later or restores or (read.lost and self._is_awaited(read)):
                self._request(read.topic, read.sequence, stored, restores)
                continue
            if read.lost:
                self.failures += len(read.lost)
                failed.append(read)
            elif is_live:
                self._install(read)
            topics[read.topic] = None
        for topic in topics:
            self.on_read(topic)
        return failed

    def _may_succeed_later(self, read: ReadRequest) -> bool:
        """Return True if the read failed and should be tried again.

        The machine may be out of descriptors, or the disk may come back. But a missing segment comes back only if it was
        cleaned in the meantime: then the extent has other locations.
        """
        if read.failure is None:
            return False
        if isinstance(read.failure, FileNotFoundError):
            return read.locations != read.stored.locations
        self.retries += 1
        if self.retries % RETRIES_PER_LINE == 1 and read.failure.errno not in OUT_OF_RESOURCES:
            log.error("LOG: cannot read %d messages, retrying: %s", read.stored.count, read.failure)
        return True

    def _is_awaited(self, read: ReadRequest) -> bool:
        """Return True if another node may have the corrupt bytes, and could not be reached yet. Any thread may ask."""
        repair = self._files.repair
        if repair is None:
            return False
        try:
            return any(repair.is_awaited(self._files.at(place[0]), place[2]) for place in read.locations)
        except FileNotFoundError:  # a segment was removed meanwhile
            return False

    def _install(self, read: ReadRequest) -> None:
        """Put an extent into memory, all of whose referenced messages were read."""
        stored, found = read.stored, read.found
        assert found is not None
        for index in _distributed_and_released(read):
            found.frames[index] = b""
        extent = Extent(stored.first, stored.delayed)
        extent.frames, extent.ids, extent.largest = found.frames, found.ids, found.largest
        for first, end, packed in sorted(found.attributed):
            if concern_channels(packed):
                extent.keep_headers(first, end, packed)
        stored.extent = extent
        self.cached_bytes += stored.size
        self.just_read.append(stored)

    def close(self) -> None:
        """End the thread that reads, after its queued reads."""
        if self._thread is not None:
            self._start(None)
            self._thread.join()


def _lacks_a_file(read: ReadRequest) -> bool:
    """Return True if the file of a segment is missing that the log did not remove, and other nodes were not asked yet."""
    return isinstance(read.failure, FileNotFoundError) and not read.restores


def _distributed_and_released(read: ReadRequest) -> Iterator[int]:
    """Yield the indexes of the messages that were given to channels and that no channel references."""
    stored = read.stored
    if stored.released:
        for index in range(min(stored.count, read.sequence.distributed - stored.first)):
            if not stored.references(index):
                yield index


def _lost(read: ReadRequest) -> set[int]:
    """Return the indexes of the messages that are referenced and were not read."""
    frames = read.found.frames if read.found else [b""] * read.stored.count
    if all(frames):
        return set()
    return {index for index, frame in enumerate(frames) if not frame}.difference(_distributed_and_released(read))
