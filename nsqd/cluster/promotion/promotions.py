"""The logs of other nodes that this one has promoted: how each is opened next to the running broker, and served.

One log at a time is promoted. A thread opens the replica as a log, replays it, and writes the first record of the new epoch
durably. Then this node announces that it leads the log. The thread also fills a broker, to which no other thread has
access yet, so no turn of the reactor waits for it. It delivers when it is attached to the node's own broker, in slices. A start
opens the promoted logs again, each in a new epoch.

Nothing here does input or output by itself: `PromotedDirectory`, `PromotionHost` and `Work` do.

See docs/contributing/design/cluster-protocol.md#promotion.
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
    PromotionHost,
)
from nsqd.cluster.replication.directory import PromotedDirectory
from nsqd.cluster.replication.follower import Work
from nsqd.cluster.replication.replicas import Replicas
from nsqd.cluster.wire.part import Part
from nsqd.core.broker import Broker
from nsqd.core.message.epoch import Epoch
from nsqd.storage.log.disk import Disk
from nsqd.storage.log.opening import OpenLog
from shared.log import log

TIMER_EVERY = 750_000_000  # ns between two syncs without a waiting client, and two checks of the memory: with the time
# between two ticks it is a second
RETRY_AFTER = 10_000_000_000  # ns after which a log is opened again that could not be opened
STEP_DOWN_AFTER = 10_000_000_000  # ns for which a log cannot be written until this node steps down


class Promotions(Part):
    """The logs that this node has promoted. All methods are for the reactor's thread."""

    def __init__(self, directory: PromotedDirectory, replicas: Replicas, work: Work, host: PromotionHost) -> None:
        self.logs: dict[bytes, PromotedLog] = {}  # by log id
        self.host = host
        self.failovers = FailoverFigures()
        self._directory = directory
        self._replicas = replicas
        self._work = work
        self._openings = Openings(directory, host)
        self._current: PromotedLog | None = None  # the one that is being opened or filled
        self._timer_due = 0

    # decisions of the cluster

    def won(self, log_id: bytes, number: int, is_clean: bool = True) -> None:
        kept = self._replicas.kept.get(log_id)
        if log_id in self.logs:
            self.host.failed(log_id, "it is being promoted, or kept as a diverged copy")
            return
        if kept is None:
            self.host.failed(log_id, "this node has no replica of it")
            log.error("CLUSTER: cannot promote the log %s: this node keeps no replica of it", log_id.hex())
            return
        self._add(PromotedLog(log_id, number, kept.node, is_clean=is_clean))
        self._begin_next()

    def reopen(self) -> None:
        """Open the logs again that earlier runs of this node have promoted. Raises OSError if they cannot be listed."""
        for log_id in self._directory.found():
            led = self._add(PromotedLog(log_id, 0, -1, deletions=self.host.watch()))
            if self.host.is_closed(log_id):
                led.state = CLOSED
            else:
                self.host.resume(log_id)
        self._begin_next()

    def serve_salvaged(self, log_id: bytes) -> None:
        """Serve a log that this node has made of what another log's leader lacks. It is in the directory, durably."""
        if log_id not in self.logs and not self.host.is_closed(log_id):
            self._add(PromotedLog(log_id, 0, -1, deletions=self.host.watch(), is_new=True))
            self._begin_next()

    def called_off(self, log_id: bytes) -> None:
        """Call off a promotion: the leader is back. The log stays a replica, unless the epoch is durable already."""
        led = self.logs.get(log_id)
        if led is None or not led.number or led.is_announced:
            return
        led.is_called_off = True
        if led.state == WAITING and log_id in self._replicas.kept:
            self._forget(led)

    def fenced(self, log_id: bytes, epoch: Epoch) -> None:
        if epoch.node == self.host.node:
            self.begin_again(log_id, epoch.number + 1)
        else:
            self.lose(log_id)

    def lose(self, log_id: bytes) -> None:
        """Lose a log: another node leads it by a greater epoch. It is kept as a diverged copy."""
        led = self.logs.get(log_id)
        if led is None or led.state == LOST:
            return
        is_busy = led.state in (READING, FILLING)  # `_opened` or `_filled` continues
        led.state = LOST
        if not is_busy:
            self._end(led)

    def begin_again(self, log_id: bytes, number: int) -> None:
        """Open a log again in an epoch with that number or a higher one, because other nodes know a later run of this node.

        That is so if the data directory is an old backup. Messages in flight become ready.
        """
        led = self.logs.get(log_id)
        if led is None:
            return
        led.least = number
        if led.state == SERVING:
            led.state = CLOSING
            self._end(led)

    def unannounced(self) -> list[bytes]:
        """Return the logs that this node is promoting and has not announced yet, and those that it is ending as lost."""
        return [one.log_id for one in self.logs.values() if one.state == LOST or (one.number and not one.is_announced)]

    # closing

    def end(self, log_id: bytes) -> None:
        """Stop serving a log that is closed now. Its files stay until `log_removable`."""
        led = self.logs[log_id]
        led.state = CLOSED
        self._end(led)

    def log_removable(self, log_id: bytes) -> None:
        """Remove the files of a log that this node has closed, as soon as nothing uses them."""
        led = self.logs.get(log_id)
        if led is not None and led.is_ending:
            led.is_removable = True
            return
        self._work.run(partial(self._directory.remove, log_id), partial(self._removed, log_id))

    def _removed(self, log_id: bytes, result: OSError | None) -> None:
        if result is not None:
            log.error("CLUSTER: cannot remove the closed log %s: %s", log_id.hex(), result)
        elif (led := self.logs.get(log_id)) is not None and led.state == CLOSED:
            self._forget(led)
            log.info("CLUSTER: removed the log %s, which is closed", log_id.hex())

    # opening

    def _begin_next(self) -> None:
        if self._current is not None or self._openings.is_over:
            return
        led = next((one for one in self.logs.values() if one.state == WAITING), None)
        if led is None:
            return
        self._current, led.state, led.began = led, READING, self.host.clocks()[0]
        if led.number and led.log_id in self._replicas.kept:
            self._replicas.release(led.log_id, partial(self._released, led))
        else:
            self._work.run(partial(self._openings.reopen, led), partial(self._opened, led))

    def _released(self, led: PromotedLog, result: Disk | OSError) -> None:
        if isinstance(result, OSError):
            self._opened(led, Unopened(str(result.strerror or result), is_taken=False))
        else:
            self._work.run(partial(self._openings.failover, led, result), partial(self._opened, led))

    def _opened(self, led: PromotedLog, result: OpenLog | Unopened | OSError) -> None:
        if isinstance(result, OSError):
            result = Unopened(str(result))
        if isinstance(result, Unopened):
            if not self._openings.is_over:
                self._failed(led, result)
            return
        led.log, led.node, led.failure = result, result.identity.node, ""
        led.failing_since, led.has_stepped_down = None, False
        if led.state == LOST:
            self._end(led)
            return
        led.state, led.is_announced = FILLING, True
        if led.deletions is None:
            led.deletions = self.host.watch()
        self.host.announce(led.log_id, result.identity.epoch)
        self._work.run(partial(self._openings.fill, led, result), partial(self._filled, led, result))

    def _filled(self, led: PromotedLog, opened: OpenLog, broker: Broker | OSError | None) -> None:
        if isinstance(broker, OSError):
            raise broker  # it reads and writes nothing but the log, which notes that a write has failed
        if self._openings.is_over:
            return
        if led.state == LOST:
            self._end(led)
            return
        assert broker is not None
        led.state, led.broker = ATTACHING, broker
        opened.serve(broker)
        self._share()
        self.host.copy(opened)
        deletions, led.deletions = led.deletions, None
        self._attach(led, self.host.attach(broker, deletions))

    def _failed(self, led: PromotedLog, failed: Unopened) -> None:
        if failed.is_lost or (led.state == LOST and failed.is_taken):
            led.state = LOST
            self._end(led)
            return
        self._current, led.failure = None, failed.why
        if failed.is_taken:
            led.state = FAILED
            log.error("CLUSTER: cannot open the promoted log %s: %s; trying again", led.log_id.hex(), failed.why)
            led.retry_at = self.host.clocks()[0] + RETRY_AFTER
            self.host.step_down(led.log_id)
        else:
            node = led.node if failed.node < 0 else failed.node
            if failed.is_called_off:
                log.info("CLUSTER: the log of node %d is not promoted: %s", node, failed.why)
            else:
                log.error("CLUSTER: cannot promote the log of node %d: %s", node, failed.why)
            self._forget(led)
            if led.log_id not in self._replicas.kept:
                self._replicas.put_back(led.log_id, node)
        self.host.failed(led.log_id, failed.why)
        self._begin_next()

    # serving

    def _attach(self, led: PromotedLog, attach_slice: Callable[[], bool]) -> None:
        if led.state != ATTACHING:
            return
        if attach_slice():
            self._work.run(_nothing, lambda result: self._attach(led, attach_slice))  # in another turn
        else:
            self._serve(led)

    def _serve(self, led: PromotedLog) -> None:
        led.state, self._current = SERVING, None
        assert led.log is not None
        assert led.broker is not None
        took, epoch = self.host.clocks()[0] - led.began, led.log.identity.epoch.number
        figures = led.node, epoch, len(led.broker.topics), took / 1e9
        if epoch < led.least:
            self.begin_again(led.log_id, led.least)
            return
        if led.number:
            self.failovers.failed_over(took / 1e9, led.delivered, led.unfinished, led.is_clean)
            led.is_clean = True  # if it is opened again, what was incomplete then was counted
            log.warning("CLUSTER: promoted the log of node %d, in epoch %d: %d topics, after %.1f s", *figures)
        else:
            if led.is_new:
                self.failovers.salvaged(led.delivered)
                led.is_new = False
            log.info("CLUSTER: opened the log of node %d again, in epoch %d: %d topics, after %.1f s", *figures)
        self._begin_next()

    # the end

    def _end(self, led: PromotedLog) -> None:
        """Stop delivering a log, in slices, stop copying it, and close it. `_closed` continues by its state."""
        if led.is_ending:
            return
        led.is_ending = True
        if led.broker is None:
            self._close(led)
            return
        self.host.end_copying(led.log_id)
        led.deletions = self.host.watch()
        self._detach(led, self.host.detach(led.broker))

    def _detach(self, led: PromotedLog, detach_slice: Callable[[], bool]) -> None:
        if detach_slice():
            self._work.run(_nothing, lambda result: self._detach(led, detach_slice))  # in another turn
        else:
            led.broker = None
            self._close(led)

    def _close(self, led: PromotedLog) -> None:
        opened = led.log  # it stays there until it is closed: if this node stops before, `close` closes it
        if opened is not None:
            opened.checkpoints = None  # it needs no checkpoint
        self._work.run(opened.close if opened is not None else _nothing, lambda result: self._closed(led))

    def _closed(self, led: PromotedLog) -> None:
        if led.log is not None:
            led.log.store.end()
        led.log, led.is_ending = None, False
        if led.state == LOST:
            self._work.run(partial(self._keep_diverged, led.log_id), partial(self._was_kept_diverged, led))
            return
        if led.state == CLOSING:
            led.state = WAITING
        elif led.state == CLOSED and led.is_removable:
            self.log_removable(led.log_id)
        if self._current is led:
            self._current = None
        self._begin_next()

    def _keep_diverged(self, log_id: bytes) -> str:
        return self._directory.keep_diverged(log_id) if log_id in self._directory.found() else ""

    def _was_kept_diverged(self, led: PromotedLog, result: str | OSError) -> None:
        self._forget(led)
        if self._current is led:
            self._current = None
        if isinstance(result, OSError):
            name = led.log_id.hex()
            log.error("CLUSTER: cannot keep the log %s, which another node leads, as a diverged copy: %s", name, result)
        elif result:
            log.warning(
                "CLUSTER: another node leads the log %s now: the records made here are kept in %s",
                led.log_id.hex(),
                result,
            )
        elif led.log_id not in self._replicas.kept:
            self._replicas.put_back(led.log_id, led.node)
        self._begin_next()

    def _add(self, led: PromotedLog) -> PromotedLog:
        self.logs[led.log_id] = led
        self._replicas.promoted.add(led.log_id)
        return led

    def _forget(self, led: PromotedLog) -> None:
        del self.logs[led.log_id]
        self._replicas.promoted.discard(led.log_id)
        if led.deletions is not None:
            led.deletions.end()

    def stop(self) -> None:
        """Open no more logs: this node stops. Threads end with their current slice."""
        self._openings.is_over = True

    def close(self) -> None:
        """Write what the next start needs, and close the logs, when all connections and threads are gone."""
        for led in self.logs.values():
            if led.log is not None:
                if led.broker is not None:
                    led.broker.commit()
                led.log.close()

    # by the clock

    def tick(self, now: int) -> None:
        for led in self.logs.values():
            if led.state == FAILED and now >= led.retry_at and not led.is_ending:
                led.state = WAITING
        if now >= self._timer_due:
            self._timer_due = now + TIMER_EVERY
            for led in self.logs.values():
                if led.log is not None and led.broker is not None:
                    led.log.timer()
                    self._check_disk(led, led.log, now)
            self._share()
        self._begin_next()

    def _check_disk(self, led: PromotedLog, opened: OpenLog, now: int) -> None:
        """Step down from a log that this node cannot write. After a failed sync, open it again later."""
        failure = opened.writer.failure
        if led.state != SERVING:
            return
        if not failure:
            led.failing_since = None
            if led.has_stepped_down:  # and no other node has promoted it
                led.has_stepped_down = False
                self.host.resume(led.log_id)
            return
        led.failing_since = now if led.failing_since is None else led.failing_since
        is_broken = opened.writer.durable.broken
        if (is_broken or now - led.failing_since >= STEP_DOWN_AFTER) and not led.has_stepped_down:
            log.error(
                "CLUSTER: cannot write the promoted log %s: %s; another node may promote it", led.log_id.hex(), failure
            )
            led.has_stepped_down = True
            self.host.step_down(led.log_id)
        if is_broken:
            led.state, led.failure, led.retry_at = FAILED, failure, now + RETRY_AFTER
            self._end(led)

    def _share(self) -> None:
        """Divide the memory among all logs of this node."""
        caches = [self.host.cache, *(led.log.cache for led in self.logs.values() if led.log is not None)]
        for cache, part in zip(caches, shares(self.host.budget, [cache.cached_bytes for cache in caches]), strict=True):
            cache.budget = part

    # queries

    def leads(self, log_id: bytes) -> bool:
        """Return True if this node has promoted a log, or is promoting it: it keeps no replica of it."""
        return log_id in self.logs

    def has_unserved_log(self) -> bool:
        return any(led.state not in (SERVING, CLOSED) for led in self.logs.values())

    def figures(self) -> list[dict[str, Any]]:
        """Return the state of each promoted log, for /cluster."""
        return [
            {
                "log_id": led.log_id.hex(),
                "node": led.node,
                "state": led.state,
                "topics": len(led.broker.topics) if led.broker is not None else 0,
                "batches": len(led.broker.context.batches.unfinished()) if led.broker is not None else 0,
                "failure": led.failure,
            }
            for led in self.logs.values()
        ]


def shares(budget: int, used: Sequence[int]) -> list[int]:
    """Return the bytes of memory that each log may use, given what each uses now.

    Each may use its part, and what the others leave of theirs.
    """
    part, whole = budget // len(used), sum(min(one, budget // len(used)) for one in used)
    return [max(part, budget - whole + min(one, part)) for one in used]


def _nothing() -> None:
    """Do nothing: what follows is only to happen in another turn."""
