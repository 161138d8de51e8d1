"""The release of a deleted tube's messages and jobs, a part in each step of the reclaimer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nsqd.core.sequence.ahead import Ahead
from nsqd.core.sequence.journal import ReaderJournal
from nsqd.core.sequence.spans import runs
from nsqd.core.work_queue.job_index import JobIndex
from nsqd.core.work_queue.job_table import JobTable


def release_jobs(
    table: JobTable, arrivals: Ahead, index: JobIndex[Any], number: int, journal: ReaderJournal
) -> Iterator[None]:
    """Release the messages of a deleted tube, free its jobs and take them out of the index, a part with each step.

    `arrivals`: messages that were to become jobs, some of which are jobs already; `number`: that of the tube.
    """
    for spans in arrivals.spans():
        for first, end in spans:
            for start, stop in runs(table.jobs.absent(first, end)):
                journal.release(start, stop)
        yield
    for ordinals, ids in table.take_apart():
        for first, end in runs(ordinals):
            journal.release(first, end)
        index.remove_leftovers(ids, number)
        yield
