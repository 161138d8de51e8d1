"""A channel: a position in its topic's sequence, plus the messages before it that are not finished.

Every message it has is ready, in flight, deferred or buried; finished ones are gone. What was requeued or timed out waits in
the retry lane and comes back at min(end, cursor + mem-queue-size), not behind ten million (specs/log-and-channel.md rule 20).
A read that is not in memory makes the channel wait (`reading`), never the turn.
"""

from collections.abc import Callable, Iterator

from nsqd.core.channel.backlog import LOST_AT_ONCE, Backlog
from nsqd.core.channel.buried import Buried, Grave
from nsqd.core.channel.consumer import ELSEWHERE, GONE, Consumer, Sink
from nsqd.core.channel.dispatch import Dispatch
from nsqd.core.channel.inflight import InFlight, Owner, Run
from nsqd.core.message.frame import ID_SIZE, STAMP, with_attempts
from nsqd.core.observation.latency import Latency
from nsqd.core.observation.outcomes import BURIED, REQUEUED, TIMED_OUT, Outcomes
from nsqd.core.reader import Batch, Kind, Parts
from nsqd.core.sequence.puts import Terms
from nsqd.core.timing.deferred import Deferred, Message

STOPPED = "in flight when the node stopped"  # why a message is buried that nobody handed back


class Channel:
    """See above. Created by Topic.channel. Implements Reader."""

    kind = Kind.CHANNEL
    takes_terms = False

    __slots__ = (
        "_agenda",
        "_bounded",
        "_limits",
        "_max_attempts",
        "_messages_before",
        "backlog",
        "buried",
        "consumers",
        "deferred",
        "delayed",
        "deleted",
        "dispatch",
        "dropped_count",
        "edge",
        "ephemeral",
        "extents",
        "in_flight",
        "journal",
        "latency",
        "name",
        "number",
        "outcomes",
        "paused",
        "requeue_count",
        "spent",
        "start",
        "timeout_count",
        "topic_name",
        "watched",
    )

    def __init__(
        self,
        name: str,
        parts: Parts,
        ephemeral: bool,
        bounded: bool,
        latency: Latency | None,
        outcomes: Outcomes | None,
        random_below: Callable[[int], int],
    ) -> None:
        """`ephemeral`: it goes with its last consumer; `bounded`: its topic is ephemeral: only memory holds its messages."""
        self.name = name
        self.topic_name = parts.topic
        self.number = parts.number  # never used again on this node
        self.ephemeral = ephemeral
        self.edge = parts.edge
        self.extents = parts.extents
        self.journal = parts.journal
        self.latency = latency  # from publish to FIN; None: it is not measured
        self.outcomes = outcomes  # likewise
        self._agenda = parts.agenda
        self._limits = parts.limits
        self._max_attempts = parts.max_attempts
        self._bounded = bounded or ephemeral
        self.start = parts.edge.distributed  # messages before it are not for this channel
        self.backlog = Backlog(parts.edge, parts.extents, parts.limits.mem_queue_size)
        self.in_flight = InFlight()
        self.deferred = Deferred(parts.number)  # requeued with a delay
        self.delayed = 0  # messages in the topic's delay lane that will be released to this channel
        self.buried = Buried()  # delivered too often
        self.spent: set[int] = set()  # ordinals: in flight at their last allowed delivery when the node stopped
        self.consumers: dict[Owner, Consumer] = {}  # in the order of subscribing, each by itself
        self.dispatch = Dispatch(parts.limits.topology_aware, random_below)
        self.paused = False
        self.deleted = False
        self.watched: tuple[int, int] | None = None  # (due, handle) of its entry in the agenda
        self.requeue_count = 0
        self.timeout_count = 0
        self.dropped_count = 0  # messages a channel in memory had no room for
        self._messages_before = parts.edge.put_count

    # consumers

    def subscribe(self, sink: Sink, msg_timeout: int, sample_rate: int, distance: int = ELSEWHERE) -> Consumer:
        """A new consumer, with RDY 0. `msg_timeout`: ns a delivery may take."""
        consumer = Consumer(sink, msg_timeout, sample_rate, distance)
        self.consumers[consumer] = consumer
        return consumer

    def unsubscribe(self, consumer: Consumer) -> bool:
        """The consumer is gone. What it had in flight waits for its time-outs. True if the channel, ephemeral, is to go."""
        self._close(consumer)
        consumer.sink = GONE
        if self.consumers.pop(consumer, None) is None:
            return False  # the channel was deleted first
        if self._limits.requeue_on_disconnect:
            for run in self.in_flight.runs(consumer):
                self.requeue_count += self._return(run, len(run), REQUEUED, "disconnected")
        return self.ephemeral and not self.consumers

    def _close(self, consumer: Consumer) -> None:
        """Its window is closed for good."""
        consumer.ready = 0
        self.dispatch.refresh(consumer)

    def set_ready(self, consumer: Consumer, count: int) -> None:
        """RDY count."""
        consumer.ready = count
        self.refresh(consumer)
        if count <= consumer.in_flight:
            consumer.sink.flush()

    def refresh(self, consumer: Consumer) -> None:
        """The window or the sink of a consumer has changed: it may have room now. Needed if its room was at most 0."""
        if self.dispatch.refresh(consumer):
            self.wake()

    def freed(self, owner: Owner) -> None:
        """Messages that were in flight there are not any more. An owner that is gone is passed over."""
        consumer = self.consumers.get(owner)
        if consumer is not None and consumer not in self.dispatch.ready:
            self.refresh(consumer)

    def finish(self, consumer: Consumer, ids: bytes) -> list[tuple[bytes, str]]:
        """FIN of all `ids` (16 bytes each, end to end). Returns (id, why) of those that failed, in order."""
        failed: list[tuple[bytes, str]] = []
        position, total = 0, len(ids)
        while position < total:
            taken = self.in_flight.take_next(consumer, ids, position)
            if taken is None:
                message_id = ids[position : position + ID_SIZE]
                failed.append((message_id, self.in_flight.why_not(message_id)))
                position += ID_SIZE
                continue
            run, first, some = taken
            count = len(some) // ID_SIZE
            self.journal.finish(first, count)
            if self.latency is not None or self.outcomes is not None:
                self._measure(run, first, some)
            consumer.finish_count += count
            position += len(some)
        if consumer not in self.dispatch.ready:
            self.refresh(consumer)
        return failed

    def _measure(self, run: Run, first: int, ids: bytes) -> None:
        """Messages first.. of a run, with these ids, are finished."""
        wall = self._agenda.wall
        latencies = [wall - stamp for stamp in run.published(first, len(ids) // ID_SIZE)]
        if self.latency is not None and latencies:
            self.latency.record_many(latencies, self._agenda.now)
        if self.outcomes is not None:
            self.outcomes.finished(first, ids, run.attempts, latencies, wall)
        if not len(run):
            run.stamps = b""  # InFlight may hold the run for a while

    def requeue(self, consumer: Consumer, message_id: bytes, delay: int, now: int) -> str:
        """REQ: hand a message back, to be ready after `delay` ns. Returns why it failed, or ""."""
        found = self.in_flight.take_out(consumer, message_id)
        if found is None:
            return self.in_flight.why_not(message_id)
        attempts, ordinal = found[0].attempts, found[1]
        consumer.requeue_count += 1
        self.requeue_count += 1
        self._note(REQUEUED, ordinal, message_id, attempts)
        if self._is_given_up(attempts):
            self.bury(message_id, ordinal, attempts, "requeued")
        else:
            due = now + delay if delay else 0
            self.journal.requeue(ordinal, attempts, due)
            self.wait(Message(ordinal, attempts), due, now)
        self.refresh(consumer)
        return ""

    def touch(self, consumer: Consumer, message_id: bytes, timeout: int, longest: int, now: int) -> str:
        """TOUCH: a new deadline `timeout` from now, at most `longest` after delivery. Returns why it failed, or ""."""
        found = self.in_flight.take_out(consumer, message_id)
        if found is None:
            return self.in_flight.why_not(message_id)
        run, ordinal = found
        deadline = min(now + timeout, run.delivered + longest)
        stamps = run.stamp(ordinal)
        self.in_flight.hold_single(consumer, ordinal, message_id, run.attempts, run.delivered, deadline, stamps)
        self.watch(deadline)
        return ""

    def wait(self, message: Message, due: int, now: int) -> None:
        """A message is ready at `due`; 0: now."""
        if due:
            self.deferred.push(due, message, now)
            self._watch_deferred()
        else:
            self.put_back(message)

    def put_back(self, message: Message) -> None:
        """A message is ready again."""
        self.backlog.put_back(message)
        self.wake()

    # operators

    def pause(self, paused: bool) -> None:
        """Stop or resume deliveries; all else goes on."""
        self.paused = paused
        self.journal.pause(paused)
        if paused:
            for consumer in self.consumers.values():
                consumer.sink.flush()
        self.wake()

    def empty(self) -> None:
        """Drop all messages: ready, in flight, deferred."""
        end = self.edge.distributed
        self.journal.finish_all(end, list(self._owed()))
        self.start = end
        self.delayed = 0
        self.backlog.clear()
        self.in_flight.clear()
        self.deferred.clear()
        self.buried.clear()
        self.spent.clear()
        for consumer in self.consumers.values():
            self.refresh(consumer)

    def delete(self) -> None:
        """Drop all messages and disconnect the consumers. Called by the topic."""
        self.empty()
        self.journal.drop()
        self.deleted = True
        self._agenda.unwatch(self)
        consumers, self.consumers = list(self.consumers.values()), {}
        for consumer in consumers:
            self._close(consumer)
            consumer.sink.evicted()

    # after a restart

    def resume(self, start: int, cursor: int, ready: int, paused: bool) -> None:
        """It stands here, with `ready` messages from the cursor to the edge."""
        self.start, self.paused = start, paused
        self.backlog.resume(cursor, ready)

    def take_back(self, message: Message, due: int, now: int) -> None:
        """A message from before the cursor that is not finished: the next to be delivered, or at its time."""
        if due > now:
            self.deferred.push(due, message, now)
            self._watch_deferred()
        else:
            self.backlog.put_first(message)
            if self._is_given_up(message.attempts):  # its id is on disk, so it is buried when its turn comes
                self.spent.add(message.ordinal)

    def take_far(self, pages: list[bytes]) -> None:
        """Messages from before the cursor that wait for long, as Deferred.packed gave them out."""
        for page in pages:
            self.deferred.load(page)
        self._watch_deferred()

    # what the topic tells

    def extend(self, batch: Batch) -> None:
        """There is more: the edge is behind these messages now."""
        self.delayed += batch.delayed
        if self._bounded:
            for first, end in self.backlog.bound(batch, self._limits.mem_queue_size):
                self.dropped_count += end - first
                self.journal.finish(first, end - first)
        self.wake()

    def expect(self, first: int, count: int, terms: Terms) -> None:
        """Nothing: messages have no terms here."""

    def skip(self, first: int, end: int, ordinary: int) -> None:
        """Messages first..end, ahead of the cursor, are not for us; `ordinary` of them were counted as ready."""
        self.backlog.skip(first, end, ordinary)

    def own(self, due: int, message: Message, now: int) -> None:
        """What waits in the topic's delay lane waits here alone."""
        self.delayed -= 1
        self.wait(message, due, now)

    def release(self, message: Message) -> None:
        """A message's delay at the topic is over."""
        self.delayed -= 1
        self.put_back(message)

    # delivery

    def wake(self) -> None:
        """There may be something to deliver, to somebody."""
        if self.dispatch.ready and not self.paused and not self.backlog.reading and self.depth > 0:
            self._agenda.awake[self] = None

    def serve(self, now: int) -> None:
        """Give each ready consumer its share, once. The channel is awake again if there is more to give at once."""
        depth, before = self.depth, self.backlog.cursor
        if depth <= 0 or self.paused or self.backlog.reading:
            return
        self.dispatch.serve(self, depth, now)
        if self.backlog.cursor != before:
            self.journal.advance(self.backlog.cursor)
        self.wake()

    def take(self, consumer: Consumer, count: int, room: int, now: int) -> list[bytes]:
        """The next messages, in flight at the consumer from now on: see Supply."""
        for _ in range(LOST_AT_ONCE):
            taken = self.backlog.take(count, room)
            if taken is None:
                break
            message, first, frames, ids = taken
            deadline = now + consumer.msg_timeout
            stamps = b""
            if self.latency is not None or self.outcomes is not None:
                stamps = b"".join([frame[STAMP] for frame in frames])
            if message is None:
                self.in_flight.hold_run(consumer, first, ids, now, deadline, stamps)
            elif message.ordinal in self.spent:
                self.spent.discard(first)
                self.bury(ids, first, message.attempts, STOPPED)
                continue
            else:
                attempts = message.attempts + 1
                self.journal.requeue(first, attempts, 0)
                self.in_flight.hold_single(consumer, first, ids, attempts, now, deadline, stamps)
                frames = frames if attempts == 1 else [with_attempts(frames[0], attempts)]
            if self.watched is None or deadline < self.watched[0]:
                self._agenda.watch(self, deadline)
            return frames
        return []

    def discard(self, consumer: Consumer, message_id: bytes) -> None:
        """A message that the consumer was just given is finished, and is not delivered: see Supply."""
        found = self.in_flight.take_out(consumer, message_id)
        if found is not None:
            self.journal.finish(found[1], 1)

    def read_completed(self) -> None:
        """What the backlog waits for can be read now."""
        self.backlog.reading = False
        self.wake()

    # time

    def watch(self, due: int) -> None:
        """Something here is due at `due`: the scan must look by then."""
        if self.watched is None or due < self.watched[0]:
            self._agenda.watch(self, due)

    def scan(self, now: int, limit: int) -> int:
        """Expire what is in flight and release what was deferred, up to about `limit` messages. Returns how many it moved."""
        served = self.deferred.approach(now, limit)
        while served < limit and (run := self.in_flight.take_due(now)) is not None:
            served += self._expire(run, limit - served)
        released = self.deferred.pop_due(now, max(1, limit - served))
        for message in released:
            self.put_back(message)
        return served + len(released)

    def next_due(self) -> int | None:
        """When scan has something to do."""
        in_flight, deferred = self.in_flight.next_due(), self.deferred.wake_at()
        if in_flight is None or deferred is None:
            return deferred if in_flight is None else in_flight
        return min(in_flight, deferred)

    def _expire(self, run: Run, limit: int) -> int:
        count = self._return(run, limit, TIMED_OUT, "timed out")
        if len(run):
            self.in_flight.put_back(run)
        self.timeout_count += count
        self.freed(run.owner)
        return count

    def _return(self, run: Run, limit: int, what: str, reason: str) -> int:
        """Up to `limit` messages of a run are ready again, or buried. Returns how many. `what`: an outcome."""
        attempts, given_up = run.attempts, self._is_given_up(run.attempts)
        members = run.members(limit) if given_up or self.outcomes is not None else {}
        ordinals = self.in_flight.expire(run, limit)
        for name, ordinal in members.items():
            self._note(what, ordinal, name, attempts)
            if given_up:
                self.bury(name, ordinal, attempts, reason)
        for ordinal in () if given_up else ordinals:
            self.journal.requeue(ordinal, attempts, 0)
            self.put_back(Message(ordinal, attempts))
        return len(ordinals)

    def _note(self, what: str, ordinal: int, message_id: bytes, attempts: int) -> None:
        if self.outcomes is not None:
            self.outcomes.returned(what, ordinal, message_id, attempts, self._agenda.wall)

    # dead letters

    def _is_given_up(self, attempts: int) -> bool:
        return 0 < self._max_attempts <= attempts

    def bury(self, message_id: bytes, ordinal: int, attempts: int, reason: str) -> None:
        """Give up on a message that is in no other place."""
        self.journal.bury(ordinal, message_id, attempts, reason)
        self._note(BURIED, ordinal, message_id, attempts)
        self.buried.add(message_id, Grave(ordinal, attempts, reason, self._agenda.wall))

    def _watch_deferred(self) -> None:
        due = self.deferred.wake_at()
        if due is not None:
            self.watch(due)

    # queries

    @property
    def depth(self) -> int:
        """Messages ready to be delivered."""
        return self.edge.ordinary - self.backlog.passed + len(self.backlog.retry)

    @property
    def key(self) -> tuple[str, str]:
        """What operators call it: its topic's name, and its own."""
        return self.topic_name, self.name

    @property
    def in_flight_count(self) -> int:
        """Messages delivered, and neither finished nor handed back nor timed out."""
        return self.in_flight.count

    @property
    def backend_depth(self) -> int:
        """Of those, the ones that are on disk only."""
        return min(self.depth, self.backlog.cold)

    @property
    def deferred_count(self) -> int:
        """Messages that wait for their time: requeued with a delay, or published so."""
        return self.deferred.count + self.delayed

    @property
    def message_count(self) -> int:
        """Messages that came to this channel since the process started."""
        return self.edge.put_count - self._messages_before

    def _owed(self) -> Iterator[tuple[int, int]]:
        """Every (first, count) that is not finished. May walk the whole sequence: for empty and delete only."""
        for run in self.in_flight.runs():
            if run.loose is None:
                yield run.first + run.head, len(run)
            else:
                yield from ((ordinal, 1) for ordinal in run.loose.values())
        yield from ((message.ordinal, 1) for _, message in self.backlog.retry)
        yield from ((message.ordinal, 1) for _, message in self.deferred.items())
        yield from ((ordinal, 1) for ordinal in self.buried.ordinals())
        yield from ((ordinal, 1) for ordinal in self.edge.lane.ordinals(self.start, self.edge.distributed))
        yield from self.backlog.ahead(self.backlog.cursor)

    def check(self) -> None:
        """Raise AssertionError if a sentence above is false."""
        self.in_flight.check()
        self.deferred.check()
        self.backlog.check()
        self.dispatch.check()
        assert self.start <= self.backlog.cursor
        assert self.depth >= 0
        assert self.spent <= {message.ordinal for _, message in self.backlog.retry}
        owned = sum(consumer.in_flight for consumer in self.consumers.values())
        assert owned <= self.in_flight_count
        assert all(consumer in self.consumers for consumer in self.dispatch.ready)
        assert not (self.deleted and self.consumers)

    def __repr__(self) -> str:
        counts = f"{self.depth} ready, {self.in_flight_count} in flight, {self.deferred_count} deferred"
        return f"<Channel {self.name} at {self.backlog.cursor}: {counts}, {len(self.buried)} buried>"
