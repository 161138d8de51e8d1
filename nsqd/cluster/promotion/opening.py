"""The steps of the thread that opens a promoted log: open a replica as a log, read it, and begin an epoch of this node in it.

The epoch is not announced before its first record is durable. If the opening ends before that, after a failure, the return of
the leader or the end of this node, the directory is a replica, or the next start makes it one again.

See docs/contributing/design/cluster-protocol.md#promotion.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from nsqd.cluster.promotion.duplicates import delivered_before, unfinished
from nsqd.cluster.promotion.promoted_log import LOST, PromotedLog, PromotionHost
from nsqd.cluster.replication.directory import PromotedDirectory
from nsqd.cluster.replication.manifest import ManifestError
from nsqd.cluster.replication.replica import Replica, ReplicaError
from nsqd.cluster.replication.replica_to_log import ReplicaRefused, check_replay, drop_manifest, name_files, note_won
from nsqd.core.broker import Broker
from nsqd.core.recovery import recover
from nsqd.storage.log.clocks import write_note
from nsqd.storage.log.disk import Disk
from nsqd.storage.log.opening import OpenLog, Promoted
from nsqd.storage.log.reading import LogReading
from nsqd.storage.log.segments import LogError


class Interrupted(Exception):
    """The log is no longer to be promoted, or this node stops."""


class _LedByAnotherError(Exception):
    """Another node has promoted the log."""


@dataclass(frozen=True, slots=True)
class Unopened:
    """Why a log is not open."""

    why: str
    is_taken: bool = True  # it is a promoted log, and no replica
    is_lost: bool = False  # another node leads it
    node: int = -1  # number of the node that published into it; -1: it is not known here
    is_called_off: bool = False  # the promotion was called off


_CALLED_OFF = Unopened("it was called off", is_called_off=True)


class Openings:
    """Opens promoted logs. All methods are for any thread, for one log at a time."""

    def __init__(self, directory: PromotedDirectory, host: PromotionHost) -> None:
        self.is_over = False  # this node stops: the thread ends soon
        self._directory = directory
        self._host = host

    def failover(self, led: PromotedLog, disk: Disk) -> OpenLog | Unopened:
        """Make a log of the replica in the directory `disk`, and open it. If that fails, it is a replica again."""
        try:
            replica = Replica(disk, led.log_id, led.node)  # it is synced, and ends with a whole record
            replica.close()
            check_replay(disk, replica.manifest, partial(self._interrupt, led))
            self._interrupt(led)
            note = self._host.noted(led.log_id)
            if note is not None:
                write_note(disk, note)
            note_won(disk, replica.manifest, led.number)
            self._directory.move_replica(led.log_id)
        except Interrupted:
            return replace(_CALLED_OFF, is_taken=False)
        except (OSError, ManifestError, ReplicaError, ReplicaRefused) as error:
            return self._replica_again(led, Unopened(str(error)))
        opened = self._open(led)
        return self._replica_again(led, opened) if isinstance(opened, Unopened) else opened

    def reopen(self, led: PromotedLog) -> OpenLog | Unopened:
        """Open a log that an earlier run has promoted, unless another node leads it now, or the promotion has not ended."""
        why = "its promotion was not finished before this node stopped"
        try:
            node = self._directory.put_back(led.log_id)
        except (OSError, ManifestError) as error:
            return Unopened(str(error))
        if node is not None:
            return Unopened(why, is_taken=False, node=node)
        led.is_called_off = False  # its epoch is durable, which cannot be taken back
        try:
            return self._open(led)
        except _LedByAnotherError:
            return Unopened("", is_lost=True)

    def _replica_again(self, led: PromotedLog, failed: Unopened) -> Unopened:
        try:
            if led.log_id in self._directory.found() and self._directory.put_back(led.log_id) is None:
                return failed  # its epoch is durable: the log is opened again later
        except (OSError, ManifestError) as error:
            return Unopened(f"{failed.why}; {error}")
        return replace(failed, is_taken=False)

    def _open(self, led: PromotedLog) -> OpenLog | Unopened:
        """Open a promoted log, and make the first record of the new epoch durable. Raises _LedByAnotherError."""
        try:
            disk = self._directory.open(led.log_id)
            manifest = name_files(disk)
            least, durable = (manifest.won, manifest.mark) if manifest else (0, 0)
            promoted = Promoted(self._host.node, max(led.least, least), durable, partial(self._interrupt, led))
            opened = self._host.open(disk, promoted, self._host.repair if manifest else partial(self._ask, led))
            try:
                self._interrupt(led)
                opened.writer.append_anchor()
                opened.writer.write()
                if opened.writer.group or not opened.writer.sync():
                    raise OSError(opened.writer.failure)
                drop_manifest(disk)
            except (OSError, Interrupted):
                opened.close()
                raise
        except Interrupted:
            return _CALLED_OFF
        except (OSError, ManifestError, LogError) as error:
            return Unopened(str(error))
        return opened

    def _ask(self, led: PromotedLog, disk: Disk, reading: LogReading) -> bool:
        """Repair a log before its next epoch begins, unless another node leads it by now. Implements Extend."""
        epochs = [*reading.epochs, *(epoch for epoch, _ in reading.replay.epochs)]
        if self._host.is_lost(led.log_id, epochs, reading.replay.followers):
            raise _LedByAnotherError
        return self._host.repair(disk, reading)

    def fill(self, led: PromotedLog, opened: OpenLog) -> Broker | None:
        """Return a broker with the unfinished messages of a log. None if the log is no longer needed."""
        broker = self._host.make_broker(opened)
        broker.begin(*self._host.clocks())
        snapshot = opened.take_snapshot()
        assert snapshot is not None
        led.delivered = delivered_before(snapshot.topics)
        try:
            recover(broker, snapshot, broker.now, partial(self._interrupt, led, True))
        except Interrupted:
            return None
        led.unfinished = unfinished(broker)
        broker.commit()
        return broker

    def _interrupt(self, led: PromotedLog, is_announced: bool = False) -> None:
        """Raise Interrupted if a log is no longer needed. `is_announced`: it can no longer be called off."""
        if self.is_over or led.state == LOST or (led.is_called_off and not is_announced):
            raise Interrupted


def until(is_over: Callable[[], bool]) -> Callable[[], None]:
    """Return a check that raises Interrupted when `is_over`. Reading a log calls it between records."""

    def interrupt() -> None:
        if is_over():
            raise Interrupted

    return interrupt
