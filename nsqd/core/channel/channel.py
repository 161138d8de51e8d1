"""The channel: one named stream of a topic's messages, which the consumers subscribed to the channel share.

A channel moves its messages between four states, and each state has a class of its own:

    ready       Backlog: the topic's sequence from the cursor on, and messages that came back
    in flight   InFlight: delivered to a consumer, which has not answered yet
    deferred    Deferred: requeued with a delay (a message published with a delay waits in the topic's delay queue)
    buried      Buried: dead letters, which failed too often (failures.py)

A finished message is in none of the four states. The *distributed offset* is the ordinal up to which the topic has distributed
messages to its readers, and the *cursor* is the ordinal up to which this channel has taken them. A channel *references* a
message until the message is finished or dropped. Consumers change a channel through commands.py and operators through
actions.py.

See docs/contributing/design/channel.md#states-of-a-message-in-a-channel.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from nsqd.core.channel import failures
from nsqd.core.channel.backlog import LOST_AT_ONCE, Backlog, GroupBatch
from nsqd.core.channel.buried import EXPIRED, OVERFLOW, Buried, DeadLetter
from nsqd.core.channel.consumer import CLOSED_SINK, ELSEWHERE, Consumer, ConsumerSink
from nsqd.core.channel.dispatch import Dispatch
from nsqd.core.channel.expiry import DROPPED_AT_ONCE, Expiry
from nsqd.core.channel.inflight import DeliveryOwner, InFlight, Run, split_ids
from nsqd.core.channel.ordering import ordered
from nsqd.core.channel.unfinished import Unfinished, release_all
from nsqd.core.measurement.latency import Latency
from nsqd.core.measurement.measures import Measures
from nsqd.core.measurement.outcomes import BURIED, REQUEUED, TIMED_OUT, Outcomes
from nsqd.core.message.frame import ID_SIZE, STAMP, message_id, with_attempts
from nsqd.core.reader import Counts, DistributedBatch, Parts, ReaderKind, ReaderSettings
from nsqd.core.sequence.put_batch import JobOptions
from nsqd.core.sequence.spans import runs
from nsqd.core.timing.agenda import Agenda
from nsqd.core.timing.deferred import Deferred, Message
from nsqd.core.timing.pause import Pause
from nsqd.core.timing.throttle import Throttle, limit
from penstock.protocol.names import is_ephemeral
from shared.topic_config import NO_TOPIC, OnBury, OnExpire, Ordering, Overflow

NO_ORDER = ReaderSettings().order
BURIED_AT_ONCE = 1000  # messages of a batch that a full channel buries: 5 ms
DROPPED_MORE = 1000  # messages that a full channel drops in addition to as many as came


class Channel:
    """One channel of a topic, with its messages and its consumers. Topic.channel creates it. Implements Reader."""

    kind = ReaderKind.CHANNEL
    takes_job_options = False
    pending_count = 0  # none: `counts` covers all distributed messages

    __slots__ = (
        "_agenda", "_bounded", "_examines", "_limits", "_messages_before", "_random_below", "backlog", "buried", "consumers",
        "deferred", "delayed", "deleted", "dispatch", "dropped_count", "ephemeral", "expiry", "in_flight", "journal", "key",
        "latency", "lost_consumers", "measures", "name", "number", "offsets", "outcomes", "overflow_due", "paused",
        "requeue_count", "scan_entry", "settings", "shards", "start", "throttle", "timeout_count", "topic_name",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        parts: Parts,
        latency: Latency | None,
        outcomes: Outcomes | None,
    ) -> None:
        self.name = name
        self.topic_name = parts.topic
        self.key = parts.topic, name  # by which operators know the channel
        self.number = parts.number  # never used again on this node
        self.ephemeral = is_ephemeral(name)  # True: it is deleted when its last consumer leaves
        self.offsets = parts.offsets
        self.journal = parts.journal
        self.latency = latency  # time from publish to FIN; None: not measured
        self.outcomes = outcomes  # counts of what became of the messages; None: not measured
        measured = latency is not None or outcomes is not None
        self.measures = Measures(latency, outcomes, parts.agenda) if measured else None
        self._agenda = parts.agenda
        self._limits = parts.limits
        self._random_below = parts.random_below
        self._bounded = self.ephemeral or is_ephemeral(parts.topic)  # True: it is in memory only
        self._examines = self._bounded  # True: `_examine` looks at each batch
        self.start = parts.offsets.distributed  # messages before it are not for this channel
        self.backlog = Backlog(parts.offsets, parts.extents, parts.limits.mem_queue_size)
        self.in_flight = InFlight()
        self.deferred = Deferred(parts.number)  # messages requeued with a delay
        self.delayed = 0  # messages in the topic's delay queue that will be released to this channel
        self.buried = Buried()  # messages that failed too often
        self.consumers: dict[DeliveryOwner, Consumer] = {}  # in the order of subscribing; each consumer is its own key
        self.dispatch = Dispatch(parts.limits.topology_aware, parts.random_below)
        # the channels of this name in all logs, this one first: see window.py
        self.shards: tuple[Channel, ...] = (self,)
        self.throttle: Throttle | None = None  # of the channel and its shards; None: nothing limits deliveries
        self.paused: Pause | None = None
        self.deleted = False
        self.scan_entry: tuple[int, int] | None = None  # (due, handle) of this channel's entry in the agenda
        self.requeue_count = self.timeout_count = 0  # messages
        self.lost_consumers = 0  # that disconnected with messages in flight
        self.dropped_count = 0  # messages that a bounded channel had no room for
        self._messages_before = parts.offsets.put_count
        self.expiry: Expiry | None = None  # of messages that are too old; None: they have no end
        self.overflow_due: int | None = None  # when the scan drops more messages beyond the limits (monotonic ns)
        self.settings = ReaderSettings()
        self.configure(parts.settings)

    # consumers

    def subscribe(
        self,
        sink: ConsumerSink,
        msg_timeout: int,
        sample_rate: int,
        distance: int = ELSEWHERE,
        takes_headers: bool = False,
    ) -> Consumer:
        """Add and return a new consumer with an RDY count of 0. `msg_timeout`: ns until an unanswered delivery times out."""
        consumer = Consumer(sink, msg_timeout, sample_rate, distance, takes_headers)
        self.consumers[consumer] = consumer
        self.dispatch.join(consumer)
        return consumer

    def unsubscribe(self, consumer: Consumer) -> bool:
        """Remove a consumer. Return True if the channel is ephemeral and has no consumer left: then it is to be deleted."""
        if not self._agenda.is_stopping:
            failures.note_lost(self.in_flight, consumer)
            self.lost_consumers += consumer.in_flight > 0
        self.dispatch.remove(consumer)
        consumer.sink = CLOSED_SINK
        if self.consumers.pop(consumer, None) is None:
            return False  # the channel was deleted first
        # else its messages stay in flight until they time out
        if self._limits.requeue_on_disconnect and not self._agenda.is_stopping:
            self.return_all(consumer)
        return self.ephemeral and not self.consumers

    def return_all(self, consumer: Consumer) -> None:
        """Make all messages ready again that a consumer which is gone has in flight, or bury them."""
        for run in self.in_flight.runs(consumer):
            self.requeue_count += self._return(run, len(run), REQUEUED, failures.LOST, self._agenda.now)
        if self.throttle is not None:
            self.throttle.wake()

    def refresh(self, consumer: Consumer) -> None:
        """Look again whether a consumer has room after its RDY count, sink or messages in flight changed; wake the channel."""
        if self.dispatch.refresh(consumer):
            self.wake()
        if self.throttle is not None:
            self.throttle.wake()

    def note_room(self, owner: DeliveryOwner) -> None:
        """Note that messages of `owner` are no longer in flight, so it may have room again. Ignore an owner that has left."""
        consumer = self.consumers.get(owner)
        if consumer is not None and consumer not in self.dispatch.ready:
            self.refresh(consumer)
        elif self.throttle is not None:
            self.throttle.wake()

    def configure(self, settings: ReaderSettings) -> None:
        old, self.settings = self.settings, settings
        limits = settings.concurrency, settings.rate
        if limits != (old.concurrency, old.rate) and self.dispatch.leads(self):
            limit(self, *limits, self._agenda.now)
        self._begin_expiry(self.expiry is not None and self.expiry.is_mixed)
        if (settings.dead_letter, settings.on_expire) != (old.dead_letter, old.on_expire):
            self.forward_dead_letters()
        # messages that are in flight are not affected
        if (settings.order, settings.on_bury) != (old.order, old.on_bury):
            self.backlog = ordered(self.backlog, settings, self.journal, lambda: self._agenda.now, self.schedule_scan)
            self._expect_heads()
            self.wake()
        if self._examines:  # in the new order
            self.backlog.extended()
            self._keep_bounds(DROPPED_MORE)

    def revived(self, now: int) -> None:
        """Take account of the messages that a restart has given the channel. `now`: monotonic ns."""
        self.forward_dead_letters()
        self._expect_heads()
        self.backlog.revived()
        end = self.offsets.distributed
        if self.backlog.extents.next_with_headers(self.backlog.cursor, end) < end:
            self.expect_ttl()
        self._watch_expiry(now)

    def _expect_heads(self) -> None:
        """If groups matter, note for which messages other ones of their group wait: the channel did not look at them before."""
        if not self.backlog.is_grouped:
            return
        waiting = [message.ordinal for _, message in self.deferred.items() if message.attempts]
        in_flight: list[int] = []
        for run in self.in_flight.runs():
            in_flight += run.ordinals()
            run.groups = ()
        held = self.buried.ordinals() if self.settings.on_bury is OnBury.HOLD else ()
        self.backlog.expect_heads(in_flight, [*waiting, *held])

    def ended(self, ordinals: Sequence[int], groups: Sequence[int] = ()) -> None:
        """Let the groups of messages continue, if groups matter: the messages are finished. `groups`: see Backlog.ended."""
        if self.backlog.is_grouped and self.backlog.ended(ordinals, groups):
            self.wake()

    def keep_heads(self, run: Run, ordinals: Iterable[int]) -> None:
        """Note the groups of messages of a run, if groups matter: they are taken out of it, and are not finished."""
        if run.groups and self.backlog.is_grouped:
            self.backlog.keep_heads({ordinal: run.groups_of(ordinal, 1)[0] for ordinal in ordinals})

    # messages that were taken out of one state and enter another

    def come_back(self, message: Message, due: int, now: int) -> None:
        """Record that a message came back, and defer it until `due` (monotonic ns); 0: make it ready at once."""
        self.journal.requeue((message.ordinal,), message.attempts, message.failures, due)
        if self.backlog.is_grouped and self.backlog.came_back(message.ordinal):
            self.wake()
        self.defer(message, due, now)

    def put_back(self, message: Message) -> None:
        """Make a message ready again, in the retry queue of the backlog, and wake the channel."""
        self.backlog.put_back(message)
        self.wake()

    def defer(self, message: Message, due: int, now: int) -> None:
        """Defer a message until `due` (monotonic ns), or make it ready at once if `due` is 0."""
        if due:
            self.deferred.push(due, message, now)
            self.schedule_deferred()
        else:
            self.put_back(message)

    def fail(self, message_id: bytes, message: Message, reason: str, now: int, delay: int = 0) -> None:
        """Deliver a message that has just failed again, after `delay` ns or as the settings say, or bury it."""
        if self.settings.is_given_up(message.failures):
            self.bury(message_id, message, reason)
            return
        delay = delay or self.settings.retry.delay(message.failures, self._random_below)
        self.come_back(message, now + delay if delay else 0, now)

    def bury(self, message_id: bytes, message: Message, reason: str) -> None:
        """Bury a message as a dead letter: record it in the log, and keep it with the reason."""
        ordinal, attempts, failed = message.ordinal, message.attempts, message.failures
        self.journal.bury(ordinal, message_id, attempts, failed, reason)
        self.count_outcome(BURIED, ordinal, message_id, attempts)
        self.buried.add(message_id, DeadLetter(ordinal, attempts, reason, self._agenda.wall, failed))
        if self.forwards(reason):
            self._agenda.dead_letters.setdefault(self, deque()).append(message_id)
        if self.settings.on_bury is OnBury.SKIP or not self.backlog.is_ordered:
            self.ended((ordinal,))

    def forwards(self, reason: str) -> bool:
        """Return True if messages that were buried with this reason go to the dead-letter topic."""
        if self.settings.dead_letter == NO_TOPIC:
            return False
        expires = reason == EXPIRED and self.settings.on_expire is OnExpire.FORWARD
        return expires or reason == OVERFLOW or reason in failures.REASONS

    def forward_dead_letters(self) -> None:
        """Have all messages that are buried, but not by an operator, go to the dead-letter topic, if the settings name one."""
        failed = deque(name for name, letter in self.buried.items() if self.forwards(letter.reason))
        self._agenda.dead_letters.pop(self, None)
        if failed:
            self._agenda.dead_letters[self] = failed

    def count_outcome(self, what: str, ordinal: int, message_id: bytes, attempts: int) -> None:
        """Count an outcome of a message if the channel is measured. `what`: REQUEUED, TIMED_OUT or BURIED of outcomes.py."""
        if self.measures is not None:
            self.measures.returned(what, ordinal, message_id, attempts)

    def count_with(self, local: Channel) -> None:
        """Count as a shard of `local` from now on.

        All that this channel has came now, and latencies are recorded where those of `local` are: percentiles cannot be added.
        """
        self._messages_before = self.offsets.put_count - sum(self.counts())
        self.throttle = local.throttle
        if local.latency is not None:
            self.latency = local.latency
            self.measures = Measures(local.latency, self.outcomes, self._agenda)

    # actions of operators

    def pause(self, paused: Pause | None) -> None:
        """Stop deliveries; None: resume them. Everything else continues: messages still arrive, finish and time out."""
        self.paused = paused
        self.journal.pause(paused)
        if paused:
            for consumer in self.consumers.values():
                consumer.sink.flush()
        self.wake()

    def empty(self) -> None:
        """Drop all messages in all states and all logs: ready, in flight, deferred and buried."""
        for shard in self.shards:
            shard._empty()

    def _empty(self) -> None:
        self.journal.finish_all(self.offsets.distributed)
        self._agenda.reclaimer.add(release_all(self._give_up(), self.journal))
        self.start = self.offsets.distributed
        self.delayed = 0
        self.in_flight.clear()
        for consumer in self.consumers.values():
            self.refresh(consumer)

    def _give_up(self) -> Unfinished:
        """Return everything that is not finished, and begin without it. The messages in flight stay."""
        delayed = self.offsets.delay_queue.snapshot() if self.delayed else []
        given_up = Unfinished(
            list(self.in_flight.spans()), *self.backlog.give_up(), self.deferred, self.buried, self.start, delayed
        )
        self.deferred, self.buried = Deferred(self.number), Buried()
        return given_up

    def delete(self) -> None:
        """Drop all messages and disconnect the consumers. The topic calls this when it deletes the channel.

        Shards stay, without consumers.
        """
        self.dispatch.close()
        self.empty()
        self.journal.drop()
        self.deleted = True
        self._agenda.cancel_scan(self)
        consumers, self.consumers = list(self.consumers.values()), {}
        for consumer in consumers:
            self.dispatch.remove(consumer)
            consumer.sink.evicted()

    # calls from the topic

    def extend(self, batch: DistributedBatch) -> None:
        """Take in the messages that the topic's distributed offset has just passed.

        A bounded channel drops those that it has no room for. A channel without a ready consumer has little to do: a topic may
        have hundreds of them.
        """
        if batch.delayed:
            self.delayed += batch.delayed
        if self._examines:
            if self._bounded:
                self._drop(self.backlog.drop_newest(batch, self.backlog.excess))
            if self.settings.overflow is Overflow.BURY:
                self._bury_newest(batch)
            self.backlog.extended()
            self._keep_bounds(min(batch.end - batch.first + DROPPED_MORE, DROPPED_AT_ONCE))
        if self.dispatch.ready:
            self.wake()

    def _keep_bounds(self, most: int) -> int:
        """Drop up to `most` messages beyond the length that the settings allow, and watch the age of the others.

        Return their number. The scan drops the others.
        """
        self.overflow_due, dropped = None, 0
        if self.settings.overflow is Overflow.DROP_OLDEST and (excess := self._excess):
            dropped = self._drop_from_sequence(self.backlog.drop_oldest(min(excess, most)))
            if 0 < dropped < excess:
                self.overflow_due = self._agenda.now
                self.schedule_scan(self.overflow_due)
        if self.expiry is not None and self.expiry.due is None:
            self._watch_expiry(self._agenda.now)
        return dropped

    @property
    def _excess(self) -> int:
        """Return the number of messages beyond the limits of the settings."""
        count = self.depth + self.in_flight.count + self.deferred_count
        return self.settings.excess(count, self.backlog.extents.mean_size)

    def _bury_newest(self, batch: DistributedBatch) -> None:
        """Bury messages of `batch` beyond the limits of the settings. Those that are on disk only stay ready."""
        excess, extents = self._excess, self.backlog.extents
        if excess and not extents.cold(batch.first, batch.end):
            for first, end in self.backlog.drop_newest(batch, min(excess, BURIED_AT_ONCE)):
                for ordinal in range(first, end):
                    self.bury(message_id(extents.frame_in_memory(ordinal, False)), Message(ordinal, 0), OVERFLOW)

    def _drop_from_sequence(self, spans: list[tuple[int, int]]) -> int:
        """Drop these messages, and return their number."""
        self._drop(spans)
        if spans:
            self.journal.advance(self.backlog.cursor)
        return sum(end - first for first, end in spans)

    def expect(self, first: int, count: int, options: JobOptions) -> None:
        """Do nothing: the messages of a channel have no options, only jobs do."""

    def skip(self, first: int, end: int, ordinary: int) -> None:
        """Leave out messages first..end, `ordinary` of which were counted as ready."""
        self.backlog.skip(first, end, ordinary)

    def own(self, due: int, message: Message, now: int) -> None:
        """Take over a message from the topic's delay queue: it waits in this channel now, until `due` (monotonic ns)."""
        self.delayed -= 1
        self.defer(message, due, now)

    def release(self, message: Message) -> None:
        """Make a message ready whose delay in the topic's delay queue is over."""
        self.delayed -= 1
        self.put_back(message)

    # delivery

    def wake(self) -> bool:
        """Enter the channel into the agenda if it can deliver: it has messages and ready consumers, and no pause or read.

        Return whether it can.
        """
        if (
            self.dispatch.ready
            and not self.paused
            and not self.backlog.reading
            and self.depth > self.backlog.held_count
        ):
            if self.throttle is not None and not self.throttle.lets(self, self._agenda.now):
                return False
            self._agenda.awake[self] = None
            return True
        return False

    def serve(self, now: int) -> None:
        """Give each ready consumer its share, once. The channel stays in the agenda if it can deliver more."""
        depth, before = self.depth - self.backlog.held_count, self.backlog.cursor
        if self.throttle is not None:
            depth = min(depth, self.throttle.free(now))
        if depth <= 0 or self.paused or self.backlog.reading:
            self.dispatch.pass_on()
            return
        self.dispatch.serve(self, depth, now)
        if self.backlog.cursor != before:
            self.journal.advance(self.backlog.cursor)
        self.wake()

    def put_in_flight(self, consumer: Consumer, count: int, room: int, now: int) -> list[bytes]:
        """Take the next messages out of the backlog and put them in flight at the consumer: see Supply.put_in_flight."""
        for _ in range(LOST_AT_ONCE):
            taken = self.backlog.pop_ready(count, room)
            if taken is None:
                return []
            message, first, frames, ids, extent = taken
            if self.expiry is not None or extent.has_ttl:
                taken, is_expired = (self.expiry or self.expect_ttl()).cut(self.backlog, taken, self._agenda.wall)
                message, first, frames, ids, extent = taken
                if is_expired:
                    self._end_expired(message, first, ids)
                    continue
            deadline = now + consumer.msg_timeout
            stamps = b"" if self.measures is None else b"".join([frame[STAMP] for frame in frames])
            if message is None:
                self.in_flight.hold_run(consumer, first, ids, now, deadline, stamps)
            elif isinstance(message, GroupBatch):
                self.in_flight.hold_batch(consumer, message.ordinals, message.groups, ids, now, deadline, stamps)
            elif self.settings.is_given_up(message.failures):
                self.bury(ids, message, failures.LOWERED)
                continue
            else:
                again = Message(first, message.attempts + 1, message.failures)
                self.journal.requeue((first,), again.attempts, again.failures, 0)
                self.in_flight.hold_single(consumer, again, ids, now, deadline, stamps)
                frames = frames if again.attempts == 1 else [with_attempts(frames[0], again.attempts)]
            self.schedule_scan(deadline)
            if self.throttle is not None:
                self.throttle.spend(len(frames))
            if not consumer.takes_headers:
                return frames
            return (
                message.with_headers(frames) if isinstance(message, GroupBatch) else extent.with_headers(first, frames)
            )
        return []

    def _drop(self, spans: list[tuple[int, int]]) -> None:
        """Finish messages that left the backlog without a delivery, and count them as dropped."""
        for first, end in spans:
            self.dropped_count += end - first
            self.journal.finish(first, end - first)
            self.ended(range(first, end))

    # messages that are too old

    def _begin_expiry(self, is_mixed: bool) -> None:
        """Watch the age of messages if any has an end. `is_mixed`: some may have a ttl of their own."""
        settings = self.settings
        self.expiry = Expiry(settings.ttl, is_mixed) if settings.ttl or is_mixed else None
        is_by_priority = settings.ordering is Ordering.PRIORITY
        self._examines = self._bounded or settings.overflows or self.expiry is not None or is_by_priority

    def expect_ttl(self) -> Expiry:
        """Note that messages may have a ttl of their own. Return the watch over the age of messages."""
        if self.expiry is None or not self.expiry.is_mixed:
            self._begin_expiry(True)
            self._watch_expiry(self._agenda.now)
        assert self.expiry is not None
        return self.expiry

    def _watch_expiry(self, now: int) -> None:
        """See to it that the scan looks for messages that have expired."""
        if self.expiry is not None:
            due = self.expiry.watch(self.backlog, now, self._agenda.wall)
            if due is not None:
                self.schedule_scan(due)

    def _scan_expired(self, expiry: Expiry, now: int) -> int:
        """End ready messages that are too old, and look again when the next may be. Return their number."""
        extents, wall, ended = self.backlog.extents, self._agenda.wall, 0
        if self.settings.on_expire is OnExpire.DROP:
            ended = self._drop_from_sequence(expiry.drop(self.backlog, now, wall))
        elif self.settings.order != NO_ORDER:  # they are buried when a consumer takes them
            expiry.due = None
            return 0
        else:
            for first, end in expiry.drop_in_memory(self.backlog, now, wall, BURIED_AT_ONCE):
                ids = [message_id(extents.frame_in_memory(ordinal, False)) for ordinal in range(first, end)]
                self._end_expired(None, first, b"".join(ids))
                self.journal.advance(self.backlog.cursor)
                ended += end - first
        self._watch_expiry(now)
        return ended

    def _end_expired(self, message: Message | GroupBatch | None, first: int, ids: bytes) -> None:
        """Drop or bury messages that were taken out of the backlog and are too old. For the arguments see Backlog.pop_ready."""
        ordinals: Sequence[int] = range(first, first + len(ids) // ID_SIZE)
        if isinstance(message, GroupBatch):
            self.backlog.keep_heads(message.heads())
            ordinals, message = message.ordinals, None
        if self.settings.on_expire is OnExpire.DROP:
            self._drop(runs(ordinals))
            return
        for ordinal, name in zip(ordinals, split_ids(ids), strict=True):
            self.bury(name, message or Message(ordinal, 0), EXPIRED)

    def finish_undelivered(self, consumer: Consumer, message_id: bytes) -> None:
        """Finish a message that was just taken for the consumer, instead of delivering it: see Supply.finish_undelivered."""
        found = self.in_flight.take_out(consumer, message_id)
        if found is not None:
            self.keep_heads(found[0], found[1:])
            self.finish(found[1])

    def finish(self, ordinal: int) -> None:
        """Finish a message that has been taken out of the four states."""
        self.journal.finish(ordinal, 1)
        self.ended((ordinal,))

    def read_completed(self) -> None:
        """Deliver again: the messages that the backlog waited for have been read from disk."""
        self.backlog.reading = False
        self.wake()

    # timeouts and delays

    def schedule_scan(self, due: int) -> None:
        """See to it that the scan looks at this channel by `due` (monotonic ns)."""
        if self.scan_entry is None or due < self.scan_entry[0]:
            self._agenda.schedule_scan(self, due)

    def move(self, agenda: Agenda) -> None:
        self._agenda = agenda
        self.forward_dead_letters()
        if self.measures is not None:
            self.measures = Measures(self.latency, self.outcomes, agenda)
        due = self.next_due()
        if due is not None:
            agenda.schedule_scan(self, due)

    def schedule_deferred(self) -> None:
        """See to it that the scan looks at this channel when the first deferred message is due."""
        due = self.deferred.wake_at()
        if due is not None:
            self.schedule_scan(due)

    def scan(self, now: int, limit: int) -> int:
        """Time out and release what is due at `now` (monotonic ns), up to about `limit` messages. Return how many."""
        served = self.deferred.approach(now, limit)
        while served < limit and (run := self.in_flight.take_due(now)) is not None:
            consumer = run.owner
            assert isinstance(consumer, Consumer)
            if (deadline := self._deadline(run, consumer, now)) > now:
                run.deadline = deadline
                self.in_flight.put_back(run)
                served += 1
                continue
            failures.note_timed_out(self.in_flight, consumer, run)
            reason = failures.LOST if consumer.sink is CLOSED_SINK else failures.TIMED_OUT
            count = self._return(run, limit - served, TIMED_OUT, reason, now)
            self.timeout_count += count
            served += count
            if len(run):
                self.in_flight.put_back(run)
            self.note_room(run.owner)
        released = self.deferred.pop_due(now, max(1, limit - served))
        for message in released:
            self.put_back(message)
        if self.throttle is not None:
            self.throttle.scan(now)
        if self.backlog.due is not None and self.backlog.due <= now:
            self.backlog.release_due(now)
            self.wake()
        served += len(released)
        if self.overflow_due is not None:
            served += self._keep_bounds(DROPPED_AT_ONCE)
        elif self.expiry is not None and self.expiry.due is not None and self.expiry.due <= now:
            served += self._scan_expired(self.expiry, now)
        return served

    def _deadline(self, run: Run, consumer: Consumer, now: int) -> int:
        """Return the deadline of a run that is due: the clock of messages runs from when they have left for the client."""
        gate = self.offsets.gate
        left = (
            gate.left_at(run.delivered, now) if gate is not None and consumer.sink is not CLOSED_SINK else run.delivered
        )
        return run.deadline if left == run.delivered else (now if left is None else left) + consumer.msg_timeout

    def next_due(self) -> int | None:
        """Return the time at which `scan` has something to do (monotonic ns), or None if nothing waits for a time."""
        in_flight = self.in_flight.next_due() if self.in_flight.count else None
        deferred = self.deferred.wake_at() if self.deferred.count else None
        throttled = self.throttle.due if self.throttle is not None else None
        expiring = self.expiry.due if self.expiry is not None else None
        times = in_flight, deferred, throttled, expiring, self.backlog.due, self.overflow_due
        return min((due for due in times if due is not None), default=None)

    def _return(self, run: Run, limit: int, what: str, reason: str, now: int) -> int:
        """Make up to `limit` messages of a run ready again, or bury those that failed too often. Return how many.

        `what`: the outcome; `reason`: that of the failures, which were noted before.
        """
        members, attempts = run.members(limit), run.attempts
        self.keep_heads(run, members.values())
        self.in_flight.expire(run, limit)
        for name, ordinal in members.items():
            failed = failures.has_failed(run, ordinal)
            message = Message(ordinal, attempts, run.failures + failed)
            self.count_outcome(what, ordinal, name, attempts)
            if failed:
                self.fail(name, message, reason, now)
            else:
                self.come_back(message, 0, 0)
        return len(members)

    # queries

    @property
    def depth(self) -> int:
        """Return the number of messages that are ready to be delivered."""
        backlog = self.backlog
        return self.offsets.ordinary - backlog.passed + len(backlog.retry) + backlog.retry.packed_count

    @property
    def backend_depth(self) -> int:
        """Return the number of ready messages that are on disk only."""
        return min(self.depth, self.backlog.cold)

    @property
    def in_flight_count(self) -> int:
        """Return the number of messages that were delivered and are neither finished nor requeued nor timed out."""
        return self.in_flight.count

    @property
    def deferred_count(self) -> int:
        """Return the number of messages that wait for a time, requeued or published with a delay."""
        return self.deferred.count + self.delayed

    def is_buried(self, ordinal: int) -> bool:
        return self.buried.has_ordinal(ordinal)

    def frozen_chunks(self) -> Iterator[bytes]:
        yield from self.deferred.frozen_chunks()
        yield from self.in_flight.frozen_chunks()
        yield from self.backlog.frozen_chunks()
        yield from self.buried.frozen_chunks()

    def counts(self) -> Counts:
        return Counts(self.depth, self.in_flight_count, self.deferred_count, len(self.buried))

    @property
    def finishable_count(self) -> int:
        return sum(consumer.in_flight for consumer in self.consumers.values())

    @property
    def message_count(self) -> int:
        """Return the number of messages that came to this channel since the process started."""
        return self.offsets.put_count - self._messages_before

    def check(self) -> None:
        """Raise AssertionError if an invariant of this class does not hold."""
        for part in (self.backlog, self.in_flight, self.deferred, self.buried, self.dispatch):
            part.check()
        self.dispatch.check_consumers(self.consumers)
        if self.backlog.is_grouped:
            self.backlog.check_groups(group for run in self.in_flight.runs() for group in run.groups_in_flight())
        assert self.start <= self.backlog.cursor
        assert self.depth >= 0
        assert self.finishable_count <= self.in_flight_count
        assert not (self.deleted and self.consumers)

    def __repr__(self) -> str:
        return f"<Channel {self.name} at {self.backlog.cursor}: {self.counts()}>"
