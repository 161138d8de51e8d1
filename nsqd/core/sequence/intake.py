"""The messages and jobs published to a topic in a turn, until they are sealed.

A batch of bodies becomes frames with ids when the turn is sealed. Jobs have their ids at once. The intake recognizes what a
publisher sends again, and does not take it again.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from nsqd.core.measurement.outcomes import Producers
from nsqd.core.message.attributes import NONE, Attributes, pack_job
from nsqd.core.message.frame import HEAD, HEADER_SIZE, ID_SIZE, MESSAGE, encode, encode_one
from nsqd.core.message.ids import IdSource
from nsqd.core.sequence.dedup import Dedup
from nsqd.core.sequence.put_batch import JobOptions, PutBatch
from nsqd.core.timing.agenda import Agenda, Source

NO_PRIORITY = 1 << 32  # above all priority numbers of jobs


class Sealed(NamedTuple):
    """Messages that have frames and ids and are about to get their ordinals. They become one record of the log."""

    frames: list[bytes]
    ids: bytes  # 16 bytes each, end to end
    largest: int  # bytes of the largest frame
    due: int = 0  # monotonic ns, when their delay is over; 0: they have no delay
    attributes: bytes = b""  # packed (nsqd/core/message/attributes.py)


class _DeletedTopic:
    """A source that does nothing, in place of a topic that was deleted."""

    def seal(self, wall: int) -> None:
        pass

    def seal_puts(self) -> None:
        pass


class Intake:
    """The intake of one topic. It enters the topic into the agenda as soon as there is something to seal."""

    __slots__ = (
        "_agenda", "_apart_count", "_ids", "_pending", "_pending_apart", "_promise", "_put_batches", "_put_count", "_topic",
        "dedup", "dropped_count", "duplicate_count", "is_foreign", "message_bytes", "message_count", "most_urgent",
        "producers",
    )  # fmt: skip

    def __init__(
        self,
        topic: Source,
        agenda: Agenda,
        ids: IdSource,
        dedup: Dedup,
        producers: Producers | None,
        promise: Callable[[], None],
    ) -> None:
        """`promise` notes that a reply waits for the records of this turn: TopicJournal.promise."""
        self._topic = topic
        self._agenda = agenda
        self._ids = ids
        self._promise = promise
        self.dedup = dedup
        self.producers = producers  # who published which message; None: this is not measured
        self.is_foreign = False  # True: messages came from others than clients of beanstalkd
        self.message_count = 0  # published since the process started
        self.message_bytes = 0  # of the bodies of these messages
        self.dropped_count = 0  # messages that an ephemeral topic had no room for
        self.duplicate_count = 0  # messages that were duplicates of earlier ones and were not taken
        self._pending: list[bytes] = []  # bodies published in this turn
        # messages of this turn with a delay or attributes: (due or 0, bodies, attributes)
        self._pending_apart: list[tuple[int, list[bytes], Attributes]] = []
        self._apart_count = 0  # messages in it
        self._put_batches: list[PutBatch] = []  # jobs put in this turn
        self._put_count = 0  # jobs in it
        self.most_urgent = NO_PRIORITY  # the lowest priority number of these jobs

    # messages

    def move(self, agenda: Agenda) -> None:
        """Take part in the turns of another agenda from now on."""
        self._agenda = agenda

    def publish(self, bodies: list[bytes], size: int) -> None:
        """Take messages, whose bodies have `size` bytes in all. They exist from the turn's commit on."""
        if not self._pending and not self._pending_apart:
            self._agenda.unsealed.append(self._topic)
            self.is_foreign = True
        self._pending += bodies
        self.message_count += len(bodies)
        self.message_bytes += size

    def publish_with(self, bodies: list[bytes], attributes: Attributes = NONE, due: int = 0) -> int:
        """Take messages that have attributes, or that no channel delivers before `due` (monotonic ns; 0: at once).

        They come after the messages of this turn that have no attributes. Returns how many of the first messages are
        duplicates of earlier publishes and are not taken again. A reply about these waits for this turn's promise, too.
        """
        known = self.admit(attributes, len(bodies))
        if known:
            self._promise()  # the promise of the first publish may not be kept yet
        if known < len(bodies):
            self._publish_apart(bodies[known:], attributes.behind(known), due)
        return known

    def _publish_apart(self, bodies: list[bytes], attributes: Attributes, due: int) -> None:
        if not self._pending and not self._pending_apart:
            self._agenda.unsealed.append(self._topic)
            self.is_foreign = True
        self._pending_apart.append((due, bodies, attributes))
        self._apart_count += len(bodies)
        self.count(bodies)

    def count(self, bodies: list[bytes]) -> None:
        """Add published messages, at least one, to the counts of messages and bytes."""
        self.message_count += len(bodies)
        self.message_bytes += sum(map(len, bodies)) if len(bodies) > 1 else len(bodies[0])

    def admit(self, attributes: Attributes, count: int) -> int:
        """Return the number of the first of `count` messages that are duplicates of earlier ones. Remembers the others."""
        duplicates = self.dedup.admit(attributes, count, self._agenda.now)
        self.duplicate_count += duplicates
        return duplicates

    def recognizes(self, key: str) -> bool:
        """Return True if the key was published within the window that is remembered. Remembers nothing itself."""
        return self.dedup.knows(key, self._agenda.now)

    # jobs

    def put(self, bodies: list[bytes], options: JobOptions, identity: Attributes | None = None) -> int:
        """Take jobs, which exist from Broker.seal_puts on. Returns the id of the first as a number; the others follow it.

        `identity`: has the key of a single job; None: it has none.
        """
        put_batch = self._put_batches[-1] if self._put_batches else None
        if put_batch is None or put_batch.options != options or put_batch.identity or identity:
            if put_batch is None:
                self._agenda.unsealed_puts.append(self._topic)
            put_batch = PutBatch(options, self._agenda.wall, identity)
            self._put_batches.append(put_batch)
            self.most_urgent = min(self.most_urgent, options.priority)
        self._put_count += len(bodies)
        return put_batch.add(bodies, self._ids)

    def put_with_id(self, body: bytes, options: JobOptions, sequence: int, created: int) -> None:
        """Take a job that was put elsewhere at `created` (ns since the epoch), which keeps the sequence in its id.

        The sequence must be higher than those of all earlier jobs, and lower than any that is still to be issued. The caller
        seals the jobs at once.
        """
        put_batch = PutBatch(options, created)
        put_batch.add_one(body, self._ids.id_number(sequence))
        self._put_batches.append(put_batch)
        self._put_count += 1

    def take_put_batches(self) -> list[PutBatch]:
        """Return the jobs put since the last call."""
        put_batches, self._put_batches, self._put_count = self._put_batches, [], 0
        self.most_urgent = NO_PRIORITY
        return put_batches

    @property
    def pending_count(self) -> int:
        """Return the number of messages and jobs that are not sealed yet."""
        return len(self._pending) + self._apart_count + self._put_count

    # sealing

    def seal(self, wall: int, first: int, room: int) -> list[Sealed]:
        """Seal what was published since the last call: from ordinal `first` on, with the time `wall` (ns since the epoch).

        `room`: how many messages the topic takes. Messages beyond that are dropped unless they have a delay.
        """
        sealed: list[Sealed] = []
        end = first + room
        pending, self._pending = self._pending, []
        if pending:
            first = self._seal(sealed, pending, wall, first, end - first, NONE)
        if self._pending_apart:
            apart, self._pending_apart, self._apart_count = self._pending_apart, [], 0
            for due, bodies, attributes in apart:
                if not due:
                    first = self._seal(sealed, bodies, wall, first, end - first, attributes)
                    continue
                for index, body in enumerate(bodies):
                    sealed.append(self._seal_one(body, wall, first, attributes.behind(index), due))
                    first += 1
        return sealed

    def _seal(
        self, sealed: list[Sealed], bodies: list[bytes], wall: int, first: int, room: int, attributes: Attributes
    ) -> int:
        """Seal messages without a delay into `sealed`. Returns the ordinal after the last."""
        if len(bodies) > room:
            self.dropped_count += len(bodies) - max(0, room)
            bodies = bodies[: max(0, room)]
        if not bodies:
            return first
        if len(bodies) == 1:
            sealed.append(self._seal_one(bodies[0], wall, first, attributes, 0))
            return first + 1
        ids = self._ids.issue_ids(len(bodies))
        sizes = set(map(len, bodies))
        frames = encode(bodies, sizes, ids, wall)
        joined = b"".join([block.joined for block in ids])
        packed = self._pack(attributes, first)
        sealed.append(Sealed(frames, joined, max(sizes) + HEADER_SIZE, 0, packed))
        return first + len(bodies)

    def _seal_one(self, body: bytes, wall: int, first: int, attributes: Attributes, due: int) -> Sealed:
        """Seal one message at a third of the cost of a batch of one: many topics get no more than one message a turn."""
        message_id = self._ids.issue_id()
        frame = HEAD.pack(len(body) + HEADER_SIZE - 4, MESSAGE, wall, 1) + message_id + body  # `encode_one`, inlined
        packed = self._pack(attributes, first) if attributes is not NONE or self.producers is not None else b""
        return Sealed([frame], message_id, len(frame), due, packed)

    def seal_with_times(self, messages: list[tuple[int, bytes]], first: int, attributes: Attributes) -> Sealed:
        """Seal messages that keep the time of their publish: (ns since the epoch, body)."""
        ids = b"".join([block.joined for block in self._ids.issue_ids(len(messages))])
        frames = [
            encode_one(body, ids[index * ID_SIZE : (index + 1) * ID_SIZE], stamp)
            for index, (stamp, body) in enumerate(messages)
        ]
        return Sealed(frames, ids, max(map(len, frames)), 0, self._pack(attributes, first))

    def seal_put_batch(self, put_batch: PutBatch, first: int) -> Sealed:
        """Seal jobs, which already have frames and ids, from ordinal `first` on."""
        options = put_batch.options
        put_batch.first = first
        self.count(put_batch.bodies)
        self._pack(NONE, first)
        if put_batch.identity is not None:
            packed = replace(put_batch.identity, job=options.packed).pack(first)
        else:
            packed = pack_job(options.packed)
        frames, ids, largest = put_batch.encode()
        return Sealed(frames, ids, largest, options.due, packed)

    def _pack(self, attributes: Attributes, first: int) -> bytes:
        """Pack the attributes of messages from `first` on, and note their producer."""
        if self.producers is not None:
            self.producers.note_producer(first, attributes.producer)
        return attributes.pack(first) if attributes else b""

    def close(self) -> None:
        """Drop everything: the topic was deleted, together with what was published in this turn."""
        self._pending.clear()
        self._pending_apart.clear()
        self._put_batches.clear()
        self._apart_count = self._put_count = 0
        self.dedup.clear()
        self._topic = _DeletedTopic()  # topic and intake refer to each other, and the daemon never collects old garbage

    def __repr__(self) -> str:
        return f"<Intake: {len(self._pending)} + {len(self._pending_apart)} + {len(self._put_batches)} pending>"
