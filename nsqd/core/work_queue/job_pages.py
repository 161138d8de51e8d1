"""The rows of a tube's jobs in packed pages, by ordinal. The pages know no order; each row holds the state of its job."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from nsqd.core.message.ids import SEQUENCE
from nsqd.core.work_queue.job import BRIEF, DUE, DUE_AT, ROW, STATE_AT, Job, JobState, have_times, lives, unpack

PAGE = 64  # jobs: the memory of a page is released when the last of its jobs is gone
_ABSENT = bytes(ROW.size)

Brief = tuple[int, int, int, int]  # id, priority, due, state


def moved(page: bytes, offset: int) -> bytes:
    """Return the page of rows with every due time later by `offset` ns."""
    if not have_times(page):
        return page
    rows, buried = bytearray(page), int(JobState.BURIED)
    for at, (_, _, due, state) in enumerate(BRIEF.iter_unpack(page)):
        if due and state != buried:
            DUE.pack_into(rows, at * ROW.size + DUE_AT, due + offset)
    return bytes(rows)


def _sequence(rows: bytearray, at: int) -> int:
    """Return the sequence in the id of the job in row number `at`."""
    return int(BRIEF.unpack_from(rows, at * ROW.size)[0]) & SEQUENCE


class JobPages:
    """The rows of a tube's jobs by ordinal, in pages of PAGE rows each."""

    __slots__ = ("_counts", "_pages", "count")

    def __init__(self) -> None:
        self._pages: dict[int, bytearray] = {}  # no page is empty
        self._counts: dict[int, int] = {}  # number of jobs in each page
        self.count = 0  # number of jobs in all pages

    # one job

    def get(self, ordinal: int) -> Job | None:
        """Return the job with this ordinal, or None if there is none."""
        page, at = divmod(ordinal, PAGE)
        rows = self._pages.get(page)
        at *= ROW.size
        return unpack(ordinal, rows, at) if rows is not None and rows[at + STATE_AT] else None

    def put_row(self, ordinal: int, row: bytes) -> None:
        """Store the row of a job, new or changed."""
        page, at = divmod(ordinal, PAGE)
        at *= ROW.size
        rows = self._pages.get(page) or self._make(page)
        if not rows[at + STATE_AT]:
            self._counts[page] += 1
            self.count += 1
        rows[at : at + ROW.size] = row

    def remove(self, ordinal: int) -> None:
        """Remove a job, which must be there."""
        page, at = divmod(ordinal, PAGE)
        at *= ROW.size
        self.count -= 1
        self._counts[page] -= 1
        if not self._counts[page]:
            del self._counts[page], self._pages[page]
            return
        self._pages[page][at : at + ROW.size] = _ABSENT

    def __contains__(self, ordinal: int) -> bool:
        page, at = divmod(ordinal, PAGE)
        rows = self._pages.get(page)
        return rows is not None and rows[at * ROW.size + STATE_AT] != 0

    # many jobs

    def put_rows(self, first: int, new: list[bytes]) -> None:
        """Store rows of consecutive ordinals from `first` on."""
        at, end = 0, len(new)
        while at < end:
            page, place = divmod(first + at, PAGE)
            some = new[at : at + PAGE - place]
            rows = self._pages.get(page) or self._make(page)
            span = slice(place * ROW.size, (place + len(some)) * ROW.size)
            more = rows[span][STATE_AT :: ROW.size].count(0)
            rows[span] = b"".join(some)
            self._counts[page] += more
            self.count += more
            at += len(some)

    def _make(self, page: int) -> bytearray:
        """Add an empty page, which the caller fills at once."""
        rows = self._pages[page] = bytearray(PAGE * ROW.size)
        self._counts[page] = 0
        return rows

    def put_page(self, number: int, rows: bytes) -> None:
        """Replace the page of this number by `rows`, which `page` returned earlier."""
        self.count -= self._counts.pop(number, 0)
        self._pages.pop(number, None)
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
        reserved, buried = int(JobState.RESERVED), int(JobState.BURIED)
        for number in sorted(self._pages):
            rows = self._pages[number]
            briefs = list(BRIEF.iter_unpack(rows))
            for at, (job_id, priority, due, state) in enumerate(briefs) if have_times(rows) else ():
                if not due or state == buried:
                    continue
                due -= offset
                if state == reserved or due <= now:
                    state, due = JobState.READY, 0
                    rows[at * ROW.size + STATE_AT] = state
                DUE.pack_into(rows, at * ROW.size + DUE_AT, due)
                briefs[at] = job_id, priority, due, state
            yield number * PAGE, briefs

    def lives(self) -> Iterator[tuple[int, int]]:
        """Yield the ordinals of the jobs that have a ttl, and when each goes (s since the epoch)."""
        for number, rows in self._pages.items():
            for index, at in lives(rows):
                yield number * PAGE + index, at

    def pop_page(self) -> tuple[list[int], list[int]]:
        """Remove some page, of which there must be one. Return the ordinals and the ids of its jobs."""
        number, rows = self._pages.popitem()
        self.count -= self._counts.pop(number)
        found = [(at, brief[0]) for at, brief in enumerate(BRIEF.iter_unpack(rows), number * PAGE) if brief[-1]]
        return [ordinal for ordinal, _ in found], [job_id for _, job_id in found]

    # queries

    def ordinals(self) -> list[int]:
        """Return the ordinals of all jobs, ascending."""
        return [
            page * PAGE + index
            for page in sorted(self._pages)
            for index, state in enumerate(self._pages[page][STATE_AT :: ROW.size])
            if state
        ]

    def ordinals_from(self, first: int) -> Iterator[int]:
        """Yield the ordinals of the jobs from `first` on, ascending. The pages must not change meanwhile."""
        pages = sorted(self._pages)
        for page in pages[bisect_left(pages, first // PAGE) :]:
            for index, state in enumerate(self._pages[page][STATE_AT :: ROW.size]):
                if state and page * PAGE + index >= first:
                    yield page * PAGE + index

    def last_in_state(self, state: JobState) -> Iterator[Job]:
        """Yield the jobs in that state, those with the highest ordinals first. The pages must not change meanwhile."""
        for page in sorted(self._pages, reverse=True):
            rows = self._pages[page]
            states = bytes(rows[STATE_AT :: ROW.size])
            index = states.rfind(state)
            while index >= 0:
                yield unpack(page * PAGE + index, rows, index * ROW.size)
                index = states.rfind(state, 0, index)

    def absent(self, first: int, end: int) -> Iterator[int]:
        """Yield the ordinals of first..end that have no job."""
        while first < end:
            page, at = divmod(first, PAGE)
            stop = min(PAGE, at + end - first)
            rows = self._pages.get(page)
            states = (
                rows[at * ROW.size + STATE_AT : stop * ROW.size : ROW.size] if rows is not None else bytes(stop - at)
            )
            index = states.find(0)
            while index >= 0:
                yield first + index
                index = states.find(0, index + 1)
            first += stop - at

    @property
    def end(self) -> int:
        """Return the ordinal behind the last job, or 0 if there is no job."""
        if not self._pages:
            return 0
        last = max(self._pages)
        return last * PAGE + len(bytes(self._pages[last][STATE_AT :: ROW.size]).rstrip(b"\0"))

    def states(self) -> dict[JobState, int]:
        """Count the jobs in each state. This looks at every page."""
        rows = self._pages.values()
        return {state: sum(page[STATE_AT :: ROW.size].count(state) for page in rows) for state in JobState}

    def in_state(self, state: JobState, first: int = 0) -> Iterator[Job]:
        """Yield the jobs in that state with ordinals from `first` on, ascending. The pages must not change meanwhile."""
        pages = sorted(self._pages)
        for page in pages[bisect_left(pages, first // PAGE) :]:
            rows = self._pages[page]
            states = bytes(rows[STATE_AT :: ROW.size])
            index = states.find(state, max(0, first - page * PAGE))
            while index >= 0:
                yield unpack(page * PAGE + index, rows, index * ROW.size)
                index = states.find(state, index + 1)

    def behind(self, sequence: int) -> int:
        """Return an ordinal from which on all jobs have higher sequences than this one. Sequences ascend with the ordinals."""
        pages = sorted(self._pages)
        place = bisect_right(pages, sequence, key=self._last_sequence)
        if place == len(pages):
            return self.end
        first, rows = pages[place] * PAGE, self._pages[pages[place]]
        older = [at for at in range(PAGE) if rows[at * ROW.size + STATE_AT] and _sequence(rows, at) <= sequence]
        return first + older[-1] + 1 if older else first

    def _last_sequence(self, page: int) -> int:
        rows = self._pages[page]
        return _sequence(rows, len(bytes(rows[STATE_AT :: ROW.size]).rstrip(b"\0")) - 1)

    def pages(self) -> list[int]:
        """Return the numbers of all pages, ascending."""
        return sorted(self._pages)

    def page(self, number: int) -> bytes:
        """Return the PAGE rows of a page end to end, zeros where there is no job; b"" if there is no such page."""
        return bytes(self._pages.get(number, b""))

    def __iter__(self) -> Iterator[Job]:
        """Yield all jobs in the order of their ordinals."""
        for ordinal in self.ordinals():
            job = self.get(ordinal)
            assert job is not None
            yield job

    def check(self) -> None:
        """Raise AssertionError if an invariant of this class does not hold."""
        assert self.count == sum(self._counts.values()) == len(self.ordinals())
        assert all(self._counts.values())
        assert self._counts.keys() == self._pages.keys()

    def __repr__(self) -> str:
        return f"<JobPages: {self.count} jobs in {len(self._pages)} pages>"
