"""Cleaning in place: a sparse segment is rewritten with only its live messages, as its own next generation.

Ids and order do not change, and a publish never moves past the records of what was done with its messages. A thread rewrites
the segment from a copy of what the reactor's thread knows; then the reactor's thread replaces the locations. Only segments
before both checkpoints are cleaned: replay never begins before them, so of their records only those of live messages are
needed.

See docs/contributing/design/log.md#tidying-and-cleaning.
"""

import threading
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field

from nsqd.core import records
from nsqd.core.records import RecordKind
from nsqd.storage.log.disk import Disk
from nsqd.storage.log.files import SegmentFile, SegmentFiles, file_of
from nsqd.storage.log.identity import LogIdentity
from nsqd.storage.log.locations import collect_frames, no_frames
from nsqd.storage.log.records import HEADER_SIZE, SegmentHeader, encode
from nsqd.storage.log.segments import LogError
from nsqd.storage.sequence import Sequence
from nsqd.storage.stored_extent import Location, StoredExtent
from shared.log import log

WRITE_SIZE = 1024 * 1024  # bytes that are written at a time, approximately


@dataclass(frozen=True, slots=True)
class LiveExtent:
    """An extent that has live messages."""

    topic: int
    sequence: Sequence
    stored: StoredExtent


@dataclass(slots=True)
class RewritePart:
    """The part of an extent in the segment to be cleaned."""

    topic: int
    stored: StoredExtent
    locations: list[Location]  # locations of the extent in that segment
    live: bytes  # for each message of the extent, 0 if no reader references it and it is not retained
    location: Location | None = None  # of the part in the new file
    records: int = 0  # number of records of the part in the new file


@dataclass(slots=True)
class RewriteJob:
    """One segment that is being cleaned, and the result."""

    base: int
    file: SegmentFile  # the file that is read
    header: SegmentHeader  # of the new file
    parts: list[RewritePart]
    failure: str = ""
    is_corrupt: bool = False  # True: the segment is corrupt or missing, and another try would fail as well
    size: int = 0  # bytes of the new file
    records: int = 0  # number of records in the new file
    done: threading.Event = field(default_factory=threading.Event)


class Cleaner:
    """Rewrites one segment at a time: call `choose_segment`, then `start`, then `finish`."""

    def __init__(self, disk: Disk, identity: LogIdentity, files: SegmentFiles, wake: Callable[[], None]) -> None:
        self.cleaned = 0  # number of segments that were cleaned
        self.records = 0  # number of records that were rewritten
        self._disk, self._identity, self._files, self._wake = disk, identity, files, wake
        self._job: RewriteJob | None = None
        self.refused: set[int] = set()  # bases of segments that cannot be cleaned
        self.size = 0  # bytes of the segment that was cleaned last

    @property
    def busy(self) -> bool:
        """Return True from `choose_segment` on until `finish` returns the segment or gives it up."""
        return self._job is not None

    @property
    def base(self) -> int:
        """Return the base of the chosen segment; -1: none is chosen."""
        return self._job.base if self._job is not None else -1

    def choose_segment(self, base: int, live: list[LiveExtent]) -> None:
        """Choose a segment to be cleaned. `live`: every extent with live messages in it."""
        parts = []
        for one in sorted(live, key=lambda one: (one.topic, one.stored.first)):  # in the order of reading back
            if locations := [location for location in one.stored.locations if location[0] == base]:
                parts.append(RewritePart(one.topic, one.stored, locations, _live(one.stored, one.sequence)))
        file, identity = self._files.at(base), self._identity
        header = SegmentHeader(file.node, file.generation + 1, identity.log_id, base, identity.epoch)
        self._job = RewriteJob(base, file, header, parts)

    def start(self) -> None:
        """Begin to clean the chosen segment, if there is one. The records that finished its messages must be durable."""
        if self._job is not None:
            self._start(self._job)

    def _start(self, job: RewriteJob) -> None:
        threading.Thread(target=self._work, args=(job,), name="clean", daemon=True).start()

    def _work(self, job: RewriteJob) -> None:
        try:
            self._rewrite(job)
        except (OSError, LogError) as error:  # no space or no descriptor, for example: the next checkpoint tries again
            job.failure, job.is_corrupt = str(error), isinstance(error, (LogError, FileNotFoundError))
            with suppress(OSError):  # there is no such file, or the next start removes it
                self._disk.remove(f"{file_of(job.header).name}.tmp")
        job.done.set()
        self._wake()

    def _rewrite(self, job: RewriteJob) -> None:
        """Write the new file under another name, sync it, and then rename it. Runs in the cleaner's thread."""
        new = file_of(job.header)
        with closing(self._disk.create(f"{new.name}.tmp")) as file:
            at, waiting, size = 0, [job.header.encode()], HEADER_SIZE
            for part in job.parts:
                start = at + size
                buffers = self._records(part, job.file, new.seed, start)
                waiting += buffers
                size += sum(map(len, buffers))
                part.location = job.base, new.edition, start, at + size
                if size > WRITE_SIZE:
                    file.append(waiting, at)
                    at, waiting, size = at + size, [], 0
            file.append(waiting, at)
            file.sync()
        job.size = at + size
        job.records = sum(part.records for part in job.parts)
        self._disk.rename(f"{new.name}.tmp", new.name)
        self._disk.sync_directory()

    def _records(self, part: RewritePart, file: SegmentFile, seed: int, at: int) -> list[bytes]:
        """Return the live messages of an extent as PUBLISH records from offset `at` on, one for each run of attributes."""
        stored = part.stored
        found = no_frames(stored.first, len(part.live))
        for location in part.locations:
            if not collect_frames(self._disk, file, location, part.topic, found):
                raise LogError("it is corrupt")  # the segment stays unchanged: an operator may want to examine it
        frames, attributes = found.frames, found.attributes()
        buffers: list[bytes] = []
        index = 0
        while index < len(frames):
            stop = _end_of_run(frames, part.live, attributes, index)
            if stop > index:
                run = frames[index:stop]
                part.records += 1
                first, largest = stored.first + index, max(map(len, run))
                head = records.pack_publish(part.topic, first, len(run), 0, largest, True, attributes[index])
                record = encode(seed, at, RecordKind.PUBLISH, head, b"".join(run))
                at += sum(map(len, record))
                buffers += record
            index = max(stop, index + 1)
        return buffers

    def discard(self) -> bool:
        """If the thread is done, remove its file, because the old one is held. Returns True if that is done."""
        job = self._job
        if job is None or not job.done.is_set():
            return False
        self._job = None
        if not job.failure:
            self._remove(file_of(job.header).name)
        return True

    def _remove(self, name: str) -> None:
        try:
            self._disk.remove(name)
        except OSError as error:
            log.error("LOG: cannot remove a cleaned segment: %s", error)

    def finish(self) -> int | None:
        """If the thread is done, replace the locations. Returns the base of the segment if it was cleaned."""
        job = self._job
        if job is None or not job.done.is_set():
            return None
        self._job = None
        if job.failure:
            if job.is_corrupt:
                self.refused.add(job.base)
            log.error("LOG: cannot clean segment %d: %s", job.base, job.failure)
            return None
        self._files.put(job.header)
        for part in job.parts:
            assert part.location is not None
            kept = [location for location in part.stored.locations if location[0] != job.base]
            part.stored.locations = sorted([*kept, part.location])
        self.cleaned += 1
        self.records += job.records
        self.size = job.size
        self._remove(job.file.name)
        return job.base


def _end_of_run(frames: list[bytes], live: bytes, attributes: list[bytes], start: int) -> int:
    """Return the end of the run of live messages with equal attributes from `start` on; `start` if there is none.

    A run may include finished messages where they take fewer bytes than repeating the attributes would: cleaning never makes a
    segment larger.
    """
    own = attributes[start]
    spare = len(own) + records.PUBLISH.size if own else 0  # bytes that a gap of finished messages before `at` may have
    stop, gap = start, 0
    for at in range(start, len(frames)):
        if not frames[at] or attributes[at] != own:
            break
        if live[at]:
            stop, gap = at + 1, 0
            continue
        gap += len(frames[at])
        if gap > spare or at == start:
            break
    return stop


def _live(stored: StoredExtent, sequence: Sequence) -> bytes:
    """Return a byte for each message of the extent, 0 if it is distributed, no reader references it, and it is not retained."""
    if stored.released == stored.count:
        live = bytes(stored.count)
    else:
        given = max(0, min(stored.count, sequence.distributed - stored.first))
        counts = stored.large_refcounts if stored.large_refcounts is not None else stored.refcounts
        live = bytes(bool(count) for count in counts[:given]) + b"\1" * (stored.count - given)
    if sequence.first is None or sequence.first >= stored.end:
        return live
    retained = max(0, sequence.first - stored.first)
    return live[:retained] + b"\1" * (stored.count - retained)
