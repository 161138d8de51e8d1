"""A channel: a position in its topic's sequence, plus the messages before it that are not finished.

Every message it has is ready, in flight, deferred or buried; finished ones are gone. What was requeued or timed out waits in
the retry lane and comes back at min(end, cursor + mem-queue-size), not behind ten million (specs/log-and-channel.md rule 20).
A read that is not in memory makes the channel wait (`reading`), never the turn.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from nsqd.core.channel.buried import Buried, Grave
from nsqd.core.channel.consumer import (
    ELSEWHERE,
    GONE,
    NOT_IN_FLIGHT,
    NOT_OWNER,
    SAME_REGION,
    SAME_ZONE,
    Consumer,
    Run,
    Sink,
)
from nsqd.core.message.frame import ID_SIZE, STAMP, message_id, with_attempts
from nsqd.core.observation.latency import Latency
from nsqd.core.observation.outcomes import BURIED, REQUEUED, TIMED_OUT, Outcomes
from nsqd.core.reader import Batch, Kind, Parts
from nsqd.core.sequence.extent import Extent
from nsqd.core.sequence.puts import Terms
from nsqd.core.sequence.spans import without
from nsqd.core.timing.deferred import Deferred, Message
from nsqd.core.timing.duequeue import SLACK, DueQueue

END_OF_ALL = 1 << 63  # no ordinal is as high
LOST_AT_ONCE = 100  # retried messages that turn out to be lost or buried before others get their turn: about 1 ms
STOPPED = "in flight when the node stopped"  # why a message is buried that nobody handed back


class Channel:
    """See above. Created by Topic.channel. Implements Reader."""

    kind = Kind.CHANNEL
    takes_terms = False

    __slots__ = (
        "_agenda",
        "_bounded",
        "_extent",
        "_holes",
        "_limits",
        "_max_attempts",
        "_messages_before",
        "_random_below",
        "buried",
        "consumers",
        "cursor",
        "deferred",
        "delayed",
        "deleted",
        "deliveries",
        "dropped_count",
        "edge",
        "ephemeral",
        "extents",
        "fresh",
        "in_flight",
        "in_flight_count",
        "journal",
        "latency",
        "leavers",
        "loose",
        "name",
        "number",
        "outcomes",
        "passed",
        "paused",
        "reading",
        "ready",
        "requeue_count",
        "retry",
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
        edge = parts.edge
        self.name = name
        self.topic_name = parts.topic
        self.number = parts.number  # never used again on this node
        self.ephemeral = ephemeral
        self.edge = edge
        self.extents = parts.extents
        self.journal = parts.journal
        self._agenda = parts.agenda
        self._limits = parts.limits
        self._max_attempts = parts.max_attempts
        self._bounded = bounded or ephemeral
        self._random_below = random_below
        self.paused = False
        self.deleted = False
        self.start = edge.distributed  # messages before it are not ours
        self.cursor = self.start  # ordinal of the next message to take that was never taken; <= edge.distributed
        self.passed = edge.ordinary  # of edge.ordinary, how many are behind the cursor or in a hole
        self.delayed = 0  # messages in the topic's delay lane that will come to us
        self.retry: deque[tuple[int, Message]] = deque()  # (cursor at which it is taken, message); cursors ascend
        self.spent: set[int] = set()  # ordinals: in flight at their last allowed delivery when the node stopped
        self.in_flight: DueQueue[Run] = DueQueue()  # every run in flight, by deadline
        self.in_flight_count = 0  # messages in those runs
        self.loose: dict[bytes, Run] = {}  # every message in flight whose run has fallen apart, by id
        self.fresh: list[
            Run
        ] = []  # all first deliveries in flight, and some that are over, ids ascending: to find an owner
        self.deferred = Deferred(parts.number)  # requeued with a delay
        self.buried = Buried()  # delivered too often
        self.consumers: dict[Consumer, None] = {}  # in the order of subscribing
        self.leavers: dict[Consumer, None] = {}  # gone, but with messages in flight until those time out
        self.ready: dict[Consumer, None] = {}  # all and only consumers with room; the next to be served first
        self.reading = False  # True: the store is fetching what comes next; nothing is taken meanwhile
        self.watched: tuple[int, int] | None = None  # (due, handle) of our entry in the scan's index
        self.requeue_count = 0
        self.timeout_count = 0
        self.dropped_count = 0  # messages an ephemeral channel had no room for
        self.deliveries = [0, 0, 0]  # by the consumer's distance, when delivery is topology-aware
        self.latency = latency  # from publish to FIN; None: nobody wants to know
        self.outcomes = outcomes  # likewise
        self._messages_before = edge.put_count
        self._holes: deque[tuple[int, int]] = deque()  # spans ahead of the cursor to be skipped, ascending, disjoint
        self._extent: Extent | None = None  # the one the cursor was in last

    # consumers

    def subscribe(self, sink: Sink, msg_timeout: int, sample_rate: int, distance: int = ELSEWHERE) -> Consumer:
        """A new consumer, with RDY 0."""
        consumer = Consumer(self, sink, msg_timeout, sample_rate, distance)
        self.consumers[consumer] = None
        return consumer

    def unsubscribe(self, consumer: Consumer) -> bool:
        """The consumer is gone. What it had in flight waits for its time-outs. True if the channel, ephemeral, is to go."""
        self.ready.pop(consumer, None)
        consumer.ready = 0
        consumer.sink = GONE
        if self.consumers.pop(consumer, self) is self:
            return False  # the channel was deleted first
        if self._limits.requeue_on_disconnect:
            self._take_back(consumer)
        if consumer.in_flight:
            self.leavers[consumer] = None
        return self.ephemeral and not self.consumers

    def _take_back(self, consumer: Consumer) -> None:
        """What the consumer has in flight is ready again at once, as if it had handed it back."""
        runs = [run for run in self.in_flight.values() if run.owner is consumer] if consumer.in_flight else ()
        for run in runs:
            self.requeue_count += self._return(run, len(run), REQUEUED, "disconnected")
            self.in_flight.remove(run.handle)

    def finished(self, run: Run, first: int, ids: bytes) -> None:
        """Messages first.. of a run, with these ids, are done with."""
        count = len(ids) // ID_SIZE
        self.journal.finish(first, count)
        if self.latency is None and self.outcomes is None:
            return
        wall = self._agenda.wall
        latencies = [wall - stamp for stamp in run.published(first, count)] if run.stamps else []
        if self.latency is not None and latencies:
            self.latency.record_many(latencies, self._agenda.now)
        if self.outcomes is not None:
            self.outcomes.finished(first, ids, run.attempts, latencies, wall)

    def discarded(self, ordinal: int) -> None:
        """A message was sampled out."""
        self.journal.finish(ordinal, 1)

    def requeued(self, message_id: bytes, ordinal: int, attempts: int, delay: int, now: int) -> None:
        """A consumer handed a message back."""
        self.requeue_count += 1
        self._note(REQUEUED, ordinal, message_id, attempts)
        if self._is_given_up(attempts):
            self.bury(message_id, ordinal, attempts, "requeued")
            return
        due = now + delay if delay else 0
        self.journal.requeue(ordinal, attempts, due)
        self.wait(Message(ordinal, attempts), due, now)

    def wait(self, message: Message, due: int, now: int) -> None:
        """A message is ready at `due`; 0: now."""
        if due:
            self.deferred.push(due, message, now)
            self._watch_deferred()
        else:
            self._retry(message)

    def why_not(self, message_id: bytes) -> str:
        """Why a consumer that does not have the message in flight cannot finish it."""
        if message_id in self.loose:
            return NOT_OWNER
        place = bisect_left(self.fresh, message_id, key=Run.last_id)
        if place < len(self.fresh) and self.fresh[place].holds(message_id):
            return NOT_OWNER
        return NOT_IN_FLIGHT

    # operators

    def pause(self, paused: bool) -> None:
        """Stop or resume deliveries; all else goes on."""
        self.paused = paused
        self.journal.pause(paused)
        if paused:
            for consumer in self.consumers:
                consumer.sink.flush()
        self.wake()

    def empty(self) -> None:
        """Drop all messages: ready, in flight, deferred."""
        end = self.edge.distributed
        self.journal.finish_all(end, list(self._owed()))
        self.start = self.cursor = end
        self.passed = self.edge.ordinary
        self.delayed = 0
        self.retry.clear()
        self.spent.clear()
        self.deferred.clear()
        self.buried.clear()
        self.in_flight.clear()
        self.in_flight_count = 0
        self.loose.clear()
        self.fresh.clear()
        self._holes.clear()
        self._extent = None
        for consumer in (*self.consumers, *self.leavers):
            consumer.clear()
            consumer.refresh()
        self.leavers.clear()

    def delete(self) -> None:
        """Drop all messages and disconnect the consumers. Called by the topic."""
        self.empty()
        self.journal.drop()
        self.deleted = True
        self.ready.clear()
        consumers, self.consumers = list(self.consumers), {}
        for consumer in consumers:
            consumer.ready = 0
            consumer.sink.evicted()

    # after a restart

    def resume(self, start: int, cursor: int, ready: int, paused: bool) -> None:
        """It stands here, with `ready` messages from the cursor to the edge."""
        self.start, self.cursor, self.paused = start, cursor, paused
        self.passed = self.edge.ordinary - ready

    def take_back(self, message: Message, due: int, now: int) -> None:
        """A message from before the cursor that is not finished: the next to be delivered, or at its time."""
        if due > now:
            self.deferred.push(due, message, now)
            self._watch_deferred()
        else:
            self.retry.append((self.cursor, message))
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
            self._bound(batch)
        self.wake()

    def _bound(self, batch: Batch) -> None:
        """A memory-only channel holds mem-queue-size ready messages; of the new ones without a delay the rest is dropped."""
        excess = min(batch.ordinary, self.depth - self._limits.mem_queue_size)
        if excess <= 0:
            return
        self.dropped_count += excess
        for start, stop in self._newest(batch, excess):
            self.skip(start, stop, stop - start)
            self.journal.finish(start, stop - start)

    def _newest(self, batch: Batch, count: int) -> list[tuple[int, int]]:
        """The last `count` messages without a delay of a batch, as ascending spans."""
        if not batch.delayed:
            return [(batch.end - count, batch.end)]
        delayed = self.edge.lane.delayed()
        plain = [ordinal for ordinal in range(batch.first, batch.end) if ordinal not in delayed]
        return [(ordinal, ordinal + 1) for ordinal in plain[-count:]]

    def expect(self, first: int, count: int, terms: Terms) -> None:
        """Nothing: messages have no terms here."""

    def skip(self, first: int, end: int, ordinary: int) -> None:
        """Messages first..end, ahead of the cursor, are not for us; `ordinary` of them were counted as ready."""
        self.passed += ordinary
        if self._holes and self._holes[-1][1] == first:
            self._holes[-1] = (self._holes[-1][0], end)
        else:
            self._holes.append((first, end))

    def pull(self, ordinal: int) -> bool:
        """Take a message out of the sequence ahead of the cursor. False if it is not there, or not to be given out by it."""
        if not any(
            first <= ordinal < first + count for first, count in self.ahead(max(self.cursor, ordinal), ordinal + 1)
        ):
            return False
        place = bisect_left(self._holes, (ordinal, ordinal + 1))
        self._holes.insert(place, (ordinal, ordinal + 1))
        self.passed += 1
        return True

    def own(self, due: int, message: Message, now: int) -> None:
        """What waits in the topic's delay lane waits here alone."""
        self.delayed -= 1
        self.wait(message, due, now)

    def release(self, message: Message) -> None:
        """A message's delay at the topic is over."""
        self.delayed -= 1
        self._retry(message)

    # delivery

    def wake(self) -> None:
        """There may be something to deliver, to somebody."""
        if self.ready and not self.paused and not self.reading and self.depth > 0:
            self._agenda.awake[self] = None

    def serve(self, now: int) -> None:
        """Give each ready consumer its share, once. Wakes the channel again if there is more to give at once."""
        before = self.cursor
        if self._limits.topology_aware:
            self._serve_by_distance(now)
        else:
            self._serve(len(self.ready), now)
        if self.cursor != before:
            self.journal.advance(self.cursor)

    def _serve_by_distance(self, now: int) -> None:
        """The nearest consumers first: others get what these have no room for (specs/nsq.md a12)."""
        for distance in (SAME_ZONE, SAME_REGION, ELSEWHERE):
            group = [consumer for consumer in self.ready if consumer.distance == distance]
            before = sum(consumer.message_count for consumer in group)
            again, left = group, self.depth + 1
            while again and left > self.depth > 0:
                left = self.depth
                for consumer in again:  # to the front, in their order
                    del self.ready[consumer]
                self.ready = dict.fromkeys(again) | self.ready
                self._serve(len(again), now)
                # The shares were too small if somebody had no room for his. One that samples is served once: it could
                # go on through the whole backlog.
                again = [consumer for consumer in again if consumer in self.ready and not consumer.sample_rate]
            self.deliveries[distance] += sum(consumer.message_count for consumer in group) - before

    def _serve(self, waiting: int, now: int) -> None:
        """Give each of the first `waiting` ready consumers its share, once."""
        while waiting > 0 and self.ready and not self.paused and not self.reading:
            depth = self.depth
            if depth <= 0:
                break
            consumer = next(iter(self.ready))
            del self.ready[consumer]  # and behind the others if it stays ready: the start rotates
            self._give(consumer, -(-depth // waiting), now)
            waiting -= 1
            consumer.refresh()

    def _give(self, consumer: Consumer, share: int, now: int) -> None:
        """Take up to `share` messages, as window and output buffer allow, and hand them over in one piece."""
        count = min(share, consumer.ready - consumer.in_flight)
        room = consumer.sink.room()
        frames: list[bytes] = []
        size = 0
        while count > 0 and room > size:
            taken = self._take(consumer, 1 if consumer.sample_rate else count, room - size, now)
            if not taken:
                break
            count -= len(taken)
            if consumer.sample_rate and self._random_below(100) > consumer.sample_rate:
                consumer.discard(message_id(taken[0]))
                continue
            frames += taken
            size += sum(map(len, taken))
        if frames:
            consumer.message_count += len(frames)
            consumer.sink.deliver(frames, size, now)

    def _take(self, consumer: Consumer, count: int, room: int, now: int) -> list[bytes]:
        """The next messages, put in flight: a retried one, or a stretch of the sequence.

        At least one if there is any; none if it is being read, or if LOST_AT_ONCE retried ones were lost or buried.
        """
        lost = 0
        while self.retry or self.cursor < self.edge.distributed:
            if self.retry and self.retry[0][0] <= self.cursor:
                retried = self._take_retry(consumer, now)
                if retried is not None:
                    return retried
                lost += 1
                if lost == LOST_AT_ONCE:
                    return []
                continue
            if self._holes and self._holes[0][0] <= self.cursor:
                self.cursor = self._holes.popleft()[1]
                continue
            extent = self._extent
            if extent is None or not extent.first <= self.cursor < extent.end:
                extent = self._extent = self.extents.read(self.cursor)
                if extent is None:
                    self.reading = True
                    return []
            if extent.first > self.cursor:  # delayed messages, which came by the retry lane and are finished already
                self.cursor = min(extent.first, self._limit())
                continue
            if extent.delayed:  # the topic's delay lane hands these out
                self.cursor = min(extent.end, self._limit())
                continue
            return self._take_stretch(consumer, extent, min(count, max(1, room // extent.largest)), now)
        self.passed = (
            self.edge.ordinary
        )  # what was counted and did not come was damaged on disk: nobody shall wait for it
        return []

    def _limit(self) -> int:
        """The ordinal before which the cursor must stop."""
        limit = self.edge.distributed
        if self.retry:
            limit = min(limit, self.retry[0][0])
        return min(limit, self._holes[0][0]) if self._holes else limit

    def _take_stretch(self, consumer: Consumer, extent: Extent, count: int, now: int) -> list[bytes]:
        start = self.cursor - extent.first
        stop = min(start + count, self._limit() - extent.first, len(extent.frames))
        frames = extent.frames[start:stop]
        ids = bytes(extent.ids[start * ID_SIZE : stop * ID_SIZE])
        run = Run(consumer, self.cursor, ids, 1, now, now + consumer.msg_timeout)
        if self.latency is not None or self.outcomes is not None:
            run.stamps = b"".join([frame[STAMP] for frame in frames])
        consumer.hold(run, fresh=True)
        if len(self.fresh) > 2 * len(self.in_flight) + SLACK:
            self.fresh = [run for run in self.fresh if run.loose is None and len(run)]
        self.cursor += stop - start
        self.passed += stop - start
        if self.cursor == extent.end:
            self._extent = None  # an idle channel shall not keep what everybody has finished
        return frames

    def _take_retry(self, consumer: Consumer, now: int) -> list[bytes] | None:
        """The first retried message; none while it is being read; None if it is damaged on disk, or is buried now."""
        message = self.retry[0][1]
        extent = self.extents.read(message.ordinal)
        if extent is None:
            self.reading = True
            return []
        self.retry.popleft()
        if extent.first > message.ordinal:
            return None
        index = message.ordinal - extent.first
        attempts = message.attempts + 1
        ids = bytes(extent.ids[index * ID_SIZE : (index + 1) * ID_SIZE])
        if self.spent and message.ordinal in self.spent:
            self.spent.discard(message.ordinal)
            self.bury(ids, message.ordinal, message.attempts, STOPPED)
            return None
        frame = extent.frames[index]
        self.journal.requeue(message.ordinal, attempts, 0)
        run = Run(consumer, message.ordinal, ids, attempts, now, now + consumer.msg_timeout)
        if self.latency is not None or self.outcomes is not None:
            run.stamps = frame[STAMP]
        consumer.hold(run)
        return [frame if attempts == 1 else with_attempts(frame, attempts)]

    def read_completed(self) -> None:
        """What we waited for can be read now."""
        self.reading = False
        self.wake()

    # time

    def watch(self, due: int) -> None:
        """Something here is due at `due`: the scan must look by then."""
        if self.watched is None or due < self.watched[0]:
            self._agenda.watch(self, due)

    def scan(self, now: int, limit: int) -> int:
        """Expire what is in flight and release what was deferred, up to about `limit` messages. Returns how many it moved."""
        served = self.deferred.approach(now, limit)
        while served < limit and (runs := self.in_flight.pop_due(now, 1)):
            served += self._expire(runs[0], limit - served)
        released = self.deferred.pop_due(now, max(1, limit - served))
        for message in released:
            self._retry(message)
        return served + len(released)

    def next_due(self) -> int | None:
        """When scan has something to do."""
        in_flight, deferred = self.in_flight.next_due(), self.deferred.wake_at()
        if in_flight is None or deferred is None:
            return deferred if in_flight is None else in_flight
        return min(in_flight, deferred)

    def _expire(self, run: Run, limit: int) -> int:
        count = self._return(run, limit, TIMED_OUT, "timed out")
        if len(run):  # its entry was popped; the rest is due as before
            run.handle = self.in_flight.push(run.deadline, run)
        self.timeout_count += count
        if run.owner in self.consumers:
            run.owner.refresh()
        return count

    def _return(self, run: Run, limit: int, what: str, reason: str) -> int:
        """Up to `limit` messages of a run are ready again, or buried. Returns how many. `what`: an outcome."""
        attempts, given_up = run.attempts, self._is_given_up(run.attempts)
        members = run.members(limit) if given_up or self.outcomes is not None else {}
        ordinals = run.owner.expire(run, limit)
        for name, ordinal in members.items():
            self._note(what, ordinal, name, attempts)
            if given_up:
                self.bury(name, ordinal, attempts, reason)
        for ordinal in () if given_up else ordinals:
            self.journal.requeue(ordinal, attempts, 0)
            self._retry(Message(ordinal, attempts))
        return len(ordinals)

    def _note(self, what: str, ordinal: int, message_id: bytes, attempts: int) -> None:
        if self.outcomes is not None:
            self.outcomes.returned(what, ordinal, message_id, attempts, self._agenda.wall)

    # dead letters

    def kick(self, message_ids: Iterable[bytes]) -> int:
        """Make buried messages ready again, as if they had never been delivered. Returns how many were buried."""
        graves = self.buried.take(message_ids)
        self.journal.promise()
        for grave in graves:
            self.journal.requeue(grave.ordinal, 0, 0)
            self._retry(Message(grave.ordinal, 0))
        return len(graves)

    def finish_buried(self, message_ids: Iterable[bytes]) -> int:
        """Be done with buried messages. Returns how many were buried."""
        graves = self.buried.take(message_ids)
        self.journal.promise()
        for grave in graves:
            self.journal.finish(grave.ordinal, 1)
        return len(graves)

    def _is_given_up(self, attempts: int) -> bool:
        return 0 < self._max_attempts <= attempts

    def bury(self, message_id: bytes, ordinal: int, attempts: int, reason: str) -> None:
        """Give up on a message that is in no other place."""
        self.journal.bury(ordinal, message_id, attempts, reason)
        self._note(BURIED, ordinal, message_id, attempts)
        self.buried.add(message_id, Grave(ordinal, attempts, reason, self._agenda.wall))

    def _retry(self, message: Message) -> None:
        self.retry.append((min(self.edge.distributed, self.cursor + self._limits.mem_queue_size), message))
        self.wake()

    def _watch_deferred(self) -> None:
        due = self.deferred.wake_at()
        if due is not None:
            self.watch(due)

    # queries

    @property
    def depth(self) -> int:
        """Messages ready to be delivered."""
        return self.edge.ordinary - self.passed + len(self.retry)

    @property
    def backend_depth(self) -> int:
        """Of those, the ones that are on disk only."""
        return min(self.depth, self.extents.cold(self.cursor, self.edge.distributed))

    @property
    def deferred_count(self) -> int:
        """Messages that wait for their time: requeued with a delay, or published so."""
        return self.deferred.count + self.delayed

    @property
    def message_count(self) -> int:
        """Messages that came to this channel since the process started."""
        return self.edge.put_count - self._messages_before

    @property
    def key(self) -> tuple[str, str]:
        """What operators call it: its topic's name, and its own."""
        return self.topic_name, self.name

    @property
    def skips(self) -> bool:
        """Something from the cursor on is not for us."""
        return bool(self._holes)

    def holes(self) -> list[tuple[int, int]]:
        """Spans (first, end) from the cursor on that are to be skipped."""
        return list(self._holes)

    def _owed(self) -> Iterator[tuple[int, int]]:
        """Every (first, count) that is not finished. May walk the whole sequence: for empty and delete only."""
        for run in self.in_flight.values():
            if run.loose is None:
                yield run.first + run.head, len(run)
            else:
                yield from ((ordinal, 1) for ordinal in run.loose.values())
        yield from ((message.ordinal, 1) for _, message in self.retry)
        yield from ((message.ordinal, 1) for _, message in self.deferred.items())
        yield from ((ordinal, 1) for ordinal in self.buried.ordinals())
        yield from ((ordinal, 1) for ordinal in self.edge.lane.ordinals(self.start, self.edge.distributed))
        yield from self.ahead(self.cursor)

    def ahead(self, start: int, end: int = END_OF_ALL) -> Iterator[tuple[int, int]]:
        """Every (first, count) from `start` on, not before the cursor, that will be taken as it comes by."""
        for first, stop, delayed in self.extents.extents(start, min(end, self.edge.distributed)):
            if not delayed:
                yield from ((low, high - low) for low, high in without(first, stop, self._holes))

    def check(self) -> None:
        """Raise AssertionError if a sentence above is false."""
        self.in_flight.check()
        self.deferred.check()
        assert self.start <= self.cursor <= self.edge.distributed
        assert self.in_flight_count == sum(map(len, self.in_flight.values()))
        assert self.in_flight_count == sum(c.in_flight for c in (*self.consumers, *self.leavers))
        assert all(consumer.in_flight for consumer in self.leavers)
        assert all(run.loose is not None and message_id in run.loose for message_id, run in self.loose.items())
        assert [run.last for run in self.fresh] == sorted(run.last for run in self.fresh)
        fresh = {id(run) for run in self.fresh}
        assert all(id(run) in fresh for consumer in self.consumers for run in consumer.runs)
        assert self.spent <= {message.ordinal for _, message in self.retry}
        positions = [position for position, _ in self.retry]
        assert positions == sorted(positions)
        assert all(position <= self.edge.distributed for position in positions)
        assert self.depth >= 0
        assert all(consumer in self.consumers for consumer in self.ready)
        assert not (self.deleted and self.consumers)
        for consumer in self.consumers:
            consumer.check()
