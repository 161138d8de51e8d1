"""A worker: one client of the tubes, with the tube it uses, the tubes it watches and the jobs it has reserved."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Protocol

from nsqd.core.sequence.mark import Mark
from nsqd.core.timing.duequeue import SLACK
from nsqd.core.work_queue.job import Job
from shared.values import SECOND

DEFAULT = "default"  # the tube that every client uses and watches at first
FEW = 64  # names of tubes; what concerns more of them is done a part at a time
# in place of the number of a tube: the job is another node's, and has its message id for an ordinal
BORROWED = -(1 << 62)
MARGIN = SECOND  # ns before the end of a reservation at which its worker is warned


class Names:
    """A set of names in the order of adding, except that the last name takes the place of a removed one, as in beanstalkd."""

    __slots__ = ("_names", "_places")

    def __init__(self, *names: str) -> None:
        self._names: list[str] = []
        self._places: dict[str, int] = {}
        for name in names:
            self.add(name)

    def add(self, name: str) -> None:
        """Add the name if it is not there."""
        if name not in self._places:
            self._places[name] = len(self._names)
            self._names.append(name)

    def remove(self, name: str) -> None:
        """Remove a name, which must be there."""
        place, last = self._places.pop(name), self._names.pop()
        if last != name:
            self._names[place] = last
            self._places[last] = place

    @property
    def only(self) -> str | None:
        """Return the name if there is exactly one."""
        return self._names[0] if len(self._names) == 1 else None

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __repr__(self) -> str:
        return f"<Names: {', '.join(self._names)}>"


class WorkerSink(Protocol):
    """The receiving end of a worker: its connection, or a test."""

    def reserved(self, tube: str, job: Job, body: bytes) -> None:
        """Send the job that the worker waited for, of the tube of that name. It has been reserved for the worker."""

    def wait_for(self, marks: tuple[Mark, ...]) -> None:
        """Hold the job that follows back until these marks have reached the records of this turn."""

    def read_completed(self) -> None:
        """Ask again for the body that was on disk only, since it can be read now."""


class Worker:
    """One client as the tubes see it."""

    __slots__ = (
        "_ends", "holder", "holds", "is_guest", "produces", "sink", "takes_headers", "takes_loans", "using", "waiting",
        "watching", "works",
    )  # fmt: skip

    def __init__(self, sink: WorkerSink, holder: Worker | None = None) -> None:
        """`holder`: has what this worker reserves, which so stays reserved when the worker leaves; None: the worker itself."""
        self.sink = sink
        self.holder = holder if holder is not None else self
        self.is_guest = False  # True: it stands for clients of another node
        self.takes_loans = False  # True: it takes jobs that other nodes own
        self.takes_headers = False  # True: bodies of jobs come with headers in front (penstock/protocol/headers.py)
        self.using = DEFAULT
        self.watching = Names(DEFAULT)
        # by (number of the tube, or BORROWED; ordinal): when the reservation ends, monotonic ns
        self.holds: dict[tuple[int, int], int] = {}
        # a heap of (end, number of the tube, ordinal) for these reservations and some that are over
        self._ends: list[tuple[int, int, int]] = []
        self.waiting = False  # True: it waits for a job
        self.produces = False  # True: it has put a job
        self.works = False  # True: it has asked for a job

    def hold(self, tube: int, ordinal: int, end: int) -> None:
        """Note that the worker has this job reserved until `end` (monotonic ns)."""
        self.holds[tube, ordinal] = end
        ends = self._ends
        heappush(ends, (end, tube, ordinal))
        if len(ends) > 2 * len(self.holds) + SLACK:
            ends[:] = [entry for entry in ends if self.holds.get(entry[1:]) == entry[0]]
            heapify(ends)

    def lost(self, tube: int, ordinal: int) -> None:
        """Note that the worker's reservation of this job is over."""
        self.holds.pop((tube, ordinal), None)

    def warned_at(self) -> int | None:
        """Return the time to warn the worker that its first reservation ends soon (monotonic ns), or None if it has none."""
        ends, holds = self._ends, self.holds
        while ends and holds.get(ends[0][1:]) != ends[0][0]:
            heappop(ends)
        return ends[0][0] - MARGIN if ends else None

    def end_borrowed(self, now: int) -> list[int]:
        """Forget the jobs of other nodes whose reservation is over at `now` (monotonic ns). Returns their message ids."""
        over = [ordinal for (tube, ordinal), end in self.holds.items() if tube == BORROWED and end <= now]
        for ordinal in over:
            self.lost(BORROWED, ordinal)
        return over

    def __repr__(self) -> str:
        waiting = ", waiting" if self.waiting else ""
        return f"<Worker uses {self.using}, watches {len(self.watching)}, holds {len(self.holds)}{waiting}>"


class Holder(Worker):
    """A worker that never leaves and is never warned, so it does not know what it holds: the tubes do (Tube.reserved)."""

    __slots__ = ()

    def hold(self, tube: int, ordinal: int, end: int) -> None:
        """Do nothing: the tube knows that the job is held."""

    def lost(self, tube: int, ordinal: int) -> None:
        """Do nothing: the tube knows that the job is no longer held."""


class NobodysSink:
    """The sink of a worker that never waits."""

    def reserved(self, tube: str, job: Job, body: bytes) -> None:
        raise AssertionError("the holder does not wait")

    def wait_for(self, marks: tuple[Mark, ...]) -> None:
        raise AssertionError("the holder is sent nothing")

    def read_completed(self) -> None:
        raise AssertionError("the holder does not wait")

    def __repr__(self) -> str:
        return "<Nobody>"


class CountedHolder(Holder):
    """A holder whose jobs are counted: those of one identity."""

    __slots__ = ("jobs",)

    def __init__(self) -> None:
        super().__init__(NobodysSink())
        self.jobs: set[tuple[int, int]] = set()  # (number of the tube, ordinal)

    def hold(self, tube: int, ordinal: int, end: int) -> None:
        """Note that the job is held."""
        self.jobs.add((tube, ordinal))

    def lost(self, tube: int, ordinal: int) -> None:
        """Forget the job: it is no longer held."""
        self.jobs.discard((tube, ordinal))
