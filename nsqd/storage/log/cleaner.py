"""Cleaning in place: a segment of which little is wanted is rewritten with only that, as its own next generation.

Ids and order stay as they are, and a publish never comes behind the records of what was done with it. A thread rewrites, from a
copy of what the reactor's thread knows; that one then exchanges the places. Only segments before both checkpoints are cleaned:
replay never begins before them, so none of their records is needed but those of wanted messages.
"""

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from nsqd.core import records
from nsqd.core.records import Kind
from nsqd.storage.held import Held, Piece
from nsqd.storage.log.disk import Disk
from nsqd.storage.log.identity import LogIdentity
from nsqd.storage.log.pieces import collect, nothing
from nsqd.storage.log.records import HEADER_SIZE, SegmentHeader, encode
from nsqd.storage.log.segments import LogError
from nsqd.storage.log.writer import segment_name
from nsqd.storage.sequence import Sequence
from shared.log import log

WRITE_SIZE = 1024 * 1024  # bytes written at a time


@dataclass(frozen=True, slots=True)
class Wanted:
    """An extent with messages that are wanted."""

    topic: int
    sequence: Sequence
    held: Held


@dataclass(slots=True)
class Part:
    """The part of an extent that stands in the segment."""

    topic: int
    held: Held
    pieces: list[Piece]  # in that segment
    wanted: bytes  # for each message of the extent, 0 if nobody owes it and it is not retained
    place: Piece | None = None  # where it stands in the new file
    records: int = 0  # it has there


@dataclass(slots=True)
class Job:
    """A segment to be cleaned."""

    base: int
    generation: int  # of the file that is read
    parts: list[Part]
    failure: str = ""
    damaged: bool = False  # then there is no sense in another try
    size: int = 0  # bytes of the new file
    records: int = 0  # in it
    done: threading.Event = field(default_factory=threading.Event)


class Cleaner:
    """Rewrites one segment at a time: `take` it, then `start`, then `finish`."""

    def __init__(
        self, disk: Disk, identity: LogIdentity, generations: dict[int, int], wake: Callable[[], None]
    ) -> None:
        self.cleaned = 0  # segments
        self.records = 0  # that were rewritten
        self._disk = disk
        self._identity = identity
        self._generations = generations  # of segments that were cleaned, by base; the cache reads by it, too
        self._wake = wake
        self._job: Job | None = None
        self.refused: set[int] = set()  # segments that cannot be cleaned
        self.size = 0  # bytes of the one that was cleaned last

    @property
    def busy(self) -> bool:
        """True from `take` on until `finish` returns the segment or gives it up."""
        return self._job is not None

    def take(self, base: int, wanted: list[Wanted]) -> None:
        """Choose a segment to be cleaned. `wanted`: every extent with wanted messages in it."""
        parts = []
        for one in sorted(wanted, key=lambda one: (one.topic, one.held.first)):  # in the order in which it is read back
            pieces = [piece for piece in one.held.pieces if piece[0] == base]
            if pieces:
                parts.append(Part(one.topic, one.held, pieces, _wanted(one.held, one.sequence)))
        self._job = Job(base, self._generations.get(base, 0), parts)

    def start(self) -> None:
        """Begin with the chosen segment, if there is one. That its unwanted messages were finished must be durable."""
        if self._job is not None:
            self._start(self._job)

    def _start(self, job: Job) -> None:
        threading.Thread(target=self._work, args=(job,), name="clean", daemon=True).start()

    def _work(self, job: Job) -> None:
        try:
            self._rewrite(job)
        except OSError as error:  # no space or descriptor, say: the next checkpoint tries again
            job.failure = str(error)
            self._discard(job)
        except LogError as error:
            job.failure, job.damaged = str(error), True
            self._discard(job)
        job.done.set()
        self._wake()

    def _discard(self, job: Job) -> None:
        """Remove the unfinished file: it takes space. (the thread)"""
        with contextlib.suppress(OSError):  # it was not begun, or has its name already; else the next start tidies up
            self._disk.remove(f"{segment_name(job.base, job.generation + 1)}.tmp")

    def _rewrite(self, job: Job) -> None:
        """Write the new file beside the old one, whole and durable, then give it its name. (the thread)"""
        header = SegmentHeader(self._identity.node, job.generation + 1, self._identity.log_id, job.base, 0)
        name = segment_name(job.base, job.generation + 1)
        file = self._disk.create(f"{name}.tmp")
        try:
            at, waiting, size = 0, [header.encode()], HEADER_SIZE
            for part in job.parts:
                start = at + size
                for piece in self._records(part, job.generation, header.seed, start):
                    waiting.append(piece)
                    size += len(piece)
                part.place = job.base, job.generation + 1, start, at + size
                if size > WRITE_SIZE:
                    file.append(waiting, at)
                    at, waiting, size = at + size, [], 0
            file.append(waiting, at)
            file.sync()
        finally:
            file.close()
        job.size = at + size
        job.records = sum(part.records for part in job.parts)
        self._disk.rename(f"{name}.tmp", name)
        self._disk.sync_directory()

    def _records(self, part: Part, generation: int, seed: int, at: int) -> list[bytes]:
        """The wanted messages of an extent as PUBLISH records, one a run of equal attributes, to stand at `at`."""
        held = part.held
        found = nothing(held.first, len(part.wanted))
        for piece in part.pieces:
            if not collect(self._disk, self._identity.log_id, generation, piece, part.topic, found):
                raise LogError("it is damaged")  # it stays as it is: somebody may want to look at it
        frames = found.frames
        attributes = found.attributes()
        pieces: list[bytes] = []
        index = 0
        while index < len(frames):
            stop = _end_of_run(frames, part.wanted, attributes, index)
            if stop > index:
                run = frames[index:stop]
                part.records += 1
                first, largest = held.first + index, max(map(len, run))
                head = records.pack_publish(part.topic, first, len(run), 0, largest, True, attributes[index])
                record = encode(seed, at, Kind.PUBLISH, head, b"".join(run))
                at += sum(map(len, record))
                pieces += record
            index = max(stop, index + 1)
        return pieces

    def finish(self) -> int | None:
        """If the thread is done, exchange the places. Returns the base of the segment if it was cleaned."""
        job = self._job
        if job is None or not job.done.is_set():
            return None
        self._job = None
        if job.failure:
            if job.damaged:
                self.refused.add(job.base)
            log.error("LOG: cannot clean segment %d: %s", job.base, job.failure)
            return None
        self._generations[job.base] = job.generation + 1
        for part in job.parts:
            assert part.place is not None
            kept = [piece for piece in part.held.pieces if piece[0] != job.base]
            part.held.pieces = sorted([*kept, part.place])
        self.cleaned += 1
        self.records += job.records
        self.size = job.size
        try:
            self._disk.remove(segment_name(job.base, job.generation))
        except OSError as error:
            log.error("LOG: cannot remove a cleaned segment: %s", error)
        return job.base


def _end_of_run(frames: list[bytes], wanted: bytes, attributes: list[bytes], start: int) -> int:
    """Return the end of the run of wanted messages with equal attributes from `start` on; `start` if there is none.

    Unwanted messages may be among them where they take less than the attributes would once more: a segment does not become
    larger by being cleaned.
    """
    own = attributes[start]
    spare = len(own) + records.PUBLISH.size if own else 0  # bytes that the gap before `at` may have
    stop, gap = start, 0
    for at in range(start, len(frames)):
        if not frames[at] or attributes[at] != own:
            break
        if wanted[at]:
            stop, gap = at + 1, 0
            continue
        gap += len(frames[at])
        if gap > spare or at == start:
            break
    return stop


def _wanted(held: Held, sequence: Sequence) -> bytes:
    """Return a byte for each message of the extent: 0 if it was given to channels, none owes it, and it is not retained."""
    if held.freed == held.count:
        wanted = bytes(held.count)
    else:
        given = max(0, min(held.count, sequence.edge - held.first))
        counts = held.counts if held.counts is not None else held.owed
        wanted = bytes(bool(count) for count in counts[:given]) + b"\1" * (held.count - given)
    if sequence.first is None or sequence.first >= held.end:
        return wanted
    retained = max(0, sequence.first - held.first)
    return wanted[:retained] + b"\1" * (held.count - retained)
