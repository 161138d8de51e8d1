"""The durable state of a topic: how the log's records change it, and how a checkpoint stores it.

The states of a topic's readers are defined in the readers' packages. A checkpoint holds [number, name, paused, end, distributed
offset, delayed, readers, config, cursors]:
* delayed: a list of the messages whose delay is not over, or is over at or past the distributed offset, packed as in
  nsqd/core/timing/deferred_pages.py, and of the numbers of CHUNK records that hold more of them, as in the state of a channel;
* readers: each is [kind, ...], where the kind determines the rest;
* config: the topic's own settings by name (shared/topic_config.py);
* cursors: (name, offset, owner, hold, hold_bytes, updated).

SEEN records follow with what the topic remembers of publishers (nsqd/core/sequence/dedup.py). After the topic's number each
has in msgpack [keys, published at, producers, numbers, keys that are unique while pending, ordinals, ids], which are parallel
lists: two, two and three. Newer publishes than the array may be in the log before these records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgpack

from nsqd.core import records
from nsqd.core.channel.state import ChannelState
from nsqd.core.message.attributes import Attributes
from nsqd.core.message.frame import numbers_of
from nsqd.core.reader import ReaderKind
from nsqd.core.reader_state import Kinds, ReaderState
from nsqd.core.records import RecordKind
from nsqd.core.retention.cursors import Cursor
from nsqd.core.sequence.finished import Span
from nsqd.core.sequence.put_batch import JobOptions, unpacked
from nsqd.core.timing.deferred import pack, pack_ready
from nsqd.core.timing.deferred_pages import ENDLESS, DeferredPages, Page, between, page_of, pages_of
from nsqd.core.timing.pause import Pause, dump_pause, load_pause
from nsqd.core.topic import Topic
from nsqd.core.work_queue.state import TubeState
from nsqd.core.written_chunks import NamedChunk, WrittenChunks
from shared.topic_config import TopicConfig, dump, load

READERS: dict[ReaderKind, type[ReaderState]] = {state.kind: state for state in (ChannelState, TubeState)}
T = TypeVar("T")
PUBLISHERS_AT_ONCE = 2000  # keys in one record, which takes a fifth of a millisecond


@dataclass(slots=True)
class Publishers:
    """The keys and numbers of publishers that a topic remembers, the oldest first."""

    keys: dict[str, int] = field(default_factory=dict)  # key -> when it was published, by the state's clock
    producers: dict[str, int] = field(default_factory=dict)  # producer -> the number of its last message
    # key that is unique while pending -> ordinal and id of the last message that has it
    pending: dict[str, tuple[int, int]] = field(default_factory=dict)

    def remember(self, attributes: Attributes, count: int, stamp: int) -> None:
        """Remember `count` messages that were published together at `stamp`."""
        if attributes.key and not attributes.while_pending:
            self.keys.pop(attributes.key, None)
            self.keys[attributes.key] = stamp
        elif attributes.producer:
            self.producers.pop(attributes.producer, None)
            self.producers[attributes.producer] = attributes.sequence + count - 1

    def over(self, before: Publishers) -> Publishers:
        """Return both together, with `before` as the older one."""
        return Publishers(
            _newest(before.keys, self.keys),
            _newest(before.producers, self.producers),
            _newest(before.pending, self.pending),
        )


@dataclass(slots=True)
class TopicState:
    """The durable state of one topic.

    All times are ns of one clock, which is the log's for states that come from the log.
    """

    number: int
    name: str
    paused: Pause | None = None
    end: int = 0  # ordinal of the next message
    distributed: int = 0  # the distributed offset: messages before it belong to the readers
    config: TopicConfig = field(default_factory=TopicConfig)
    cursors: dict[str, Cursor] = field(default_factory=dict)
    readers: dict[int, ReaderState] = field(default_factory=dict)  # by number
    delayed: dict[int, int] = field(default_factory=dict)  # ordinal -> due, of messages published with a delay
    # ordinals in `delayed` that a reader's own record names: they have left the delay queue, if only by an operator's command
    handed_over: set[int] = field(default_factory=set)
    # the messages before `distributed` that waited in the delay queue at the checkpoint or in `conclude`, and have not left it
    # since, except that their time may have come
    waiting: DeferredPages = field(default_factory=DeferredPages)
    # more of them, packed; referenced by all readers that start before them. Only of a live topic that is put into a checkpoint
    chunks: list[NamedChunk] = field(default_factory=list)
    publishers: Publishers = field(default_factory=Publishers)  # from the publishes since STATE_TOPIC
    # from the SEEN records, or from before the checkpoint
    publishers_before: Publishers = field(default_factory=Publishers)

    # applying records

    def apply(self, kind: RecordKind, content: bytes) -> Iterable[Span]:
        """Apply a record that names the topic, and that does not change its sequence of messages.

        Returns the spans (first, end) that one reader no longer references because of the record.
        """
        if kind is RecordKind.CURSOR:
            _, name, cursor = records.unpack_cursor(content)
            if cursor is None:
                self.cursors.pop(name, None)
            else:
                self.cursors[name] = cursor
        elif kind is RecordKind.CONFIG:
            _, self.config = records.unpack_config(content)
        elif kind is RecordKind.SEEN:
            columns = msgpack.unpackb(memoryview(content)[records.SEEN.size :])
            keys, stamps, producers, numbers, pending, ordinals, ids = columns
            self.publishers_before.keys.update(zip(keys, stamps, strict=True))
            self.publishers_before.producers.update(zip(producers, numbers, strict=True))
            self.publishers_before.pending.update(zip(pending, zip(ordinals, ids, strict=True), strict=True))
        else:
            return self._apply_to_reader(kind, content)
        return ()

    def _apply_to_reader(self, kind: RecordKind, content: bytes) -> Iterable[Span]:
        _, number = records.CHANNEL_OF.unpack_from(content)
        reader = self.readers.get(number)
        if reader is None:
            if kind is RecordKind.PAUSE and not number:
                self.paused = records.unpack_pause(content)
            return ()
        if kind is RecordKind.DROP_CHANNEL:
            return self.readers.pop(number).drop(self.distributed)
        if not reader.has_own_times:
            for first, end in records.named_spans(kind, content):
                self.waiting.remove_span(first, end)
                if self.delayed:
                    self.handed_over.update(one for one in range(first, end) if one in self.delayed)
        return reader.apply(kind, content)

    def publish(self, content: bytes, at: int, attributes: Attributes, created: int, stamp: int) -> None:
        """Apply a PUBLISH record of messages that have a delay or attributes. The frames begin at byte `at` of `content`.

        `created`, `stamp`: when the messages were published, in ns since the epoch and in ns of the state's clock.
        """
        _, first, count, due, largest, flags = records.PUBLISH.unpack_from(content)
        self.publishers.remember(attributes, count, stamp)
        if attributes.while_pending:
            self.publishers.pending[attributes.key] = first, numbers_of(content, at, count, largest)[0]
        distributed = bool(flags & records.DISTRIBUTED)
        if due and not (distributed and attributes.job is not None and self._readers_have_times):
            self.delayed.update(dict.fromkeys(range(first, first + count), due))
        if attributes.job is None and not due:
            return
        options = JobOptions(due=due) if attributes.job is None else unpacked(attributes.job, due)
        numbers = numbers_of(content, at, count, largest) if distributed and options.was_put else []
        for reader in self.readers.values():
            reader.expect(first, count, options, numbers, created)

    @property
    def _readers_have_times(self) -> bool:
        """Return True if no reader leaves its delayed messages to the topic's delay queue."""
        return all(reader.has_own_times for reader in self.readers.values())

    def distribute(self, first: int, end: int, owners: Iterable[int] | None) -> int:
        """Move the distributed offset behind messages first..end. Returns how many readers reference them.

        `owners`: the numbers of the only readers that reference them; None: all readers do.
        """
        self.distributed = end
        if owners is None:
            return len(self.readers)
        others = self.readers.keys() - owners
        for number in others:
            self.readers[number].finish(first, end)
        return len(self.readers) - len(others)

    def create_reader(self, kind: ReaderKind, number: int, name: str, start: int, kinds: Kinds) -> None:
        """Add a new reader that begins with message `start`, which may be before the distributed offset."""
        dues: dict[int, int] = {}
        late = [(first, end) for first, end, delayed in kinds(start, self.distributed) if delayed]
        if late:
            ordinals = {ordinal for first, end in late for ordinal in range(first, end)}
            dues = {one: 0 if one in self.handed_over else self.delayed.get(one, 0) for one in sorted(ordinals)}
            dues.update((ordinal, due) for ordinal, due, _ in self.waiting.entries() if ordinal in ordinals)
            for reader in self.readers.values():  # an operator may have given one of them another time
                for ordinal, due in reader.dues(ordinals, self.delayed).items():
                    dues[ordinal] = max(dues[ordinal], due)
        waiting = page_of(b"".join([pack(ordinal, due, 0) for ordinal, due in dues.items()]))
        array = READERS[kind].begin(number, name, start)
        self.readers[number] = READERS[kind].load(array, 0, self.distributed, [waiting], kinds)
        for ordinal, due in self.delayed.items():
            if ordinal >= self.distributed:
                self.readers[number].expect(ordinal, 1, JobOptions(due=due), [], 0)

    def hole(self, first: int, end: int) -> None:
        """Drop messages first..end, which the distributed offset had not passed, and move the distributed offset to `end`."""
        self.distributed = end
        self.delayed = {ordinal: due for ordinal, due in self.delayed.items() if ordinal < first}
        for reader in self.readers.values():
            reader.finish(first, end)

    # conclusions

    def conclude(self, kinds: Kinds) -> list[Span]:
        """Draw the conclusions from the applied records.

        Returns the spans that readers turn out not to reference (ReaderState). The distributed offset lies beyond the end only
        if the newest publishes are corrupt: later records show that their ordinals are used.
        """
        self.distributed = max([self.distributed, *(reader.reached for reader in self.readers.values())])
        self.end = max(self.end, self.distributed)
        gone = [
            span for reader in self.readers.values() for span in reader.conclude(self.distributed, self.delayed, kinds)
        ]
        before = {ordinal: due for ordinal, due in self.delayed.items() if ordinal < self.distributed}
        waiting = b"".join(
            [pack(ordinal, due, 0) for ordinal, due in before.items() if ordinal not in self.handed_over]
        )
        self.waiting = DeferredPages([*self.waiting.pages(), *pages_of([waiting], 0)])
        self.delayed = {ordinal: due for ordinal, due in self.delayed.items() if ordinal >= self.distributed}
        self.handed_over.clear()
        self.publishers, self.publishers_before = self.publishers.over(self.publishers_before), Publishers()
        return gone

    # checkpoints

    def dump(self) -> list[Any]:
        """Return the array for a checkpoint. The state must be settled."""
        return [
            self.number,
            self.name,
            dump_pause(self.paused),
            self.end,
            self.distributed,
            [
                *self.chunks,
                *(page.tobytes() for page in self.waiting.pages()),
                b"".join([pack(ordinal, due, 0) for ordinal, due in self.delayed.items()]),
            ],
            [[reader.kind, *reader.dump(self.waiting)] for reader in self.readers.values()],
            dump(self.config),
            [(name, c.offset, c.owner, c.hold, c.hold_bytes, c.updated) for name, c in self.cursors.items()],
        ]

    def details(self, offset: int) -> Iterator[tuple[RecordKind, bytes]]:
        """Yield the records that follow the array. `offset`: ns from the state's clock to the log's."""
        known = self.publishers
        keys, producers, pending = list(known.keys), list(known.producers), list(known.pending)
        for first in range(0, max(len(keys), len(producers), len(pending)), PUBLISHERS_AT_ONCE):
            part = slice(first, first + PUBLISHERS_AT_ONCE)
            stamps = {key: known.keys[key] + offset for key in keys[part] if key in known.keys}
            numbers = {name: known.producers[name] for name in producers[part] if name in known.producers}
            places = {key: known.pending[key] for key in pending[part] if key in known.pending}
            ordinals, ids = zip(*places.values(), strict=True) if places else ((), ())
            columns = [
                list(stamps), list(stamps.values()), list(numbers), list(numbers.values()), list(places), ordinals, ids,
            ]  # fmt: skip
            yield RecordKind.SEEN, records.SEEN.pack(self.number) + msgpack.packb(columns)
        for reader in self.readers.values():
            yield from reader.details(self.number, offset)

    @classmethod
    def load(cls, array: list[Any], offset: int, kinds: Kinds, before: TopicState | None = None) -> TopicState:
        """Return the state that `dump` wrote as `array`, with every time moved by `offset` (ns).

        `kinds`: see ReaderState. `before`: the state known before the checkpoint, which may break off in the middle.
        """
        number, name, paused, end, distributed, delayed, readers, config, cursors = array
        state = cls(number, name, load_pause(paused), end, distributed, load(config))
        state.cursors = {name: Cursor(*of) for name, *of in cursors}
        queued: list[Page] = []
        for page in pages_of(delayed, offset):
            queued.append(between(page, 0, distributed))
            ahead = between(page, distributed, ENDLESS)
            state.delayed.update(zip(ahead[::3], ahead[1::3], strict=True))
        for kind, *its_array in readers:
            reader = READERS[ReaderKind(kind)].load(its_array, offset, distributed, queued, kinds)
            state.readers[reader.number] = reader
            known = before.readers.get(reader.number) if before is not None else None
            if known is not None:
                reader.carry_over(known)
        state.waiting = DeferredPages(queued)
        if before is not None:
            state.publishers_before = before.publishers.over(before.publishers_before)
        return state


def frozen_chunks(topic: Topic) -> Iterator[bytes]:
    """Yield chunks of messages of a live topic that seldom change. The topic may change between two of them."""
    yield from topic.offsets.delay_queue.waiting.frozen_chunks()
    for reader in list(topic.readers.values()):
        if not reader.ephemeral:
            yield from reader.frozen_chunks()


def state_of(topic: Topic, now: int, written: WrittenChunks | None = None) -> TopicState:
    """Return the part of a live topic that survives a restart, in monotonic ns as `now` is. Copies what waits, packed.

    `written`: chunks that the checkpoint has already.
    """
    offsets, dedup = topic.offsets, topic.intake.dedup
    written = written or WrittenChunks(topic.number)
    overdue = pack_ready(offsets.delay_queue.overdue)
    lasting = [reader for reader in topic.readers.values() if not reader.ephemeral]
    readers = [READERS[reader.kind].from_reader(reader, written) for reader in lasting]
    dedup.expire_keys(now)
    return TopicState(
        number=topic.number,
        name=topic.name,
        paused=topic.paused,
        end=offsets.end,
        distributed=offsets.distributed,
        config=topic.config,
        cursors=topic.cursors,
        readers={reader.number: reader for reader in readers},
        chunks=written.named([*offsets.delay_queue.waiting.packed(), overdue]),
        publishers=Publishers(dedup.keys, dedup.producers, dedup.pending),
    )


def _newest(before: dict[str, T], since: dict[str, T]) -> dict[str, T]:
    """Return both together, the oldest first; `since` replaces what `before` has of the same name."""
    return {name: value for name, value in before.items() if name not in since} | since
