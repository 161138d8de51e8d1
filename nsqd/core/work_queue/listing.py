"""What a tube has, looked at and not touched: a page of its jobs in one state, and where the next page begins.

Ready jobs come in the order in which they would be reserved, delayed and reserved ones in that in which their time is over,
buried ones in that in which they would be kicked. Of a heap that is larger than FAR only the first FAR entries come so, and
what is behind them comes by id: to go on in order would be to sort a million. The tube goes on meanwhile, so a job that moves
may be seen twice, or not at all.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from itertools import islice

from nsqd.core.work_queue.job import Job, JobState
from nsqd.core.work_queue.job_table import JobTable, entry_of

FAR = 2000  # entries: to come that far takes 5 ms in a tube of a million; at least as many as a page has

Page = tuple[list[Job], str]  # and what to go on behind; "": there is no more


def listed(table: JobTable, state: JobState, after: str, limit: int) -> Page:
    """Up to `limit` jobs behind `after` ("": from the beginning). Raises ValueError if that is no such place.

    A place is an entry (job_table.entry_of), or an entry before which all have been told and an id of those behind it.
    """
    entry, dot, job_id = after.partition(".")
    behind = _number(entry) if after else -1
    if dot:
        return _by_id(table, state, behind, _number(job_id), limit)
    return _buried(table, behind, limit) if state is JobState.BURIED else _in_order(table, state, behind, limit)


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError("no such place")
    return int(text)


def _buried(table: JobTable, behind: int, limit: int) -> Page:
    ordinals: Sequence[int] = list(table.buried) if behind >= 0 else list(islice(table.buried, limit + 1))
    first = bisect_right(ordinals, behind, key=lambda ordinal: _entry_at(table, ordinal)) if behind >= 0 else 0
    found = [job for job in map(table.jobs.get, ordinals[first : first + limit]) if job is not None]
    return found, str(entry_of(found[-1])) if len(ordinals) > first + limit else ""


def _entry_at(table: JobTable, ordinal: int) -> int:
    job = table.jobs.get(ordinal)
    assert job is not None
    return entry_of(job)


def _in_order(table: JobTable, state: JobState, behind: int, limit: int) -> Page:
    found: list[Job] = []
    for entry in islice(ascending(table.heap(state)), FAR):
        if entry <= behind:  # it was told; or it is there twice, of a job that came back
            continue
        behind = entry
        job = table.found(state, entry)
        if job is None:
            continue
        if len(found) == limit:
            return found, str(entry_of(found[-1]))
        found.append(job)
    if len(table.heap(state)) <= FAR:
        return found, ""
    more, following = _by_id(table, state, behind, 0, limit - len(found))
    return found + more, following


def _by_id(table: JobTable, state: JobState, behind: int, after: int, limit: int) -> Page:
    """Those whose entries are behind that one, and whose ids are above `after`."""
    jobs = (job for job in table.jobs.in_state(state, after) if entry_of(job) > behind)
    found = list(islice(jobs, limit + 1))
    last = found[limit - 1].id if 0 < limit < len(found) else after
    return found[:limit], f"{behind}.{last}" if len(found) > limit else ""


def ascending(heap: Sequence[int]) -> Iterator[int]:
    """A heap's entries in their order; it is not changed, and must not be meanwhile. The first n cost n log n."""
    ahead = [(heap[0], 0)] if heap else []
    while ahead:
        entry, place = heappop(ahead)
        yield entry
        for child in range(2 * place + 1, min(2 * place + 3, len(heap))):
            heappush(ahead, (heap[child], child))
