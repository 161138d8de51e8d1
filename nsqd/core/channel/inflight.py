"""What is in flight in a channel: delivered, and neither finished nor handed back nor timed out.

A delivery is kept as one run. A run is finished whole by comparing bytes when FINs come in order (measured: 10 ns a message),
and falls apart into single messages only when they do not. Nothing here knows why a message comes or goes: the channel moves
messages, and an owner is whatever counts its own.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from struct import unpack
from typing import Protocol

from nsqd.core.message.frame import ID_SIZE
from nsqd.core.timing.duequeue import SLACK, DueQueue

NOT_IN_FLIGHT = "ID not in flight"
NOT_OWNER = "client does not own message"
STAMP_SIZE = 8


class Owner(Protocol):
    """To whom messages were delivered. InFlight alone changes these."""

    in_flight: int  # messages in `runs`, and of the loose ones those that are its own
    runs: deque["Run"]  # first deliveries, in order, ids ascending; none is empty or fallen apart


class Run:
    """Consecutive messages of one delivery that are in flight: ordinals first.., deadlines alike.

    Either in order (`loose` is None: those from `head` on are in flight) or fallen apart (`loose` maps id to ordinal).
    """

    __slots__ = (
        "attempts",
        "deadline",
        "delivered",
        "first",
        "handle",
        "head",
        "ids",
        "last",
        "loose",
        "owner",
        "stamps",
    )

    def __init__(
        self, owner: Owner, first: int, ids: bytes, attempts: int, delivered: int, deadline: int, stamps: bytes
    ) -> None:
        self.owner = owner
        self.first = first  # ordinal of the message with the first of `ids`
        self.ids = ids  # 16 bytes each
        self.last = ids[-ID_SIZE:]  # the highest of them
        self.attempts = attempts  # deliveries of each of its messages, this one included
        self.delivered = delivered  # monotonic ns
        self.deadline = deadline  # monotonic ns
        self.handle = -1  # of its entry in the queue by deadline
        self.head = 0  # messages before it are finished
        self.stamps = stamps  # 8 bytes each: when they were published, of all from `first` on; b"": nobody asks
        self.loose: dict[bytes, int] | None = None

    def last_id(self) -> bytes:
        """The highest id it was delivered with."""
        return self.last

    def holds(self, message_id: bytes) -> bool:
        """True if the message is in flight here and the run has not fallen apart."""
        at = self.ids.find(message_id, self.head * ID_SIZE)
        while at >= 0 and at % ID_SIZE:
            at = self.ids.find(message_id, at + 1)
        return at >= 0

    def ordinals(self) -> Iterable[int]:
        """The ordinals of its messages that are in flight: a range while it is in order."""
        if self.loose is not None:
            return self.loose.values()
        return range(self.first + self.head, self.first + len(self.ids) // ID_SIZE)

    def members(self, limit: int) -> dict[bytes, int]:
        """The ordinals of its first `limit` messages that are in flight, by id."""
        if self.loose is not None:
            return dict(islice(self.loose.items(), limit))
        start = self.head
        stop = min(start + limit, len(self.ids) // ID_SIZE)
        return {self.ids[i * ID_SIZE : (i + 1) * ID_SIZE]: self.first + i for i in range(start, stop)}

    def published(self, first: int, count: int) -> tuple[int, ...]:
        """When messages first.. were published, ns since the epoch. Nothing if there are no stamps."""
        at = (first - self.first) * STAMP_SIZE
        return unpack(f">{count}q", self.stamps[at : at + count * STAMP_SIZE]) if self.stamps else ()

    def stamp(self, ordinal: int) -> bytes:
        """The part of `stamps` that is of this message."""
        at = (ordinal - self.first) * STAMP_SIZE
        return self.stamps[at : at + STAMP_SIZE]

    def fall_apart(self) -> dict[bytes, int]:
        """From now on each message is known by its id. Returns the ordinals by id."""
        if self.loose is None:
            self.loose = self.members(len(self.ids))
            self.ids = b""
        return self.loose

    def __len__(self) -> int:
        return len(self.loose) if self.loose is not None else len(self.ids) // ID_SIZE - self.head

    def __repr__(self) -> str:
        state = "in order" if self.loose is None else "fallen apart"
        return f"<Run from {self.first}: {len(self)} {state}, attempt {self.attempts}, until {self.deadline}>"


class InFlight:
    """See above. A channel has one."""

    __slots__ = ("_by_deadline", "_fresh", "_loose", "count", "next_due")

    def __init__(self) -> None:
        self.count = 0  # messages in all runs
        self._by_deadline: DueQueue[Run] = DueQueue()  # every run
        self._loose: dict[bytes, Run] = {}  # every message whose run has fallen apart, by id
        # All first deliveries in flight, and some that are over, ids ascending: to find out whether a message has an owner.
        self._fresh: list[Run] = []
        self.next_due = self._by_deadline.next_due  # the earliest deadline (monotonic ns)

    # messages come

    def hold_run(self, owner: Owner, first: int, ids: bytes, now: int, deadline: int, stamps: bytes) -> None:
        """Messages first.. are delivered for the first time. Their ids are the highest yet."""
        run = Run(owner, first, ids, 1, now, deadline, stamps)
        run.handle = self._by_deadline.push(deadline, run)
        count = len(ids) // ID_SIZE
        self.count += count
        owner.in_flight += count
        owner.runs.append(run)
        fresh = self._fresh
        fresh.append(run)
        if len(fresh) > SLACK and len(fresh) > 2 * len(self._by_deadline) + SLACK:
            self._fresh = [run for run in fresh if run.loose is None and len(run)]

    def hold_single(
        self, owner: Owner, ordinal: int, message_id: bytes, attempts: int, delivered: int, deadline: int, stamps: bytes
    ) -> None:
        """A message is delivered again, for the `attempts`th time; or goes on from `delivered` with another deadline."""
        run = Run(owner, ordinal, b"", attempts, delivered, deadline, stamps)
        run.loose = {message_id: ordinal}
        run.handle = self._by_deadline.push(deadline, run)
        self._loose[message_id] = run
        self.count += 1
        owner.in_flight += 1

    # messages go

    def take_next(self, owner: Owner, ids: bytes, position: int) -> tuple[Run, int, bytes] | None:
        """Take out what `ids` name from `position` (bytes) on: as many as follow each other in the owner's first run, or one.

        Returns their run, the first one's ordinal, and their ids. None: the first of them is not in flight at that owner.
        """
        if owner.runs:
            run = owner.runs[0]
            start = run.head * ID_SIZE
            size = min(len(run.ids) - start, len(ids) - position)
            some = ids[position : position + size]
            if run.ids[start : start + size] == some:
                first = run.first + run.head
                self._advance(run, size // ID_SIZE)
                return run, first, some
        message_id = ids[position : position + ID_SIZE]
        found = self.take_out(owner, message_id)
        return None if found is None else (found[0], found[1], message_id)

    def take_out(self, owner: Owner, message_id: bytes) -> tuple[Run, int] | None:
        """Take out one message: its run and its ordinal. None if it is not in flight at that owner."""
        run = self._loose.get(message_id)
        if run is None:
            return self._take_from_runs(owner, message_id)
        if run.owner is not owner:
            return None
        return run, self._take_loose(run, message_id)

    def take_due(self, now: int) -> Run | None:
        """The run with the earliest deadline, if that has passed: `expire` is to be called until it is empty."""
        due = self._by_deadline.pop_due(now, 1)
        return due[0] if due else None

    def put_back(self, run: Run) -> None:
        """What is left of a run that `take_due` gave is due as before."""
        run.handle = self._by_deadline.push(run.deadline, run)

    def expire(self, run: Run, limit: int) -> list[int]:
        """Take out up to `limit` messages of a run, the first ones. Returns their ordinals."""
        runs = run.owner.runs
        if run.loose is None and run is runs[0]:
            count, first = min(limit, len(run)), run.first + run.head
            self._advance(run, count)
            return list(range(first, first + count))
        if run.loose is None:  # a later one with a shorter time-out
            runs.remove(run)
            self._break(run)
        members = run.members(limit)
        for message_id in members:
            self._take_loose(run, message_id)
        return list(members.values())

    def clear(self) -> None:
        """Nothing is in flight any more."""
        for run in self.runs():
            run.owner.in_flight = 0
            run.owner.runs.clear()
        self.count = 0
        self._by_deadline.clear()
        self._loose.clear()
        self._fresh.clear()

    # queries

    def why_not(self, message_id: bytes) -> str:
        """Why somebody who does not have the message in flight cannot finish it."""
        if message_id in self._loose:
            return NOT_OWNER
        place = bisect_left(self._fresh, message_id, key=Run.last_id)
        if place < len(self._fresh) and self._fresh[place].holds(message_id):
            return NOT_OWNER
        return NOT_IN_FLIGHT

    def runs(self, owner: Owner | None = None) -> list[Run]:
        """All runs in the order of delivery, or those of one owner."""
        runs = self._by_deadline.values()
        return runs if owner is None else [run for run in runs if run.owner is owner]

    def spans(self) -> Iterator[tuple[int, int]]:
        """Every (first, count) that is in flight."""
        for run in self.runs():
            if run.loose is None:
                yield run.first + run.head, len(run)
            else:
                yield from ((ordinal, 1) for ordinal in run.loose.values())

    # helpers

    def _advance(self, run: Run, count: int) -> None:
        """The first `count` messages of its owner's first run are no longer in flight."""
        owner = run.owner
        run.head += count
        owner.in_flight -= count
        self.count -= count
        if run.head * ID_SIZE == len(run.ids):
            run.ids, run.head = b"", 0  # `_fresh` may hold it for a while
            owner.runs.popleft()
            self._by_deadline.remove(run.handle)
            if not self.count:
                self._fresh.clear()

    def _take_loose(self, run: Run, message_id: bytes) -> int:
        """Take out a message of a run that has fallen apart: its ordinal."""
        del self._loose[message_id]
        members = run.fall_apart()
        ordinal = members.pop(message_id)
        run.owner.in_flight -= 1
        self.count -= 1
        if not members:
            self._by_deadline.remove(run.handle)
        return ordinal

    def _take_from_runs(self, owner: Owner, message_id: bytes) -> tuple[Run, int] | None:
        """Out of order: runs up to the one that holds the id fall apart, each once in its life."""
        runs = owner.runs
        if not runs or message_id > runs[-1].last:
            return None
        run = runs[0]
        start = run.head * ID_SIZE
        following = run.ids[start : start + ID_SIZE]
        if message_id == following:  # in order after all, singly
            ordinal = run.first + run.head
            self._advance(run, 1)
            return run, ordinal
        if message_id < following:
            return None
        while runs and runs[0].last < message_id:
            self._break(runs.popleft())
        self._break(runs.popleft())
        return self.take_out(owner, message_id) if message_id in self._loose else None

    def _break(self, run: Run) -> None:
        """It falls apart."""
        self._loose.update(dict.fromkeys(run.fall_apart(), run))

    def check(self) -> None:
        """Raise AssertionError if a sentence above is false."""
        self._by_deadline.check()
        runs = self.runs()
        assert self.count == sum(map(len, runs))
        assert {(name, id(run)) for name, run in self._loose.items()} == {
            (name, id(run)) for run in runs for name in run.loose or ()
        }
        last_ids = [run.last for run in self._fresh]
        assert last_ids == sorted(last_ids)
        fresh = set(map(id, self._fresh))
        for owner in {id(run.owner): run.owner for run in runs}.values():
            own = self.runs(owner)
            assert owner.in_flight == sum(map(len, own))
            assert set(map(id, owner.runs)) == {id(run) for run in own if run.loose is None}
            assert all(len(run) and id(run) in fresh for run in owner.runs)
            firsts = [run.ids[run.head * ID_SIZE :][:ID_SIZE] for run in owner.runs]
            assert all(before.last < first for before, first in zip(owner.runs, firsts[1:], strict=False))

    def __repr__(self) -> str:
        return f"<InFlight: {self.count} in {len(self._by_deadline)} runs>"
