"""Where every job of the node is, by its number: which queue holds it, and its ordinal there. 12 bytes a job, in pages.

Clients of beanstalkd name a job by its number: the sequence in its message id (nsqd/core/message/ids.py), so that numbers begin
with 1. If jobs of other nodes' logs are here, the number is the whole id (Limits.whole_job_ids): sequences are unique in a log.
"""

from __future__ import annotations

from array import array
from typing import Generic, TypeVar

from nsqd.core.message.ids import SEQUENCE

H = TypeVar("H")  # what holds jobs

_WHOLE = (1 << 64) - 1

_PAGE = 64  # numbers


class JobIndex(Generic[H]):
    """See above. A holder is named by its number, which no other ever gets."""

    __slots__ = ("_bits", "_counts", "_pages", "holders")

    def __init__(self, has_whole_ids: bool = False) -> None:
        self._bits = _WHOLE if has_whole_ids else SEQUENCE  # of an id that are the number
        self.holders: dict[int, H] = {}  # by number
        # by number: ordinals + 1 (0: no job), and holders' numbers
        self._pages: dict[int, tuple[array[int], array[int]]] = {}
        self._counts: dict[int, int] = {}  # jobs of each page

    def number(self, job_id: int) -> int:
        """Return by which number clients name the job of that id."""
        return job_id & self._bits

    def sequence(self, number: int) -> int:
        """Return the sequence in the id of the job that clients name by that number."""
        return number & SEQUENCE if self._bits == _WHOLE else number

    def came(self, job_id: int, number: int, ordinal: int) -> None:
        """The holder with that number has a job of this id."""
        name = job_id & self._bits
        ordinals, numbers, at = self._page(name)
        ordinals[at], numbers[at] = ordinal + 1, number
        self._counts[name // _PAGE] += 1

    def came_together(self, job_ids: list[int], number: int, first: int) -> None:
        """The holder has jobs of these ids with ordinals from `first` on."""
        start, count = job_ids[0] & self._bits, len(job_ids)
        if job_ids != [*range(job_ids[0], job_ids[0] + count)]:
            for ordinal, job_id in enumerate(job_ids, first):
                self.came(job_id, number, ordinal)
            return
        done = 0
        while done < count:
            ordinals, numbers, at = self._page(start + done)
            end = min(_PAGE, at + count - done)
            ordinals[at:end] = array("Q", range(first + done + 1, first + done + 1 + end - at))
            numbers[at:end] = array("I", (number,)) * (end - at)
            self._counts[(start + done) // _PAGE] += end - at
            done += end - at

    def _page(self, name: int) -> tuple[array[int], array[int], int]:
        """Return the ordinals and holders of the page of a job's number, made if need be, and its place in it."""
        page, at = divmod(name, _PAGE)
        found = self._pages.get(page)
        if found is None:
            found = self._pages[page] = array("Q", bytes(8 * _PAGE)), array("I", bytes(4 * _PAGE))
            self._counts[page] = 0
        return *found, at

    def went(self, job_id: int) -> None:
        """The job of that id, which there was, is gone."""
        page, at = divmod(job_id & self._bits, _PAGE)
        self._pages[page][0][at] = 0
        self._counts[page] -= 1
        if not self._counts[page]:
            del self._pages[page], self._counts[page]

    def find(self, name: int) -> tuple[H, int] | None:
        """Return who holds the job of that number and its ordinal, or None if there is none."""
        page, at = divmod(name, _PAGE)
        found = self._pages.get(page)
        if found is None or not found[0][at]:
            return None
        return self.holders[found[1][at]], found[0][at] - 1

    def __len__(self) -> int:
        return sum(self._counts.values())

    def check(self) -> None:
        """Raise AssertionError if an invariant of this class does not hold."""
        assert self._counts.keys() == self._pages.keys()
        for page, (ordinals, numbers) in self._pages.items():
            there = [number for ordinal, number in zip(ordinals, numbers, strict=True) if ordinal]
            assert len(there) == self._counts[page] > 0
            assert self.holders.keys() >= set(there)

    def __repr__(self) -> str:
        return f"<JobIndex: {len(self)} jobs of {len(self.holders)} queues>"
