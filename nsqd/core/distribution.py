"""The distribution of a topic's messages to its readers, and how readers are made and dropped.

Readers get messages without a delay when the distributed offset passes them, others from the delay queue when they are due.
"""

from collections.abc import Callable, Collection
from typing import TypeVar

from nsqd.core.channel.channel import Channel
from nsqd.core.channel.state import restore_message
from nsqd.core.measurement.outcomes import Producers
from nsqd.core.node_context import NodeContext
from nsqd.core.reader import DistributedBatch, Parts, Reader, ReaderKind, ReaderSettings
from nsqd.core.sequence.journal import TopicJournal
from nsqd.core.sequence.offsets import TopicOffsets
from nsqd.core.sequence.put_batch import JobOptions, PutBatch
from nsqd.core.timing.agenda import Agenda
from nsqd.core.timing.deferred import Message
from shared.topic_config import TopicConfig

R = TypeVar("R", bound=Reader)


class Distribution:
    """All readers of one topic, of every kind. Implements ScanQueue for the topic's delay queue."""

    __slots__ = (
        "_config", "_context", "_has_ttl", "_journal", "_offsets", "_producers", "_topic", "channels", "readers",
        "scan_entry",
    )  # fmt: skip

    def __init__(
        self,
        topic: str,
        context: NodeContext,
        offsets: TopicOffsets,
        journal: TopicJournal,
        producers: Producers | None,
    ) -> None:
        """Take the topic's name and parts. `producers`: who published which message; None: this is not measured."""
        self._topic = topic
        self._context = context
        self._offsets = offsets
        self._journal = journal
        self._producers = producers
        self.scan_entry: tuple[int, int] | None = None  # (due, handle) of the delay queue's entry in the agenda
        self._config = TopicConfig()
        self._has_ttl = False  # True: messages with a ttl of their own were published since the start
        self.readers: dict[int, Reader] = {}  # by number
        self.channels: dict[str, Channel] = {}  # the readers that are channels, by name

    def new_channel(self, name: str, start: int) -> Channel:
        """Make a new channel, which the log notes as beginning with message `start`. Raises TooMany."""
        registry = self._context.registry
        registry.admit_channel()
        return self._make_channel(name, registry.next_number(), start)

    def revive_channel(self, name: str, number: int) -> Channel:
        """Make a channel that existed before the restart, with its number. The caller still has to fill it."""
        return self._make_channel(name, number, self._offsets.distributed)

    def _make_channel(self, name: str, number: int, start: int) -> Channel:
        context = self._context
        latency, outcomes = context.new_latency(), context.new_outcomes(self._topic, name, self._producers)
        parts = self._parts(number, name, ReaderKind.CHANNEL, start)
        channel = Channel(name, parts, latency, outcomes)
        self.channels[name] = channel
        if self._has_ttl:
            channel.expect_ttl()
        self._add(channel)
        context.registry.channel_created(self._topic, name)
        return channel

    def attach(self, kind: ReaderKind, name: str, make: Callable[[Parts], R], number: int) -> R:
        """Return a new reader of another kind, which starts at the distributed offset. Raises TooMany.

        `number`: the number that it had before a restart; 0: it is new.
        """
        if not number:
            self._context.registry.admit_channel()
            number = self._context.registry.next_number()
        reader = make(self._parts(number, name, kind, self._offsets.distributed))
        self._add(reader)
        return reader

    def _parts(self, number: int, name: str, kind: ReaderKind, start: int) -> Parts:
        context, limits, own = self._context, self._context.limits, self._journal.reader(number, name, kind, start)
        settings, random_below = self._settings_of(name), context.random_below
        return Parts(
            self._topic, number, self._offsets, self._journal, own, context.agenda, limits, settings, random_below
        )

    def _settings_of(self, name: str) -> ReaderSettings:
        return ReaderSettings.of(self._config.of(name), self._context.limits.attempts(self._topic))

    def configure(self, config: TopicConfig) -> None:
        """Have the readers use the topic's configuration from now on."""
        self._config = config
        for reader in self.readers.values():
            reader.configure(self._settings_of(reader.name))

    def expect_ttl(self) -> None:
        """Note that a message with a ttl of its own is published."""
        self._has_ttl = True
        for channel in self.channels.values():
            channel.expect_ttl()

    def _add(self, reader: Reader) -> None:
        self.readers[reader.number] = reader
        self._context.scan.add(reader)

    def drop(self, reader: Reader) -> None:
        """Drop a reader with all its messages."""
        del self.readers[reader.number]
        reader.delete()
        self._context.scan.discard(reader)
        self._context.agenda.remove_reader(reader)

    def drop_channel(self, name: str) -> None:
        """Drop a channel, its messages and its connections."""
        self.drop(self.channels.pop(name))
        self._context.registry.channel_deleted(self._topic, name)

    def close(self) -> None:
        """Drop all readers and the delay queue: the topic is deleted."""
        for name in list(self.channels):
            self.drop_channel(name)
        for reader in list(self.readers.values()):
            self.drop(reader)
        self._context.agenda.cancel_scan(self)
        self._context.agenda.reclaimer.add(self._offsets.delay_queue.give_up().reclaim())

    # distribution

    def extend(self, put_batch: PutBatch | None, only: Channel | None) -> None:
        """Move the distributed offset to the end of the sequence, and give the readers the messages that it passes.

        `put_batch`: the jobs that they are; None: they may be anything. `only`: the one channel that gets them; None: all do.
        """
        offsets = self._offsets
        first, end = offsets.distributed, offsets.end
        offsets.distributed = end
        delayed = offsets.delay_queue.pass_all() if offsets.delay_queue.ahead else 0
        ordinary = end - first - delayed
        offsets.ordinary += ordinary
        offsets.put_count += end - first
        batch = DistributedBatch(first, end, ordinary, delayed, put_batch)
        for reader in self.readers.values():
            if only is not None and reader is not only:
                reader.skip(first, end, ordinary)
            else:
                reader.extend(batch)
        if delayed:
            self.schedule_delays()

    def expect(self, first: int, count: int, options: JobOptions) -> None:
        """Announce `count` messages from `first` on to the readers that make jobs of them, which will have these options."""
        for reader in self.readers.values():
            if reader.takes_job_options:
                reader.expect(first, count, options)

    # the delay queue

    def delay(self, first: int, count: int, due: int) -> None:
        """Hold `count` messages from `first` on, which are past the distributed offset, until `due` (monotonic ns)."""
        self._offsets.delay_queue.push(first, count, due, self._context.agenda.now)
        self.schedule_delays()

    def schedule_delays(self) -> None:
        """Have the scan come when the first message of the delay queue is due."""
        due = self.next_due()
        if due is not None:
            self._context.agenda.schedule_scan(self, due)

    def next_due(self) -> int | None:
        """Return the time at which `scan` has something to do (monotonic ns), or None if nothing waits."""
        return self._offsets.delay_queue.waiting.wake_at()

    def scan(self, now: int, limit: int) -> int:
        """Release up to about `limit` messages whose delay is over. Returns how many the queue moved."""
        moved, released = self._offsets.delay_queue.release(now, limit, self._offsets.distributed)
        for message in released:
            for reader in self.readers.values():
                if reader.start <= message.ordinal:
                    reader.release(message)
        return moved

    def hand_over(self, ordinals: Collection[int]) -> None:
        """Move those of `ordinals` that wait in the delay queue into each reader, where they wait separately."""
        now = self._context.agenda.now
        for due, message in self._offsets.delay_queue.pop_distributed(ordinals, self._offsets.distributed, now):
            for reader in self.readers.values():
                if reader.start <= message.ordinal:
                    reader.own(due, Message(message.ordinal, 0), now)

    def move(self, agenda: Agenda) -> None:
        """Have the delay queue and all readers take part in the turns of the context's new agenda."""
        self.schedule_delays()
        for reader in self.readers.values():
            reader.move(agenda)

    # channels that begin in the past

    def fill_from_past(self, channel: Channel, start: int, now: int) -> None:
        """Give a new channel all messages from `start` to the distributed offset. All of them must be retained.

        `now`: monotonic ns.
        """
        offsets = self._offsets
        parts = self._journal.add_references(start, offsets.distributed)
        waiting = set(offsets.delay_queue.ordinals(start, offsets.distributed))
        delayed = {ordinal for first, end, late in parts if late for ordinal in range(first, end)}
        channel.start = start
        channel.backlog.resume(start, sum(end - first for first, end, late in parts if not late))
        channel.delayed = len(waiting)
        for ordinal, due in self._dues(delayed - waiting).items():
            restore_message(channel, Message(ordinal, 0), due, now)

    def _dues(self, ordinals: set[int]) -> dict[int, int]:
        """Return the due times of these delayed messages, by ordinal: the latest time that any channel has; 0: none waits.

        Walks everything that waits in the channels.
        """
        found = dict.fromkeys(sorted(ordinals), 0)
        for channel in self.channels.values() if ordinals else ():
            for due, message in channel.deferred.items():
                if message.ordinal in found and not message.attempts:
                    found[message.ordinal] = max(found[message.ordinal], due)
        return found

    def __repr__(self) -> str:
        return f"<Distribution to {list(self.readers.values())}>"
