"""From a data directory to a broker: the log is read, or NSQ's files are taken over. In the thread that owns the state."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable

from nsqd.core.broker import Broker
from nsqd.core.ids import IdSource
from nsqd.core.keeping import Durability
from nsqd.core.recovery import recover
from nsqd.core.topology import TopicEntry, restore, unpaused
from nsqd.net.reactor import Reactor
from nsqd.options import NsqdOptions
from nsqd.storage.directory import Directory, DirectoryError, Metadata
from nsqd.storage.diskqueue import QueueError
from nsqd.storage.log.disk import RealDisk
from nsqd.storage.log.opening import OpenLog, open_log
from nsqd.storage.log.reader import LogError
from nsqd.storage.nsq_import import NsqImport


def clocks() -> tuple[int, int]:
    """Monotonic ns, and ns since the epoch."""
    return time.monotonic_ns(), time.time_ns()


class Wake:
    """Wakes the reactor, from any thread. Before there is one nobody sleeps: its first turn looks at everything."""

    def __init__(self) -> None:
        self.reactor: Reactor | None = None

    def __call__(self) -> None:
        if self.reactor is not None:
            self.reactor.wake()


def nsq_import(directory: Directory) -> NsqImport:
    """What there is to be taken over: its queues; none of them: nothing. Raises DirectoryError."""
    taking = NsqImport(directory.path)
    try:
        taking.prepare()
        return taking
    except (QueueError, OSError) as error:
        raise DirectoryError(f"failed to take over NSQ's data - {error}") from None


def read_log(options: NsqdOptions, directory: Directory, wake: Callable[[], None]) -> OpenLog:
    """Read the log. Raises DirectoryError."""
    durability = Durability(options.durability)
    try:
        disk = RealDisk(directory.path / "log")
        node, every, budget = options.node_number(), options.sync_every, options.mem_budget
        return open_log(disk, node, durability, every, budget, wake)
    except (LogError, OSError) as error:
        raise DirectoryError(f"failed to open the log in {directory.path / 'log'} - {error}") from None


def make_broker(options: NsqdOptions, metadata: Metadata, opened: OpenLog, taking: NsqImport) -> Broker:
    """The core, with what the log remembers, or nsqd.dat and NSQ's queues while there is none. Raises DirectoryError."""
    now, wall = clocks()
    ids = IdSource(options.node_number(), max(metadata.ids, opened.lease), opened.store.lease)
    if opened.writer.failure:
        raise DirectoryError(f"failed to open the log - {opened.writer.failure}")
    broker = Broker(options.limits(), opened.store, ids, random.Random().randrange)
    broker.begin(now, wall)
    picture = opened.take_picture()
    if picture is not None:
        recover(broker, picture, now)
    else:
        topics = taking.topology(metadata.topics)
        restore(broker, map(unpaused, topics) if taking.queues else topics)
    broker.commit()
    opened.serve(broker)
    if taking.queues:
        _take_over(taking, broker, opened, topics)
    return broker


def _take_over(taking: NsqImport, broker: Broker, opened: OpenLog, topics: Iterable[TopicEntry]) -> None:
    """NSQ's messages, into channels that exist and are not paused yet. Raises DirectoryError."""

    def commit() -> None:
        broker.commit()
        if opened.writer.failure:
            raise DirectoryError(
                f"failed to take over NSQ's data - {opened.writer.failure}; the next start tries again"
            )
        broker.begin(*clocks())

    try:
        taking.run(broker, True, commit)
        restore(broker, topics)  # what is paused is from now on
        taking.run(broker, False, commit)
        commit()
        if not opened.syncer.now():
            raise DirectoryError(
                f"failed to take over NSQ's data - {opened.writer.failure}; the next start tries again"
            )
        taking.finish()
    except OSError as error:
        raise DirectoryError(f"failed to take over NSQ's data - {error}; the next start tries again") from None
