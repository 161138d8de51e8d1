"""The follower's side of copying: the replicas that this node keeps of other nodes' logs.

A connection may write only the replica of the log id that its peer has proved, and of logs that the peer has promoted. A
failing disk affects only this replica, for a while: its leader is notified, and it is opened again later.

See docs/contributing/design/cluster-protocol.md#replicas.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from nsqd.cluster.replication import stream
from nsqd.cluster.replication.common_point import common_end, packed
from nsqd.cluster.replication.directory import ReplicaDirectory
from nsqd.cluster.replication.follower import Work
from nsqd.cluster.replication.manifest import ManifestError, replica_parts
from nsqd.cluster.replication.replica import Replica, ReplicaError, ReplicaSync
from nsqd.cluster.replication.stream import NO_SPACE
from nsqd.cluster.wire.frames import FrameKind, PeerError
from nsqd.cluster.wire.link import Link
from nsqd.core.message.epoch import NO_EPOCH, Epoch
from nsqd.storage.log.backup import LogPart
from nsqd.storage.log.disk import Disk
from nsqd.storage.log.epochs import unpack
from nsqd.storage.log.space import reserve_of
from shared.log import log

REPORT_AFTER = 1024 * 1024  # bytes after which the leader gets the replica's position, even if no client waits
SYNC_EVERY = 1_000_000_000  # ns until a sync for which no client waits
RETRY_AFTER = 10_000_000_000  # ns after a failure
QUICK = 1_000_000  # ns: a sync that takes less is done in the turn


@dataclass(slots=True)
class Kept:
    """One replica that this node keeps, open or not."""

    log_id: bytes
    node: int  # number of the node that publishes into the log, or did so
    replica: Replica | None = None
    disk: Disk | None = None
    link: Link | None = None  # the leader's connection, once it has asked
    is_opening: bool = False
    running: ReplicaSync | None = None  # the sync that runs in a thread
    is_awaited: bool = False  # a client waits for a sync
    must_report: bool = False  # a client waits for the next COPIED
    sync_due: int = 0
    asked: int = 0  # number of the leader's latest FOLLOW
    is_asked: bool = False  # the leader waits for HAVE
    must_reopen: bool = False  # the replica may end within a record, and is to be cut to a whole one
    is_resumed: bool = False  # the leader has sent RESUME or RESYNC, so COPIED may be sent
    reported: tuple[int, int] = (-1, -1)  # positions of the last COPIED
    failure: str = ""
    retry_at: int = 0
    # after DROP, the log's epochs: the replica is removed when it is not busy. None: the leader needs it
    dropped: stream.Epochs | None = None
    trusted: int | None = None  # a sync has failed: bytes after this position cannot be trusted
    compared: Epoch = NO_EPOCH  # that of the last leader with whose log the replica was compared
    # this node is to lead the log: called with the replica's directory, or an error, when the replica is not busy
    on_released: Callable[[Disk | OSError], None] | None = None

    @property
    def is_busy(self) -> bool:
        """Return True while the replica is opened, or synced by a thread: what else is to be done with it waits."""
        return self.is_opening or self.running is not None

    def compare(self, epochs: stream.Epochs) -> list[tuple[Epoch, int]]:
        """Note the epochs of the log that the replica is a part of, and return them unpacked."""
        unpacked = [(unpack(epoch), start) for epoch, start in epochs]
        self.compared = max([self.compared, *(epoch for epoch, _ in unpacked)])
        return unpacked


class Replicas:
    """The replicas that this node keeps, by log id."""

    def __init__(
        self,
        directory: ReplicaDirectory,
        work: Work,
        clock: Callable[[], int],
        may_write: Callable[[int, bytes], bool],
    ) -> None:
        """Find the replicas in `directory`, and open none yet.

        `clock` returns monotonic ns; `may_write` returns whether the node with a number may write the replica of a log.
        """
        self.kept: dict[bytes, Kept] = {}
        self._directory = directory
        self._work = work
        self._clock = clock
        self.may_write = may_write
        self.promoted: set[bytes] = set()  # logs that this node promotes or has promoted: it keeps no replica of them
        self.failures = 0  # how often a replica was stopped for a while, since the start
        self._average = 0  # moving average of the duration of syncs, ns
        for log_id, node in directory.found():
            self.kept[log_id] = Kept(log_id, node)

    # connections

    def receive(self, link: Link, kind: FrameKind, content: bytes, now: int) -> None:
        """Do what the leader of a log asks for. Raises PeerError."""
        node = link.node
        log_id = link.log_received or node.log_id
        number = stream.unpack_follow(content) if kind is FrameKind.FOLLOW else 0
        if log_id in self.promoted or not self.may_write(node.number, log_id):
            if kind is FrameKind.FOLLOW:
                self._send(link, log_id, stream.pack_gave_up(stream.NOT_LEADER))
            return
        kept = self.kept.get(log_id)
        if kept is None:
            if kind is not FrameKind.FOLLOW:
                return
            kept = self.kept[log_id] = Kept(log_id, node.number)
        if kept.on_released is not None:
            return
        if kind is FrameKind.FOLLOW:
            kept.link, kept.asked = link, number
            if log_id == node.log_id:
                kept.node = node.number
            kept.is_asked, kept.is_resumed, kept.dropped = True, False, None
            self._answer(kept)
            return
        if kind is FrameKind.DROP:
            kept.dropped = stream.unpack_epochs(content)
            self._drop(kept, kept.dropped)
            return
        replica = kept.replica
        if kept.link is not link or replica is None or kept.failure:
            return  # it was sent before the leader could know
        if not kept.is_resumed and kind not in (FrameKind.RESUME, FrameKind.RESYNC):
            return
        try:
            self._receive(kept, replica, kind, content)
        except ReplicaError as error:
            raise PeerError(str(error)) from None
        except OSError as error:
            self._fail(kept, str(error.strerror or error))

    def _send(self, link: Link, log_id: bytes, frame: bytes) -> None:
        """Send a frame about a log to its leader."""
        link.send_of(log_id, link.node.log_id, frame)

    def _receive(self, kept: Kept, replica: Replica, kind: FrameKind, content: bytes) -> None:
        if kind is FrameKind.BYTES:
            kept.must_reopen = True
            replica.append(*stream.unpack_bytes(content))
        elif kind is FrameKind.SYNC:
            kept.must_report = True
            kept.is_awaited |= stream.unpack_sync(content)
        elif kind is FrameKind.SEGMENT:
            replica.begin_segment(content)
            kept.node = replica.manifest.node
        elif kind is FrameKind.RESUME:
            epochs = stream.unpack_epochs(content)
            if _diverged(replica, epochs):
                raise PeerError("the replica holds what the log does not have: it cannot be continued")
            kept.is_resumed = kept.must_report = True
            replica.resume(kept.compare(epochs))
        elif kind is FrameKind.RESYNC:
            base, epochs = stream.unpack_resync(content)
            diverged = _diverged(replica, epochs)
            if diverged:
                replica = self._begin_again(kept, replica, diverged)
            kept.is_resumed = kept.must_report = True
            replica.resync(base, kept.compare(epochs))
        elif kind is FrameKind.SWITCH:
            replica.switch(stream.unpack_switch(content))
            kept.is_awaited = True
        else:
            replica.keep(*stream.unpack_keep(content))

    def closed(self, link: Link) -> None:
        """Note that a connection is gone. Its replica stays."""
        for kept in self.kept.values():
            if kept.link is link:
                kept.link = None

    # opening

    def _answer(self, kept: Kept) -> None:
        """Send the leader HAVE, once the replica is open and no sync is in progress."""
        if not kept.is_asked or kept.is_busy or kept.link is None:
            return  # HAVE is sent when that is over
        if kept.must_reopen and kept.replica is not None:
            kept.replica.close()
            kept.replica, kept.reported = None, (-1, -1)
        kept.must_reopen = False
        if kept.replica is None:
            self._begin_opening(kept)
            return
        replica, kept.is_asked, kept.reported = kept.replica, False, (-1, -1)
        epochs = packed(replica.manifest.epochs)
        segments = {file.base: file.generation for file in replica.manifest.files}
        self._send(kept.link, kept.log_id, stream.pack_have(stream.Have(replica.end, epochs, segments, kept.asked)))

    def _open(self, kept: Kept) -> tuple[Disk, Replica]:
        disk = kept.disk or self._directory.open(kept.log_id)
        try:
            return disk, Replica(disk, kept.log_id, kept.node, kept.trusted)
        except ReplicaError as error:
            raise OSError(str(error)) from None
        except ManifestError as error:
            name = self._directory.keep_diverged(kept.log_id)
            log.error(
                "REPLICA: the replica of node %d is replaced, because its %s; it is kept in %s", kept.node, error, name
            )
            disk = self._directory.open(kept.log_id)
            return disk, Replica(disk, kept.log_id, kept.node)

    def _opened(self, kept: Kept, result: tuple[Disk, Replica] | OSError) -> None:
        kept.is_opening = False
        if isinstance(result, OSError):
            self._fail(kept, str(result.strerror or result))
            self._release(kept)
            return
        kept.disk, kept.replica = result
        if kept.dropped is not None:
            self._drop(kept, kept.dropped)
            return
        kept.node = kept.replica.manifest.node
        kept.compare(packed(kept.replica.manifest.epochs))
        kept.trusted, kept.failure = None, ""
        for name, start, end in kept.replica.damage:
            log.error("REPLICA: DAMAGE in the replica of node %d: %s from %d to %d", kept.node, name, start, end)
        self._answer(kept)
        self._release(kept)

    def _begin_again(self, kept: Kept, replica: Replica, size: int) -> Replica:
        """Begin another replica, and keep this one as a diverged copy: the log lacks `size` bytes of it. Raises OSError."""
        replica.close()
        kept.replica = kept.disk = None
        self._keep_diverged(kept, size)
        kept.disk, kept.replica = self._open(kept)
        return kept.replica

    # durability

    def turn(self, now: int) -> None:
        """Run the syncs for which clients wait, and send COPIED to the leaders. Call it after input."""
        for kept in self.kept.values():
            if kept.replica is not None and kept.link is not None and not kept.failure:
                if kept.is_awaited:
                    self._sync(kept, kept.replica, now)
                if kept.replica is not None:  # the sync has not failed
                    self._send_copied(kept, kept.replica)

    def _sync(self, kept: Kept, replica: Replica, now: int) -> None:
        if kept.running is not None or (kept.link is not None and not kept.is_resumed):
            return  # its leader may send another RESUME or RESYNC at any moment, which needs the files
        kept.is_awaited = False
        job = replica.sync_job()
        if job is None:
            return
        kept.sync_due = now + SYNC_EVERY
        if self._average < QUICK and job.manifest is None:
            began = self._clock()
            try:
                job.run()
                replica.synced(job)
            except OSError as error:
                self._sync_failed(kept, replica, error)
            else:
                self._note_duration(self._clock() - began)
            return
        kept.running = job
        self._work.run(partial(_timed, job, self._clock), partial(self._synced, kept, replica, job))

    def _synced(self, kept: Kept, replica: Replica, job: ReplicaSync, result: int | OSError) -> None:
        kept.running = None
        if kept.dropped is not None:
            kept.replica = replica
            self._drop(kept, kept.dropped)
            return
        if kept.replica is not replica:  # it failed meanwhile
            if isinstance(result, OSError):
                kept.trusted = replica.durable
            replica.close()
            self._answer(kept)
            self._release(kept)
            return
        if isinstance(result, OSError):
            self._sync_failed(kept, replica, result)
            self._release(kept)
            return
        self._note_duration(result)
        try:
            replica.synced(job)
        except OSError as error:
            self._fail(kept, str(error.strerror or error))
            self._release(kept)
            return
        if kept.on_released is not None:
            self._release(kept)
            return
        kept.must_report = True
        self._answer(kept)  # if the leader has asked meanwhile
        if job.manifest is not None and kept.link is not None:
            log.info("REPLICA: the replica of node %d is complete: %d bytes", kept.node, replica.end)
        self._send_copied(kept, replica)

    def _note_duration(self, ns: int) -> None:
        self._average += (min(ns, 2 * QUICK) - self._average) // 8

    def _send_copied(self, kept: Kept, replica: Replica) -> None:
        """Send COPIED to the leader, except during a full resync."""
        positions = replica.end, replica.durable
        if not kept.is_resumed or replica.is_resyncing or positions == kept.reported or kept.link is None:
            return
        if kept.must_report or replica.end - kept.reported[0] > REPORT_AFTER:
            kept.must_report, kept.reported = False, positions
            self._send(kept.link, kept.log_id, stream.pack_copied(*positions))

    def tick(self, now: int) -> None:
        """Run the syncs without waiting clients, check the free space, and reopen failed replicas. Call it every second."""
        for kept in self.kept.values():
            replica = kept.replica
            if kept.failure:
                if now < kept.retry_at or kept.is_busy:
                    continue
                if kept.link is None:  # its leader may be lost: the replica must be readable
                    self._begin_opening(kept)
                elif not self._lacks_space(kept):
                    kept.retry_at = now + RETRY_AFTER
                    kept.failure, kept.is_asked, kept.is_resumed = "", True, False
                    self._answer(kept)
            elif replica is not None:
                if kept.link is not None and self._lacks_space(kept):
                    self._fail(kept, NO_SPACE)
                elif now >= kept.sync_due:
                    self._sync(kept, replica, now)
                    kept.must_report = True
                    self._send_copied(kept, replica)

    def _lacks_space(self, kept: Kept) -> bool:
        """Return True if a replica must stop: less than twice the reserve for this node's own log is free."""
        if kept.disk is None:
            return False
        try:
            return kept.disk.free() < 2 * reserve_of(kept.disk.total())
        except OSError:
            return False

    # failures

    def _sync_failed(self, kept: Kept, replica: Replica, error: OSError) -> None:
        kept.trusted = replica.durable
        self._fail(kept, f"cannot sync: {error.strerror or error}")

    def _fail(self, kept: Kept, why: str) -> None:
        """Stop a replica for a while, and notify its leader."""
        if kept.replica is not None and kept.running is None:
            if why == NO_SPACE:
                with suppress(OSError):
                    kept.replica.give_up_resync()
            kept.replica.close()
        kept.replica, kept.is_resumed, kept.reported = None, False, (-1, -1)
        kept.failure = why
        self.failures += 1
        kept.retry_at = self._clock() + RETRY_AFTER
        log.error("REPLICA: the replica of node %d cannot be continued: %s; trying again", kept.node, why)
        if kept.link is not None:
            self._send(kept.link, kept.log_id, stream.pack_gave_up(why))

    def _drop(self, kept: Kept, epochs: stream.Epochs) -> None:
        """Remove a replica that its leader does not need, or keep it as a diverged copy if it holds what the log does not have.

        `epochs`: those of the log. The leader may have an old copy of it, and this replica the only copy of acknowledged
        messages.
        """
        if kept.is_busy:
            return  # it is removed when that is over: DROP is sent once
        if kept.replica is None:
            self._begin_opening(kept)
            return
        diverged = _diverged(kept.replica, epochs)
        kept.replica.close()
        del self.kept[kept.log_id]
        try:
            if diverged:
                self._keep_diverged(kept, diverged)
            else:
                self._directory.remove(kept.log_id)
                log.info("REPLICA: removed a replica of node %d, which is no longer needed", kept.node)
        except OSError as error:
            log.error("REPLICA: cannot remove the replica of node %d: %s", kept.node, error)

    def _keep_diverged(self, kept: Kept, size: int) -> None:
        """Keep a replica as a diverged copy: the log lacks `size` bytes of it. Raises OSError."""
        name = self._directory.keep_diverged(kept.log_id)
        log.warning(
            "REPLICA: the log of node %d continues without its last %d bytes that were copied here: they are kept in %s",
            kept.node, size, name,
        )  # fmt: skip

    def discard(self, log_id: bytes, epochs: stream.Epochs) -> None:
        """Remove the replica of a log that is closed, if there is one, or keep it as `_drop` says."""
        kept = self.kept.get(log_id)
        if kept is not None and kept.on_released is None:
            kept.link, kept.dropped = None, epochs
            self._drop(kept, epochs)

    # the replica of a log that this node is to lead

    def release(self, log_id: bytes, on_released: Callable[[Disk | OSError], None]) -> None:
        """Close a replica when no operation is in progress, and release it.

        `on_released` gets its directory, or why it is of no use.
        From then on it is not among the replicas. Raises KeyError if there is no replica of that log.
        """
        kept = self.kept[log_id]
        kept.on_released, kept.link, kept.is_asked, kept.dropped = on_released, None, False, None
        self._release(kept)

    def _release(self, kept: Kept) -> None:
        if kept.on_released is None or kept.is_busy:
            return
        if kept.replica is None and not kept.failure:
            self._begin_opening(kept)
            return
        on_released, kept.on_released = kept.on_released, None
        if kept.replica is None or kept.disk is None:
            on_released(OSError(kept.failure))
            return
        kept.replica.close()
        del self.kept[kept.log_id]
        on_released(kept.disk)

    def put_back(self, log_id: bytes, node: int) -> None:
        """Take back a released replica. `node`: number of the node that published into the log."""
        kept = self.kept[log_id] = Kept(log_id, node)
        self._begin_opening(kept)

    # reading

    def open_all(self) -> None:
        """Open the replicas that were found at the start, so that their ends are known before their leaders return."""
        for kept in self.kept.values():
            self._begin_opening(kept)

    def _begin_opening(self, kept: Kept) -> None:
        kept.is_opening = True
        self._work.run(partial(self._open, kept), partial(self._opened, kept))

    def parts(self, kept: Kept, start: int) -> list[LogPart]:
        """Return the parts of a replica from the position `start` on. Raises KeyError if it is not complete, OSError."""
        replica, disk = kept.replica, kept.disk
        if replica is None or disk is None or not replica.end:
            raise KeyError(kept.log_id)
        return replica_parts(disk, replica.manifest, replica.end, start)

    # statistics

    def states(self) -> list[dict[str, Any]]:
        """Return the state of each replica, for /cluster."""
        return [
            {
                "node": kept.node,
                "log_id": kept.log_id.hex(),
                "connected": kept.link is not None,
                "complete": replica is not None and replica.end > 0,  # also during a full resync
                "written": replica.end if replica else 0,
                "durable": replica.durable if replica else 0,
                "epochs": [(epoch.pack().hex(), at) for epoch, at in replica.manifest.epochs] if replica else [],
                "opening": replica is None and not kept.failure,  # what it holds is not known yet
                "failure": kept.failure,
            }
            for kept, replica in ((one, one.replica) for one in self.kept.values())
        ]

    def close(self) -> None:
        """Sync and close all replicas, and note that they are durable. An error is logged: the next start checks that one."""
        for kept in self.kept.values():
            if kept.replica is not None and kept.running is None:
                try:
                    job = kept.replica.sync_job()
                    if job is not None and not kept.replica.is_resyncing:
                        job.run()
                        kept.replica.synced(job)
                    kept.replica.note_durable()
                except OSError as error:
                    log.error("REPLICA: cannot sync the replica of node %d: %s", kept.node, error)
                kept.replica.close()


def _diverged(replica: Replica, epochs: stream.Epochs) -> int:
    """Return the number of bytes at the replica's end that the log lacks. `epochs`: those of the log."""
    return replica.end - common_end(epochs, 1 << 62, packed(replica.manifest.epochs), replica.end)


def _timed(job: ReplicaSync, clock: Callable[[], int]) -> int:
    """Run a sync, and return how many ns it took. Raises OSError."""
    began = clock()
    job.run()
    return clock() - began
