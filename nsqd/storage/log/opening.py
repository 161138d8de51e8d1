"""Opening a node's log: read what is there, repair its end, go on behind it."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from nsqd.core.broker import Broker
from nsqd.core.recovery import LogPicture
from nsqd.core.retention.keeping import Durability
from nsqd.core.sequence.store import LogFigures
from nsqd.storage.log.backup import LogBackup
from nsqd.storage.log.cache import Cache
from nsqd.storage.log.checkpoint import Checkpoints, Tail
from nsqd.storage.log.cleaner import Cleaner
from nsqd.storage.log.clocks import Clocks, LogClock, system_clocks
from nsqd.storage.log.contents import LogContents
from nsqd.storage.log.disk import Disk
from nsqd.storage.log.history import LogHistory
from nsqd.storage.log.identity import NAME as IDENTITY
from nsqd.storage.log.identity import LogIdentity, write_identity
from nsqd.storage.log.reader import Damage, Reader
from nsqd.storage.log.recovered import RecoveredStore
from nsqd.storage.log.replay import Replay
from nsqd.storage.log.segments import LogError
from nsqd.storage.log.space import Space
from nsqd.storage.log.spare import Spare
from nsqd.storage.log.store import LogStore
from nsqd.storage.log.syncer import Syncer
from nsqd.storage.log.tidying import Tidying
from nsqd.storage.log.writer import SEGMENT_SIZE, Writer
from shared.log import log

SEGMENTS_ON_DISK = 8  # at least so many fill it
COUNT_EVERY = 1_000_000_000  # ns
SMALLEST_SEGMENT = 256 * 1024  # bytes
MISSING = "they are missing"


@dataclass(slots=True)
class OpenLog:
    """A log that is ready to be written."""

    disk: Disk
    identity: LogIdentity
    wake: Callable[[], None]
    store: LogStore
    writer: Writer
    syncer: Syncer
    cache: Cache
    picture: LogPicture | None  # what there was; None: the log is new
    lease: int  # message ids below it may have been issued
    segments: list[int]  # bases
    roots: list[int]  # of these, the one that replay began with, if it was a checkpoint
    tail: Tail
    monotonic: Callable[[], int]  # clock: ns
    cleaner: type[Cleaner]
    damage: Damage
    torn: int  # bytes that the start cut off at the log's end, and that may have been acknowledged
    replay: float  # s that reading took
    broker: Broker | None = None  # once it is built
    count_at: int = 0  # when to look again at how much memory is taken by what waits (monotonic ns)
    checkpoints: Checkpoints | None = None  # once there is a broker
    tidying: Tidying | None = None  # likewise

    def take_picture(self) -> LogPicture | None:
        """What there was, for the core: it may be large, and is given away."""
        picture, self.picture = self.picture, None
        return picture

    def serve(self, broker: Broker) -> None:
        """The broker is built: from now on what it does is kept, and kept small."""
        self.broker = broker
        self.cache.on_read = broker.read_completed
        cleaner = self.cleaner(self.disk, self.identity, self.cache.generations, self.wake)
        generations = self.cache.generations
        self.tidying = tidying = Tidying(
            self.store, self.writer, self.syncer, self.disk, cleaner, generations, self.segments, self.monotonic
        )
        self.checkpoints = Checkpoints(
            broker, self.store, self.writer, self.syncer, tidying, self.roots, self.tail, self.monotonic, self.wake
        )
        self.store.after_commit = self.checkpoints.turn

    def timer(self, due: bool = True) -> None:
        """Call it every second or more often. `due`: sync what was written and nobody waits for."""
        assert self.broker is not None
        self.syncer.timer(due)
        now = self.monotonic()
        if now >= self.count_at:
            self.count_at = now + COUNT_EVERY
            self.cache.share(self.broker.waiting_bytes)

    def history(self) -> LogHistory:
        """What can be read back."""
        return LogHistory(self.store, self.disk, self.identity.log_id, self.cache.generations)

    def backup(self) -> LogBackup:
        """Copies of it."""
        assert self.tidying is not None
        return LogBackup(self.disk, self.writer, self.syncer, self.tidying)

    def contents(self) -> LogContents:
        """What takes its space."""
        assert self.tidying is not None
        return LogContents(self.store, self.tidying, self.writer, self.disk)

    def figures(self) -> LogFigures:
        """Look."""
        checkpoints, tidying = self.checkpoints, self.tidying
        assert checkpoints is not None
        assert tidying is not None
        return LogFigures(
            size=tidying.size,
            segments=len(self.segments),
            live=tidying.wanted_bytes,
            checkpoints=checkpoints.written,
            unsynced=self.writer.written.position - self.writer.durable.position,
            memory=self.cache.held_bytes,
            damage=self.damage.size + self.cache.failures,
            torn=self.torn,
            retries=self.cache.retries,
            replay=self.replay,
            syncs=self.syncer.latencies.copy(),
        )

    def files(self) -> tuple[int, int, int, int, int]:
        """As beanstalkd's clients are told: the numbers of the oldest and the newest file, records moved and written since the
        start, and bytes of a file."""
        assert self.tidying is not None
        writer = self.writer
        oldest = self.segments[0] if self.segments else writer.base
        moved, size = self.tidying.moved, writer.segment_size
        return writer.number_of(oldest), writer.number_of(writer.base), moved, writer.records, size

    def close(self) -> None:
        """Leave a checkpoint, give back the leased ids, sync what is left, state that it is durable, and close the files."""
        if self.checkpoints is not None:
            self.checkpoints.finish()
        if self.broker is not None:
            self.store.give_back(self.broker.ids.next)
        self.syncer.settle()  # a start believes no checkpoint without the mark
        self.cache.close()
        self.syncer.close()
        self.writer.close()


@dataclass(frozen=True, slots=True)
class Simulated:
    """What a simulator replaces."""

    clocks: Clocks = field(default_factory=system_clocks)
    segment_size: int = SEGMENT_SIZE  # bytes
    syncer: type[Syncer] = Syncer
    cache: type[Cache] = Cache
    cleaner: type[Cleaner] = Cleaner
    spare: type[Spare] = Spare
    tail: Tail = field(default_factory=Tail)


def open_log(
    disk: Disk,
    node: int,
    durability: Durability,
    sync_every: int,
    budget: int,
    wake: Callable[[], None],
    simulated: Simulated | None = None,
    segment_size: int = 0,
) -> OpenLog:
    """`budget`: bytes of messages in memory; `segment_size`: bytes; 0: the usual.

    Raises LogError with one line that says what is wrong.
    """
    parts = simulated or Simulated()
    began = time.perf_counter()
    try:
        reader = Reader(disk)
        replay, recovered, root = replayed(reader)
        most = max(SMALLEST_SEGMENT, disk.total() // SEGMENTS_ON_DISK)
        segment_size = min(max(segment_size, SMALLEST_SEGMENT) if segment_size else parts.segment_size, most)
        spare = parts.spare(disk, segment_size)
    except OSError as error:
        raise LogError(f"cannot read the log: {error}") from None
    took = time.perf_counter() - began
    _tell(reader, replay, took)
    log_id = reader.files.identity.log_id if reader.files.identity else os.urandom(16)
    identity = LogIdentity(node, log_id)
    if reader.files.stored is None:
        _store_identity(disk, identity)
    clock = LogClock(parts.clocks)
    if replay.last:
        clock.resume(replay.anchor, replay.last)
    space = Space(disk)
    bases = [segment.base for segment in reader.segments]
    stated, content_end = reader.stated, reader.content_end
    writer = Writer(disk, identity, reader.end, clock, space, spare, segment_size, bases, stated, content_end)
    syncer = parts.syncer(writer, space, durability, sync_every, wake)
    cache = parts.cache(disk, log_id, budget, wake)
    cache.generations.update({s.base: s.header.generation for s in reader.segments if s.header.generation})
    store = LogStore(writer, syncer, cache, clock, recovered._topics)
    picture = replay.picture(clock) if reader.end else None  # a log that was only begun knows nothing
    if picture is not None:
        store.know(picture.numbers())
    return OpenLog(
        disk=disk,
        identity=identity,
        wake=wake,
        store=store,
        writer=writer,
        syncer=syncer,
        cache=cache,
        picture=picture,
        lease=first_id(reader, replay),
        segments=bases,
        roots=[root] if replay.complete else [],
        tail=replace(parts.tail, cheap=min(parts.tail.cheap, most)),
        monotonic=parts.clocks.monotonic,
        cleaner=parts.cleaner,
        damage=reader.damage,
        torn=reader.torn,
        replay=took,
    )


def replayed(reader: Reader) -> tuple[Replay, RecoveredStore, int]:
    """From the latest checkpoint that is good, else from the beginning: the state, the messages, where it began.

    It is good if it is complete and undamaged, and what is before it was durable: else messages that it speaks of may be lost.
    """
    for root in reader.roots() if reader.segments else [0]:
        recovered = RecoveredStore(lambda ceiling: True)
        replay = Replay(recovered)
        whole = False
        for record in reader.records(root):
            if not replay.apply(record):
                log.warning("LOG: a record of kind %d at %d is not known here", record.kind, record.position)
            whole = whole or (replay.complete and not reader.damage.spots)
        if root == 0 or (whole and reader.stated >= reader.segments[root].base):
            return replay, recovered, reader.segments[root].base if reader.segments else 0
    raise AssertionError("the beginning is always a root")


def _store_identity(disk: Disk, identity: LogIdentity) -> None:
    """Write `log.id`, which is missing or damaged. The next start tries again if that fails."""
    if IDENTITY in disk.names():
        log.error("LOG: %s was damaged, and is written again", IDENTITY)
    try:
        write_identity(disk, identity)
    except OSError as error:
        log.warning("LOG: cannot write %s: %s", IDENTITY, error)


def first_id(reader: Reader, replay: Replay) -> int:
    """Message ids below it may have been issued.

    What a clean stop gave back is believed only if the whole log could be read, and no segment was begun behind that of the
    stop, as each life begins one: in a record that is missing there, ids may have been leased again. The highest lease counts
    then, and that is more than was issued even if the newest one is missing: a lease is renewed when half of it is used up.
    """
    whole = not (reader.torn or reader.damage.spots or reader.files.unreadable)
    if replay.next_id and whole and replay.stopped_in == reader.segments[-1].base:
        return replay.next_id
    return replay.lease


def _tell(reader: Reader, replay: Replay, took: float) -> None:
    notes = reader.quarantine.notes
    for name in reader.files.unreadable:
        log.error("LOG: %s is no log segment, or was never finished: it is set aside as %s.unreadable", name, name)
    if not reader.segments:
        return
    log.info("LOG: %d messages found, read in %.2f s", replay.messages, took)
    for name in reader.files.rebuilt:
        log.error("LOG: the header of %s was damaged, and is rebuilt; of what stood there %s", name, notes[name, 0])
    for name, start, end in reader.cuts:
        told = "LOG: %d bytes may have been acknowledged, and are cut off %s at %d, the end of what is whole; %s"
        log.error(told, end - start, name, start, notes.get((name, start), MISSING))
    for name, start, end in reader.damage.spots:
        told = "LOG: DAMAGE in %s: %d bytes from %d on cannot be read; all else is served; %s"
        log.error(told, name, end - start, start, notes.get((name, start), MISSING))
