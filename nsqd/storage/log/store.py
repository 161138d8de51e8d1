"""The Store of a node that keeps what it acknowledged: the turn of the commit log.

A topic's verbs become records in its journal (journal.py). Here a turn of all topics begins, its records become a group, and
the group is written and synced as far as somebody waits for that: a turn whose records promise nobody anything waits for no
sync.
"""

from collections.abc import Callable, Iterable

from nsqd.core import records
from nsqd.core.records import Kind
from nsqd.core.retention.keeping import Durability
from nsqd.core.sequence.mark import Mark, Promise
from nsqd.storage.log.cache import Cache, Read
from nsqd.storage.log.clocks import LogClock
from nsqd.storage.log.journal import LogTopic
from nsqd.storage.log.recorder import Recorder
from nsqd.storage.log.retention import Retention
from nsqd.storage.log.syncer import Syncer
from nsqd.storage.log.writer import Writer
from nsqd.storage.memory import MemoryTopic
from nsqd.storage.sequence import Sequence
from penstock.protocol.names import is_ephemeral
from shared.log import log


class LogStore:
    """See above. Implements nsqd.core.sequence.store.Store."""

    def __init__(
        self, writer: Writer, syncer: Syncer, cache: Cache, clock: LogClock, recovered: dict[int, Sequence]
    ) -> None:
        """`recovered`: the messages that the log remembers, by the topic's number."""
        self._writer = writer
        self._syncer = syncer
        self._cache = cache
        self._clock = clock
        self._now = 0  # monotonic ns, of the turn
        self._recorder = Recorder(writer, clock, cache)
        self._recovered = recovered  # of topics that nobody has asked for yet
        self._topics: dict[int, LogTopic] = {}  # that are logged
        self._modes: dict[int, Durability] = {}  # of them
        self._strict = 0  # of them, those whose records somebody has to sync
        self.retention = Retention(writer, clock, syncer.want)
        self._to_be_synced, self._to_be_written = (self.durable,), (self.written,)  # what replies wait for, by mode
        self._owes_sync = False  # somebody waits for the sync of a group that could not be written
        self.reshaped = 0  # how often extents that are older than the newest were replaced by others
        self.leased = 0  # message ids below it may be issued
        # follows a commit of the turn at `now`: checkpoints
        self.after_commit: Callable[[int], None] = lambda now: None

    # the turn

    def begin(self, now: int, wall: int) -> None:
        self._now = now
        self._recorder.wall = wall
        if self._syncer.done:
            self._syncer.collect()
        if self.retention.watches.waiting:
            self.retention.watches.look(now, self._is_readable)
        cache = self._cache
        cache.inline = 0
        if cache.done:
            for read in cache.collect():
                self._give_up(read)

    def commit(self) -> list[Promise]:
        recorder, writer, cache = self._recorder, self._writer, self._cache
        if recorder.collecting:
            recorder.flush()
        if writer.group and self._now >= self._clock.anchor_due:
            self.write_anchor()
        position = writer.write()
        is_written = not writer.group
        if writer.places:
            recorder.place(self._now)
        if self.retention.grown and is_written:
            self.retention.written(position)
        if cache.held_bytes > cache.limit or cache.just_read:
            cache.keep_to_budget(recorder.unwritten())
        awaited = recorder.take_awaited()
        wants_sync = self._owes_sync or writer.durable in awaited
        self._owes_sync = wants_sync and not is_written  # whoever waits for what could not be written waits on
        published, recorder.interval = recorder.interval, 0
        self._syncer.written(wants_sync, published)
        if self.retention.watches.waiting:  # it may have been synced in this turn; if not, somebody has to
            self.retention.watches.look(self._now, self._is_readable)
        self.after_commit(self._now)
        return [Promise(mark, position) for mark in awaited if mark.position < position] if awaited else []

    def write_anchor(self) -> None:
        """Note what the clocks tell."""
        self._writer.append_anchor()

    @property
    def durable(self) -> Mark:
        """How far the log survives a power cut."""
        return self._writer.durable

    @property
    def written(self) -> Mark:
        """How far the log survives the process."""
        return self._writer.written

    @property
    def refusal(self) -> str:
        return self._syncer.space.full or self._writer.failure

    # message ids

    def lease(self, ceiling: int) -> bool:
        """Make durable that message ids below `ceiling` may be issued. False: it could not be done."""
        self.leased = ceiling
        self._recorder.append((Kind.LEASE, records.LEASE.pack(ceiling), b""))
        position = self._writer.write()
        return self._syncer.now() and self._writer.durable.position >= position

    def give_back(self, next_id: int) -> None:
        """The node stops: message ids from `next_id` on were never issued."""
        self._recorder.append((Kind.NEXT_ID, records.NEXT_ID.pack(next_id), b""))
        self._writer.write()

    # topics

    def know(self, numbers: Iterable[int]) -> None:
        """These topics and readers are in the log already."""
        self._recorder.known.update(numbers)

    def topic(self, number: int, name: str) -> LogTopic | MemoryTopic:
        if is_ephemeral(name):
            return MemoryTopic(Sequence())
        sequence = self._recovered.pop(number, None) or Sequence()
        sequence.on_freed = self._cache.dropped
        topic = LogTopic(number, sequence, self._recorder, self.retention, self, self._syncer.durability)
        self._topics[number] = topic
        if number not in self._recorder.known:
            self._recorder.known.add(number)
            self._recorder.append((Kind.TOPIC, records.TOPIC.pack(number) + name.encode(), b""))
            topic.promise()
        return topic

    def set_mode(self, topic: int, mode: Durability | None) -> tuple[Mark, ...]:
        """The topic is in that mode; None: it is gone. Returns what replies about its messages wait for."""
        before = self._modes.pop(topic, Durability.OS)
        if mode is not None:
            self._modes[topic] = mode
        else:
            self._topics.pop(topic, None)
        self._strict += (mode not in (None, Durability.OS)) - (before is not Durability.OS)
        self._syncer.relaxed = self._syncer.durability is Durability.OS and not self._strict
        return self._marks_of(mode)

    def _marks_of(self, mode: Durability | None) -> tuple[Mark, ...]:
        return self._to_be_synced if mode is Durability.ALWAYS else self._to_be_written

    # the messages there are

    def known_sequence(self, topic: int) -> Sequence | None:
        """The topic's extents; None: there is no such topic in the log."""
        known = self._topics.get(topic)
        return known.sequence if known is not None else None

    @property
    def is_whole(self) -> bool:
        """True if the broker has asked for every topic that the log remembers."""
        return not self._recovered

    def logged(self) -> list[int]:
        """The topics whose messages are in the log."""
        return list(self._topics)

    def durable_end(self, topic: int) -> int:
        """Messages of the topic before it survive a power cut."""
        return self.retention.durable_end(topic, self.known_sequence(topic))

    def _is_readable(self, topic: int, end: int) -> bool:
        """Everything before `end` is durable, or the topic is gone. Nothing is synced before so much is published."""
        sequence = self.known_sequence(topic)
        return sequence is None or (sequence.end >= end and self.durable_end(topic) >= end)

    def _give_up(self, read: Read) -> None:
        """What cannot be read back is lost to its channels: better said than waited for. What stands beside it is not."""
        why = str(read.failure or "damaged on disk")
        log.error("LOG: DAMAGE: %d messages of topic %d are lost: %s", len(read.lost), read.topic, why)
        read.sequence.without(read.held, read.lost)
        read.held.freed = read.held.count
        self.reshaped += 1

    def retire(self) -> bool:
        """What is retained for longer than its topic says may go. True if there is something."""
        retired = self.retention.retire(self._now)
        for number in retired:
            self._topics[number].write_first()
        return bool(retired)

    @property
    def overdue(self) -> bool:
        """Something is retained for longer than its topic says."""
        return self.retention.is_overdue(self._now)

    @property
    def clock_offset(self) -> int:
        """From the monotonic clock to the log's."""
        return self._clock.offset
