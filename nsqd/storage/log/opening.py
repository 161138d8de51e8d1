"""Opening a log: read its content, repair its end, and continue after it. One process may open any number of logs."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from nsqd.core.broker import Broker
from nsqd.core.message.id_ranges import IdRange
from nsqd.core.recovery import LogSnapshot
from nsqd.core.sequence.store import LogFigures
from nsqd.storage.log.backup import LogBackup
from nsqd.storage.log.cache import Cache
from nsqd.storage.log.checkpoint import Checkpoints, Tail
from nsqd.storage.log.cleaner import Cleaner
from nsqd.storage.log.clocks import Clocks, LogClock, read_note, system_clocks
from nsqd.storage.log.contents import LogContents
from nsqd.storage.log.disk import Disk
from nsqd.storage.log.epochs import RANDOM_SIZE, Epoch
from nsqd.storage.log.files import SegmentFiles
from nsqd.storage.log.held_ids import held_ids
from nsqd.storage.log.history import LogHistory
from nsqd.storage.log.identity import NAME as IDENTITY
from nsqd.storage.log.identity import LogIdentity, StoredIdentity, write_identity
from nsqd.storage.log.reading import LogReading, StartResults
from nsqd.storage.log.segments import LogError
from nsqd.storage.log.sources import LiveSource
from nsqd.storage.log.space import Space
from nsqd.storage.log.spare import Spare
from nsqd.storage.log.store import LogStore
from nsqd.storage.log.syncer import Syncer
from nsqd.storage.log.tidying import Tidying
from nsqd.storage.log.writer import SEGMENT_SIZE, Writer
from shared.log import log
from shared.topic_config import Durability

SEGMENTS_ON_DISK = 8  # segments are small enough that at least this many fit on the disk
SMALLEST_SEGMENT = 256 * 1024  # bytes
COUNT_EVERY = 1_000_000_000  # ns between counts of the memory that waiting messages take


@dataclass(frozen=True, slots=True)
class LogOptions:
    """The operator's settings for a log."""

    node: int  # number of the node
    durability: Durability  # durability of topics that have no mode of their own
    sync_every: int  # messages after which the mode `interval` syncs
    budget: int  # bytes of messages in memory, at most
    segment_size: int = 0  # bytes; 0: the default


@dataclass(frozen=True, slots=True)
class Promoted:
    """The knowledge of a node about a log that it opens and that another node has published into."""

    owner: int  # number of this node, which leads the log from now on
    least_epoch: int = 0  # the epoch that begins has this number or a higher one
    durable: int = 0  # position up to which the files are known to be durable, whatever the log states
    # is called between records while the log is read; its exceptions end the opening
    interrupt: Callable[[], None] | None = None


@dataclass(frozen=True, slots=True)
class Simulated:
    """The parts of a log that a simulator can replace."""

    clocks: Clocks = field(default_factory=system_clocks)
    segment_size: int = SEGMENT_SIZE  # bytes
    syncer: type[Syncer] = Syncer
    cache: type[Cache] = Cache
    cleaner: type[Cleaner] = Cleaner
    spare: type[Spare] = Spare
    tail: Tail = field(default_factory=Tail)
    random: Callable[[int], bytes] = os.urandom  # returns the given number of bytes


@dataclass(slots=True)
class OpenLog:
    """A log that is ready to be written: its parts, the results of the start, and the checkpoints once there is a broker."""

    disk: Disk
    identity: LogIdentity
    clock: LogClock
    writer: Writer
    syncer: Syncer
    cache: Cache
    store: LogStore
    tidying: Tidying
    start_results: StartResults
    tail: Tail
    wake: Callable[[], None]  # requests another turn of the reactor soon; may be called in any thread
    snapshot: LogSnapshot | None  # the broker's state; None: the log is new, or `take_snapshot` took it
    broker: Broker | None = None  # set by `serve`
    checkpoints: Checkpoints | None = None  # None: no broker is served, or the log needs no checkpoint
    is_promoted: bool = False  # another node has published into it, and this node does not
    count_at: int = 0  # when to count the memory of waiting messages again (monotonic ns)

    def take_snapshot(self) -> LogSnapshot | None:
        """Return the broker's state in the log. It may be large, so the log keeps no copy: call this once."""
        snapshot, self.snapshot = self.snapshot, None
        return snapshot

    def serve(self, broker: Broker) -> None:
        """Let a broker that was built read messages back, and begin the upkeep: a checkpoint may follow each commit."""
        source, roots, monotonic = LiveSource(broker, self.store), self.start_results.roots, self.clock.clocks.monotonic
        writer, syncer, tidying = self.writer, self.syncer, self.tidying
        self.checkpoints = Checkpoints(source, writer, syncer, tidying, roots, self.tail, monotonic, self.wake)
        broker.context.history = self.history()
        self.broker, self.cache.on_read = broker, broker.read_completed
        self.store.after_commit = self.checkpoints.turn

    def timer(self, due: bool = True) -> None:
        """Sync and limit memory by time, every second or more often. `due`: sync records that no reply waits for."""
        assert self.broker is not None
        self.syncer.timer(due)
        now = self.clock.clocks.monotonic()
        if now >= self.count_at:
            self.count_at = now + COUNT_EVERY
            self.cache.share(self.broker.waiting_bytes)

    def history(self) -> LogHistory:
        """Return the interface that reads messages back from the log."""
        return LogHistory(self.store, self.disk, self.identity.log_id, self.writer)

    def backup(self) -> LogBackup:
        """Return the interface that copies the log while it runs."""
        return LogBackup(self.disk, self.writer, self.syncer, self.tidying)

    def held_ids(self, next_id: int) -> tuple[IdRange, ...]:
        """Return the ranges of message ids that the log holds, or may issue from the sequence `next_id` on. Raises OSError."""
        return tuple(held_ids(self.store, self.disk, self.writer.files, self.identity.node, next_id))

    def contents(self) -> LogContents:
        """Return the interface that counts the log's bytes by topic."""
        return LogContents(self.store, self.tidying, self.writer, self.disk)

    def figures(self) -> LogFigures:
        """Return the log's current size, memory, losses and sync durations."""
        return LogFigures(
            size=self.tidying.size,
            segments=len(self.tidying.segments),
            live=self.tidying.live_bytes,
            checkpoints=self.checkpoints.written if self.checkpoints else 0,
            unsynced=self.writer.written.position - self.writer.durable.position,
            memory=self.cache.cached_bytes,
            damage=self.start_results.damage.size + self.cache.failures,
            torn=self.start_results.torn,
            retries=self.cache.retries,
            replay=self.start_results.seconds,
            syncs=self.syncer.latencies.histogram(),
            failed_syncs=self.writer.failed_syncs,
        )

    def files(self) -> tuple[int, int, int, int, int]:
        """Return the statistics of beanstalkd's binlog for its clients.

        These are the numbers of the oldest and the newest file, records moved and records written since the start, and bytes of
        a file.
        """
        writer = self.writer
        oldest = self.tidying.segments[0] if self.tidying.segments else writer.base
        moved, size = self.tidying.moved, writer.segment_size
        return writer.number_of(oldest), writer.number_of(writer.base), moved, writer.records, size

    def close(self) -> None:
        """Leave a checkpoint, give back the leased ids, sync the rest, state that it is durable, and close the files."""
        if self.broker is not None and self.checkpoints is not None:
            self.checkpoints.finish()
            if not self.is_promoted:
                self.store.return_ids(self.broker.ids.next)
        self.syncer.sync_all()  # a start trusts no checkpoint without the durable mark
        self.cache.close()
        self.syncer.close()
        self.writer.close()


# Fetches from other nodes the records that the log has lost. Returns True if it is to be read again. Raises OSError.
Extend = Callable[[Disk, LogReading], bool]


def open_log(
    disk: Disk,
    options: LogOptions,
    wake: Callable[[], None],
    simulated: Simulated | None = None,
    extend: Extend | None = None,
    promoted: Promoted | None = None,
    least_epoch: Callable[[], int] = lambda: 0,
) -> OpenLog:
    """Read the log on a disk, and make it ready to be written. Begin a log if there is none.

    `wake` requests another turn of the reactor; any thread may call it. `promoted`: another node has published into the log.
    `least_epoch` returns, after the call of `extend`, the lowest number for the epoch that begins. Raises LogError.
    """
    parts = simulated or Simulated()
    try:
        reading = _read(disk, extend, promoted)
        most = max(SMALLEST_SEGMENT, disk.total() // SEGMENTS_ON_DISK)
        size = max(options.segment_size, SMALLEST_SEGMENT) if options.segment_size else parts.segment_size
        segment_size = min(size, most)
        spare = parts.spare(disk, segment_size)
        noted = read_note(disk) if promoted else None
    except OSError as error:
        raise LogError(f"cannot read the log: {error}") from None
    identity = _identify(disk, options.node, reading, parts.random, promoted, least_epoch())
    clock, space = LogClock(parts.clocks), Space(disk)
    snapshot = reading.resume(clock, noted)
    found, files = reading.log_records, SegmentFiles(reading.headers)
    writer = Writer(
        disk, identity, found.end, clock, space, spare, segment_size,
        found.stated, found.content_end, files, reading.replay.epochs,
    )  # fmt: skip
    writer.followers, writer.parents = reading.replay.followers, list(reading.replay.parents.values())
    syncer = parts.syncer(writer, space, options.durability, options.sync_every, wake)
    cache = parts.cache(disk, writer.files, options.budget, wake)
    store = LogStore(writer, syncer, cache, clock, reading.messages)
    if snapshot is not None:
        store.note_created(snapshot.numbers())
    cleaner = parts.cleaner(disk, identity, writer.files, wake)
    tidying = Tidying(store, writer, syncer, disk, cleaner, reading.bases, reading.missing, parts.clocks.monotonic)
    tail = replace(parts.tail, cheap=min(parts.tail.cheap, most))
    opened = OpenLog(
        disk, identity, clock, writer, syncer, cache, store, tidying, reading.start_results, tail, wake, snapshot
    )
    opened.is_promoted = store.is_promoted = promoted is not None
    return opened


def _read(disk: Disk, extend: Extend | None, promoted: Promoted | None) -> LogReading:
    """Return the content of the log on a disk, after `extend` has fetched what it lacks. Raises OSError, LogError."""
    durable, interrupt = (promoted.durable, promoted.interrupt) if promoted else (0, None)
    reading = LogReading(disk, durable, interrupt)
    reading.report()
    if extend is not None and extend(disk, reading):
        reading = LogReading(disk, durable, interrupt)
        reading.report()
    return reading


def _identify(
    disk: Disk, node: int, reading: LogReading, random: Callable[[int], bytes], promoted: Promoted | None, least: int
) -> LogIdentity:
    """Return the identity of the log from now on, with a new epoch, and write it to `log.id`.

    A promoted log keeps the number of the node that has published into it, because message ids contain it. If the write fails,
    a corrupt header of this epoch cannot be rebuilt from the file. Raises LogError if there is no log to promote.
    """
    if reading.log_records.files.stored is None and IDENTITY in disk.names():
        log.error("LOG: %s was corrupt and is rewritten", IDENTITY)
    log_id = reading.identity.log_id if reading.identity else random(16)
    epoch = Epoch(max(reading.highest_epoch + 1, least), node, random(RANDOM_SIZE))
    if promoted is not None:
        if reading.identity is None or not reading.log_records.end:
            raise LogError("the directory of a promoted log holds no log")
        node = reading.identity.node
        epoch = epoch._replace(number=max(epoch.number, promoted.least_epoch), node=promoted.owner)
    try:
        write_identity(disk, StoredIdentity(node, log_id, (*reading.epochs, epoch)))
    except OSError as error:
        log.warning("LOG: cannot write %s: %s", IDENTITY, error)
    return LogIdentity(node, log_id, epoch)
