"""A topic: a sequence of messages, and the readers that take them out.

The messages published in a turn are sealed together: they get ids, frames and one record (intake.py). The *distributed offset*
is the ordinal up to which messages belong to the readers (offsets.py). It follows the end of the sequence unless the
topic has no reader, is paused, or is still asking nsqlookupd for its channels. A new reader starts at the distributed offset.
So the first reader gets the messages published before it, and each later one gets only what comes after it.

See docs/contributing/design/channel.md#positions.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol, cast

from nsqd.core.batches.batches import MemberState
from nsqd.core.batches.table import PACKED_BATCH
from nsqd.core.channel.channel import Channel
from nsqd.core.distribution import Distribution, R
from nsqd.core.limits import HeaderRefused, TooFewCopies, TopicFull
from nsqd.core.measurement.outcomes import Producers
from nsqd.core.message.attributes import ASKING, NONE, PACKED_TTL, Attributes, is_word
from nsqd.core.message.deliver_at import delay_of
from nsqd.core.node_context import NodeContext
from nsqd.core.reader import Parts, ReaderKind
from nsqd.core.retention.cursors import Cursor
from nsqd.core.sequence.dedup import Dedup
from nsqd.core.sequence.intake import Intake, Sealed
from nsqd.core.sequence.mark import Mark
from nsqd.core.sequence.offsets import TopicOffsets
from nsqd.core.sequence.put_batch import JobOptions, PutBatch
from nsqd.core.timing.agenda import Agenda
from nsqd.core.timing.deferred_pages import Page
from nsqd.core.timing.pause import Pause
from penstock.protocol.headers import UNIQUE
from penstock.protocol.names import is_ephemeral, is_valid_name
from shared.counted import counted
from shared.topic_config import Overflow, TopicConfig
from shared.values import SECOND

UNBOUNDED = 1 << 62  # messages
# messages after which a topic with a max_length counts again how many it has: others may have come back meanwhile
COUNTED_EVERY = 64


class Maker(Protocol):
    """Who makes topics, if that is counted."""

    topics: int  # that it made and that exist


class Topic:
    """One topic of the node. Directory creates it."""

    __slots__ = (
        "_open_until", "channels", "config", "context", "cursors", "deleted", "distribution", "ephemeral", "intake",
        "is_tubes_own", "journal", "key", "legal", "maker", "marks", "name", "number", "offsets", "paused", "publish",
        "readers", "shards", "shut", "starting",
    )  # fmt: skip

    def __init__(self, name: str, number: int, context: NodeContext, config: TopicConfig | None = None) -> None:
        limits = context.limits
        self.context = context
        self.name = name
        self.key = name, ""  # by which operators know the topic: no channel
        self.number = number  # never used again on this node
        self.ephemeral = is_ephemeral(name)
        self.legal = is_valid_name(name)  # False: NSQ does not allow the name, so only clients of beanstalkd can use it
        self.is_tubes_own = not self.legal  # made by clients of beanstalkd: it may go with its tube
        self.maker: Maker | None = None
        self.offsets = TopicOffsets(number)
        self.paused: Pause | None = None
        self.deleted = False
        self._open_until = 0  # ordinal: there is room for the messages before it; 0: that is to be counted
        self.shut = False  # True: it is deleted, or Broker.admit says whether a message can be published to it
        self.starting = False  # True: nsqlookupd is being asked for the channels; nothing is distributed yet
        self.shards: tuple[Topic, ...] = (self,)  # the topics of this name in all logs, this one first: see shards.py
        producers = Producers() if limits.measures else None
        self.journal = context.store.topic(number, name)
        dedup = Dedup(limits.dedup, context.remembered)
        self.intake = Intake(self, context.agenda, context.ids, dedup, producers, self.journal.promise)
        self.publish = self.intake.publish  # the hot path saves a call this way
        self.distribution = Distribution(name, context, self.offsets, self.journal, producers)
        self.readers = self.distribution.readers  # all readers, by number
        self.channels = self.distribution.channels  # the readers that are channels, by name
        self.cursors: dict[str, Cursor] = {}  # of clients that read the topic back, by name
        self.journal.hold(self.cursors)
        self.marks: tuple[Mark, ...] = ()  # a reply about the topic's messages waits for these marks
        self.apply_config(config or TopicConfig())

    # publishing

    def publish_to(self, only: Channel, bodies: list[bytes], attributes: Attributes) -> int:
        """Take messages as `Intake.publish_with` does, for one channel only; they come before the turn's other publishes.

        The topic must be neither paused nor starting. Returns how many of the first messages are duplicates.
        """
        if attributes.headers:
            self._due(attributes, 1)
            attributes = _unique(attributes, len(bodies))
            self.admit_to_batch(bodies, attributes, False)
        if attributes.while_pending:
            return self._publish_unique(attributes.key, lambda: self._publish_to(only, bodies, attributes))
        known = self.intake.admit(attributes, len(bodies))
        self.journal.promise()
        if known < len(bodies):
            self._publish_to(only, bodies[known:], attributes.behind(known))
        return known

    def _publish_to(self, only: Channel, bodies: list[bytes], attributes: Attributes) -> int:
        """Append messages for one channel. Returns the number of duplicates, which is 0."""
        self.intake.count(bodies)
        wall = self.context.agenda.wall
        self.append_past([(wall, body) for body in bodies], only, attributes)
        return 0

    def publish_with(self, bodies: list[bytes], attributes: Attributes = NONE, due: int = 0) -> int:
        """Take messages as `Intake.publish_with` does, or one message whose key is unique while it is pending.

        The headers may name batches, the time of the delivery, or such a key. Raises HeaderRefused.
        """
        if attributes.headers and not ASKING.isdisjoint(dict(attributes.headers)):
            due, attributes = self._due(attributes, due), _unique(attributes, len(bodies))
            held = self.admit_to_batch(bodies, attributes, not due)
            if held is not None:
                return held
        if attributes.while_pending:
            return self._publish_unique(attributes.key, lambda: self.intake.publish_with(bodies, attributes, due))
        return self.intake.publish_with(bodies, attributes, due)

    def _publish_unique(self, key: str, publish: Callable[[], int]) -> int:
        """Publish one message as `publish_unless_pending` does. Returns the number of duplicates."""
        found = self.publish_unless_pending(key, publish)
        return 1 if found is None else found

    def _due(self, attributes: Attributes, due: int) -> int:
        """Return the time at which messages with these headers are due, or else `due`; 0: at once. Raises HeaderRefused."""
        agenda = self.context.agenda
        try:
            delay = delay_of(attributes.headers, agenda.wall)
        except ValueError:
            raise HeaderRefused("INVALID_DELIVER_AT") from None
        if delay and due:
            raise HeaderRefused("INVALID_DELIVER_AT")
        return agenda.now + delay if delay else due

    def admit_to_batch(self, bodies: list[bytes], attributes: Attributes, may_wait: bool) -> int | None:
        """Return None if the messages are to be published now; else a batch keeps them (Batches.admit). Raises BatchRefused."""
        wall = self.context.agenda.wall // SECOND
        held = self.context.batches.admit(self.name, bodies, attributes, may_wait, wall)
        if held is not None:
            self.journal.promise()
        return held

    def publish_unless_pending(self, key: str, publish: Callable[[], int]) -> int | None:
        """Return the result of `publish`, which publishes one message or job with this key. Appends that at once.

        Returns None, and publishes nothing, if one is pending. A reply about that waits for this turn's promise.
        """
        if self.pending_id(key):
            self.intake.duplicate_count += 1
            self.journal.promise()
            return None
        self._seal_all()
        first, number = self.offsets.end, self.context.ids.id_number(self.context.ids.next)
        result = publish()
        self._seal_all()
        if first < self.offsets.end:  # else an ephemeral topic had no room for it
            self.intake.dedup.note_pending(key, first, number, self.journal.is_pending)
        return result

    def pending_id(self, key: str) -> int:
        """Return the id of the message that was published as unique with this key, in any log, and is pending; 0: none is.

        A message is pending until every reader has finished it: while it is ready, in flight, deferred, buried, or still the
        topic's own.
        """
        for shard in self.shards:
            ordinal, message_id = shard.intake.dedup.pending.get(key, (0, 0))
            if message_id and shard.journal.is_pending(ordinal):
                return message_id
        return 0

    def _seal_all(self) -> None:
        """Append what was put and published in this turn."""
        self.seal_puts()
        self.seal(self.context.agenda.wall)

    def append_past(
        self, messages: list[tuple[int, bytes]], only: Channel | None, attributes: Attributes = NONE
    ) -> None:
        """Append messages that keep the time of their publish, each (ns since the epoch, body), for all readers or `only` one.

        The topic must be neither paused nor starting. The messages exist from the turn's commit on.
        """
        self._append(self.intake.seal_with_times(messages, self.offsets.end, attributes), None, only)

    def ask_for_copies(self, count: int, has_limit: bool = False) -> tuple[Mark, ...]:
        """Have what is published in this turn wait for `count` copies, or for those of the topic if these are more.

        Returns the marks that replies about it wait for. `has_limit`: they wait until a limit of their own for the last of the
        marks, that of the copies; nothing waits for copies if the usual `marks` are returned. Call it before publishing.
        Raises TooFewCopies.
        """
        usual = self.usual_copies
        if count <= usual and not (has_limit and usual > 1):
            return self.marks
        count = max(count, usual)
        if self.ephemeral or count > self.context.copies:
            raise self._too_few_copies(count)
        marks = self.journal.ask_for_copies(count, has_limit)
        self.offsets.gate = self.journal.gate
        return marks

    def await_copies(self) -> tuple[Mark, ...]:
        """Have something wait for the usual copies of the records of this turn, however late they come. Returns its marks."""
        return self.journal.await_copies(self.usual_copies)

    @property
    def usual_copies(self) -> int:
        """Return the number of nodes that must have each message, this one included."""
        return self.config.replicate or self.context.limits.policy.replicate

    def check_open(self, as_jobs: bool = False) -> None:
        """Raise TooFewCopies or TopicFull, and count that, if nothing can be published to the topic now.

        `as_jobs`: also if a job would have to be buried.
        """
        if self.lacks_copies:
            raise self._too_few_copies(self.usual_copies)
        buries = self.overflow is Overflow.BURY
        if (as_jobs if buries else self.overflow is Overflow.REFUSE) and (why := self._full()):
            full = TopicFull(f"TOPIC_FULL: the topic has {why}")
            # a job that the topic holds back is in no tube, which could bury it
            full.buries = buries and self._distributes
            self.context.registry.refused["topic_full"] += not full.buries
            raise full

    def has_room(self) -> bool:
        """Return True if a message can be published at once although `shut` is True: only because there is a limit."""
        end = self.offsets.end + self.intake.pending_count
        if end < self._open_until:
            return True
        if self.deleted or self.context.refusal or self.lacks_copies or self._full():
            return False
        if not self.config.max_bytes:
            self._open_until = end + min((self.config.max_length or 0) - self.length, COUNTED_EVERY)
        return True

    @property
    def overflow(self) -> Overflow | None:
        """Return the treatment of messages beyond the limits of the topic; None: it has none."""
        is_bounded = self.config.max_length or self.config.max_bytes
        return cast(Overflow, self.config.value("overflow")) if is_bounded else None

    def _full(self) -> str:
        """Return the limit that the messages have reached; "": none."""
        length, messages, size = self.length, self.config.max_length, self.config.max_bytes
        if messages and length >= messages:
            return f"{counted(messages, 'message')}, its max_length"
        return f"about {size} bytes, its max_bytes" if size and length * self.journal.mean_size() >= size else ""

    @property
    def length(self) -> int:
        """Return the number of messages that the fullest reader has or is about to get, without buried ones."""
        fullest = 0
        for reader in self.readers.values():  # half the cost of max() with a generator
            ready, in_flight, deferred, _ = reader.counts()
            fullest = max(fullest, ready + in_flight + deferred + reader.pending_count)
        return self.intake.pending_count + self.depth + fullest

    def _too_few_copies(self, required: int) -> TooFewCopies:
        self.context.registry.refused["no_copies"] += 1
        possible = 1 if self.ephemeral else self.context.copies
        return TooFewCopies(
            f"NOREPL: {required} copies are asked for, and {possible} are possible now"
            if possible
            else "NOREPL: this node has just started, and has not received the configurations of topics from another node yet"
        )

    def put_with_id(self, body: bytes, options: JobOptions, sequence: int, created: int) -> None:
        """Append at once a job that was put elsewhere at `created` (ns since the epoch). See Intake.put_with_id."""
        self.intake.put_with_id(body, options, sequence, created)
        self.seal_puts()

    def seal_puts(self) -> None:
        """Append the jobs put in this turn, ahead of the messages published in it. A deleted topic appends nothing."""
        if self.deleted:
            return
        for put_batch in self.intake.take_put_batches():
            self._append(self.intake.seal_put_batch(put_batch, self.offsets.end), put_batch, None)

    def seal(self, wall: int) -> None:
        """Give this turn's messages ids, frames and places, and hand them to the readers. A deleted topic does nothing."""
        if self.deleted:
            return
        for sealed in self.intake.seal(wall, self.offsets.end, self._room()):
            self._append(sealed, None, None)

    def _room(self) -> int:
        """Return the number of messages that the topic can take: an ephemeral one holds mem-queue-size for no reader."""
        if not self.ephemeral or self._distributes:
            return UNBOUNDED
        return max(0, self.context.limits.mem_queue_size - self.depth)

    @property
    def _distributes(self) -> bool:
        """Return True if the distributed offset follows the end of the sequence."""
        return bool(self.readers) and not (self.paused or self.starting)

    def _append(self, sealed: Sealed, put_batch: PutBatch | None, only: Channel | None) -> None:
        """Append messages to the sequence, and distribute them if the topic may.

        `put_batch`: the jobs that they are; None: they are not jobs. `only`: the one channel that gets them; None: all readers.
        """
        offsets, frames, due = self.offsets, sealed.frames, sealed.due
        first, offsets.end = offsets.end, offsets.end + len(frames)
        references = len(self.readers) if self._distributes else 0
        if sealed.attributes and PACKED_TTL in sealed.attributes:
            self.distribution.expect_ttl()
        if due:
            self._append_delayed(first, len(frames), due, put_batch)
        owners = None if only is None else (only.number,)
        self.journal.publish(first, frames, sealed.ids, sealed.largest, due, sealed.attributes, references, owners)
        if sealed.attributes and PACKED_BATCH in sealed.attributes:
            wall = self.context.agenda.wall // SECOND
            self.context.batches.note_published(sealed.attributes, self.number, first, len(frames), wall)
        if references:
            self.distribution.extend(put_batch, only)
        elif put_batch is not None:
            self.distribution.expect(first, len(frames), put_batch.options)

    def _append_delayed(self, first: int, count: int, due: int, put_batch: PutBatch | None) -> None:
        """Put delayed messages into the queue, unless they are jobs and every reader lets jobs wait in the reader itself."""
        if put_batch is None:
            self.distribution.expect(first, count, JobOptions(due=due))
        elif self._distributes and all(reader.takes_job_options for reader in self.readers.values()):
            return
        self.distribution.delay(first, count, due)

    # durability, retention and cursors

    def configure(self, config: TopicConfig) -> None:
        """Use and record `config`, so that it also holds after restarts. It holds for the topic in all logs."""
        for shard in self.shards:
            shard.journal.configure(config)
            shard.apply_config(config)

    def apply_config(self, config: TopicConfig) -> None:
        """Use `config` from now on, without recording it."""
        self.config = config
        self.marks = self.journal.set_policy(self.context.limits.policy.over(config))
        self.offsets.gate = self.journal.gate
        self.distribution.configure(config)
        self.update_shut()

    def update_shut(self) -> None:
        """Set `shut` again: the node takes messages or takes none, or the settings or the possible copies have changed."""
        self._open_until = 0
        self.shut = (
            self.deleted
            or bool(self.context.refusal)
            or self.lacks_copies
            or self.overflow in (Overflow.REFUSE, Overflow.BURY)
        )

    @property
    def lacks_copies(self) -> bool:
        """Return True if fewer nodes can have a copy of a message than the topic asks for."""
        return self.usual_copies > self.context.copies and not self.ephemeral

    def set_cursor(self, name: str, cursor: Cursor | None) -> None:
        """Set the named cursor of a client that reads the topic back, or delete it (None)."""
        if cursor is None:
            del self.cursors[name]
        else:
            self.cursors[name] = cursor
        self.journal.set_cursor(name, cursor)

    # after a restart

    def resume(self, end: int, distributed: int, paused: Pause | None, delayed: list[Page], now: int) -> None:
        """Take over the state from the log: the end of the sequence, the distributed offset `distributed`, and the pause.

        `delayed`: pages of the messages that wait in the delay queue; their times and `now` are monotonic ns.
        """
        offsets = self.offsets
        offsets.end, offsets.distributed, self.paused = end, distributed, paused
        offsets.ordinary = distributed  # any value will do, because only differences to it count
        offsets.delay_queue.load(delayed, distributed, now)
        self.distribution.schedule_delays()

    # distribution

    def distribute(self) -> None:
        """Move the distributed offset to the end of the sequence, unless something holds it."""
        first, end = self.offsets.distributed, self.offsets.end
        if first < end and self._distributes:
            self.journal.distribute(first, end, len(self.readers))
            self.distribution.extend(None, None)

    def start(self) -> None:
        """Begin to distribute: the channels that nsqlookupd knows exist now."""
        for shard in self.shards:
            shard.starting = False
            shard.distribute()

    def pause(self, paused: Pause | None) -> None:
        """Keep new messages here instead of handing them to the channels; None: stop doing so."""
        self.paused = paused
        self.journal.pause(paused)
        self.distribute()

    # readers

    def channel(self, name: str) -> Channel:
        """Return the channel of that name, and create it if needed. Raises TooMany."""
        channel = self.channels.get(name)
        if channel is None:
            channel = self.distribution.new_channel(name, self.offsets.distributed)
            self.distribute()
        return channel

    def channel_from(self, name: str, start: int, now: int) -> Channel:
        """Return a new channel that begins with message `start`; all from there on must be retained. Raises TooMany."""
        assert name not in self.channels
        if start >= self.offsets.distributed:
            return self.channel(name)
        channel = self.distribution.new_channel(name, start)
        self.distribution.fill_from_past(channel, start, now)
        self.distribute()
        return channel

    def attach(self, kind: ReaderKind, name: str, make: Callable[[Parts], R], number: int = 0) -> R:
        """Return a new reader of another kind, from the distributed offset on. `number`: the same after a restart; 0: new.

        Raises TooMany.
        """
        reader = self.distribution.attach(kind, name, make, number)
        if not number:
            self.distribute()
        return reader

    def delete_channel(self, name: str) -> bool:
        """Drop the channel, its messages and its connections. Returns True if an ephemeral topic has lost its last channel."""
        self.distribution.drop_channel(name)
        return self.ephemeral and not self.channels and not self.deleted

    def empty(self) -> None:
        """Drop the messages that no reader has been given yet, in all logs."""
        for shard in self.shards:
            shard._empty()

    def _empty(self) -> None:
        offsets = self.offsets
        first, end = offsets.distributed, offsets.end
        if first < end:
            self.journal.hole(first, end)
            offsets.delay_queue.drop_from(first)
            offsets.distributed = end
            for reader in self.readers.values():
                reader.skip(first, end, 0)

    def delete(self) -> None:
        """Drop all readers and messages. Called by the directory."""
        self.deleted = True
        self.update_shut()
        self.intake.close()
        self.context.batches.drop_topic(self.number)
        self.distribution.close()
        self.journal.drop()
        self.context.agenda.reclaimer.add(self.journal.reclaim())

    def move(self, agenda: Agenda) -> None:
        """Take part in the turns of another agenda from now on: that of the context, which has been replaced."""
        self.intake.move(agenda)
        self.distribution.move(agenda)

    # queries

    @property
    def depth(self) -> int:
        """Return the number of messages that no reader has been given yet."""
        return self.offsets.end - self.offsets.distributed

    def outcome(self, ordinal: int) -> MemberState:
        """Return the state of a message that was published to the topic, over all its readers."""
        references = self.journal.references(ordinal)
        if not references:
            return MemberState.FINISHED
        buried = sum(reader.is_buried(ordinal) for reader in self.readers.values())
        return MemberState.BURIED if references == buried else MemberState.PENDING

    def frame(self, ordinal: int) -> bytes:
        """Return the frame of a message that is referenced, or b"" if it must be read from disk first."""
        extent = self.journal.read(ordinal)
        return extent.frames[ordinal - extent.first] if extent is not None else b""

    def check(self) -> None:
        """Raise AssertionError if an invariant of the topic does not hold."""
        offsets = self.offsets
        offsets.check()
        assert offsets.distributed == offsets.end or not self._distributes
        assert all(self.readers[channel.number] is channel for channel in self.channels.values())
        queued = [message.ordinal for _, message in offsets.delay_queue.waiting.items()]
        for number, reader in self.readers.items():
            assert reader.number == number
            assert not reader.deleted
            reader.check()
            assert reader.delayed == sum(reader.start <= ordinal < offsets.distributed for ordinal in queued)

    def __repr__(self) -> str:
        state = " paused" if self.paused else " starting" if self.starting else ""
        return f"<Topic {self.name}{state}: {self.offsets!r}, {len(self.readers)} readers>"


def _unique(attributes: Attributes, count: int) -> Attributes:
    """Return the attributes of `count` messages, with the key in their header `unique`, if any. Raises HeaderRefused."""
    key = next((value for name, value in attributes.headers if name == UNIQUE), None)
    if key is None:
        return attributes
    if attributes.key or count != 1 or not is_word(key):
        raise HeaderRefused("INVALID_UNIQUE")
    return replace(attributes, key=key, producer="", sequence=0, while_pending=True)
