"""Read-only listing of a table's jobs in one state, page by page.

Ready jobs come in the order in which they would be reserved, delayed and reserved ones in the order of their due times, and
buried ones in the order in which they would be kicked. In a heap of more than FAR entries this holds for the first FAR only;
the rest comes by ordinal, since sorting a million takes too long. A job that changes between two pages may appear twice or
never.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import islice

from nsqd.core.work_queue.job import Job, JobState
from nsqd.core.work_queue.job_table import JobTable, entry_of

FAR = 2000  # entries: walking them takes 5 ms in a tube of a million; at least as many as a page has

Page = tuple[list[Job], str]  # the jobs, and the place after which the next page begins; "": no more


def list_jobs(table: JobTable, state: JobState, after: str, limit: int) -> Page:
    """Return up to `limit` jobs after the place `after` ("": the beginning). Raise ValueError if it is not a place.

    A place is an entry (job_table.entry_of): the jobs up to it have been returned. Or it is an entry, a dot and an ordinal:
    of the jobs after the entry, those from that ordinal on have not been returned yet.
    """
    entry, dot, ordinal = after.partition(".")
    behind = _number(entry) if after else -1
    if dot:
        return _by_ordinal(table, state, behind, _number(ordinal), limit)
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
    entries = table.order(state).ascending()
    for entry in islice(entries, FAR):
        if entry <= behind:  # it was returned before, or it is a duplicate of a job that came back
            continue
        behind = entry
        job = table.found(state, entry)
        if job is None:
            continue
        if len(found) == limit:
            return found, str(entry_of(found[-1]))
        found.append(job)
    if next(entries, None) is None:
        return found, ""
    more, following = _by_ordinal(table, state, behind, 0, limit - len(found))
    return found + more, following


def _by_ordinal(table: JobTable, state: JobState, behind: int, first: int, limit: int) -> Page:
    """Return jobs whose entries are above `behind`, with ordinals from `first` on."""
    jobs = (job for job in table.jobs.in_state(state, first) if entry_of(job) > behind)
    found = list(islice(jobs, limit + 1))
    return found[:limit], f"{behind}.{found[limit].ordinal}" if len(found) > limit else ""
