"""The durable state of a tube: how records change it, what a checkpoint holds of it, and how to make it live again.

This file alone knows how the fields of a live tube map to the state that survives a restart. A tube references (has not
finished) the messages that have a row in `jobs` and, from its distributed offset on, the messages that are not `finished` and
are not jobs yet.

In a checkpoint, JOBS records with one page each follow the array of the tube. While they are being read, the tube references
everything that is not finished; `conclude` ends that. Changes of jobs that are recorded between those records are in their
pages, too.

A checkpoint holds [number, name, start, distributed offset, holes, options, paused]: holes are the spans (first, end) from the
distributed offset on that are finished; options are (ordinal, priority, ttr, delay, due, was put, ttl, copies) of messages that
are not jobs yet and have unusual options.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from nsqd.core import records
from nsqd.core.reader import Reader, ReaderKind
from nsqd.core.reader_state import Kinds, ReaderState
from nsqd.core.records import RecordKind
from nsqd.core.sequence.finished import Finished, Span
from nsqd.core.sequence.put_batch import JobOptions
from nsqd.core.sequence.spans import remove
from nsqd.core.timing.deferred_pages import DeferredPages, Page
from nsqd.core.timing.pause import Pause, dump_pause, load_pause
from nsqd.core.work_queue.job import ROW, JobState
from nsqd.core.work_queue.job_pages import JobPages, moved
from nsqd.core.work_queue.tube import Tube
from nsqd.core.written_chunks import WrittenChunks


@dataclass(slots=True)
class TubeState(ReaderState):
    """The durable state of one tube, as it is replayed, put into a checkpoint, loaded or taken from a live tube."""

    kind: ClassVar[ReaderKind] = ReaderKind.WORK_QUEUE
    has_own_times: ClassVar[bool] = True

    distributed: int  # messages before this ordinal are jobs, or are finished
    finished: Finished
    jobs: JobPages = field(default_factory=JobPages)
    # by ordinal: the job options of messages that are not jobs yet
    options: dict[int, JobOptions] = field(default_factory=dict)
    paused: Pause | None = None  # the pause of its queue

    # records of the log

    def apply(self, kind: RecordKind, content: bytes) -> Iterable[Span]:
        if kind is RecordKind.JOB:
            for at in range(records.CHANNEL_OF.size, len(content), records.ORDINAL.size + ROW.size):
                (ordinal,) = records.ORDINAL.unpack_from(content, at)
                at += records.ORDINAL.size
                self.jobs.put_row(ordinal, content[at : at + ROW.size])
                self.options.pop(ordinal, None)
        elif kind is RecordKind.FINISH:
            return self._finish(content)
        elif kind is RecordKind.FINISH_ALL:
            return self._finish_all(records.FINISH_ALL.unpack_from(content)[2])
        elif kind is RecordKind.JOBS:
            # a whole page, which replaces the old one: jobs missing in it are gone
            _, _, page, offset = records.JOBS.unpack_from(content)
            self.jobs.put_page(page, moved(content[records.JOBS.size :], offset))
        elif kind is RecordKind.PAUSE:
            self.paused = records.unpack_pause(content)
        return ()

    def _finish_all(self, end: int) -> list[Span]:
        unfinished = self.drop(end)
        self.finish(0, end)
        self.start, self.distributed = max(self.start, end), max(self.distributed, end)
        return unfinished

    def finish(self, first: int, end: int) -> None:
        """Note that messages first..end are no longer referenced: finished, dropped, or never meant for this tube."""
        if self.jobs.count:
            self.jobs.discard(first, end)
        if self.options:
            remove(self.options, first, end)
        self.finished.add(first, end)

    def expect(self, first: int, count: int, options: JobOptions, numbers: list[int], created: int) -> None:
        """Note that messages from ordinal `first` on were published with these options.

        If `numbers`, their ids, are given, the messages are jobs at once; otherwise they become jobs later. `created`: ns
        since the epoch.
        """
        if numbers:
            state = JobState.DELAYED if options.due else JobState.READY
            self.jobs.put_new(first, numbers, options, created, state)
        else:
            self.options.update(dict.fromkeys(range(first, first + count), options))

    def drop(self, distributed: int) -> list[Span]:
        return list(self.finished.missing(distributed))

    # conclusions from the records

    def conclude(self, distributed: int, delayed: Mapping[int, int], kinds: Kinds) -> Iterable[Span]:
        """Mark messages before the tube's distributed offset that have no row as finished, and return them. See ReaderState.

        This is right once all pages of a checkpoint were read. The distributed offset moves to the first message that is not a
        job yet.
        """
        gone: list[Span] = []
        reached = distributed
        for first, end in self.finished.missing(distributed):
            for start, stop, _ in kinds(first, end):
                for ordinal in self.jobs.absent(start, stop):
                    if ordinal < self.distributed:
                        gone.append((ordinal, ordinal + 1))
                    else:
                        reached = min(reached, ordinal)
        for first, end in gone:
            self.finished.add(first, end)
        self.distributed = reached
        return gone

    @property
    def reached(self) -> int:
        return max(self.start, self.distributed, self.finished.end, self.jobs.end)

    def figures(self, distributed: int, plain: list[Span]) -> dict[str, int]:
        """Return the number of jobs in each state after a start. Messages that are not jobs yet are not counted."""
        found = self.jobs.states()
        ready = found[JobState.READY] + found[JobState.RESERVED]
        return {"ready": ready, "delayed": found[JobState.DELAYED], "buried": found[JobState.BURIED]}

    def delivered(self) -> int:
        return self.jobs.states()[JobState.RESERVED]

    # checkpoints

    def dump(self, queued: DeferredPages) -> list[Any]:
        options = [(ordinal, *one) for ordinal, one in self.options.items()]
        holes = self.finished.spans(self.distributed)
        return [self.number, self.name, self.start, self.distributed, holes, options, dump_pause(self.paused)]

    def details(self, topic: int, offset: int) -> Iterator[tuple[RecordKind, bytes]]:
        """Yield JOBS records with a page of jobs each. A page is read only when its record is asked for.

        `offset`: ns from the clock of this state to the log's clock.
        """
        for number in self.jobs.pages():
            rows = self.jobs.page(number)
            if rows:
                yield RecordKind.JOBS, records.JOBS.pack(topic, self.number, number, offset) + rows

    @staticmethod
    def begin(number: int, name: str, start: int) -> list[Any]:
        return [number, name, start, start, [], [], None]

    @classmethod
    def load(cls, array: list[Any], offset: int, distributed: int, queued: list[Page], kinds: Kinds) -> TubeState:
        number, name, start, tube_distributed, holes, waiting, paused = array
        options = {
            ordinal: JobOptions(priority, ttr, delay, due + offset if due else 0, *rest)
            for ordinal, priority, ttr, delay, due, *rest in waiting
        }
        finished, position = Finished(start, holes), start
        # gaps were finished, but another reader may reference them again
        for first, end, _ in kinds(start, distributed):
            finished.add(position, first)
            position = end
        finished.add(position, distributed)
        return cls(number, name, start, tube_distributed, finished, JobPages(), options, load_pause(paused))

    def carry_over(self, before: TubeState) -> None:
        """Keep the rows known before the checkpoint, since the log may end before the pages of the checkpoint."""
        self.jobs = before.jobs

    def referenced_spans(self, distributed: int, kinds: Kinds) -> Iterator[Span]:
        return self.finished.missing(distributed)

    # the live tube

    @classmethod
    def from_reader(cls, reader: Reader, written: WrittenChunks) -> TubeState:
        """Return the durable state of a live tube, with times of the monotonic clock. The jobs are shared, not copied."""
        assert isinstance(reader, Tube)
        options = dict(reader.arrivals.options)
        finished = Finished(reader.start, reader.arrivals.holes)
        distributed = max(reader.arrivals.position, finished.floor)
        return cls(reader.number, reader.name, reader.start, distributed, finished, reader.jobs, options, reader.paused)

    def revive(self, reader: Reader, plain: list[Span], queued: DeferredPages, offset: int, now: int) -> None:
        """Fill a live tube that was just created with this state, which must be settled. See ReaderState."""
        assert isinstance(reader, Tube)
        tube = reader
        tube.arrivals.options.clear()
        tube.restore_pause(self.paused)
        tube.resume(self.start, self.distributed, self.finished.spans(self.distributed), self.jobs, offset)
        for ordinal, options in self.options.items():
            if ordinal >= tube.arrivals.position and ordinal not in tube.jobs:
                tube.arrivals.options[ordinal] = options._replace(
                    due=max(now, options.due - offset) if options.due else 0
                )
        tube.wake()
