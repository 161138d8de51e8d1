"""An index of all jobs of a node by client id: the tube that holds a job, and its ordinal there. 12 bytes a job, in pages.

The client id is the id by which clients of beanstalkd name a job. It is the sequence in the job's message id
(nsqd/core/message/ids.py), so client ids begin with 1. Sequences are unique only within a log, so if the node holds jobs of
other nodes' logs, the client id is the whole message id (Limits.whole_job_ids).
"""

from __future__ import annotations

from array import array
from typing import Generic, TypeVar

from nsqd.core.message.ids import SEQUENCE

H = TypeVar("H")  # the type of the holders of jobs

_WHOLE = (1 << 64) - 1

_PAGE = 64  # client ids per page
_NO_ORDINALS, _NO_HOLDERS = array("Q", bytes(8 * _PAGE)), array("I", bytes(4 * _PAGE))  # of a page without jobs


class JobIndex(Generic[H]):
    """The index of all jobs of a node. Each holder of jobs has a number, which is never used again."""

    __slots__ = ("_bits", "_counts", "_pages", "holders")

    def __init__(self, has_whole_ids: bool = False) -> None:
        self._bits = _WHOLE if has_whole_ids else SEQUENCE  # mask of the bits of an id that are the client id
        self.holders: dict[int, H] = {}  # by their numbers
        # by number of the page: ordinals + 1 (0: no job), and numbers of the holders
        self._pages: dict[int, tuple[array[int], array[int]]] = {}
        self._counts: dict[int, int] = {}  # number of jobs in each page

    def client_id(self, job_id: int) -> int:
        """Return the id by which clients name the job whose message has the id `job_id`."""
        return job_id & self._bits

    def sequence(self, client_id: int) -> int:
        """Return the sequence in the message id of the job that clients name by `client_id`."""
        return client_id & SEQUENCE if self._bits == _WHOLE else client_id

    def add_job(self, job_id: int, holder: int, ordinal: int) -> None:
        """Add a job: the holder with the number `holder` has it at this ordinal."""
        client_id = job_id & self._bits
        ordinals, holders, at = self._page(client_id)
        self._counts[client_id // _PAGE] += not ordinals[at]  # a job of a holder that is gone may have had the id
        ordinals[at], holders[at] = ordinal + 1, holder

    def add_jobs(self, job_ids: list[int], holder: int, first: int) -> None:
        """Add jobs of one holder, with consecutive ordinals from `first` on."""
        if len(job_ids) == 1:
            self.add_job(job_ids[0], holder, first)
            return
        start, count = job_ids[0] & self._bits, len(job_ids)
        if job_ids != [*range(job_ids[0], job_ids[0] + count)]:
            for ordinal, job_id in enumerate(job_ids, first):
                self.add_job(job_id, holder, ordinal)
            return
        done = 0
        while done < count:
            ordinals, holders, at = self._page(start + done)
            end = min(_PAGE, at + count - done)
            self._counts[(start + done) // _PAGE] += ordinals[at:end].count(0)
            ordinals[at:end] = array("Q", range(first + done + 1, first + done + 1 + end - at))
            holders[at:end] = array("I", (holder,)) * (end - at)
            done += end - at

    def _page(self, client_id: int) -> tuple[array[int], array[int], int]:
        """Return the page of a client's id, created if necessary, as ordinals and holders, and the place of the job in it."""
        page, at = divmod(client_id, _PAGE)
        found = self._pages.get(page)
        if found is None:
            found = self._pages[page] = _NO_ORDINALS[:], _NO_HOLDERS[:]
            self._counts[page] = 0
        return *found, at

    def remove_job(self, job_id: int) -> None:
        """Remove the job with this id, which must be in the index."""
        page, at = divmod(job_id & self._bits, _PAGE)
        self._pages[page][0][at] = 0
        left = self._counts[page] = self._counts[page] - 1
        if not left:
            del self._pages[page], self._counts[page]

    def find(self, client_id: int) -> tuple[H, int] | None:
        """Return the holder of the job that clients name so, and the job's ordinal; or None if there is no such job."""
        page, at = divmod(client_id, _PAGE)
        found = self._pages.get(page)
        if found is None:
            return None
        ordinals, numbers = found
        ordinal = ordinals[at]
        holder = self.holders.get(numbers[at]) if ordinal else None
        return (holder, ordinal - 1) if holder is not None else None

    def remove_leftovers(self, job_ids: list[int], holder: int) -> None:
        """Remove the jobs with these ids of a holder that is gone, unless others have got their ids since."""
        for job_id in job_ids:
            found = self._pages.get((job_id & self._bits) // _PAGE)
            at = job_id % _PAGE
            if found is not None and found[0][at] and found[1][at] == holder:
                self.remove_job(job_id)

    def __len__(self) -> int:
        """Return the number of jobs of all holders; those of holders that are gone are not counted. Looks at every job."""
        return sum(
            ordinal > 0 and number in self.holders
            for ordinals, numbers in self._pages.values()
            for ordinal, number in zip(ordinals, numbers, strict=True)
        )

    def check(self) -> None:
        """Raise AssertionError if an invariant of this class does not hold. Some jobs may be those of holders that are gone."""
        assert self._counts.keys() == self._pages.keys()
        for page, (ordinals, numbers) in self._pages.items():
            there = [number for ordinal, number in zip(ordinals, numbers, strict=True) if ordinal]
            assert len(there) == self._counts[page] > 0

    def __repr__(self) -> str:
        return f"<JobIndex: {sum(self._counts.values())} jobs of {len(self.holders)} queues>"
