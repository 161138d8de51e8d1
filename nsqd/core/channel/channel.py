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

from nsqd.core.channel import expiry, failures
from nsqd.core.channel.backlog import LOST_AT_ONCE, Backlog, ReadyMessages
from nsqd.core.channel.buried import Buried, DeadLetter
from nsqd.core.channel.consumer import CLOSED_SINK, ELSEWHERE, Consumer, ConsumerSink
from nsqd.core.channel.dispatch import Dispatch
from nsqd.core.channel.groups import GroupedBacklog
from nsqd.core.channel.inflight import DeliveryOwner, InFlight, Run
from nsqd.core.channel.priorities import AHEAD_AT_ONCE, PriorityBacklog
from nsqd.core.channel.unfinished import Unfinished, release_all
from nsqd.core.measurement.latency import Latency
from nsqd.core.measurement.measures import Measures
from nsqd.core.measurement.outcomes import BURIED, REQUEUED, TIMED_OUT, Outcomes
from nsqd.core.message.frame import ID_SIZE, STAMP, with_attempts
from nsqd.core.reader import Counts, DistributedBatch, Parts, ReaderKind, ReaderSettings
from nsqd.core.sequence.put_batch import JobOptions
from nsqd.core.timing.agenda import Agenda
from nsqd.core.timing.deferred import Deferred, Message
from nsqd.core.timing.pause import Pause
from nsqd.core.timing.throttle import Throttle, limit
from penstock.protocol.names import is_ephemeral
from shared.topic_config import NO_TOPIC, OnBury, OnExpire, Ordering


class Channel:
    """One channel of a topic, with its messages and its consumers. Topic.channel creates it. Implements Reader."""

    kind = ReaderKind.CHANNEL
    takes_job_options = False
    pending_count = 0  # none: `counts` covers all distributed messages

    __slots__ = (
        "_agenda", "_bounded", "_examines", "_limits", "_messages_before", "_random_below", "backlog", "buried", "consumers",
        "deferred", "delayed", "deleted", "dispatch", "dropped_count", "ephemeral", "expire_at", "in_flight", "journal", "key",
        "latency", "lost_consumers", "measures", "name", "number", "offsets", "outcomes", "paused", "requeue_count",
        "scan_entry", "settings", "shards", "start", "throttle", "timeout_count", "topic_name",
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
        self.expire_at: int | None = None  # when the scan looks for messages that are too old (monotonic ns)
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
        if settings.most_kept:
            self._drop_oldest()
        self.expire_at = None
        self._watch_expiry(self._agenda.now)
        if settings.dead_letter != old.dead_letter:
            self.forward_dead_letters()
        if settings.ordering is not self.backlog.ordering:
            self._set_ordering()
        elif settings.on_bury is OnBury.SKIP and old.on_bury is OnBury.HOLD:
            for letter in self.buried.values():
                self.ended(letter.ordinal, 1)

    def _set_ordering(self) -> None:
        """Deliver in another order from now on: messages that are in flight already are not affected."""
        ordering, self.backlog = self.settings.ordering, self.backlog.plain()
        if ordering is Ordering.GROUP:
            self.backlog = GroupedBacklog(self.backlog, self.journal)
            self._expect_heads()
        elif ordering is Ordering.PRIORITY:
            self.backlog = PriorityBacklog(self.backlog, self.journal)
        self._examines = self._bounded or ordering is Ordering.PRIORITY
        self.wake()

    def revived(self, now: int) -> None:
        """Take account of the messages that a restart has given the channel. `now`: monotonic ns."""
        self.forward_dead_letters()
        self._expect_heads()
        if isinstance(self.backlog, PriorityBacklog):
            self.backlog.revived()
        self._watch_expiry(now)

    def _expect_heads(self) -> None:
        """If groups are ordered, note for which messages other ones of their group wait: the channel was not ordered before."""
        if not isinstance(self.backlog, GroupedBacklog):
            return
        waiting = [message.ordinal for _, message in self.deferred.items() if message.attempts]
        in_flight = [ordinal for first, count in self.in_flight.spans() for ordinal in range(first, first + count)]
        held = self.buried.ordinals() if self.settings.on_bury is OnBury.HOLD else ()
        self.backlog.expect_heads([*waiting, *in_flight, *held])

    def ended(self, first: int, count: int) -> None:
        """Let the groups of `count` messages from `first` on continue, if groups are ordered: the messages are finished."""
        if isinstance(self.backlog, GroupedBacklog) and self.backlog.ended(first, count):
            self.wake()

    # messages that were taken out of one state and enter another

    def come_back(self, message: Message, due: int, now: int) -> None:
        """Record that a message came back, and defer it until `due` (monotonic ns); 0: make it ready at once."""
        self.journal.requeue(message.ordinal, message.attempts, message.failures, due)
        self.wait(message, due, now)

    def put_back(self, message: Message) -> None:
        """Make a message ready again, in the retry queue of the backlog, and wake the channel."""
        self.backlog.put_back(message)
        self.wake()

    def wait(self, message: Message, due: int, now: int) -> None:
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
        if self.settings.dead_letter != NO_TOPIC and reason in failures.REASONS:
            self._agenda.dead_letters.setdefault(self, deque()).append(message_id)
        if self.settings.on_bury is OnBury.SKIP:
            self.ended(ordinal, 1)

    def forward_dead_letters(self) -> None:
        """Have all messages that failed too often go to the dead-letter topic, if the settings name one."""
        self._agenda.dead_letters.pop(self, None)
        if self.settings.dead_letter != NO_TOPIC:
            failed = deque(name for name, letter in self.buried.items() if letter.reason in failures.REASONS)
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
            self._examine(batch)
        if self.settings.most_kept:
            self._drop_oldest()
        if self.settings.ttl:
            self._watch_expiry(self._agenda.now)
        if self.dispatch.ready:
            self.wake()

    def _examine(self, batch: DistributedBatch) -> None:
        if self._bounded:
            self._drop(self.backlog.bound(batch))
        if isinstance(self.backlog, PriorityBacklog):
            self.backlog.look_ahead(AHEAD_AT_ONCE)

    def _drop_oldest(self) -> None:
        """Drop the oldest messages of the sequence if the channel has more than its settings allow."""
        excess = sum(self.counts()[:3]) - self.settings.most_kept
        if excess > 0:
            self._drop_from_sequence(self.backlog.drop_oldest(excess))

    def _drop_from_sequence(self, spans: list[tuple[int, int]]) -> None:
        self._drop(spans)
        if spans:
            self.journal.advance(self.backlog.cursor)

    def expect(self, first: int, count: int, options: JobOptions) -> None:
        """Do nothing: the messages of a channel have no options, only jobs do."""

    def skip(self, first: int, end: int, ordinary: int) -> None:
        """Leave out messages first..end, `ordinary` of which were counted as ready."""
        self.backlog.skip(first, end, ordinary)

    def own(self, due: int, message: Message, now: int) -> None:
        """Take over a message from the topic's delay queue: it waits in this channel now, until `due` (monotonic ns)."""
        self.delayed -= 1
        self.wait(message, due, now)

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
            if self.settings.ttl:
                taken = self._not_expired(taken)
                if taken is None:
                    continue
            message, first, frames, ids, extent = taken
            deadline = now + consumer.msg_timeout
            stamps = b"" if self.measures is None else b"".join([frame[STAMP] for frame in frames])
            if message is None:
                self.in_flight.hold_run(consumer, first, ids, now, deadline, stamps)
            elif self.settings.is_given_up(message.failures):
                self.bury(ids, message, failures.LOWERED)
                continue
            else:
                again = Message(first, message.attempts + 1, message.failures)
                self.journal.requeue(first, again.attempts, again.failures, 0)
                self.in_flight.hold_single(consumer, again, ids, now, deadline, stamps)
                frames = frames if again.attempts == 1 else [with_attempts(frames[0], again.attempts)]
            self.schedule_scan(deadline)
            if self.throttle is not None:
                self.throttle.spend(len(frames))
            return extent.with_headers(first, frames) if consumer.takes_headers else frames
        return []

    def _not_expired(self, taken: ReadyMessages) -> ReadyMessages | None:
        """Return of these messages the first that may be delivered, or None if the first ones are too old: those are ended."""
        count, is_expired = expiry.leading(taken[2], self._agenda.wall - self.settings.ttl)
        taken = message, first, _, ids, _ = expiry.cut(self.backlog, taken, count)
        if not is_expired:
            return taken
        if self.settings.on_expire is OnExpire.BURY:
            for ordinal in range(first, first + count):
                at = (ordinal - first) * ID_SIZE
                self.bury(ids[at : at + ID_SIZE], message or Message(ordinal, 0), expiry.EXPIRED)
        else:
            self._drop([(first, first + count)])
        return None

    def _drop(self, spans: list[tuple[int, int]]) -> None:
        """Finish messages that left the backlog without a delivery, and count them as dropped."""
        for first, end in spans:
            self.dropped_count += end - first
            self.journal.finish(first, end - first)
            self.ended(first, end - first)

    def _drop_expired(self, now: int) -> None:
        """Drop ready messages that are too old, and look again when the next may be."""
        ttl, self.expire_at = self.settings.ttl, None
        if ttl and self.settings.on_expire is OnExpire.DROP:
            oldest = self._agenda.wall - ttl
            self._drop_from_sequence(self.backlog.drop_published_before(oldest))
            self._watch_expiry(now)

    def _watch_expiry(self, now: int) -> None:
        """See to it that the scan looks for messages that have expired."""
        if self.settings.ttl and self.expire_at is None and self._may_expire:
            published = self.backlog.extents.published_plain(self.backlog.cursor) or self._agenda.wall
            left = published + self.settings.ttl - self._agenda.wall
            self.expire_at = now + max(left, expiry.EVERY)
            self.schedule_scan(self.expire_at)

    @property
    def _may_expire(self) -> bool:
        return self.backlog.cursor < self.offsets.distributed or self.backlog.queued_count > self.backlog.held_count

    def finish_undelivered(self, consumer: Consumer, message_id: bytes) -> None:
        """Finish a message that was just taken for the consumer, instead of delivering it: see Supply.finish_undelivered."""
        found = self.in_flight.take_out(consumer, message_id)
        if found is not None:
            self.finish(found[1])

    def finish(self, ordinal: int) -> None:
        """Finish a message that has been taken out of the four states."""
        self.journal.finish(ordinal, 1)
        self.ended(ordinal, 1)

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
        if self.expire_at is not None and self.expire_at <= now:
            self._drop_expired(now)
        return served + len(released)

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
        times = in_flight, deferred, throttled, self.expire_at
        return min((due for due in times if due is not None), default=None)

    def _return(self, run: Run, limit: int, what: str, reason: str, now: int) -> int:
        """Make up to `limit` messages of a run ready again, or bury those that failed too often. Return how many.

        `what`: the outcome; `reason`: that of the failures, which were noted before.
        """
        members, attempts = run.members(limit), run.attempts
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
        return self.offsets.ordinary - self.backlog.passed + len(self.backlog.retry)

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
        return ordinal in self.buried.ordinal_set

    def frozen_chunks(self) -> list[bytes]:
        return self.deferred.frozen_chunks()

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
        for part in (self.backlog, self.in_flight, self.deferred, self.dispatch):
            part.check()
        self.dispatch.check_consumers(self.consumers)
        assert self.start <= self.backlog.cursor
        assert self.depth >= 0
        assert self.finishable_count <= self.in_flight_count
        assert not (self.deleted and self.consumers)

    def __repr__(self) -> str:
        return f"<Channel {self.name} at {self.backlog.cursor}: {self.counts()}>"
