"""Jobs as beanstalkd's users know them, packed: 57 bytes each, in pages by ordinal.

A million jobs as objects would take 400 MB; here what is asked for is unpacked, changed and packed again.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct

from nsqd.core.sequence.puts import Puts

PAGE = 64  # jobs: where one of a page is left, so much is not given back
ROW = Struct("<QIIIQQIIIIIB")  # the fields of Job, in their order, less the ordinal
_ABSENT = bytes(ROW.size)
_STATE = ROW.size - 1  # of a row's bytes
_ID = Struct("<Q")  # a row begins with it
_BRIEF = Struct("<QI16xQ20xB")  # of a row: id, priority, due, state
_DUE, _DUE_AT = Struct("<Q"), 28  # likewise


class JobState(IntEnum):
    """As in beanstalkd's binlog."""

    READY = 1
    RESERVED = 2
    BURIED = 3
    DELAYED = 4


_STATES = (JobState.READY, *JobState)  # by number; there is no 0


@dataclass(slots=True)
class Job:
    """What is known of a job but for its body."""

    ordinal: int  # in its topic
    id: int  # as its users name it
    priority: int  # 0 is the most urgent
    delay: int  # s, as it was asked for last
    ttr: int  # s that a reservation lasts
    created: int  # ns since the epoch
    due: int = 0  # ns: when it is ready, or its reservation ends; of buried ones a number: the first has the lowest
    reserves: int = 0
    timeouts: int = 0
    releases: int = 0
    buries: int = 0
    kicks: int = 0
    state: JobState = JobState.READY

    def pack(self) -> bytes:
        """A row."""
        return ROW.pack(
            self.id, self.priority, self.delay, self.ttr, self.created, self.due, self.reserves, self.timeouts,
            self.releases, self.buries, self.kicks, self.state,
        )  # fmt: skip


def unpack(ordinal: int, row: bytes | bytearray, at: int = 0) -> Job:
    """The job of a row."""
    job = Job(ordinal, *ROW.unpack_from(row, at))
    job.state = _STATES[job.state]
    return job


def time_of(row: bytes) -> int:
    """Its `due`, if that is a time; else 0."""
    return int(_DUE.unpack_from(row, _DUE_AT)[0]) if row[_STATE] != JobState.BURIED else 0


def with_time(row: bytes, due: int) -> bytes:
    """The same with another."""
    return row[:_DUE_AT] + _DUE.pack(due) + row[_DUE_AT + _DUE.size :]


def moved(page: bytes, offset: int) -> bytes:
    """A page of rows with every time that there is later by so much."""
    rows, buried = bytearray(page), int(JobState.BURIED)
    for at, (_, _, due, state) in enumerate(_BRIEF.iter_unpack(page)):
        if due and state != buried:
            _DUE.pack_into(rows, at * ROW.size + _DUE_AT, due + offset)
    return bytes(rows)


def rows_of_puts(puts: Puts, due: int, state: JobState) -> list[bytes]:
    """Of jobs that have just come."""
    terms = puts.terms
    return rows_on_terms(puts.numbers, terms.priority, terms.ttr, terms.delay, puts.created, due, state)


def rows_on_terms(
    numbers: list[int], priority: int, ttr: int, delay: int, created: int, due: int, state: JobState
) -> list[bytes]:
    """Of jobs with these ids, put together. `ttr` and `delay` are s, `created` and `due` ns."""
    row = ROW.pack(0, priority, delay, ttr, created, due, 0, 0, 0, 0, 0, state)[_ID.size :]
    return [number + row for number in map(_ID.pack, numbers)]


class Jobs:
    """The jobs of a tube, by ordinal."""

    __slots__ = ("_counts", "_pages", "count")

    def __init__(self) -> None:
        self._pages: dict[int, bytearray] = {}  # no page is empty
        self._counts: dict[int, int] = {}  # jobs of each
        self.count = 0

    def get(self, ordinal: int) -> Job | None:
        """The job; None: there is none."""
        page, at = divmod(ordinal, PAGE)
        rows = self._pages.get(page)
        at *= ROW.size
        return unpack(ordinal, rows, at) if rows is not None and rows[at + _STATE] else None

    def row(self, ordinal: int) -> bytes:
        """The job's row; b"": there is none."""
        page, at = divmod(ordinal, PAGE)
        return bytes(self._pages[page][at * ROW.size : (at + 1) * ROW.size]) if ordinal in self else b""

    def put(self, job: Job) -> bytes:
        """The job is so from now on. Returns its row."""
        row = job.pack()
        self.put_row(job.ordinal, row)
        return row

    def put_row(self, ordinal: int, row: bytes) -> None:
        """The same, of a row."""
        page, at = divmod(ordinal, PAGE)
        at *= ROW.size
        rows = self._pages.get(page) or self._make(page)
        if not rows[at + _STATE]:
            self._counts[page] += 1
            self.count += 1
        rows[at : at + ROW.size] = row

    def _make(self, page: int) -> bytearray:
        """An empty one."""
        rows = self._pages[page] = bytearray(PAGE * ROW.size)
        self._counts[page] = 0
        return rows

    def put_rows(self, first: int, new: list[bytes]) -> None:
        """Those with ordinals from `first` on are so from now on."""
        at, end = 0, len(new)
        while at < end:
            page, place = divmod(first + at, PAGE)
            some = new[at : at + PAGE - place]
            rows = self._pages.get(page) or self._make(page)
            span = slice(place * ROW.size, (place + len(some)) * ROW.size)
            more = rows[span][_STATE :: ROW.size].count(0)
            rows[span] = b"".join(some)
            self._counts[page] += more
            self.count += more
            at += len(some)

    def put_page(self, number: int, rows: bytes) -> None:
        """The page is so from now on; `rows` as `page` tells them."""
        self.count -= self._counts.pop(number, 0)
        self._pages.pop(number, None)
        count = PAGE - rows[_STATE :: ROW.size].count(0)
        if count:
            self._pages[number], self._counts[number] = bytearray(rows), count
            self.count += count

    def restart(self, offset: int, now: int) -> Iterator[tuple[int, list[tuple[int, int, int, int]]]]:
        """Nobody has reserved any, and what was delayed long enough is ready. Times are earlier by `offset`.

        For each page: its number, and all its rows' ids, priorities, dues and states; absent ones have the state 0.
        """
        reserved, buried = int(JobState.RESERVED), int(JobState.BURIED)
        for number in sorted(self._pages):
            rows = self._pages[number]
            briefs = list(_BRIEF.iter_unpack(rows))
            for at, (job_id, priority, due, state) in enumerate(briefs):
                if not due or state == buried:
                    continue
                due -= offset
                if state == reserved or due <= now:
                    state, due = JobState.READY, 0
                    rows[at * ROW.size + _STATE] = state
                _DUE.pack_into(rows, at * ROW.size + _DUE_AT, due)
                briefs[at] = job_id, priority, due, state
            yield number, briefs

    def remove(self, ordinal: int) -> None:
        """The job, which is there, is gone."""
        page, at = divmod(ordinal, PAGE)
        at *= ROW.size
        self.count -= 1
        self._counts[page] -= 1
        if not self._counts[page]:
            del self._counts[page], self._pages[page]
            return
        self._pages[page][at : at + ROW.size] = _ABSENT

    def discard(self, first: int, end: int) -> None:
        """The jobs of first..end, if there are any, are gone."""
        if end - first > PAGE:  # else it is quicker to look
            ordinals: Iterable[int] = [ordinal for ordinal in self.ordinals() if first <= ordinal < end]
        else:
            ordinals = [ordinal for ordinal in range(first, end) if ordinal in self]
        for ordinal in ordinals:
            self.remove(ordinal)

    def absent(self, first: int, end: int) -> Iterator[int]:
        """The ordinals of first..end of which there is no job."""
        while first < end:
            page, at = divmod(first, PAGE)
            stop = min(PAGE, at + end - first)
            rows = self._pages.get(page)
            states = rows[at * ROW.size + _STATE : stop * ROW.size : ROW.size] if rows is not None else bytes(stop - at)
            index = states.find(0)
            while index >= 0:
                yield first + index
                index = states.find(0, index + 1)
            first += stop - at

    def __contains__(self, ordinal: int) -> bool:
        """There is a job of that ordinal."""
        page, at = divmod(ordinal, PAGE)
        rows = self._pages.get(page)
        return rows is not None and rows[at * ROW.size + _STATE] != 0

    def states(self) -> dict[JobState, int]:
        """How many are in each."""
        rows = self._pages.values()
        return {state: sum(page[_STATE :: ROW.size].count(state) for page in rows) for state in JobState}

    def ordinals(self) -> list[int]:
        """Of all jobs, ascending."""
        return [
            page * PAGE + index
            for page in sorted(self._pages)
            for index, state in enumerate(self._pages[page][_STATE :: ROW.size])
            if state
        ]

    @property
    def end(self) -> int:
        """The ordinal behind the last job; 0 if there is none."""
        if not self._pages:
            return 0
        last = max(self._pages)
        return last * PAGE + len(bytes(self._pages[last][_STATE :: ROW.size]).rstrip(b"\0"))

    def in_state(self, state: JobState, after: int) -> Iterator[Job]:
        """Those in that state whose ids are above `after`, ascending. Nothing may change meanwhile."""
        pages = sorted(self._pages)
        for page in pages[bisect_right(pages, after, key=self._last_id) :]:  # ids ascend with ordinals
            rows = self._pages[page]
            states = bytes(rows[_STATE :: ROW.size])
            index = states.find(state)
            while index >= 0:
                job = unpack(page * PAGE + index, rows, index * ROW.size)
                if job.id > after:
                    yield job
                index = states.find(state, index + 1)

    def _last_id(self, page: int) -> int:
        """The highest of a page."""
        rows = self._pages[page]
        last = len(bytes(rows[_STATE :: ROW.size]).rstrip(b"\0")) - 1
        return unpack(0, rows, last * ROW.size).id

    def pages(self) -> list[int]:
        """The numbers of those that there are, ascending."""
        return sorted(self._pages)

    def page(self, number: int) -> bytes:
        """Its rows, PAGE of them, end to end; absent ones are zeros. b"" if there is none."""
        return bytes(self._pages.get(number, b""))

    def __iter__(self) -> Iterator[Job]:
        """All of them, by ordinal."""
        for ordinal in self.ordinals():
            job = self.get(ordinal)
            assert job is not None
            yield job

    def check(self) -> None:
        """Raise AssertionError if a sentence above is false."""
        assert self.count == sum(self._counts.values()) == len(self.ordinals())
        assert all(self._counts.values())
        assert self._counts.keys() == self._pages.keys()
