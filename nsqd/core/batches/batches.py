"""The live batches of one log: which publishes are refused, and which batches are done.

Nothing happens when a message is finished. `find_done` looks at one pending member of each closed batch at a time, and then
continues from there when that is pending no longer.

A node that has promoted another log has that log's batches, too. Members go to the batch in the node's own log; a batch of the
same name in a promoted log is another part of the same batch, which is done when all parts are.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from itertools import islice
from typing import Protocol

from nsqd.core.batches.table import (
    BatchState,
    BatchTable,
    FollowUp,
    NamedBatch,
    names_in,
    pack_batch,
    pack_follow_up,
    pack_followed,
    totals,
)
from nsqd.core.limits import HeaderRefused
from nsqd.core.message.attributes import Attributes, is_word
from nsqd.core.records import RecordKind
from nsqd.core.sequence.journal import TopicJournal
from nsqd.core.sequence.mark import Mark
from penstock.protocol.headers import AFTER, TooManyHeaders, check_headers

MOST_NAME = 64  # characters of a name
MOST_BATCHES = 10_000  # of a node, also done ones
MOST_SPANS = 1_000_000  # runs of members of all batches of a node, at 16 bytes
MOST_SPANS_OF_ONE = 100_000  # of one batch, which are one record of a checkpoint
MOST_FOLLOW_UPS = 100_000  # of a node
MOST_FOLLOW_UP_BYTES = 64 * 1024 * 1024  # of their bodies and headers, which are in memory and in each checkpoint
MOST_CHAIN = 1000  # steps from a batch to one that it follows, in the search for cycles: 0.2 ms
MOST_OPEN = 7 * 24 * 3600  # s after the last member, when an open batch is closed: its follow-ups are never lost
KEPT = 24 * 3600  # s for which a done batch is remembered


class BatchRefused(HeaderRefused):
    """A publish or a request names a batch in a way that is refused. The text is the reason, such as BATCH_DONE."""


class MemberState(Enum):
    """The state of a message, over all readers of its topic."""

    PENDING = 0
    FINISHED = 1  # or dropped, or gone
    BURIED = 2  # by every reader that has not finished it


class MemberTopic(Protocol):
    """The part of a topic that its members need: their states, and the durability of replies about them."""

    name: str
    marks: tuple[Mark, ...]
    journal: TopicJournal

    def outcome(self, ordinal: int) -> MemberState:
        """Return the state of the message with that ordinal."""


class Batches(BatchTable):
    """The batches of one log. Those of the node's own log decide for all logs."""

    def __init__(self, record: Callable[[int, bytes], tuple[Mark, ...]]) -> None:
        """`record` appends a record to the log (Store.record)."""
        super().__init__()
        self._record = record
        self.topics: Mapping[int, MemberTopic] = {}  # those of the log, by number
        self.shards: list[Batches] = [self]  # the batches of all logs that the node leads, this one first
        # batch -> the batches whose follow-ups it has as members, and how many
        self._awaits: dict[str, Counter[str]] = {}
        self.follow_up_count = self.follow_up_bytes = 0
        self._keys: Counter[tuple[str, str]] = Counter()  # (batch, key of follow-ups, "": none), and how many have it
        self._full_at = 0  # s since the epoch: in this second no batch makes room for another one
        # the next three for the batches of all logs, in the table of the node's own log
        self._walks: dict[str, _Walk] = {}  # of closed batches, by name
        self._due: deque[str] = deque()  # names that this round of `find_done` has not looked at
        self._ready: dict[str, None] = {}  # names of done batches that may have follow-ups
        self._waiting: dict[str, list[Callable[[], None]]] = {}  # by name: called when the batch is done
        self._is_stopping = False  # True: nothing waits for a batch

    def load(self, table: BatchTable) -> None:
        """Take over, after a restart, what the log has."""
        self.known, self.spans = table.known, table.spans
        for batch in self.known.values():
            for follow_up in batch.follow_ups.values():
                self._count(batch, follow_up, 1)

    def _count(self, batch: NamedBatch, follow_up: FollowUp, sign: int) -> None:
        self.follow_up_count += sign
        self.follow_up_bytes += sign * follow_up.size
        key = batch.name, follow_up.attributes.key
        self._keys[key] += sign
        if not self._keys[key]:
            del self._keys[key]
        if follow_up.batch:
            awaits = self._awaits.setdefault(follow_up.batch, Counter())
            awaits[batch.name] += sign
            if not awaits[batch.name]:
                del awaits[batch.name]
                if not awaits:
                    del self._awaits[follow_up.batch]

    # publishing

    def admit(self, topic: str, bodies: list[bytes], attributes: Attributes, may_wait: bool, wall: int) -> int | None:
        """Admit messages that may name a batch. Returns None if they are to be published now.

        Keeps them if they are follow-ups, and returns how many of them are duplicates. `may_wait`: False: follow-ups are
        refused. `wall`: s since the epoch. Raises BatchRefused.
        """
        names = names_in(attributes)
        if names is None:
            return None
        batch, after = names
        for name in names:
            if name is not None:
                check_name(name)
        if after is None:
            assert batch is not None
            self._admit_member(batch, wall)
            return None
        if not may_wait or attributes.producer or attributes.while_pending:
            raise BatchRefused("INVALID_AFTER")
        return self._keep(topic, bodies, attributes, batch, after, wall)

    def _admit_member(self, name: str, wall: int) -> None:
        batch = self._own(name) or self._create(name, wall)
        if batch.state is BatchState.DONE:
            raise BatchRefused("BATCH_DONE")
        if batch.spans >= MOST_SPANS_OF_ONE or self.spans >= MOST_SPANS:
            raise BatchRefused("BATCH_TOO_LARGE")

    def _keep(
        self, topic: str, bodies: list[bytes], attributes: Attributes, batch: str | None, after: str, wall: int
    ) -> int:
        """Keep follow-ups of a batch. Returns the number of duplicates, which have the key of earlier ones."""
        followed = self._own(after)
        if followed is None:
            raise BatchRefused("BATCH_NOT_FOUND")
        try:
            check_headers((*attributes.headers, *_results(1 << 62, 1 << 62)))
        except TooManyHeaders:
            raise BatchRefused("TOO_MANY_HEADERS") from None
        if attributes.key and (after, attributes.key) in self._keys:
            return len(bodies)
        size = sum(map(len, bodies)) + len(bodies) * FollowUp(topic, b"", attributes).size
        if self.follow_up_count + len(bodies) > MOST_FOLLOW_UPS or self.follow_up_bytes + size > MOST_FOLLOW_UP_BYTES:
            raise BatchRefused("TOO_MANY_FOLLOW_UPS")
        if batch is not None:
            if after not in self._awaits.get(batch, ()) and self._reaches(after, batch):
                raise BatchRefused("BATCH_CYCLE")
            self._admit_member(batch, wall)
        for body in bodies:
            follow_up, number = FollowUp(topic, body, attributes), followed.next_number
            followed.follow_ups[number] = follow_up
            followed.next_number += 1
            self._count(followed, follow_up, 1)
            self._record(RecordKind.FOLLOW_UP, pack_follow_up(after, number, follow_up))
        return 0

    def _reaches(self, start: str, goal: str) -> bool:
        """Return True if the batch `start` is `goal`, or waits for follow-ups that wait for it, or for too many batches."""
        seen, waiting, steps = {start}, [start], 0
        while waiting:
            name = waiting.pop()
            if name == goal:
                return True
            for table in self.shards:
                followed = table._awaits.get(name, ())
                steps += len(followed)
                if steps > MOST_CHAIN:
                    return True
                new = [one for one in followed if one not in seen]
                seen.update(new)
                waiting += new
        return False

    def _own(self, name: str) -> NamedBatch | None:
        """Return the part of a batch in this log; a new one if only another log has one, and None if none has."""
        parts = self.parts(name)
        if not parts or name in self.known:
            return self.known.get(name)
        first = parts[0]
        own = self._create(name, first.created)
        own.next_number = max(part.next_number for part in parts)  # the number is in the key of a follow-up
        self._set(own, first.state, first.changed)
        return own

    def _create(self, name: str, wall: int) -> NamedBatch:
        """Create an open batch. Raises BatchRefused."""
        if len(self.known) >= MOST_BATCHES:
            done = (one for one in self.known.values() if one.state is BatchState.DONE and not one.follow_ups)
            oldest = next(done, None) if self._full_at != wall else None  # looking at all batches takes a millisecond
            if oldest is None:
                self._full_at = wall
                raise BatchRefused("TOO_MANY_BATCHES")
            self._forget(oldest)
        batch = self.known[name] = NamedBatch(name, wall, wall)
        self._set(batch, BatchState.OPEN, wall)
        return batch

    def _set(self, batch: NamedBatch, state: BatchState, wall: int) -> tuple[Mark, ...]:
        batch.state, batch.changed = state, wall
        return self._record(RecordKind.BATCH, pack_batch(batch, state))

    def _forget(self, batch: NamedBatch) -> None:
        del self.known[batch.name]
        self._record(RecordKind.BATCH, pack_batch(batch, BatchState.FORGOTTEN))

    # what ends a batch

    def close(self, name: str, wall: int) -> set[Mark]:
        """Close a batch, which is created if there is none. One that is closed or done stays so.

        Returns the marks for which a reply waits: closing is as durable as the members are, and copied. Raises BatchRefused.
        """
        check_name(name)
        if not self.parts(name):
            self._create(name, wall)
        marks: set[Mark] = set()
        for table, batch in self._parts_of(name):
            if batch.state is BatchState.OPEN:
                marks.update(table._set(batch, BatchState.CLOSED, wall))
        for topic in self._topics_of(name):
            topic.journal.promise()
            marks.update(topic.marks)
        return marks

    def parts(self, name: str) -> list[NamedBatch]:
        """Return the parts of a batch in all logs."""
        return [batch for _, batch in self._parts_of(name)]

    def _parts_of(self, name: str) -> list[tuple[Batches, NamedBatch]]:
        """Return the parts of a batch, each with its table."""
        return [(table, table.known[name]) for table in self.shards if name in table.known]

    def find_done(self, wall: int, limit: int) -> bool:
        """Look at about `limit` batches and members, in rounds: mark batches as done, and close and forget old ones.

        Returns True if there are more members to look at now.
        """
        while limit > 0:
            if not self._due:
                self._due.extend(dict.fromkeys(name for table in self.shards for name in table.known))
                return False
            name = self._due.popleft()
            limit -= 1 + self._look_at(name, wall, limit)
            if (walk := self._walks.get(name)) is not None and not walk.is_blocked:
                self._due.appendleft(name)
                return True
        return False

    def _look_at(self, name: str, wall: int, limit: int) -> int:
        """Look at one batch. Returns how many members were looked at."""
        parts = self.parts(name)
        states = {part.state for part in parts}
        if states == {BatchState.DONE}:
            self._ready[name] = None
            self._wake(name)
            self._forget_old(name, wall)
        elif BatchState.OPEN in states:
            if all(part.changed < wall - MOST_OPEN for part in parts):
                self.close(name, wall)
        elif parts and not any(name in table._awaits for table in self.shards):
            return self._continue_walk(name, parts, wall, limit)
        return 0

    def _forget_old(self, name: str, wall: int) -> None:
        for table, batch in self._parts_of(name):
            if not batch.follow_ups and batch.changed < wall - KEPT:
                table._forget(batch)

    def _continue_walk(self, name: str, parts: list[NamedBatch], wall: int, limit: int) -> int:
        count, walk = sum(part.count for part in parts), self._walks.get(name)
        if walk is None or walk.count != count:
            walk = self._walks[name] = _Walk(count, self.members(name))
        looked = walk.advance(limit)
        if walk.is_over:
            del self._walks[name]
            self._finish(name, len(walk.buried), wall)
        return looked

    def _finish(self, name: str, buried: int, wall: int) -> None:
        """Mark a batch as done. `buried`: how many of its members are."""
        self._full_at = 0
        for table, batch in self._parts_of(name):
            batch.buried, buried = batch.moved + buried, 0
            table._set_members(batch, {})
            table._set(batch, BatchState.DONE, wall)
        self._ready[name] = None
        self._wake(name)

    # waiting for a batch

    def wait(self, name: str, ready: Callable[[], None]) -> None:
        """Call `ready` when a batch is done, or at once if the node stops."""
        if self._is_stopping:
            ready()
        else:
            self._waiting.setdefault(name, []).append(ready)

    def end_wait(self, name: str, ready: Callable[[], None]) -> None:
        """Call `ready` no longer, if it was not called."""
        if ready in (waiting := self._waiting.get(name, [])):
            waiting.remove(ready)
            if not waiting:
                del self._waiting[name]

    def stop(self) -> None:
        """End all waiting, now and from now on, because the node stops."""
        self._is_stopping = True
        for name in list(self._waiting):
            self._wake(name)

    def _wake(self, name: str) -> None:
        for ready in self._waiting.pop(name, ()):
            ready()

    def topics_of(self, name: str) -> set[str]:
        """Return the names of the topics with members of a batch that is not done."""
        return {topic.name for topic in self._topics_of(name)}

    def _topics_of(self, name: str) -> list[MemberTopic]:
        return [table.topics[topic] for table, batch in self._parts_of(name) for topic in batch.members]

    def members(self, name: str) -> Iterator[Member]:
        """Yield the members of a batch in all logs."""
        for table, batch in self._parts_of(name):
            yield from ((table, topic, ordinal) for topic, ordinal in batch.ordinals())

    # follow-ups

    def ready(self, limit: int) -> list[tuple[Batches, NamedBatch, list[int]]]:
        """Return up to about `limit` follow-ups of batches that are done: the table, the batch, and their numbers in it."""
        found: list[tuple[Batches, NamedBatch, list[int]]] = []
        for name in list(self._ready):
            waiting = [(table, batch) for table, batch in self._parts_of(name) if batch.follow_ups]
            if not waiting:
                del self._ready[name]
            for table, batch in waiting:
                unsent = (number for number in batch.follow_ups if number not in batch.sent)
                found.append((table, batch, list(islice(unsent, limit))))
                limit -= len(found[-1][2])
            if limit <= 0:
                break
        return found

    def unfinished(self) -> list[str]:
        """Return the names of the batches of this log that are not done, or have follow-ups left."""
        return [one.name for one in self.known.values() if one.state is not BatchState.DONE or one.follow_ups]

    def put_off(self, batch: NamedBatch, number: int) -> None:
        """Try the other follow-ups of a batch before this one, which cannot be published now."""
        batch.follow_ups[number] = batch.follow_ups.pop(number)

    def attributes(self, batch: NamedBatch, number: int) -> Attributes:
        """Return the attributes with which a follow-up of a done batch is published. Its key has it published once."""
        headers = batch.follow_ups[number].attributes.headers
        members, buried = totals(self.parts(batch.name))
        results = _results(members - buried, buried)
        return Attributes((*headers, *results), key=f"after:{batch.name}:{batch.created}:{number}")

    def note_followed(self, batch: NamedBatch, numbers: list[int]) -> None:
        """Note that follow-ups of a batch of this log were published, and are safe."""
        gone = [number for number in numbers if number in batch.follow_ups]
        for number in gone:
            self._count(batch, batch.follow_ups.pop(number), -1)
            batch.sent.discard(number)
        if gone:
            self._record(RecordKind.FOLLOWED, pack_followed(batch.name, gone))

    def check(self) -> None:
        """Raise AssertionError if an invariant of the batches does not hold."""
        kept = [(batch, one) for batch in self.known.values() for one in batch.follow_ups.values()]
        assert self.follow_up_count == len(kept)
        assert self.follow_up_bytes == sum(one.size for _, one in kept)
        awaits: dict[str, Counter[str]] = {}
        for batch, one in kept:
            if one.batch:
                awaits.setdefault(one.batch, Counter())[batch.name] += 1
        assert self._awaits == awaits
        assert self._keys == Counter((batch.name, one.attributes.key) for batch, one in kept)
        assert all(name == batch.name for name, batch in self.known.items())
        assert not any(batch.members for batch in self.known.values() if batch.state is BatchState.DONE)


Member = tuple[Batches, int, int]  # table, topic and ordinal


def outcome_of(member: Member) -> MemberState:
    """Return the present state of a member."""
    table, number, ordinal = member
    topic = table.topics.get(number)
    return topic.outcome(ordinal) if topic is not None else MemberState.FINISHED


class _Walk:
    """A walk over the members of a batch that stops at each pending one, and is over when it has met no other."""

    def __init__(self, count: int, members: Iterator[Member]) -> None:
        self.count = count  # members; when there are more, another walk begins
        self.buried: list[Member] = []
        self.is_over = False
        self._left = members
        self._at: Member | None = None  # where it stopped
        self._has_stopped = False  # in this pass: buried members may have been kicked meanwhile

    @property
    def is_blocked(self) -> bool:
        """Return True if the walk waits for a pending member."""
        return self._at is not None

    def advance(self, limit: int) -> int:
        """Look at up to `limit` members. Returns how many it looked at."""
        looked = 0
        while looked < limit and not self.is_over:
            self._at = self._at or next(self._left, None)
            if self._at is None:
                self.is_over = not (self._has_stopped and self.buried)
                self._left, self._has_stopped = iter(self.buried), False
                if not self.is_over:
                    self.buried = []
                continue
            looked += 1
            outcome = outcome_of(self._at)
            if outcome is MemberState.PENDING:
                self._has_stopped = True
                break
            if outcome is MemberState.BURIED:
                self.buried.append(self._at)
            self._at = None
        return looked


def check_name(name: str) -> None:
    """Raise BatchRefused for a text that is not the name of a batch."""
    if not is_word(name) or len(name) > MOST_NAME:
        raise BatchRefused("INVALID_BATCH")


def _results(finished: int, buried: int) -> tuple[tuple[str, str], ...]:
    return (f"{AFTER}-finished", str(finished)), (f"{AFTER}-buried", str(buried))
