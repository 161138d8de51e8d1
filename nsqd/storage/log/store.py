"""The Store of a node that keeps acknowledged messages: the turn of the commit log.

The verbs of a topic become records in its journal (journal.py). This module begins a turn of all topics, makes their records a
group, and writes and syncs the group as far as replies wait for that: a turn whose records promise nothing to a client waits
for no sync.
"""

from collections.abc import Callable, Iterable

from nsqd.core import records
from nsqd.core.records import RecordKind
from nsqd.core.sequence.gate import Gate
from nsqd.core.sequence.mark import Mark, Promise
from nsqd.storage.log.cache import Cache, ReadRequest
from nsqd.storage.log.clocks import LogClock
from nsqd.storage.log.copies import Copies
from nsqd.storage.log.journal import LogTopic, Recorder
from nsqd.storage.log.retention import Retention
from nsqd.storage.log.syncer import Syncer
from nsqd.storage.log.writer import Writer
from nsqd.storage.memory import MemoryTopic
from nsqd.storage.sequence import Sequence
from penstock.protocol.names import is_ephemeral
from shared.log import log
from shared.topic_config import Durability

NEVER = 1 << 62  # a log position: nothing ever reaches it
REST_NS = 10_000_000  # between two checks of the upkeep, while nothing happens to the log


class LogStore:
    """A Store over the commit log. Implements nsqd.core.sequence.store.Store."""

    def __init__(
        self, writer: Writer, syncer: Syncer, cache: Cache, clock: LogClock, recovered: dict[int, Sequence]
    ) -> None:
        """Connect the parts of the log. `recovered`: the messages in the log, by the topic's number."""
        self._writer, self._syncer, self._cache, self._clock = writer, syncer, cache, clock
        self._now = 0  # time of the turn, monotonic ns
        self._recorder = Recorder(writer, clock, cache)
        self._recovered = recovered  # sequences of topics that `topic` was not called for yet
        self._topics: dict[int, LogTopic] = {}  # topics that are logged, by number
        self._modes: dict[int, Durability] = {}  # durability mode of each logged topic
        self._strict = 0  # number of logged topics whose records must be synced (not in the mode `os`)
        self.retention = Retention(writer, clock, syncer.want)
        self.long_polls = self.retention.long_polls  # the readers that wait for messages
        # marks that replies wait for, by mode
        self._to_be_synced, self._to_be_written = (self.durable,), (self.written,)
        # the same by number of copies, whether they are synced, and whether the replies have a limit of their own
        self._replicated: dict[tuple[int, bool, bool], tuple[Mark, ...]] = {}
        self._unwritten: set[Mark] = set()  # marks that replies wait for whose group is not written yet
        self._owes_sync = False  # True: a reply waits for the sync of a group that could not be written
        self.reshaped = 0  # how often extents older than the newest were replaced by others
        self.leased = 0  # message ids below this may be issued
        self.is_transferred = False  # True: another node is to lead the log, so no reply is acknowledged here
        self.is_promoted = False  # another node has published into the log: all its messages count as copied
        # monotonic ns; before, a turn in which nothing happens to the log ends at once
        self._rests_until = 0
        self.copies = Copies(writer.written.position)
        # Called when a group was written and not yet synced, with the result of Copies.wait; None: there are no followers.
        self.after_write: Callable[[bool, bool], None] | None = None
        # Called with the time after a commit, when there is something to do: see Checkpoints.turn, which `OpenLog.serve` sets.
        self.after_commit: Callable[[int], tuple[int, int, int]] = lambda now: (NEVER, NEVER, NEVER)
        self._rest = 0, 0, 0  # what it has returned last

    # The turn

    def begin(self, now: int, wall: int) -> str:
        self._now = now
        self._recorder.wall = wall
        if self._syncer.done:
            self._syncer.collect()
            self._rests_until = 0
        if self.long_polls.waiting:
            self.long_polls.wake_ready(now, self._is_readable)
        cache = self._cache
        cache.inline = 0
        if cache.done:
            self._rests_until = 0
            for read in cache.collect():
                self._drop_lost(read)
        return self._syncer.space.full or self._writer.failure

    def commit(self) -> list[Promise]:
        recorder, writer, cache = self._recorder, self._writer, self._cache
        if self._now < self._rests_until and not (
            recorder.collecting
            or writer.group
            or recorder.awaited
            or self.long_polls.waiting
            or self.copies.holds_messages
        ):
            return []
        self._rests_until = self._now + REST_NS
        if recorder.collecting:
            recorder.flush()
        if writer.group and self._now >= self._clock.anchor_due:
            writer.append_anchor()
        position = writer.write()
        is_written = not writer.group
        if writer.places:
            cache.place(writer.places, recorder.wall, self._now + self._clock.offset)
        if self.retention.grown and is_written:
            self.retention.written(position)
        if cache.cached_bytes > cache.limit or cache.just_read:
            cache.evict()
        awaited = set().union(*recorder.awaited)
        recorder.awaited.clear()
        if recorder.shut and is_written:
            for note_written in recorder.shut:
                note_written(position)
            recorder.shut.clear()
        if self.after_write is not None:
            self._unwritten |= awaited  # replies whose group could not be written ask for copies when it is
            self.after_write(*self.copies.wait(self._unwritten, position, self._now))
            if is_written:
                self._unwritten = set()
        wants_sync = self._owes_sync or writer.durable in awaited
        self._owes_sync = wants_sync and not is_written  # replies that wait for an unwritten group keep waiting
        published, recorder.interval = recorder.interval, 0
        has_delivered, recorder.has_delivered = recorder.has_delivered, False
        self._syncer.written(wants_sync, published, not has_delivered and len(awaited) == 1)
        if self.long_polls.waiting:  # the log may be synced in this turn; if not, `wake_ready` asks for it
            self.long_polls.wake_ready(self._now, self._is_readable)
        until, end, most = self._rest
        if self._now >= until or writer.written.position > end or writer.records > most or writer.begun:
            self._rest = self.after_commit(self._now)
            if not self._rest[0]:
                self._rests_until = 0
        if self.is_transferred:
            return [Promise(mark, NEVER) for mark in awaited]
        return [Promise(mark, position) for mark in awaited if mark.position < position] if awaited else []

    @property
    def durable(self) -> Mark:
        """Return the mark up to which the log survives a power cut."""
        return self._writer.durable

    @property
    def written(self) -> Mark:
        """Return the mark up to which the log survives the end of the process."""
        return self._writer.written

    @property
    def refusal(self) -> str:
        return self._syncer.space.full or self._writer.failure

    def end(self) -> None:
        """Break the promises that are left: the log is closed, and this node runs on."""
        for mark in (self.written, self.durable, *self.copies.marks()):
            mark.broken = True

    def record(self, kind: int, content: bytes) -> tuple[Mark, ...]:
        marks = self.marks_of(self._syncer.durability, 1)
        self._recorder.append((kind, content, b""))
        self._recorder.promise(marks)
        return marks

    # Message ids

    def lease(self, ceiling: int) -> bool:
        """Make durable that message ids below `ceiling` may be issued. Returns False if that failed."""
        self.leased = ceiling
        self._recorder.append((RecordKind.LEASE, records.LEASE.pack(ceiling), b""))
        position = self._writer.write()
        return self._syncer.now() and self._writer.durable.position >= position

    def return_ids(self, next_id: int) -> None:
        """Record that message ids from `next_id` on were never issued. Called when the node stops."""
        self._recorder.append((RecordKind.NEXT_ID, records.NEXT_ID.pack(next_id), b""))
        self._writer.write()

    # Topics

    def note_created(self, numbers: Iterable[int]) -> None:
        """Note that the log holds the creation of these topics and readers already."""
        self._recorder.created.update(numbers)

    def topic(self, number: int, name: str) -> LogTopic | MemoryTopic:
        if is_ephemeral(name):
            return MemoryTopic(Sequence())
        sequence = self._recovered.pop(number, None) or Sequence()
        sequence.on_released = self._cache.forget_extent
        topic = LogTopic(number, sequence, self._recorder, self.retention, self, self._syncer.durability)
        self._topics[number] = topic
        if number not in self._recorder.created:
            self._recorder.created.add(number)
            self._recorder.append((RecordKind.TOPIC, records.TOPIC.pack(number) + name.encode(), b""))
            topic.promise()
        return topic

    def set_mode(self, topic: int, mode: Durability | None, replicate: int = 1) -> tuple[Mark, ...]:
        before = self._modes.pop(topic, Durability.OS)
        if mode is not None:
            self._modes[topic] = mode
        else:
            self._topics.pop(topic, None)
        self._strict += (mode not in (None, Durability.OS)) - (before is not Durability.OS)
        self._syncer.relaxed = self._syncer.durability is Durability.OS and not self._strict
        self.copies.configured = max(self.copies.configured, replicate)
        return self.marks_of(mode, replicate)

    def marks_of(self, mode: Durability | None, replicate: int, has_limit: bool = False) -> tuple[Mark, ...]:
        is_durable = mode is Durability.ALWAYS
        own = self._to_be_synced if is_durable else self._to_be_written
        if replicate < 2 or self.is_promoted:
            return own
        known = self._replicated.get((replicate, is_durable, has_limit))
        if known is None:
            known = (*own, self.copies.copied(replicate, is_durable, has_limit))
            self._replicated[replicate, is_durable, has_limit] = known
        return known

    def gate(self, mode: Durability, replicate: int) -> Gate | None:
        if replicate < 2 or self.is_promoted:
            return None
        return Gate(self.leaving(mode, replicate), self._recorder.promise, self._writer.written.position)

    def leaving(self, mode: Durability, replicate: int) -> Mark:
        return self.copies.leaving(replicate, mode is Durability.ALWAYS)

    # The messages in the log

    def find_sequence(self, topic: int) -> Sequence | None:
        """Return the topic's extents; None if the log has no such topic."""
        known = self._topics.get(topic)
        return known.sequence if known is not None else None

    @property
    def is_whole(self) -> bool:
        """Return True if the broker has loaded every topic of the log."""
        return not self._recovered

    def logged(self) -> list[int]:
        """Return the numbers of the topics whose messages are in the log."""
        return list(self._topics)

    def durable_end(self, topic: int) -> int:
        """Return the ordinal up to which the topic's messages survive a power cut."""
        return self.retention.durable_end(topic, self.find_sequence(topic))

    def _is_readable(self, topic: int, end: int) -> bool:
        """Return True if everything before `end` is durable, or the topic is gone.

        This asks for a sync only once messages up to `end` were published.
        """
        sequence = self.find_sequence(topic)
        return sequence is None or (sequence.end >= end and self.durable_end(topic) >= end)

    def _drop_lost(self, read: ReadRequest) -> None:
        """Drop the messages that a read did not find, and log that they are lost. Others of the extent are kept."""
        why = str(read.failure or "corrupt on disk")
        log.error("LOG: DAMAGE: %d messages of topic %d are lost: %s", len(read.lost), read.topic, why)
        read.sequence.without(read.stored, read.lost)
        read.stored.released = read.stored.count
        self.reshaped += 1

    def retire(self) -> bool:
        """Release messages that are retained for longer than their topic says. Returns True if there are any."""
        retired = self.retention.retire(self._now)
        for number in retired:
            self._topics[number].write_first()
        return bool(retired)

    @property
    def overdue(self) -> bool:
        """Return True if some message is retained for longer than its topic says."""
        return self.retention.is_overdue(self._now)

    @property
    def clock_offset(self) -> int:
        """Return the offset from the monotonic clock to the log's time, in ns."""
        return self._clock.offset
