"""The logs of other nodes that this one has taken over: how each is opened beside the running broker, and by whom it is served.

One log at a time is promoted. A thread makes a log of the replica, replays it, and writes the first record of the new epoch
durably. From then on others may know that this node owns the log. The thread also fills a broker, to which nobody else has
access yet, so no turn of the reactor waits for it. It delivers when it is attached to the node's own broker, in slices. A start
opens the promoted logs again, each in a new epoch.

Nothing here does input or output by itself: `Directory`, `Parts` and `Work` do.

See docs/design/cluster.md#promotion.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from nsqd.cluster.promotion.duplicates import FailoverFigures
from nsqd.cluster.promotion.opening import Openings, Unopened
from nsqd.cluster.promotion.promoted_log import (
    ATTACHING,
    CLOSED,
    CLOSING,
    FAILED,
    FILLING,
    LOST,
    READING,
    SERVING,
    WAITING,
    PromotedLog,
)
from nsqd.cluster.promotion.promoted_log import Directory as Directory
from nsqd.cluster.promotion.promoted_log import Parts as Parts
from nsqd.cluster.replication.follower import Work
from nsqd.cluster.replication.replicas import Replicas
from nsqd.cluster.wire.part import Part
from nsqd.core.broker import Broker
from nsqd.core.message.epoch import Epoch
from nsqd.storage.log.disk import Disk
from nsqd.storage.log.opening import OpenLog
from shared.log import log

TIMER_EVERY = 750_000_000  # ns between two syncs of what nobody waits for, and two looks at the memory: with the time
# between two ticks it is a second
RETRY_AFTER = 10_000_000_000  # ns after which a log is opened again that could not be opened
GIVE_UP_AFTER = 10_000_000_000  # ns for which a log cannot be written before others may take it over


class Promotions(Part):
    """The logs that this node has taken over. All methods are for the reactor's thread."""

    def __init__(self, directory: Directory, replicas: Replicas, work: Work, parts: Parts) -> None:
        self.logs: dict[bytes, PromotedLog] = {}  # by log id
        self.parts = parts
        self.failovers = FailoverFigures()
        self._directory = directory
        self._replicas = replicas
        self._work = work
        self._openings = Openings(directory, parts)
        self._current: PromotedLog | None = None  # the one that is being opened or filled
        self._timer_due = 0
        replicas.is_promoted = self.owns

    # what the cluster decides

    def won(self, log_id: bytes, number: int, is_clean: bool = True) -> None:
        """Take over a log of which this node has a replica, in the epoch with that number. It was claimed with success.

        `is_clean`: the replica has all that clients were told that it is kept.
        """
        kept = self._replicas.kept.get(log_id)
        if log_id in self.logs:
            self.parts.failed(log_id, "it is being promoted, or kept as a diverged copy")
            return
        if kept is None:
            self.parts.failed(log_id, "this node has no replica of it")
            log.error("CLUSTER: cannot promote the log %s: this node keeps no replica of it", log_id.hex())
            return
        self.logs[log_id] = PromotedLog(log_id, number, kept.node, is_clean=is_clean)
        self._begin_next()

    def reopen(self) -> None:
        """Open the logs again that earlier runs of this node have taken over. Raises OSError if they cannot be listed."""
        for log_id in self._directory.found():
            self.logs[log_id] = owned = PromotedLog(log_id, 0, -1, deletions=self.parts.watch())
            if self.parts.is_closed(log_id):
                owned.state = CLOSED
            else:
                self.parts.resume(log_id)
        self._begin_next()

    def serve_salvaged(self, log_id: bytes) -> None:
        """Serve a log that this node has made of what another log's owner lacks. It is in the directory, durably."""
        if log_id not in self.logs and not self.parts.is_closed(log_id):
            self.logs[log_id] = PromotedLog(log_id, 0, -1, deletions=self.parts.watch(), is_new=True)
            self._begin_next()

    def called_off(self, log_id: bytes) -> None:
        """Do not take over a log after all: its owner is back. It stays a replica, unless the epoch is durable already."""
        owned = self.logs.get(log_id)
        if owned is None or not owned.number or owned.is_announced:
            return
        owned.is_called_off = True
        if owned.state == WAITING and log_id in self._replicas.kept:
            del self.logs[log_id]

    def fenced(self, log_id: bytes, epoch: Epoch) -> None:
        if epoch.node == self.parts.node:
            self.begin_again(log_id, epoch.number + 1)
        else:
            self.lose(log_id)

    def lose(self, log_id: bytes) -> None:
        """Give up a log: another node owns it by a greater epoch. What is here is kept as a diverged copy."""
        owned = self.logs.get(log_id)
        if owned is None or owned.state == LOST:
            return
        is_busy = owned.state in (READING, FILLING)  # `_opened` or `_filled` goes on
        owned.state = LOST
        if not is_busy:
            self._end(owned)

    def begin_again(self, log_id: bytes, number: int) -> None:
        """Open a log again in an epoch with that number or a higher one, because other nodes know a later run of this node.

        That is so if the data directory is an old backup. What is in flight becomes ready.
        """
        owned = self.logs.get(log_id)
        if owned is None:
            return
        owned.least = number
        if owned.state == SERVING:
            owned.state = CLOSING
            self._end(owned)

    def unannounced(self) -> list[bytes]:
        """Return the logs that this node is taking over, of which it has told nobody yet."""
        return [one.log_id for one in self.logs.values() if one.number and not one.is_announced]

    # closing

    def end(self, log_id: bytes) -> None:
        """Serve a log no more, because it is closed. Its files stay until `log_removable`."""
        owned = self.logs.get(log_id)
        if owned is None or owned.state in (LOST, CLOSED):
            return
        is_busy = owned.state in (READING, FILLING)  # `_opened` or `_filled` goes on
        owned.state = LOST if is_busy else CLOSED
        if not is_busy:
            self._end(owned)

    def log_removable(self, log_id: bytes) -> None:
        """Remove the files of a log that this node has closed, as soon as nothing uses them."""
        owned = self.logs.get(log_id)
        if owned is not None and owned.is_ending:
            owned.is_removable = True
            return
        self._work.run(partial(self._directory.remove, log_id), partial(self._removed, log_id))

    def _removed(self, log_id: bytes, result: OSError | None) -> None:
        if result is not None:
            log.error("CLUSTER: cannot remove the closed log %s: %s", log_id.hex(), result)
        elif (owned := self.logs.get(log_id)) is not None and owned.state == CLOSED:
            self._forget(owned)
            log.info("CLUSTER: removed the log %s, which is closed", log_id.hex())

    # opening

    def _begin_next(self) -> None:
        if self._current is not None or self._openings.is_over:
            return
        owned = next((one for one in self.logs.values() if one.state == WAITING), None)
        if owned is None:
            return
        self._current, owned.state, owned.began = owned, READING, self.parts.clocks()[0]
        if owned.number and owned.log_id in self._replicas.kept:
            self._replicas.release(owned.log_id, partial(self._released, owned))
        else:
            self._work.run(partial(self._openings.reopen, owned), partial(self._opened, owned))

    def _released(self, owned: PromotedLog, result: Disk | OSError) -> None:
        if isinstance(result, OSError):
            self._opened(owned, Unopened(str(result.strerror or result), is_taken=False))
        else:
            self._work.run(partial(self._openings.failover, owned, result), partial(self._opened, owned))

    def _opened(self, owned: PromotedLog, result: OpenLog | Unopened | OSError) -> None:
        if isinstance(result, OSError):
            result = Unopened(str(result))
        if isinstance(result, Unopened):
            if not self._openings.is_over:
                self._failed(owned, result)
            return
        owned.log, owned.node, owned.failure = result, result.identity.node, ""
        owned.failing_since, owned.is_given_up = None, False
        if owned.state == LOST:
            self._end(owned)
            return
        owned.state, owned.is_announced = FILLING, True
        if owned.deletions is None:
            owned.deletions = self.parts.watch()
        self.parts.announce(owned.log_id, result.identity.epoch)
        self._work.run(partial(self._openings.fill, owned, result), partial(self._filled, owned, result))

    def _filled(self, owned: PromotedLog, opened: OpenLog, broker: Broker | OSError | None) -> None:
        if isinstance(broker, OSError):
            raise broker  # it reads and writes nothing but the log, which notes that a write has failed
        if self._openings.is_over:
            return
        if owned.state == LOST:
            self._end(owned)
            return
        assert broker is not None
        owned.state, owned.broker = ATTACHING, broker
        opened.serve(broker)
        self._share()
        self.parts.copy(opened)
        if self.parts.attach is None:
            self._serve(owned)
        else:
            deletions, owned.deletions = owned.deletions, None
            attach_some = self.parts.attach(broker, deletions)
            self._attach(owned, attach_some)

    def _failed(self, owned: PromotedLog, failed: Unopened) -> None:
        if failed.is_lost or (owned.state == LOST and failed.is_taken):
            owned.state = LOST
            self._end(owned)
            return
        self._current, owned.failure = None, failed.why
        if failed.is_taken:
            owned.state = FAILED
            log.error(
                "CLUSTER: cannot open the promoted log %s: %s; trying again",
                owned.log_id.hex(),
                failed.why,
            )
            owned.retry_at = self.parts.clocks()[0] + RETRY_AFTER
            self.parts.give_up(owned.log_id)
        else:
            node = owned.node if failed.node < 0 else failed.node
            if failed.is_called_off:
                log.info("CLUSTER: the log of node %d is not promoted: %s", node, failed.why)
            else:
                log.error("CLUSTER: cannot promote the log of node %d: %s", node, failed.why)
            self._forget(owned)
            if owned.log_id not in self._replicas.kept:
                self._replicas.put_back(owned.log_id, node)
        self.parts.failed(owned.log_id, failed.why)
        self._begin_next()

    # serving

    def _attach(self, owned: PromotedLog, attach_some: Callable[[], bool]) -> None:
        if owned.state != ATTACHING:
            return
        if attach_some():
            self._work.run(_nothing, lambda result: self._attach(owned, attach_some))  # in another turn
            return
        owned.is_attached = True
        self._serve(owned)

    def _serve(self, owned: PromotedLog) -> None:
        owned.state, self._current = SERVING, None
        assert owned.log is not None
        assert owned.broker is not None
        took, epoch = self.parts.clocks()[0] - owned.began, owned.log.identity.epoch.number
        figures = owned.node, epoch, len(owned.broker.topics), took / 1e9
        if epoch < owned.least:
            self.begin_again(owned.log_id, owned.least)
            return
        if owned.number:
            self.failovers.failed_over(took / 1e9, owned.delivered, owned.unfinished, owned.is_clean)
            owned.is_clean = True  # if it is opened again, what was incomplete then was counted
            log.warning("CLUSTER: promoted the log of node %d, in epoch %d: %d topics, after %.1f s", *figures)
        else:
            if owned.is_new:
                self.failovers.salvaged(owned.delivered)
                owned.is_new = False
            log.info("CLUSTER: opened the log of node %d again, in epoch %d: %d topics, after %.1f s", *figures)
        self._begin_next()

    # the end

    def _end(self, owned: PromotedLog) -> None:
        """Deliver nothing more of a log, in slices, copy it no more, and close it. `_closed` goes on by its state."""
        if owned.is_ending:
            return
        owned.is_ending = True
        if owned.broker is None:
            self._close(owned)
            return
        self.parts.end_copying(owned.log_id)
        owned.deletions = self.parts.watch()
        self._detach(owned, self.parts.detach(owned.broker))

    def _detach(self, owned: PromotedLog, detach_some: Callable[[], bool]) -> None:
        if detach_some():
            self._work.run(_nothing, lambda result: self._detach(owned, detach_some))  # in another turn
            return
        owned.broker, owned.is_attached = None, False
        self._close(owned)

    def _close(self, owned: PromotedLog) -> None:
        opened = owned.log  # it stays there until it is closed: if this node stops before, `close` closes it
        if opened is not None:
            opened.upkeep = None  # it needs no checkpoint
        self._work.run(opened.close if opened is not None else _nothing, lambda result: self._closed(owned))

    def _closed(self, owned: PromotedLog) -> None:
        owned.log, owned.is_ending = None, False
        if owned.state == LOST:
            self._work.run(partial(self._keep_diverged, owned.log_id), partial(self._was_kept_diverged, owned))
            return
        if owned.state == CLOSING:
            owned.state = WAITING
        elif owned.state == CLOSED and owned.is_removable:
            self.log_removable(owned.log_id)
        if self._current is owned:
            self._current = None
        self._begin_next()

    def _keep_diverged(self, log_id: bytes) -> str:
        return self._directory.keep_diverged(log_id) if log_id in self._directory.found() else ""

    def _was_kept_diverged(self, owned: PromotedLog, result: str | OSError) -> None:
        self._forget(owned)
        if self._current is owned:
            self._current = None
        if isinstance(result, OSError):
            name = owned.log_id.hex()
            log.error("CLUSTER: cannot keep the log %s, which another node owns, as a diverged copy: %s", name, result)
        elif result:
            log.warning(
                "CLUSTER: another node owns the log %s now: what was recorded here is kept in %s",
                owned.log_id.hex(),
                result,
            )
        elif owned.log_id not in self._replicas.kept:
            self._replicas.put_back(owned.log_id, owned.node)
        self._begin_next()

    def _forget(self, owned: PromotedLog) -> None:
        del self.logs[owned.log_id]
        if owned.deletions is not None:
            owned.deletions.end()

    def stop(self) -> None:
        """Open no log any more: this node stops. What a thread does ends with the slice at hand."""
        self._openings.is_over = True

    def close(self) -> None:
        """Write what the next start needs, and close the logs, when all connections and threads are gone."""
        for owned in self.logs.values():
            if owned.log is not None:
                if owned.broker is not None:
                    owned.broker.commit()
                owned.log.close()

    # by the clock

    def tick(self, now: int) -> None:
        """Do what is due by time. Call it several times a second."""
        for owned in self.logs.values():
            if owned.state == FAILED and now >= owned.retry_at and not owned.is_ending:
                owned.state = WAITING
            if owned.state == SERVING and owned.broker is not None and not owned.is_attached:
                owned.broker.begin(*self.parts.clocks())
                owned.broker.commit()
        if now >= self._timer_due:
            self._timer_due = now + TIMER_EVERY
            for owned in self.logs.values():
                if owned.log is not None and owned.broker is not None:
                    owned.log.timer()
                    self._look_at_disk(owned, owned.log, now)
            self._share()
        self._begin_next()

    def _look_at_disk(self, owned: PromotedLog, opened: OpenLog, now: int) -> None:
        """Let others take a log over that this node cannot write (law R19). After a failed sync, open it again later."""
        failure = opened.writer.failure
        if owned.state != SERVING:
            return
        if not failure:
            owned.failing_since = None
            if owned.is_given_up:  # and nobody has taken it over
                owned.is_given_up = False
                self.parts.resume(owned.log_id)
            return
        owned.failing_since = now if owned.failing_since is None else owned.failing_since
        is_broken = opened.writer.durable.broken
        if (is_broken or now - owned.failing_since >= GIVE_UP_AFTER) and not owned.is_given_up:
            log.error(
                "CLUSTER: cannot write the promoted log %s: %s; another node may take it over",
                owned.log_id.hex(),
                failure,
            )
            owned.is_given_up = True
            self.parts.give_up(owned.log_id)
        if is_broken:
            owned.state, owned.failure, owned.retry_at = FAILED, failure, now + RETRY_AFTER
            self._end(owned)

    def _share(self) -> None:
        """Divide the memory among all logs of this node."""
        caches = [self.parts.cache, *(owned.log.cache for owned in self.logs.values() if owned.log is not None)]
        for cache, part in zip(
            caches, shares(self.parts.budget, [cache.cached_bytes for cache in caches]), strict=True
        ):
            cache.budget = part

    # queries

    def owns(self, log_id: bytes) -> bool:
        """Return True if this node has taken over a log, or is taking it over: it keeps no replica of it."""
        return log_id in self.logs

    def figures(self) -> list[dict[str, Any]]:
        """Return for /cluster how far each log is that was taken over."""
        return [
            {
                "log_id": owned.log_id.hex(),
                "node": owned.node,
                "state": owned.state,
                "topics": len(owned.broker.topics) if owned.broker is not None else 0,
                "failure": owned.failure,
            }
            for owned in self.logs.values()
        ]


def shares(budget: int, used: Sequence[int]) -> list[int]:
    """Return how many bytes of memory each log may use, which uses so many now.

    Each may use its part, and what the others leave of theirs.
    """
    part, whole = budget // len(used), sum(min(one, budget // len(used)) for one in used)
    return [max(part, budget - whole + min(one, part)) for one in used]


def _nothing() -> None:
    """Do nothing: what follows is only to happen in another turn."""
