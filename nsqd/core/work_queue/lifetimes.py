"""When jobs with a time to live go: for each page of jobs (job_pages.py), when the first of them may go.

A job of its own would take 60 bytes here; a page takes 2 for each of its jobs. When a page is due, its rows are looked at.
"""

from heapq import heapify, heappop, heappush

from nsqd.core.timing.duequeue import SLACK
from nsqd.core.work_queue.job_pages import PAGE, JobPages

_BITS = 48  # low bits of an entry, which are the number of the page
_PAGE_NUMBER = (1 << _BITS) - 1


class Lifetimes:
    """The pages of one tube by when their jobs begin to go. Times are s since the epoch."""

    __slots__ = ("_firsts", "_heap", "_jobs")

    def __init__(self, jobs: JobPages) -> None:
        self._jobs = jobs
        self._firsts: dict[int, int] = {}  # by number of the page: no life of its jobs ends before this time
        self._heap: list[int] = []  # these times in the high bits, and the numbers of the pages; some are stale

    def record(self, first: int, count: int, at: int) -> None:
        """Record that the jobs from ordinal `first` on go at `at`."""
        for page in range(first // PAGE, (first + count - 1) // PAGE + 1):
            known = self._firsts.get(page)
            if known is None or at < known:
                self._set(page, at)

    def restart(self) -> None:
        """Record all jobs, of which none is known."""
        for number in self._jobs.pages():
            if lives := self._jobs.lives(number):
                self._set(number, min(lives)[0])

    def _set(self, page: int, at: int) -> None:
        heap, firsts = self._heap, self._firsts
        firsts[page] = at
        heappush(heap, at << _BITS | page)
        if len(heap) > 2 * self._jobs.page_count + SLACK:
            self._firsts = {one: first for one, first in firsts.items() if self._jobs.has_page(one)}
            heap[:] = [first << _BITS | one for one, first in self._firsts.items()]
            heapify(heap)

    def next(self) -> int | None:
        """Return a time before which no job's life ends; None: no job has a time to live."""
        heap, firsts = self._heap, self._firsts
        while heap and firsts.get(heap[0] & _PAGE_NUMBER) != heap[0] >> _BITS:
            heappop(heap)
        return heap[0] >> _BITS if heap else None

    def over(self, now: int, limit: int) -> list[int]:
        """Return the ordinals of up to `limit` jobs that go by `now`, which the caller has to remove."""
        found: list[int] = []
        while len(found) < limit and (at := self.next()) is not None and at <= now:
            page = heappop(self._heap) & _PAGE_NUMBER
            del self._firsts[page]
            lives = sorted(self._jobs.lives(page))
            over = [ordinal for at, ordinal in lives if at <= now][: limit - len(found)]
            found += over
            if len(over) < len(lives):
                self._set(page, lives[len(over)][0])
        return found

    def pop_batch(self, most: int) -> bool:
        """Drop up to `most` pages, whichever they are. Return False if there was none."""
        batch = self._heap[-most:]
        del self._heap[-most:]
        for entry in batch:
            self._firsts.pop(entry & _PAGE_NUMBER, None)
        return bool(batch)

    def check(self) -> None:
        """Raise AssertionError if an invariant of this class does not hold."""
        assert {at << _BITS | page for page, at in self._firsts.items()} <= set(self._heap)
        for number in self._jobs.pages():
            for at, _ in self._jobs.lives(number):
                assert self._firsts[number] <= at

    def __repr__(self) -> str:
        return f"<Lifetimes of {len(self._firsts)} pages>"
