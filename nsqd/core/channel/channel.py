"""A channel: what NSQ's consumers read of a topic. It moves messages between four states, each in a class of its own:

    ready       Backlog: the sequence from the cursor on, and what comes back
    in flight   InFlight: delivered, and not answered
    deferred    Deferred: requeued with a delay (what was published with one waits in the topic's delay lane, for all channels)
    buried      Buried: delivered too often

A finished message is in none of them. Consumers act by commands.py, operators by acting.py, topic and clock by this file.
"""

from collections.abc import Callable, Iterator
from itertools import chain

from nsqd.core.channel.backlog import LOST_AT_ONCE, Backlog
from nsqd.core.channel.buried import Buried, Grave
from nsqd.core.channel.consumer import ELSEWHERE, GONE, Consumer, Sink
from nsqd.core.channel.dispatch import Dispatch
from nsqd.core.channel.inflight import InFlight, Owner, Run
from nsqd.core.measurement.latency import Latency
from nsqd.core.measurement.measures import Measures
from nsqd.core.measurement.outcomes import BURIED, REQUEUED, TIMED_OUT, Outcomes
from nsqd.core.message.frame import STAMP, with_attempts
from nsqd.core.reader import Batch, Counts, Kind, Parts
from nsqd.core.sequence.puts import Terms
from nsqd.core.timing.deferred import Deferred, Message

STOPPED = "in flight when the node stopped"  # why a message is buried that nobody handed back


class Channel:
    """See above. Created by Topic.channel. Implements Reader."""

    kind = Kind.CHANNEL
    takes_terms = False
    coming = 0  # all that was handed out is counted

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
        "in_flight",
        "journal",
        "latency",
        "measures",
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
        self.journal = parts.journal
        self.latency = latency  # from publish to FIN; None: it is not measured
        self.outcomes = outcomes  # likewise
        measured = latency is not None or outcomes is not None
        self.measures = Measures(latency, outcomes, parts.agenda) if measured else None
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
        self.dispatch.remove(consumer)
        consumer.sink = GONE
        if self.consumers.pop(consumer, None) is None:
            return False  # the channel was deleted first
        if self._limits.requeue_on_disconnect:
            for run in self.in_flight.runs(consumer):
                self.requeue_count += self._return(run, len(run), REQUEUED, "disconnected")
        return self.ephemeral and not self.consumers

    def refresh(self, consumer: Consumer) -> None:
        """The window or the sink of a consumer has changed: it may have room now. Needed if its room was at most 0."""
        if self.dispatch.refresh(consumer):
            self.wake()

    def freed(self, owner: Owner) -> None:
        """Messages that were in flight there are not any more. An owner that is gone is passed over."""
        consumer = self.consumers.get(owner)
        if consumer is not None and consumer not in self.dispatch.ready:
            self.refresh(consumer)

    # messages that are in no place any more

    def put_back(self, message: Message) -> None:
        """It is ready again."""
        self.backlog.put_back(message)
        self.wake()

    def wait(self, message: Message, due: int, now: int) -> None:
        """It is ready at `due` (monotonic ns); 0: now."""
        if due:
            self.deferred.push(due, message, now)
            self.watch_deferred()
        else:
            self.put_back(message)

    def bury(self, message_id: bytes, ordinal: int, attempts: int, reason: str) -> None:
        """It is given up."""
        self.journal.bury(ordinal, message_id, attempts, reason)
        self.note(BURIED, ordinal, message_id, attempts)
        self.buried.add(message_id, Grave(ordinal, attempts, reason, self._agenda.wall))

    def is_given_up(self, attempts: int) -> bool:
        """A message that has had so many deliveries, and comes back, is to be buried."""
        return 0 < self._max_attempts <= attempts

    def note(self, what: str, ordinal: int, message_id: bytes, attempts: int) -> None:
        """`what`: an outcome."""
        if self.measures is not None:
            self.measures.returned(what, ordinal, message_id, attempts)

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
        self.journal.finish_all(self.edge.distributed, list(self._owed()))
        self.start = self.edge.distributed
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
            self.dispatch.remove(consumer)
            consumer.sink.evicted()

    # after a restart

    def take_back(self, message: Message, due: int, now: int) -> None:
        """A message from before the cursor that is not finished: the next to be delivered, or at its time."""
        if due > now:
            self.deferred.push(due, message, now)
            self.watch_deferred()
        else:
            self.backlog.put_first(message)
            if self.is_given_up(message.attempts):  # its id is on disk, so it is buried when its turn comes
                self.spent.add(message.ordinal)

    # what the topic tells

    def extend(self, batch: Batch) -> None:
        """There is more: the edge is behind these messages now."""
        self.delayed += batch.delayed
        for first, end in self.backlog.bound(batch) if self._bounded else ():
            self.dropped_count += end - first
            self.journal.finish(first, end - first)
        self.wake()

    def expect(self, first: int, count: int, terms: Terms) -> None:
        """Nothing: messages have no terms here."""

    def skip(self, first: int, end: int, ordinary: int) -> None:
        """Messages first..end are not for this channel; `ordinary` of them were counted as ready."""
        self.backlog.skip(first, end, ordinary)

    def own(self, due: int, message: Message, now: int) -> None:
        """A message that waited in the topic's delay lane waits in this channel from now on, until `due`."""
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
                return []
            message, first, frames, ids = taken
            deadline = now + consumer.msg_timeout
            stamps = b"" if self.measures is None else b"".join([frame[STAMP] for frame in frames])
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
            self.watch(deadline)
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
        """Something here is due at `due` (monotonic ns): the scan must look by then."""
        if self.watched is None or due < self.watched[0]:
            self._agenda.watch(self, due)

    def watch_deferred(self) -> None:
        """Something was deferred."""
        due = self.deferred.wake_at()
        if due is not None:
            self.watch(due)

    def scan(self, now: int, limit: int) -> int:
        """Expire what is in flight and release what was deferred, up to about `limit` messages. Returns how many it moved."""
        served = self.deferred.approach(now, limit)
        while served < limit and (run := self.in_flight.take_due(now)) is not None:
            count = self._return(run, limit - served, TIMED_OUT, "timed out")
            self.timeout_count += count
            served += count
            if len(run):
                self.in_flight.put_back(run)
            self.freed(run.owner)
        released = self.deferred.pop_due(now, max(1, limit - served))
        for message in released:
            self.put_back(message)
        return served + len(released)

    def next_due(self) -> int | None:
        """When scan has something to do."""
        in_flight = self.in_flight.next_due() if self.in_flight.count else None
        deferred = self.deferred.wake_at() if self.deferred.count else None
        return min((due for due in (in_flight, deferred) if due is not None), default=None)

    def _return(self, run: Run, limit: int, what: str, reason: str) -> int:
        """Up to `limit` messages of a run are ready again, or buried. Returns how many. `what`: an outcome."""
        attempts, given_up = run.attempts, self.is_given_up(run.attempts)
        members = run.members(limit) if given_up or self.outcomes is not None else {}
        ordinals = self.in_flight.expire(run, limit)
        for name, ordinal in members.items():
            self.note(what, ordinal, name, attempts)
            if given_up:
                self.bury(name, ordinal, attempts, reason)
        for ordinal in () if given_up else ordinals:
            self.journal.requeue(ordinal, attempts, 0)
            self.put_back(Message(ordinal, attempts))
        return len(ordinals)

    # queries

    @property
    def depth(self) -> int:
        """Messages ready to be delivered."""
        return self.edge.ordinary - self.backlog.passed + len(self.backlog.retry)

    @property
    def backend_depth(self) -> int:
        """Of those, the ones that are on disk only."""
        return min(self.depth, self.backlog.cold)

    @property
    def in_flight_count(self) -> int:
        """Messages delivered, and neither finished nor handed back nor timed out."""
        return self.in_flight.count

    @property
    def deferred_count(self) -> int:
        """Messages that wait for their time: requeued with a delay, or published so."""
        return self.deferred.count + self.delayed

    def counts(self) -> Counts:
        return Counts(self.depth, self.in_flight_count, self.deferred_count, len(self.buried))

    @property
    def message_count(self) -> int:
        """Messages that came to this channel since the process started."""
        return self.edge.put_count - self._messages_before

    @property
    def key(self) -> tuple[str, str]:
        """What operators call it: its topic's name, and its own."""
        return self.topic_name, self.name

    def _owed(self) -> Iterator[tuple[int, int]]:
        """Every (first, count) that is not finished. May walk the whole sequence: for empty and delete only."""
        yield from self.in_flight.spans()
        for _, message in chain(self.backlog.retry, self.deferred.items()):
            yield message.ordinal, 1
        for ordinal in chain(self.buried.ordinals(), self.edge.lane.ordinals(self.start, self.edge.distributed)):
            yield ordinal, 1
        yield from self.backlog.ahead(self.backlog.cursor)

    def check(self) -> None:
        """Raise AssertionError if a sentence above is false."""
        for part in (self.backlog, self.in_flight, self.deferred, self.dispatch):
            part.check()
        assert self.start <= self.backlog.cursor
        assert self.depth >= 0
        assert self.spent <= {message.ordinal for _, message in self.backlog.retry}
        assert sum(consumer.in_flight for consumer in self.consumers.values()) <= self.in_flight_count
        assert all(consumer in self.consumers for consumer in self.dispatch.ready)
        assert not (self.deleted and self.consumers)

    def __repr__(self) -> str:
        return f"<Channel {self.name} at {self.backlog.cursor}: {self.counts()}>"
