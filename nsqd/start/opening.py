"""Build a broker from a data directory: read the log, or import what another daemon left. Runs in the thread of the state."""

from __future__ import annotations

import gc
import itertools
import math
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import trio

from nsqd.core.broker import Broker
from nsqd.core.message.ids import IdSource, NoIds
from nsqd.core.recovery import recover
from nsqd.core.sequence.store import Store
from nsqd.core.shards import promoted_broker
from nsqd.core.topology import TopicEntry, changes, restore, snapshot, take_new, unpaused
from nsqd.core.trace import Trace
from nsqd.net.reactor import Reactor
from nsqd.options import NsqdOptions
from nsqd.storage.binlog import find_binlogs
from nsqd.storage.binlog_import import BinlogImport
from nsqd.storage.data_import import DataImportError
from nsqd.storage.directory import DataDirectory, DirectoryError, Metadata
from nsqd.storage.diskqueue import QueueError
from nsqd.storage.disque_aof import FILE as AOF
from nsqd.storage.disque_aof import AofError
from nsqd.storage.disque_import import DisqueImport
from nsqd.storage.log.disk import Disk, RealDisk
from nsqd.storage.log.opening import Extend, LogOptions, OpenLog, Promoted, open_log
from nsqd.storage.log.segments import LogError
from nsqd.storage.nsq_import import NsqImport
from shared.log import log
from shared.topic_config import Durability
from shared.values import SECOND

if TYPE_CHECKING:
    from nsqd.core.spans import Spans

MOST_TOLD = 5  # changes of nsqd.dat that the log names
SWITCH_INTERVAL = 0.0005  # s: another thread gives the interpreter back sooner than after Python's 5 ms
# Allocations between collections, young and middle; the oldest generation is never collected automatically. A million waiting
# messages make that a pause of half a second, so reference cycles are taken apart by hand when they end.
GC_THRESHOLDS = (2_000, 5, 1_000_000)


def tune_interpreter() -> None:
    """Set how the process changes threads and collects garbage. Called when a daemon is imported."""
    sys.setswitchinterval(SWITCH_INTERVAL)
    gc.freeze()  # imported objects are never garbage
    gc.set_threshold(*GC_THRESHOLDS)


def clocks() -> tuple[int, int]:
    """Return monotonic ns, and ns since the epoch."""
    return time.monotonic_ns(), time.time_ns()


class Wake:
    """A function that wakes the reactor, from any thread.

    Before there is a reactor it does nothing, because the reactor's first turn looks at everything.
    """

    def __init__(self) -> None:
        self.reactor: Reactor | None = None

    def __call__(self) -> None:
        if self.reactor is not None:
            self.reactor.wake()


@dataclass(frozen=True, slots=True)
class ForeignData:
    """What can be taken over from the files of other daemons: of one of them at most."""

    nsq: NsqImport
    beanstalkd: BinlogImport
    disque: DisqueImport

    @property
    def leftovers(self) -> list[str]:
        """Return the names of files that were found next to an existing log."""
        return [*self.nsq.leftovers, *self.beanstalkd.leftovers, *self.disque.leftovers]

    @property
    def wanted(self) -> bool:
        """Return True if there is anything to take over."""
        return bool(self.nsq.queues) or self.beanstalkd.wanted or self.disque.wanted


def imports(directory: DataDirectory) -> ForeignData:
    """Return the log and metadata that can be taken over. Raises DirectoryError."""
    path = directory.path
    found = ForeignData(NsqImport(path), BinlogImport(path), DisqueImport(path))
    try:
        owners = [
            *(["NSQ's queues"] if any(path.glob("*.diskqueue.*")) else []),
            *(["beanstalkd"] if find_binlogs(path) else []),
            *(["Disque"] if (path / AOF).exists() else []),
        ]
        if len(owners) > 1:
            raise DirectoryError(f"{path} holds files of both {' and '.join(owners)}: move one of them away")
        found.beanstalkd.prepare()
        found.nsq.prepare()
        found.disque.prepare()
    except (QueueError, DataImportError, AofError, OSError) as error:
        raise DirectoryError(f"failed to import the data in {path} - {error}") from None
    return found


def read_log(
    options: NsqdOptions,
    directory: DataDirectory,
    wake: Callable[[], None],
    segment_size: int = 0,
    extend: Extend | None = None,
    least_epoch: Callable[[], int] = lambda: 0,
) -> OpenLog:
    """Read the log. `segment_size` is in bytes; 0: the usual size. For the others see open_log. Raises DirectoryError."""
    log_options = LogOptions(
        options.node_number(), Durability(options.durability), options.sync_every, options.mem_budget, segment_size
    )
    try:
        return open_log(RealDisk(directory.path / "log"), log_options, wake, extend=extend, least_epoch=least_epoch)
    except (LogError, OSError) as error:
        raise DirectoryError(f"failed to open the log in {directory.path / 'log'} - {error}") from None


def open_promoted(
    options: NsqdOptions, wake: Callable[[], None], disk: Disk, promoted: Promoted, extend: Extend | None
) -> OpenLog:
    """Open a promoted log. Any thread may call it.

    Its records are synced within a second, and no client publishes into it. Raises LogError, OSError, and what `extend` or
    `promoted.interrupt` raises.
    """
    log_options = LogOptions(promoted.owner, Durability.INTERVAL, options.sync_every, options.mem_budget // 2)
    return open_log(disk, log_options, wake, extend=extend, promoted=promoted)


def make_promoted_broker(home: Opened, opened: OpenLog) -> Broker:
    """Return an empty broker for a promoted log, which runs in the turns of the broker of `home`."""
    store = _spanned(opened.store, home.spans, is_own=False)
    return promoted_broker(home.broker, store, NoIds(opened.identity.node, opened.start_results.lease))


def _spanned(store: Store, spans: Spans | None, is_own: bool = True) -> Store:
    if spans is None:
        return store
    from nsqd.core.spanned_store import spanned_store

    return spanned_store(store, spans, is_own)


@dataclass(frozen=True, slots=True)
class Opened:
    """The parts that exist once the data directory has been read."""

    metadata: Metadata
    log: OpenLog
    broker: Broker
    wake: Wake  # wakes the reactor that is built later
    # messages that may be delivered twice because another node has led the log before, by duplicates.REASONS
    possible_duplicates: Counter[str] = field(default_factory=Counter)
    spans: Spans | None = None  # of publishes and deliveries; None: nothing exports them


def open_directory(
    options: NsqdOptions,
    directory: DataDirectory,
    segment_size: int = 0,
    extend: Extend | None = None,
    least_id: Callable[[], int] = lambda: 0,
    least_epoch: Callable[[], int] = lambda: 0,
) -> Opened:
    """Read the log and build the broker. For the other arguments see `read_log`. Raises DirectoryError.

    `least_id` returns, once the log is read, the sequence below which no message id is issued.
    """
    metadata, wake = load_metadata(directory), Wake()
    found = imports(directory)
    opened = read_log(options, directory, wake, segment_size, extend, least_epoch)
    metadata = replace(metadata, ids=max(metadata.ids, least_id()))
    spans = None
    if options.otel_endpoint:
        from nsqd.core.spans import Spans

        spans = Spans(time.time_ns, options.otel_sample_every)
    return Opened(metadata, opened, make_broker(options, metadata, opened, found, spans), wake, spans=spans)


def make_broker(
    options: NsqdOptions, metadata: Metadata, opened: OpenLog, found: ForeignData, spans: Spans | None = None
) -> Broker:
    """Build the core from what the log remembers. `spans`: gets publishes and deliveries; None: nothing does.

    While there is no log yet, the core is built from nsqd.dat and from the files that another daemon has left. Raises
    DirectoryError.
    """
    first = max(metadata.ids, opened.start_results.lease, found.beanstalkd.binlog.highest + 1)
    ids = IdSource(options.node_number(), first, opened.store.lease)
    if opened.writer.failure:
        raise DirectoryError(f"failed to open the log - {opened.writer.failure}")
    trace = Trace() if options.debug_routes else None
    store = _spanned(opened.store, spans)
    broker = Broker(options.limits(), store, ids, random.Random().randrange, trace)
    broker.context.history = opened.history()
    broker.begin(*clocks())
    log_snapshot = opened.take_snapshot()
    topics = found.nsq.topology(metadata.topics) if log_snapshot is None else []
    if log_snapshot is None:
        restore(broker, map(unpaused, topics) if found.nsq.queues else topics)
    else:
        recover(broker, log_snapshot, broker.now)
    is_changed = log_snapshot is not None and not metadata.is_own
    if is_changed:
        _take_changes(broker, metadata)
    broker.end_pauses(broker.wall // SECOND, len(broker.registry.pauses.details))
    broker.commit()
    opened.serve(broker)
    try:
        if is_changed:  # it must be durable before nsqd.dat is written again: then that passes for our own
            _commit(broker, opened)
            _sync(opened)
        _import(broker, opened, found, topics)
    except (OSError, DataImportError) as error:
        raise DirectoryError(f"failed to import data - {error}; the next start tries again") from None
    return broker


def _import(broker: Broker, opened: OpenLog, found: ForeignData, topics: list[TopicEntry]) -> None:
    """Take over messages and jobs. `topics` are those that NSQ knows. Raises OSError, DataImportError."""
    commit = partial(_commit, broker, opened)
    for jobs in (found.beanstalkd, found.disque):
        if jobs.wanted:
            jobs.run(broker, commit)
            _sync(opened)
            jobs.finish()
    if found.nsq.queues:
        found.nsq.run(broker, True, commit)
        restore(broker, topics)  # topics and channels that are paused are paused from now on
        found.nsq.run(broker, False, commit)
        commit()
        _sync(opened)
        found.nsq.finish()


def _take_changes(broker: Broker, metadata: Metadata) -> None:
    """Take what is new in a nsqd.dat that another program wrote, for example to provision topics; log what, and what not."""
    before = snapshot(broker)
    full = take_new(broker, metadata.topics)
    after = snapshot(broker)
    taken, ignored = changes(before, after), changes(after, metadata.topics)
    if taken:
        log.info("took from nsqd.dat, which this nsqd did not write: %s", _shortened(taken))
    if full:
        log.warning("cannot take all of nsqd.dat: %s", full)
    if ignored and metadata.topics:
        log.warning(
            "ignoring a part of nsqd.dat, which this nsqd did not write. To %s, use the HTTP API (/topic/delete,"
            " /topic/unpause, /channel/delete, ...)",
            _shortened(ignored),
        )


def _shortened(steps: list[str]) -> str:
    """Return the first of several steps in words, and how many more there are."""
    more = f" and {len(steps) - MOST_TOLD} more" if len(steps) > MOST_TOLD else ""
    return f"{', '.join(steps[:MOST_TOLD])}{more}"


def load_metadata(directory: DataDirectory) -> Metadata:
    """Read nsqd.dat. One that cannot be read is renamed where a log has the same. Raises DirectoryError."""
    try:
        return directory.load()
    except DirectoryError as error:
        if not any((directory.path / "log").glob("*.log")):
            raise
        log.warning("%s; the log has all topics, so the file is renamed to %s", error, directory.rename_damaged())
        return Metadata(is_own=False)


def _commit(broker: Broker, opened: OpenLog) -> None:
    """End a turn and begin the next one. Raises OSError if the group could not be written."""
    broker.commit()
    if opened.writer.failure:
        raise OSError(opened.writer.failure)
    broker.begin(*clocks())


def _sync(opened: OpenLog) -> None:
    if not opened.syncer.now():
        raise OSError(opened.writer.failure)


async def sync_by_time(options: NsqdOptions, opened: OpenLog, wake: Callable[[], None]) -> None:
    """Sync records that no reply waits for every sync-timeout, and check every second whether the log is idle."""
    interval = options.sync_timeout / 1e9  # s; a topic may use the mode `interval` whatever the node's mode is
    if options.durability != "interval":
        interval = min(interval, 1.0)
    ticks = max(1, math.ceil(interval))
    for tick in itertools.count(1):
        await trio.sleep(interval / ticks)
        opened.timer(due=tick % ticks == 0)
        wake()
