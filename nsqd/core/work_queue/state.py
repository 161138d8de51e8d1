"""The durable state of a tube: what records make of it, what a checkpoint holds of it, and the live tube from it.

This file alone knows how the fields of a live tube map to what survives a restart. A tube owes the messages that have a row in
`jobs`; and from its edge on what is not `finished`: messages that are no jobs yet. Between a checkpoint's array and the JOBS
records that follow it, one page each, it owes everything that is not finished: `settle` ends that. What is recorded of jobs in
between is in those pages, too.

A checkpoint holds [number, name, start, edge, holes, terms]: holes are the (first, end) from the edge on that are finished,
terms is (ordinal, priority, ttr, delay, due, was put) of what is no job yet and not on the usual terms.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from nsqd.core import records
from nsqd.core.reader import Kind as ReaderKind
from nsqd.core.reader import Reader
from nsqd.core.reader_state import Kinds, ReaderState
from nsqd.core.records import Kind
from nsqd.core.sequence.finished import Finished, Span
from nsqd.core.sequence.puts import Terms
from nsqd.core.sequence.spans import remove
from nsqd.core.timing.pages import Page
from nsqd.core.work_queue.job import ROW, JobState, rows_on_terms
from nsqd.core.work_queue.job_pages import JobPages, moved
from nsqd.core.work_queue.tube import Tube


@dataclass(slots=True)
class TubeState(ReaderState):
    """See above."""

    kind: ClassVar[ReaderKind] = ReaderKind.WORK_QUEUE
    has_own_times: ClassVar[bool] = True

    edge: int  # messages before it are jobs, or finished
    finished: Finished
    jobs: JobPages = field(default_factory=JobPages)
    terms: dict[int, Terms] = field(default_factory=dict)  # by ordinal, of messages that are no jobs yet

    # what is recorded

    def apply(self, kind: Kind, content: bytes) -> Iterable[Span]:
        if kind is Kind.JOB:
            for at in range(records.CHANNEL_OF.size, len(content), records.ORDINAL.size + ROW.size):
                (ordinal,) = records.ORDINAL.unpack_from(content, at)
                at += records.ORDINAL.size
                self.jobs.put_row(ordinal, content[at : at + ROW.size])
                self.terms.pop(ordinal, None)
        elif kind is Kind.FINISH:
            return self._finish(content)
        elif kind is Kind.FINISH_ALL:
            return self._finish_all(records.FINISH_ALL.unpack_from(content)[2])
        elif kind is Kind.JOBS:  # the page as it was then: a job that it does not have is gone
            _, _, page, offset = records.JOBS.unpack_from(content)
            self.jobs.put_page(page, moved(content[records.JOBS.size :], offset))
        return ()

    def _finish_all(self, end: int) -> list[Span]:
        owed = self.drop(end)
        self.finish(0, end)
        self.start, self.edge = max(self.start, end), max(self.edge, end)
        return owed

    def finish(self, first: int, end: int) -> None:
        """The tube is done with messages first..end: finished, dropped, or never meant for it."""
        if self.jobs.count:
            self.jobs.discard(first, end)
        if self.terms:
            remove(self.terms, first, end)
        self.finished.add(first, end)

    def expect(self, first: int, count: int, terms: Terms, numbers: list[int], created: int) -> None:
        """Messages `first`.. were published on these terms. With `numbers`, their ids, they are jobs at once, else later."""
        if numbers:
            state = JobState.DELAYED if terms.due else JobState.READY
            options = terms.priority, terms.ttr, terms.delay
            self.jobs.put_rows(first, rows_on_terms(numbers, *options, created, terms.due, state))
        else:
            self.terms.update(dict.fromkeys(range(first, first + count), terms))

    def drop(self, edge: int) -> list[Span]:
        return list(self.finished.missing(edge))

    # what follows from it

    def settle(self, edge: int, delayed: Mapping[int, int], kinds: Kinds) -> Iterable[Span]:
        """All pages of a checkpoint were read: before the tube's edge, what has no row is finished. Returns that."""
        gone: list[Span] = []
        reached = edge
        for first, end in self.finished.missing(edge):
            for start, stop, _ in kinds(first, end):
                for ordinal in self.jobs.absent(start, stop):
                    if ordinal < self.edge:
                        gone.append((ordinal, ordinal + 1))
                    else:
                        reached = min(reached, ordinal)
        for first, end in gone:
            self.finished.add(first, end)
        self.edge = reached
        return gone

    @property
    def reached(self) -> int:
        return max(self.start, self.edge, self.finished.end, self.jobs.end)

    def figures(self, edge: int, plain: list[Span]) -> dict[str, int]:
        """How many jobs are in which state after a start. Messages that are no jobs yet are not among them."""
        found = self.jobs.states()
        ready = found[JobState.READY] + found[JobState.RESERVED]
        return {"ready": ready, "delayed": found[JobState.DELAYED], "buried": found[JobState.BURIED]}

    # what a checkpoint holds

    def dump(self) -> list[Any]:
        terms = [(ordinal, *one) for ordinal, one in self.terms.items()]
        return [self.number, self.name, self.start, self.edge, self.finished.spans(self.edge), terms]

    def details(self, topic: int, offset: int) -> Iterator[tuple[Kind, bytes]]:
        """JOBS records, a page of jobs each, as it is when it is asked for. `offset`: from the state's clock to the log's."""
        for number in self.jobs.pages():
            rows = self.jobs.page(number)
            if rows:
                yield Kind.JOBS, records.JOBS.pack(topic, self.number, number, offset) + rows

    @staticmethod
    def begin(number: int, name: str, start: int) -> list[Any]:
        return [number, name, start, start, [], []]

    @classmethod
    def load(cls, array: list[Any], offset: int, edge: int, lane: Page, kinds: Kinds) -> TubeState:
        number, name, start, tube_edge, holes, waiting = array
        terms = {
            ordinal: Terms(priority, ttr, delay, due + offset if due else 0, put)
            for ordinal, priority, ttr, delay, due, put in waiting
        }
        finished, position = Finished(start, holes), start
        for first, end, _ in kinds(start, edge):  # what is not there was finished, and somebody may owe it again
            finished.add(position, first)
            position = end
        finished.add(position, edge)
        return cls(number, name, start, tube_edge, finished, JobPages(), terms)

    def carry_over(self, before: TubeState) -> None:
        """The checkpoint may not come to its pages: the rows that were known before it hold as well."""
        self.jobs = before.jobs

    def owed(self, edge: int, kinds: Kinds) -> Iterator[Span]:
        return self.finished.missing(edge)

    # the live tube

    @classmethod
    def of(cls, reader: Reader) -> TubeState:
        """What of a live tube survives a restart, by the monotonic clock. Its jobs are not copied."""
        assert isinstance(reader, Tube)
        terms = dict(reader.arrivals.terms)
        finished = Finished(reader.start, reader.arrivals.holes)
        edge = max(reader.arrivals.position, finished.floor)
        return cls(reader.number, reader.name, reader.start, edge, finished, reader.jobs, terms)

    def revive(self, reader: Reader, plain: list[Span], offset: int, now: int) -> None:
        """Fill a live tube that was just made with the state, which is settled. See ReaderState."""
        assert isinstance(reader, Tube)
        tube = reader
        tube.arrivals.terms.clear()
        tube.resume(self.start, self.edge, self.finished.spans(self.edge), self.jobs, offset)
        for ordinal, terms in self.terms.items():
            if ordinal >= tube.arrivals.position and ordinal not in tube.jobs:
                tube.arrivals.terms[ordinal] = terms._replace(due=max(now, terms.due - offset) if terms.due else 0)
        tube.wake()
