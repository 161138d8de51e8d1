"""The rows of a tube's jobs in packed pages, by ordinal. The pages know no order; each row holds the state of its job.

Jobs that are put together differ only in their ids, which are consecutive. So a page keeps them as *batches* at first: what
their rows have in common, and the first id. A batch takes 200 bytes, and its rows 63 for each job. Code that reads or
changes one of these jobs turns the page into rows, and so it stays: the next call is most likely for the following job.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from nsqd.core.message.ids import SEQUENCE
from nsqd.core.sequence.put_batch import JobOptions
from nsqd.core.work_queue.job import (
    BRIEF,
    DUE,
    DUE_AT,
    LIFE,
    OUTLINE,
    RESERVATION,
    ROW,
    STATE_AT,
    Job,
    JobState,
    Outline,
    have_times,
    lives,
    row_without_id,
    rows_from,
    unpack,
)  # fmt: skip

PAGE = 64  # jobs: the memory of a page is released when the last of its jobs is gone
MOST_BATCHES = 8  # in a page: twice as many would take nearly what the rows do
_ROW_SIZE = ROW.size
_ABSENT = bytes(_ROW_SIZE)
_READY, _RESERVED = int(JobState.READY), int(JobState.RESERVED)

Brief = tuple[int, int, int, int]  # id, priority, due, state
# index of the first row, number of jobs, id of the first, and their rows without the id
_Batch = tuple[int, int, int, bytes]


def moved(page: bytes, offset: int) -> bytes:
    """Return the page of rows with every due time later by `offset` ns."""
    if not have_times(page):
        return page
    rows, buried = bytearray(page), int(JobState.BURIED)
    for at, (_, _, due, state) in enumerate(BRIEF.iter_unpack(page)):
        if due and state != buried:
            DUE.pack_into(rows, at * ROW.size + DUE_AT, due + offset)
    return bytes(rows)


def _sequence(rows: bytes, at: int) -> int:
    """Return the sequence in the id of the job in row number `at`."""
    return int(BRIEF.unpack_from(rows, at * ROW.size)[0]) & SEQUENCE


def _expanded(batches: list[_Batch]) -> bytearray:
    """Return the PAGE rows of a page of batches end to end, zeros where there is no job."""
    rows = bytearray(PAGE * _ROW_SIZE)
    for place, count, first_id, common in batches:
        new = rows_from(range(first_id, first_id + count), common)
        rows[place * _ROW_SIZE : (place + count) * _ROW_SIZE] = b"".join(new)
    return rows


class JobPages:
    """The rows of a tube's jobs by ordinal, in pages of PAGE rows each."""

    __slots__ = ("_batches", "_counts", "_pages", "count")

    def __init__(self) -> None:
        # by number of the page; each page is in one of these, and none is empty
        self._pages: dict[int, bytearray] = {}
        self._batches: dict[int, list[_Batch]] = {}  # ascending
        self._counts: dict[int, int] = {}  # number of jobs in each page
        self.count = 0  # number of jobs in all pages

    # one job

    def get(self, ordinal: int) -> Job | None:
        """Return the job with this ordinal, or None if there is none."""
        page, at = divmod(ordinal, PAGE)
        rows = self._pages.get(page) or self._rows(page)
        at *= ROW.size
        return unpack(ordinal, rows, at) if rows is not None and rows[at + STATE_AT] else None

    def outline(self, ordinal: int) -> Outline | None:
        """Return the outline of the job with this ordinal, or None if there is none: a fifth of the cost of `get`."""
        page, at = divmod(ordinal, PAGE)
        rows = self._pages.get(page) or self._rows(page)
        if rows is None:
            return None
        outline: Outline = OUTLINE.unpack_from(rows, at * _ROW_SIZE)
        return outline if outline[7] else None

    def reserve(self, ordinal: int, due: int, reserves: int) -> bytes:
        """Note that a job, whose outline was read, is reserved until `due` (ns), for the `reserves`th time. Return its row."""
        page, at = divmod(ordinal, PAGE)
        rows, at = self._pages[page], at * _ROW_SIZE
        RESERVATION.pack_into(rows, at + DUE_AT, due, reserves)
        rows[at + STATE_AT] = _RESERVED
        return bytes(rows[at : at + _ROW_SIZE])

    def put_row(self, ordinal: int, row: bytes) -> None:
        """Store the row of a job, new or changed."""
        page, at = divmod(ordinal, PAGE)
        at *= ROW.size
        rows = self._pages.get(page) or self._rows(page) or self._make(page)
        if not rows[at + STATE_AT]:
            self._counts[page] += 1
            self.count += 1
        rows[at : at + ROW.size] = row

    def remove(self, ordinal: int) -> None:
        """Remove a job, which must be there."""
        page, at = divmod(ordinal, PAGE)
        self.count -= 1
        left = self._counts[page] - 1
        if not left:
            del self._counts[page]
            self._drop(page)
            return
        self._counts[page] = left
        rows = self._pages.get(page) or self._rows(page)
        assert rows is not None
        at *= _ROW_SIZE
        rows[at : at + _ROW_SIZE] = _ABSENT

    def __contains__(self, ordinal: int) -> bool:
        page, at = divmod(ordinal, PAGE)
        rows = self._pages.get(page) or self._rows(page)
        return rows is not None and rows[at * ROW.size + STATE_AT] != 0

    def _rows(self, page: int) -> bytearray | None:
        """Return the rows of a page, which may be batches until now; None: there is no such page."""
        batches = self._batches.pop(page, None)
        if batches is not None:
            self._pages[page] = _expanded(batches)
        return self._pages.get(page)

    def _make(self, page: int) -> bytearray:
        """Add an empty page, which the caller fills at once."""
        rows = self._pages[page] = bytearray(PAGE * ROW.size)
        self._counts[page] = 0
        return rows

    def _drop(self, page: int) -> None:
        """Release a page whose count is gone."""
        if self._pages.pop(page, None) is None:
            del self._batches[page]

    # many jobs

    def put_new(self, first: int, ids: list[int], options: JobOptions, created: int, state: JobState) -> None:
        """Store new jobs of consecutive ordinals from `first` on that differ only in their ids, which ascend.

        `created`: ns since the epoch.
        """
        common, at, end = row_without_id(options, created, state), 0, len(ids)
        while at < end:
            page, place = divmod(first + at, PAGE)
            batch = ids[at : at + PAGE - place]
            if not self._put_batch(page, place, batch, common):
                self.put_rows(first + at, rows_from(batch, common))
            at += len(batch)

    def _put_batch(self, page: int, place: int, ids: list[int], common: bytes) -> bool:
        """Store jobs that fit into a page as a batch, from the index `place` on; return False if this is not possible."""
        count = len(ids)
        if page in self._pages or ids[-1] - ids[0] != count - 1:
            return False
        batches = self._batches.get(page)
        if batches is None:
            batches = self._batches[page] = []
            self._counts[page] = 0
        elif len(batches) == MOST_BATCHES or batches[-1][0] + batches[-1][1] > place:
            return False
        batches.append((place, count, ids[0], common))
        self._counts[page] += count
        self.count += count
        return True

    def put_rows(self, first: int, new: list[bytes]) -> None:
        """Store rows of consecutive ordinals from `first` on."""
        at, end = 0, len(new)
        while at < end:
            page, place = divmod(first + at, PAGE)
            batch = new[at : at + PAGE - place]
            rows = self._rows(page) or self._make(page)
            span = slice(place * ROW.size, (place + len(batch)) * ROW.size)
            more = rows[span][STATE_AT :: ROW.size].count(0)
            rows[span] = b"".join(batch)
            self._counts[page] += more
            self.count += more
            at += len(batch)

    def put_page(self, number: int, rows: bytes) -> None:
        """Replace the page of this number by `rows`, which `page` returned earlier."""
        if number in self._counts:
            self.count -= self._counts.pop(number)
            self._drop(number)
        count = PAGE - rows[STATE_AT :: ROW.size].count(0)
        if count:
            self._pages[number], self._counts[number] = bytearray(rows), count
            self.count += count

    def discard(self, first: int, end: int) -> None:
        """Remove those jobs that are there with ordinals in first..end."""
        if end - first > PAGE:  # otherwise it is quicker to look for each
            ordinals: Iterable[int] = [ordinal for ordinal in self.ordinals() if first <= ordinal < end]
        else:
            ordinals = [ordinal for ordinal in range(first, end) if ordinal in self]
        for ordinal in ordinals:
            self.remove(ordinal)

    def restart(self, offset: int, now: int) -> Iterator[tuple[int, list[Brief]]]:
        """Take up the rows after a restart: end all reservations, and the delays that are over by `now` (ns).

        Every due time is made earlier by `offset` (ns). Yield the first ordinal of each page, and the id, priority, due and
        state of each of its PAGE rows; the state is 0 for a row without a job.
        """
        for number in self.pages():
            page = self.page(number)
            briefs = list(BRIEF.iter_unpack(page))
            if have_times(page):
                self._restart(number, briefs, offset, now)
            yield number * PAGE, briefs

    def _restart(self, page: int, briefs: list[Brief], offset: int, now: int) -> None:
        """Do the same to the rows of one page, and to its briefs."""
        reserved, buried = int(JobState.RESERVED), int(JobState.BURIED)
        rows = self._rows(page)
        assert rows is not None
        for at, (job_id, priority, due, state) in enumerate(briefs):
            if not due or state == buried:
                continue
            due -= offset
            if state == reserved or due <= now:
                state, due = JobState.READY, 0
                rows[at * ROW.size + STATE_AT] = state
            DUE.pack_into(rows, at * ROW.size + DUE_AT, due)
            briefs[at] = job_id, priority, due, state

    def pop_page(self) -> tuple[list[int], list[int]]:
        """Remove some page, of which there must be one. Return the ordinals and the ids of its jobs."""
        number, count = self._counts.popitem()
        briefs = BRIEF.iter_unpack(self.page(number))
        found = [(at, brief[0]) for at, brief in enumerate(briefs, number * PAGE) if brief[-1]]
        self.count -= count
        self._drop(number)
        return [ordinal for ordinal, _ in found], [job_id for _, job_id in found]

    # queries

    def ordinals(self) -> list[int]:
        """Return the ordinals of all jobs, ascending."""
        return [page * PAGE + index for page in self.pages() for index, state in enumerate(self._states(page)) if state]

    def ordinals_from(self, first: int) -> Iterator[int]:
        """Yield the ordinals of the jobs from `first` on, ascending. The pages must not change meanwhile."""
        for page in self._pages_from(first):
            for index, state in enumerate(self._states(page)):
                if state and page * PAGE + index >= first:
                    yield page * PAGE + index

    def last_in_state(self, state: JobState) -> Iterator[Job]:
        """Yield the jobs in that state, those with the highest ordinals first. The pages must not change meanwhile."""
        for page in reversed(self.pages()):
            rows = self.page(page)
            states = rows[STATE_AT :: ROW.size]
            index = states.rfind(state)
            while index >= 0:
                yield unpack(page * PAGE + index, rows, index * ROW.size)
                index = states.rfind(state, 0, index)

    def absent(self, first: int, end: int) -> Iterator[int]:
        """Yield the ordinals of first..end that have no job."""
        while first < end:
            page, at = divmod(first, PAGE)
            stop = min(PAGE, at + end - first)
            states = self._states(page)[at:stop] or bytes(stop - at)
            index = states.find(0)
            while index >= 0:
                yield first + index
                index = states.find(0, index + 1)
            first += stop - at

    @property
    def end(self) -> int:
        """Return the ordinal after the last job, or 0 if there is no job."""
        last = max(self._counts, default=0)
        return last * PAGE + len(self._states(last).rstrip(b"\0"))

    def states(self) -> dict[JobState, int]:
        """Count the jobs in each state. This reads every page."""
        found = dict.fromkeys(JobState, 0)
        for page in self._counts:
            states = self._states(page)
            for state in JobState:
                found[state] += states.count(state)
        return found

    def in_state(self, state: JobState, first: int = 0) -> Iterator[Job]:
        """Yield the jobs in that state with ordinals from `first` on, ascending. The pages must not change meanwhile."""
        for page in self._pages_from(first):
            rows = self.page(page)
            states = rows[STATE_AT :: ROW.size]
            index = states.find(state, max(0, first - page * PAGE))
            while index >= 0:
                yield unpack(page * PAGE + index, rows, index * ROW.size)
                index = states.find(state, index + 1)

    def next_in_state(self, state: JobState, first: int, end: int) -> int | None:
        """Return the lowest ordinal in first..end of a job in that state; None: there is none."""
        while first < end:
            page, at = divmod(first, PAGE)
            index = self._states(page).find(state, at, end - page * PAGE)
            if index >= 0:
                return page * PAGE + index
            first += PAGE - at
        return None

    def behind(self, sequence: int) -> int:
        """Return an ordinal from which on all jobs have higher sequences than this one. Sequences ascend with the ordinals."""
        pages = self.pages()
        place = bisect_right(pages, sequence, key=self._last_sequence)
        if place == len(pages):
            return self.end
        first, rows = pages[place] * PAGE, self.page(pages[place])
        older = [at for at in range(PAGE) if rows[at * ROW.size + STATE_AT] and _sequence(rows, at) <= sequence]
        return first + older[-1] + 1 if older else first

    def oldest(self, most: int) -> tuple[int, int]:
        """Return when the first ready job and the first in any state were created (ns since the epoch); 0: there is none.

        The ready one is looked for in the first `most` pages.
        """
        pages = self.pages()[:most]
        if not pages:
            return 0, 0
        first = self._states(pages[0])
        of_all = self._created(pages[0], len(first) - len(first.lstrip(b"\0")))
        for page in pages:
            index = self._states(page).find(_READY)
            if index >= 0:
                return self._created(page, index), of_all
        return 0, of_all

    def _created(self, page: int, index: int) -> int:
        created, _ = LIFE.unpack_from(self.page(page), index * _ROW_SIZE)
        return int(created)

    def _last_sequence(self, page: int) -> int:
        rows = self.page(page)
        return _sequence(rows, len(rows[STATE_AT :: ROW.size].rstrip(b"\0")) - 1)

    def lives(self, page: int) -> list[tuple[int, int]]:
        """Return the end of each life in a page (s since the epoch), with the job's ordinal."""
        return [(at, page * PAGE + index) for index, at in lives(self.page(page))]

    @property
    def page_count(self) -> int:
        """Return the number of pages that have a job."""
        return len(self._counts)

    def has_page(self, number: int) -> bool:
        """Return True if there is a job in the page of this number."""
        return number in self._counts

    def pages(self) -> list[int]:
        """Return the numbers of all pages, ascending."""
        return sorted(self._counts)

    def _pages_from(self, first: int) -> list[int]:
        """Return the numbers of the pages with ordinals from `first` on, ascending."""
        pages = self.pages()
        return pages[bisect_left(pages, first // PAGE) :]

    def page(self, number: int) -> bytes:
        """Return the PAGE rows of a page end to end, zeros where there is no job; b"" if there is no such page."""
        rows = self._pages.get(number)
        if rows is not None:
            return bytes(rows)
        batches = self._batches.get(number)
        return bytes(_expanded(batches)) if batches is not None else b""

    def _states(self, page: int) -> bytes:
        """Return the state of each of the PAGE rows of a page, 0 where there is no job; b"" if there is no such page."""
        rows = self._pages.get(page)
        if rows is not None:
            return bytes(rows[STATE_AT :: ROW.size])
        states = bytearray(PAGE if page in self._batches else 0)
        for place, count, _, common in self._batches.get(page, ()):
            states[place : place + count] = common[-1:] * count
        return bytes(states)

    def __iter__(self) -> Iterator[Job]:
        """Yield all jobs in the order of their ordinals. The pages must not change meanwhile."""
        for page in self.pages():
            rows = self.page(page)
            for index, state in enumerate(rows[STATE_AT :: ROW.size]):
                if state:
                    yield unpack(page * PAGE + index, rows, index * ROW.size)

    def check(self) -> None:
        """Raise AssertionError if an invariant of this class does not hold."""
        assert self.count == sum(self._counts.values()) == len(self.ordinals())
        assert all(self._counts.values())
        assert self._counts.keys() == self._pages.keys() | self._batches.keys()
        assert not self._pages.keys() & self._batches.keys()
        for page in self._counts:
            assert self._states(page) == self.page(page)[STATE_AT :: ROW.size]

    def __repr__(self) -> str:
        return f"<JobPages: {self.count} jobs in {len(self._counts)} pages>"
