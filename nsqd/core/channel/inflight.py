"""The messages of a channel that are in flight: delivered, and neither finished nor requeued nor timed out.

Each delivery is kept as one `Run` of consecutive messages. While FINs come in the order of delivery, they are matched by
comparing bytes (measured: 10 ns a message). When they come out of order, the run *falls apart* into single messages, which a
dict finds by id. This file does not know why a message comes or goes: the channel decides that. An owner, in practice a
consumer, has the numbers that this file keeps of the messages in flight there.
"""

from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from operator import attrgetter
from struct import unpack
from typing import Protocol

from nsqd.core.message.frame import ID_SIZE
from nsqd.core.timing.deferred import CHUNK_BYTES, PAGED_SIZE, Message, counts_of
from nsqd.core.timing.deferred_pages import PackedChunk, packed_alike, page_of, remaining
from nsqd.core.timing.duequeue import SLACK, DueQueue

NOT_IN_FLIGHT = "ID not in flight"
NOT_OWNER = "client does not own message"
NOT_STUCK = -1  # in place of an ordinal
STAMP_SIZE = 8
_last = attrgetter("last")


class DeliveryOwner(Protocol):
    """The receiver of deliveries. Only InFlight changes these fields, and failures.py the last one."""

    in_flight: int  # messages in `runs`, plus this owner's messages whose runs have fallen apart
    runs: deque["Run"]  # first deliveries that are in order, ids ascending; none is empty or has fallen apart
    answered: int  # `order` of the latest delivery of which the owner has answered a message; -1: none
    answered_at: int  # when that delivery was made (monotonic ns)
    stuck_at: (
        int  # ordinal of the message that has kept the owner silent; NOT_STUCK, or STUCK_ELSEWHERE: see failures.py
    )


class Run:
    """Consecutive messages of one delivery that are in flight: ordinals from `first` on, with one deadline for all.

    A run is either in order (`loose` is None, and the messages from index `head` on are in flight), or it has fallen apart
    (`loose` maps the id of each message that is in flight to its ordinal). A *batch* is a run with gaps between its ordinals.
    """

    __slots__ = (
        "attempts", "batch", "deadline", "delivered", "failures", "first", "gone", "groups", "handle", "head", "ids", "last",
        "loose", "order", "owner", "reached", "stamps",
    )  # fmt: skip

    def __init__(
        self, owner: DeliveryOwner, first: int, ids: bytes, attempts: int, delivered: int, deadline: int, stamps: bytes
    ) -> None:
        self.owner = owner
        self.first = first  # ordinal of the message with the first of `ids`
        self.ids = ids  # 16 bytes each
        self.last = ids[-ID_SIZE:]  # the highest of `ids`
        self.attempts = attempts  # deliveries of each of its messages, this one included
        self.failures = 0  # of these, the ones that failed before this one
        self.delivered = delivered  # monotonic ns
        self.deadline = deadline  # monotonic ns
        self.handle = -1  # handle of the entry in the queue by deadline
        self.order = -1  # the number of the delivery: later ones have higher numbers
        self.reached = -1  # messages before this ordinal have reached the owner's hands; see failures.py
        self.head = 0  # index into `ids`, in messages; those before it are no longer in flight
        self.batch: list[int] | range = range(0)  # ordinals of the messages with `ids`, ascending, if it is a batch
        # of the messages with `ids`, if their groups are ordered, unless the backlog has them by ordinal: see groups.py
        self.groups: Sequence[int] = ()
        self.stamps = stamps  # publish times, 8 bytes for each of the messages with `ids`; b"": not measured
        self.loose: dict[bytes, int] | None = None
        # where ordinals are noted of messages that were packed for a checkpoint, and are no longer in flight
        self.gone: array[int] | None = None

    def holds(self, message_id: bytes) -> bool:
        """Return True if the message is in flight in this run and the run has not fallen apart."""
        at = self.ids.find(message_id, self.head * ID_SIZE)
        while at >= 0 and at % ID_SIZE:
            at = self.ids.find(message_id, at + 1)
        return at >= 0

    def ordinals(self) -> Iterable[int]:
        """Return the ordinals of the messages that are in flight, ascending while the run is in order."""
        if self.loose is not None:
            return self.loose.values()
        if self.batch:
            return self.batch[self.head :]
        return range(self.first + self.head, self.first + len(self.ids) // ID_SIZE)

    def members(self, limit: int) -> dict[bytes, int]:
        """Return the first `limit` messages that are in flight, as a dict from id to ordinal."""
        if self.loose is not None:
            return dict(islice(self.loose.items(), limit))
        start = self.head
        stop = min(start + limit, len(self.ids) // ID_SIZE)
        return dict(zip(split_ids(self.ids[start * ID_SIZE : stop * ID_SIZE]), self.ordinals(), strict=False))

    def published(self, first: int, count: int) -> tuple[int, ...]:
        """Return the publish times (ns since the epoch) of `count` messages from ordinal `first` on; () without stamps."""
        at = self._index(first) * STAMP_SIZE
        return unpack(f">{count}q", self.stamps[at : at + count * STAMP_SIZE]) if self.stamps else ()

    def stamp(self, ordinal: int) -> bytes:
        """Return the 8 bytes of `stamps` of the message with this ordinal; b"" if there are no stamps."""
        at = self._index(ordinal) * STAMP_SIZE
        return self.stamps[at : at + STAMP_SIZE]

    def groups_of(self, first: int, count: int) -> Sequence[int]:
        """Return the groups of `count` messages from ordinal `first` on; () if the run does not have them."""
        return self.groups[(at := self._index(first)) : at + count] if self.groups else ()

    def groups_in_flight(self) -> Sequence[int]:
        """Return the groups of those messages that are in flight, as far as the run has them."""
        return [self.groups[self._index(ordinal)] for ordinal in self.ordinals()] if self.groups else ()

    def _index(self, ordinal: int) -> int:
        """Return the index of a message among those that the run had at first."""
        return bisect_left(self.batch, ordinal) if self.batch else ordinal - self.first

    @property
    def is_span(self) -> bool:
        """Return True if the messages in flight follow one another from `first` and `head` on."""
        return self.loose is None and not self.batch

    def oldest(self) -> int:
        """Return the ordinal of the first message that is in flight."""
        return next(iter(self.ordinals()))

    def next_id(self) -> bytes:
        """Return the id of the first message that is in flight in a run that is in order."""
        return self.ids[self.head * ID_SIZE : (self.head + 1) * ID_SIZE]

    def split_run(self) -> dict[bytes, int]:
        """Switch from runs of bytes to single messages, unless that was done before. Return the ordinals by id."""
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
    """All messages of a channel that are in flight, by owner, by deadline and by id."""

    __slots__ = (
        "_batches", "_by_deadline", "_chunks", "_fresh", "_loose", "_loose_runs", "_packed_until", "count", "next_due",
    )  # fmt: skip

    def __init__(self) -> None:
        self.count = 0  # number of messages in all runs
        self._by_deadline: DueQueue[Run] = DueQueue()  # every run
        self._loose: dict[bytes, Run] = {}  # the run of every message whose run has fallen apart, by id
        self._batches: dict[bytes, Run] = {}  # every batch that has not fallen apart, by the id of its next message
        self._loose_runs: dict[DeliveryOwner, set[Run]] = {}  # those runs, and batches, by owner
        # All first deliveries in flight, and some that are over, with ascending ids. `why_not` searches them for a message.
        self._fresh: list[Run] = []
        # messages that were packed for the checkpoint in progress, and ordinals of those that have left since, in chunks
        self._chunks: list[tuple[bytes, array[int]]] = []
        self._packed_until = 0  # runs with lower handles are in the chunks
        self.next_due = self._by_deadline.next_due  # the earliest deadline (monotonic ns)

    # putting messages in

    def hold_run(self, owner: DeliveryOwner, first: int, ids: bytes, now: int, deadline: int, stamps: bytes) -> Run:
        """Put messages from ordinal `first` on in flight at `owner`, for the first time, with one deadline (monotonic ns).

        `ids` are 16 bytes each, end to end, and must be higher than all before; `stamps` are as in Run.
        """
        run = Run(owner, first, ids, 1, now, deadline, stamps)
        run.handle = run.order = self._by_deadline.push(deadline, run)
        count = len(ids) // ID_SIZE
        self.count += count
        owner.in_flight += count
        owner.runs.append(run)
        fresh = self._fresh
        fresh.append(run)
        if len(fresh) > SLACK and len(fresh) > 2 * len(self._by_deadline) + SLACK:
            self._fresh = [run for run in fresh if run.loose is None and len(run)]
        return run

    def hold_batch(
        self,
        owner: DeliveryOwner,
        ordinals: list[int] | range,
        groups: Sequence[int],
        ids: bytes,
        now: int,
        deadline: int,
        stamps: bytes,
    ) -> None:
        """Do the same with messages whose ordinals ascend, and whose ids may be lower than others before."""
        run = Run(owner, ordinals[0], ids, 1, now, deadline, stamps)
        run.batch, run.groups = ordinals, groups
        self._batches[ids[:ID_SIZE]] = run
        self._enter(run)
        run.order = run.handle

    def hold_single(
        self, owner: DeliveryOwner, message: Message, message_id: bytes, now: int, deadline: int, stamps: bytes
    ) -> None:
        """Put one message in flight again. Its attempts count this delivery, too. Times are in ns."""
        run = Run(owner, message.ordinal, b"", message.attempts, now, deadline, stamps)
        run.failures = message.failures
        self._hold(run, message_id)
        run.order = run.handle

    def hold_on(self, run: Run, ordinal: int, message_id: bytes, deadline: int) -> None:
        """Put a message of `run` that its owner has touched back in flight, with a new deadline (monotonic ns)."""
        touched = Run(run.owner, ordinal, b"", run.attempts, run.delivered, deadline, run.stamp(ordinal))
        touched.failures, touched.order, touched.reached = run.failures, run.order, ordinal + 1
        touched.groups = run.groups_of(ordinal, 1)
        self._hold(touched, message_id)

    def _hold(self, run: Run, message_id: bytes) -> None:
        run.loose = {message_id: run.first}
        self._loose[message_id] = run
        self._enter(run)

    def _enter(self, run: Run) -> None:
        """Enter a batch, or a single message."""
        run.handle = self._by_deadline.push(run.deadline, run)
        self._loose_runs.setdefault(run.owner, set()).add(run)
        self.count += len(run)
        run.owner.in_flight += len(run)

    # taking messages out

    def take_next(self, owner: DeliveryOwner, ids: bytes, position: int) -> tuple[Run, int, bytes] | None:
        """Take out messages that `ids` names from byte `position` on, as many as one comparison of bytes can match.

        If the ids agree with the head of the owner's first run, take out all that agree; otherwise take out one message.
        Return its or their run, the ordinal of the first, and the ids that were taken out. Return None if the message at
        `position` is not in flight at that owner.
        """
        if owner.runs:
            run = owner.runs[0]
            start = run.head * ID_SIZE
            size = min(len(run.ids) - start, len(ids) - position)
            batch = ids[position : position + size]
            if run.ids[start : start + size] == batch:
                first = run.first + run.head
                if run.order > owner.answered:
                    owner.answered, owner.answered_at, owner.stuck_at = run.order, run.delivered, NOT_STUCK
                self._advance(run, size // ID_SIZE)
                return run, first, batch
        message_id = ids[position : position + ID_SIZE]
        found = self.take_answered(owner, message_id)
        return None if found is None else (found[0], found[1], message_id)

    def take_from_batch(self, owner: DeliveryOwner, ids: bytes, position: int) -> tuple[Run, int, int] | None:
        """Take out messages of a batch that `ids` names from byte `position` on, if they are the next in its order.

        Return their run, the index of the first in it, and how many there are.
        """
        first = ids[position : position + ID_SIZE]
        run = self._batches.get(first)
        if run is None or run.owner is not owner:
            return None
        head, size = run.head, min(len(run.ids) - run.head * ID_SIZE, len(ids) - position)
        if run.ids[head * ID_SIZE : head * ID_SIZE + size] != ids[position : position + size]:
            return None
        owner.stuck_at = NOT_STUCK
        if run.order > owner.answered:
            owner.answered, owner.answered_at = run.order, run.delivered
        del self._batches[first]
        count = size // ID_SIZE
        if run.gone is not None:
            run.gone.extend(run.batch[head : head + count])
        run.head += count
        if len(run):
            self._batches[run.next_id()] = run
        self._note_taken(run, count)
        return run, head, count

    def take_answered(self, owner: DeliveryOwner, message_id: bytes) -> tuple[Run, int] | None:
        """Take out one message that its owner has answered. Earlier deliveries have reached the owner, too.

        Return its run and its ordinal, or None if it is not in flight at that owner; even so the owner is not silent.
        """
        owner.stuck_at = NOT_STUCK
        found = self.take_out(owner, message_id)
        if found is not None:
            run, ordinal = found
            run.reached = max(run.reached, ordinal)
            if run.order > owner.answered:
                owner.answered, owner.answered_at = run.order, run.delivered
        return found

    def take_out(self, owner: DeliveryOwner, message_id: bytes) -> tuple[Run, int] | None:
        """Take out one message and return its run and its ordinal, or None if it is not in flight at that owner."""
        run = self._loose.get(message_id)
        if run is None and self._batches:
            self._break_batches(self._loose_runs.get(owner, ()))
            run = self._loose.get(message_id)
        if run is None:
            return self._take_from_runs(owner, message_id)
        if run.owner is not owner:
            return None
        return run, self._take_loose(run, message_id)

    def take_due(self, now: int) -> Run | None:
        """Take the run with the earliest deadline out of the queue if that has passed, for `expire` and perhaps `put_back`."""
        due = self._by_deadline.pop_due(now, 1)
        return due[0] if due else None

    def put_back(self, run: Run) -> None:
        """Put a run from `take_due` that still has messages back into the queue, with the deadline that it has."""
        if run.gone is not None:
            run.gone.extend(run.ordinals())
            run.gone = None
        run.handle = self._by_deadline.push(run.deadline, run)

    def expire(self, run: Run, limit: int) -> list[int]:
        """Take out up to `limit` messages of a run, first ones first, and return their ordinals."""
        runs = run.owner.runs
        self._break_batches((run,))
        if run.loose is None and run is runs[0]:
            count, first = min(limit, len(run)), run.first + run.head
            self._advance(run, count)
            return list(range(first, first + count))
        if run.loose is None:  # not the first run of its owner: a later one that had a shorter timeout
            runs.remove(run)
            self._break(run)
        members = run.members(limit)
        for message_id in members:
            self._take_loose(run, message_id)
        return list(members.values())

    def clear(self) -> None:
        """Forget all messages in flight, here and in their owners."""
        for run in self.runs():
            run.owner.in_flight = 0
            run.owner.runs.clear()
        self.count = 0
        self._by_deadline.clear()
        self._loose.clear()
        self._batches.clear()
        self._loose_runs.clear()
        self._fresh.clear()
        self._chunks, self._packed_until = [], 0

    # checkpoints

    def frozen_chunks(self) -> Iterator[bytes]:
        """Pack messages until `packed` is called, except for the last ones. Yield each chunk as it is packed.

        Messages may come and go between two chunks.
        """
        chunks = self._chunks
        part: list[Run] = []
        count = 0
        for handle in self._by_deadline.handles(self._packed_until):
            run = self._by_deadline.get(handle)
            if run is None:
                continue
            part.append(run)
            count += len(run)
            if count >= CHUNK_BYTES // PAGED_SIZE:
                chunks.append((_packed(part), array("q")))
                for one in part:
                    one.gone = chunks[-1][1]
                self._packed_until = handle + 1
                yield chunks[-1][0]
                if chunks is not self._chunks:
                    return
                part, count = [], 0

    def packed(self) -> list[PackedChunk]:
        """Return all messages packed, 24 bytes each, and forget the chunks: the next checkpoint packs them again."""
        since = map(self._by_deadline.get, self._by_deadline.handles(self._packed_until))
        rest = _packed(filter(None, since))
        chunks, self._chunks, self._packed_until = self._chunks, [], 0
        return [*((chunk, gone.tobytes()) for chunk, gone in chunks), rest]

    # queries

    def why_not(self, message_id: bytes) -> str:
        """Return the error's text for a consumer that cannot finish a message, because it does not have it in flight."""
        self._break_batches(self._batches.values())
        if message_id in self._loose:
            return NOT_OWNER
        place = bisect_left(self._fresh, message_id, key=_last)
        if place < len(self._fresh) and self._fresh[place].holds(message_id):
            return NOT_OWNER
        return NOT_IN_FLIGHT

    def runs(self, owner: DeliveryOwner | None = None) -> list[Run]:
        """Return all runs in the order in which they entered the queue by deadline, or only those of one owner."""
        runs = self._by_deadline.values()
        return runs if owner is None else [run for run in runs if run.owner is owner]

    def runs_of(self, owner: DeliveryOwner) -> Iterable[Run]:
        """Return the runs of one owner, in no promised order. The others cost nothing."""
        return chain(owner.runs, self._loose_runs.get(owner, ()))

    def spans(self) -> Iterator[tuple[int, int]]:
        """Yield the messages in flight as (first ordinal, count)."""
        for run in self.runs():
            if run.is_span:
                yield run.first + run.head, len(run)
            else:
                yield from ((ordinal, 1) for ordinal in run.ordinals())

    # helpers

    def _advance(self, run: Run, count: int) -> None:
        """Take out the first `count` messages of a run, which is in order and the first of its owner."""
        owner = run.owner
        if run.gone is not None:
            run.gone.extend(range(run.first + run.head, run.first + run.head + count))
        run.head += count
        owner.in_flight -= count
        self.count -= count
        if run.head * ID_SIZE == len(run.ids):
            run.ids, run.head = b"", 0  # free the memory: `_fresh` may hold the run for a while
            owner.runs.popleft()
            self._by_deadline.remove(run.handle)
            if not self.count:
                self._fresh.clear()

    def _take_loose(self, run: Run, message_id: bytes) -> int:
        """Take a message out of a run that has fallen apart, and return its ordinal."""
        del self._loose[message_id]
        ordinal = run.split_run().pop(message_id)
        if run.gone is not None:
            run.gone.append(ordinal)
        self._note_taken(run, 1)
        return ordinal

    def _note_taken(self, run: Run, count: int) -> None:
        """Note that `count` messages of a loose run or a batch were taken out."""
        run.owner.in_flight -= count
        self.count -= count
        if not len(run):
            self._by_deadline.remove(run.handle)
            left = self._loose_runs[run.owner]
            left.remove(run)
            if not left:
                del self._loose_runs[run.owner]

    def _take_from_runs(self, owner: DeliveryOwner, message_id: bytes) -> tuple[Run, int] | None:
        """Take out a message of a run in order. If it is not the next one, all runs up to the one with its id fall apart."""
        runs = owner.runs
        if not runs or message_id > runs[-1].last:
            return None
        run = runs[0]
        start = run.head * ID_SIZE
        following = run.ids[start : start + ID_SIZE]
        if message_id == following:  # it is the next in order after all
            ordinal = run.first + run.head
            self._advance(run, 1)
            return run, ordinal
        if message_id < following:
            return None
        while runs and runs[0].last < message_id:
            self._break(runs.popleft())
        self._break(runs.popleft())
        return self.take_out(owner, message_id) if message_id in self._loose else None

    def _break_batches(self, runs: Iterable[Run]) -> None:
        """Make those of the runs fall apart that are batches in order."""
        for run in [run for run in runs if run.batch and run.loose is None]:
            del self._batches[run.next_id()]
            self._break(run)

    def _break(self, run: Run) -> None:
        """Make a run fall apart, and enter its messages into `_loose`."""
        self._loose.update(dict.fromkeys(run.split_run(), run))
        self._loose_runs.setdefault(run.owner, set()).add(run)

    def check(self) -> None:
        """Raise AssertionError if an invariant of this class does not hold."""
        self._by_deadline.check()
        runs = self.runs()
        assert self.count == sum(map(len, runs))
        assert {(name, id(run)) for name, run in self._loose.items()} == {
            (name, id(run)) for run in runs for name in run.loose or ()
        }
        assert self._batches == {run.next_id(): run for run in runs if run.batch and run.loose is None}
        packed = page_of(b"".join([remaining(chunk, gone.tobytes()) for chunk, gone in self._chunks]))
        early = [run.ordinals() for run in runs if run.handle < self._packed_until]
        assert sorted(packed[::3]) == sorted(chain.from_iterable(early))
        last_ids = [run.last for run in self._fresh]
        assert last_ids == sorted(last_ids)
        fresh = set(map(id, self._fresh))
        for owner in {id(run.owner): run.owner for run in runs}.values():
            own = self.runs(owner)
            assert owner.in_flight == sum(map(len, own))
            assert set(map(id, self.runs_of(owner))) == set(map(id, own))
            assert set(map(id, owner.runs)) == {id(run) for run in own if run.is_span}
            assert all(len(run) and id(run) in fresh for run in owner.runs)
            firsts = [run.ids[run.head * ID_SIZE :][:ID_SIZE] for run in owner.runs]
            assert all(before.last < first for before, first in zip(owner.runs, firsts[1:], strict=False))

    def __repr__(self) -> str:
        return f"<InFlight: {self.count} in {len(self._by_deadline)} runs>"


def _packed(runs: Iterable[Run]) -> bytes:
    """Return the messages of these runs packed, all due at once."""
    ordinals: dict[int, list[int]] = {}  # by counts
    for run in runs:
        ordinals.setdefault(counts_of(run.attempts, run.failures), []).extend(run.ordinals())
    return b"".join([packed_alike(alike, counts) for counts, alike in ordinals.items()])


def split_ids(ids: bytes) -> list[bytes]:
    """Return ids (16 bytes each, end to end) one by one."""
    return [ids[at : at + ID_SIZE] for at in range(0, len(ids), ID_SIZE)]
