"""Cleaning in place: a segment of which little is owed is written again with only that, as its own next generation.

Ids and order stay as they are, and a publish never comes behind what was done with it. It happens in a thread, on a copy of
what the reactor's thread knows; that thread then exchanges the places. Only segments older than both checkpoints are cleaned:
replay never begins before them, so of their records none is needed but the messages.
"""

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from nsqd.storage.log import records
from nsqd.storage.log.disk import Disk
from nsqd.storage.log.pieces import collect
from nsqd.storage.log.reader import LogError
from nsqd.storage.log.records import HEADER_SIZE, Kind, SegmentHeader, encode
from nsqd.storage.log.writer import LogIdentity, segment_name
from nsqd.storage.memory import Held, Piece
from shared.log import log

SPARSE = 0.5  # of a segment is owed: less, and it is written again
WRITE_SIZE = 1024 * 1024  # bytes written at a time


@dataclass(slots=True)
class Part:
    """What of an extent stands in the segment, and is owed."""

    topic: int
    held: Held
    pieces: list[Piece]  # in that segment
    owed: bytes  # for each message of the extent, 0 if nobody owes it
    place: Piece | None = None  # the result


@dataclass(slots=True)
class Job:
    """A segment to be cleaned."""

    base: int
    generation: int  # it has
    parts: list[Part]
    failure: str = ""
    damaged: bool = False  # then there is no sense in another try
    size: int = 0  # bytes of the new file
    done: threading.Event = field(default_factory=threading.Event)


class Cleaner:
    """See above. One segment at a time: `choose`, then `start` it, then `finish`."""

    def __init__(
        self, disk: Disk, identity: LogIdentity, generations: dict[int, int], wake: Callable[[], None]
    ) -> None:
        self.cleaned = 0  # segments
        self._disk = disk
        self._identity = identity
        self._generations = generations  # of segments that were cleaned, by base; the cache reads by it, too
        self._wake = wake
        self._job: Job | None = None
        self._refused: set[int] = set()  # segments that cannot be cleaned

    @property
    def busy(self) -> bool:
        """A segment is being cleaned."""
        return self._job is not None

    def choose(self, bases: list[int], live: list[tuple[int, Held]], edges: dict[int, int]) -> None:
        """Take the sparsest of these segments, if one is sparse. `live`: all extents by topic; `edges`: Sequence.edge."""
        owed: dict[int, float] = dict.fromkeys(bases, 0.0)
        for _, held in live:
            share = 1 - held.freed / held.count
            for base, _, start, end in held.pieces:
                if base in owed:
                    owed[base] += (end - start) * share
        sizes = {base: self._disk.size(segment_name(base, self._generations.get(base, 0))) for base in bases}
        sparse = [(owed[base] / sizes[base], base) for base in bases if base not in self._refused]
        if sparse and min(sparse)[0] < SPARSE:
            self._take(min(sparse)[1], live, edges)

    def _take(self, base: int, live: list[tuple[int, Held]], edges: dict[int, int]) -> None:
        parts = []
        for topic, held in live:
            pieces = [piece for piece in held.pieces if piece[0] == base]
            if pieces:
                parts.append(Part(topic, held, pieces, _owed(held, edges[topic])))
        self._job = Job(base, self._generations.get(base, 0), parts)

    def start(self) -> None:
        """Begin with what was chosen. Whatever was finished by then is known to be finished after a power cut, too."""
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
        """What was begun takes space. (the thread)"""
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
        self._disk.rename(f"{name}.tmp", name)
        self._disk.sync_directory()

    def _records(self, part: Part, generation: int, seed: int, at: int) -> list[bytes]:
        """The owed messages of an extent as PUBLISH records, one a run, to stand at `at`."""
        held = part.held
        frames = [b""] * len(part.owed)
        for piece in part.pieces:
            if not collect(self._disk, self._identity.log_id, generation, piece, part.topic, held.first, frames):
                raise LogError("it is damaged")  # somebody may want to look at it
        pieces: list[bytes] = []
        index = 0
        while index < len(frames):
            stop = index
            while stop < len(frames) and frames[stop] and part.owed[stop]:
                stop += 1
            if stop > index:
                run = frames[index:stop]
                head = records.PUBLISH.pack(part.topic, held.first + index, len(run), 0, max(map(len, run)), True)
                record = encode(seed, at, Kind.PUBLISH, head, b"".join(run))
                at += sum(map(len, record))
                pieces += record
            index = stop + 1
        return pieces

    def finish(self) -> None:
        """Exchange the places, if the thread is done."""
        job = self._job
        if job is None or not job.done.is_set():
            return
        self._job = None
        if job.failure:
            if job.damaged:
                self._refused.add(job.base)
            log.error("LOG: cannot clean segment %d: %s", job.base, job.failure)
            return
        self._generations[job.base] = job.generation + 1
        for part in job.parts:
            assert part.place is not None
            kept = [piece for piece in part.held.pieces if piece[0] != job.base]
            part.held.pieces = sorted([*kept, part.place])
        self.cleaned += 1
        try:
            self._disk.remove(segment_name(job.base, job.generation))
        except OSError as error:
            log.error("LOG: cannot remove a cleaned segment: %s", error)


def _owed(held: Held, edge: int) -> bytes:
    """For each message of the extent, 0 if it was given to channels and none owes it."""
    given = max(0, min(held.count, edge - held.first))
    counts = held.counts if held.counts is not None else held.owed
    return bytes(bool(count) for count in counts[:given]) + b"\1" * (held.count - given)
