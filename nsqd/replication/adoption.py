"""The logs of other nodes that this one has taken over: how each is opened beside the running broker, and by whom it is served.

One log at a time is adopted. A thread makes a log of the mirror, replays it, and writes the first record of the new epoch
durably. From then on others may know that this node owns the log. The thread also fills a broker, to which nobody else has
access yet, so no turn of the reactor waits for it. It delivers when it is attached to the node's own broker, in slices. A start
opens the adopted logs again, each in a new epoch.

Nothing here does input or output by itself: `Directory`, `Parts` and `Work` do.

See docs/design/cluster.md#adoption.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from nsqd.core.broker import Broker
from nsqd.core.recovery import recover
from nsqd.replication.follower import Work
from nsqd.replication.mirrors import Mirrors
from nsqd.storage.log.cache import Cache
from nsqd.storage.log.disk import Disk
from nsqd.storage.log.epochs import Epoch
from nsqd.storage.log.opening import OpenLog
from nsqd.storage.log.segments import LogError
from nsqd.storage.mirror.adopting import LogFacts, Refused, check_replay, claim, drop_manifest, facts_of, name_files
from nsqd.storage.mirror.manifest import ManifestError
from nsqd.storage.mirror.mirror import Mirror, MirrorError
from shared.log import log

TIMER_EVERY = 750_000_000  # ns between two syncs of what nobody waits for, and two looks at the memory: with the time
# between two ticks it is a second
RETRY_AFTER = 10_000_000_000  # ns after which a log is opened again that could not be opened

WAITING, READING, FILLING, ATTACHING, SERVING = "waiting", "reading", "filling", "attaching", "serving"
CLOSING = "closing"
FAILED, LOST = "failed", "lost"


class Directory(Protocol):
    """Where the adopted logs are, one directory for each log id: nsqd.replication.directory.AdoptedDirectory."""

    def found(self) -> list[bytes]:
        """Return the ids of the logs that this node has taken over. Raises OSError."""

    def move_mirror(self, log_id: bytes) -> Disk:
        """Make the directory of a mirror that of an adopted log, in one step and durably. Raises OSError."""

    def open(self, log_id: bytes) -> Disk:
        """Return the directory of an adopted log. Raises OSError."""

    def set_aside(self, log_id: bytes) -> str:
        """Rename an adopted log, because another node owns it now. Returns the new name. Raises OSError."""


def _not_lost(log_id: bytes, facts: LogFacts) -> bool:
    return False


@dataclass(slots=True)
class Parts:
    """What the node does for a log that it adopts."""

    open: Callable[[Disk, int, int], OpenLog]  # opens a log, see nsqd.opening.open_adopted; any thread calls it
    make_broker: Callable[[OpenLog], Broker]  # returns an empty broker for a log; any thread calls it
    copy: Callable[[OpenLog], None]  # begins to send the log to its followers
    end_copying: Callable[[bytes], None]  # ends that
    clocks: Callable[[], tuple[int, int]]  # monotonic ns, and ns since the epoch
    cache: Cache  # that of the node's own log
    budget: int  # bytes that messages of all logs may take in memory
    # This node owns the log in that epoch from now on.
    announce: Callable[[bytes, Epoch], None] = lambda log_id, epoch: None
    # This node is about to open a log again that it owned in its last run.
    resume: Callable[[bytes], None] = lambda log_id: None
    # Begins to deliver what a broker owes; the result is called until it returns False, a slice of a turn each time. Then the
    # reactor begins, serves and commits the turns of that broker. None: nobody does, so `tick` does what is needed.
    attach: Callable[[Broker], Callable[[], bool]] | None = None
    detach: Callable[[Broker], None] = lambda broker: None
    failed: Callable[[bytes, str], None] = lambda log_id, why: (
        None
    )  # a claimed log cannot be adopted; it is a mirror again
    # This node cannot go on with a log that it owns: another may take it over. `announce` takes that back.
    give_up: Callable[[bytes], None] = lambda log_id: None
    # Asks at a start, in a thread, whether another node has taken over the log since.
    is_lost: Callable[[bytes, LogFacts], bool] = _not_lost


@dataclass(slots=True)
class AdoptedLog:
    """One log that this node has taken over, or is taking over."""

    log_id: bytes
    number: int  # of the epoch in which this node is to own it; 0: it has owned it before
    node: int  # number of the node that published into it; -1: not known yet
    state: str = WAITING
    log: OpenLog | None = None
    broker: Broker | None = None
    is_attached: bool = False  # the reactor does the turns of the broker
    failure: str = ""
    retry_at: int = 0  # monotonic ns
    began: int = 0  # when its opening was begun, monotonic ns
    least: int = 0  # the lowest number of the next epoch in which this node owns it


@dataclass(frozen=True, slots=True)
class _Failed:
    """A log could not be opened."""

    why: str
    is_taken: bool = True  # it is an adopted log, and no mirror
    is_lost: bool = False  # another node owns it


class Adoptions:
    """The logs that this node has taken over. All methods are for the reactor's thread."""

    def __init__(self, directory: Directory, mirrors: Mirrors, work: Work, parts: Parts) -> None:
        self.logs: dict[bytes, AdoptedLog] = {}  # by log id
        self.parts = parts
        self._directory = directory
        self._mirrors = mirrors
        self._work = work
        self._current: AdoptedLog | None = None  # the one that is being opened or filled
        self._timer_due = 0
        mirrors.is_taken_over = self.owns

    # what the cluster decides

    def adopt(self, log_id: bytes, number: int) -> None:
        """Take over a log of which this node has a mirror, in the epoch with that number. It was claimed with success."""
        kept = self._mirrors.kept.get(log_id)
        if log_id in self.logs:
            self.parts.failed(log_id, "it is being adopted, or set aside")
            return
        if kept is None:
            self.parts.failed(log_id, "this node has no mirror of it")
            log.error("CLUSTER: cannot adopt the log %s: this node keeps no mirror of it", log_id.hex())
            return
        self.logs[log_id] = AdoptedLog(log_id, number, kept.node)
        self._begin_next()

    def reopen(self) -> None:
        """Open the logs again that earlier runs of this node have taken over. Raises OSError if they cannot be listed."""
        for log_id in self._directory.found():
            self.logs[log_id] = AdoptedLog(log_id, 0, -1)
            self.parts.resume(log_id)
        self._begin_next()

    def lose(self, log_id: bytes) -> None:
        """Give up a log: another node owns it by a greater epoch. What is here is set aside."""
        owned = self.logs.get(log_id)
        if owned is None or owned.state == LOST:
            return
        is_busy = owned.state in (READING, FILLING)  # `_opened` or `_filled` goes on
        owned.state = LOST
        if not is_busy:
            self._let_go(owned)

    def begin_again(self, log_id: bytes, number: int) -> None:
        """Open a log again in an epoch with that number or a higher one, because other nodes know a later run of this node.

        That is so if the data directory is an old backup. What is in flight becomes ready.
        """
        owned = self.logs.get(log_id)
        if owned is None:
            return
        owned.least = number
        if owned.state == SERVING:
            owned.state, opened = CLOSING, self._detach(owned)
            self._work.run(opened.close if opened is not None else _nothing, lambda result: self._was_closed(owned))

    def _was_closed(self, owned: AdoptedLog) -> None:
        if owned.state == CLOSING:
            owned.state = WAITING
        self._begin_next()

    # opening

    def _begin_next(self) -> None:
        if self._current is not None:
            return
        owned = next((one for one in self.logs.values() if one.state == WAITING), None)
        if owned is None:
            return
        self._current, owned.state, owned.began = owned, READING, self.parts.clocks()[0]
        if owned.number and owned.log_id in self._mirrors.kept:
            self._mirrors.release(owned.log_id, partial(self._released, owned))
        else:
            self._work.run(partial(self._reopen, owned.log_id, owned.least), partial(self._opened, owned))

    def _released(self, owned: AdoptedLog, result: Disk | OSError) -> None:
        if isinstance(result, OSError):
            self._opened(owned, _Failed(str(result.strerror or result), is_taken=False))
        elif owned.state == LOST:  # it was called off meanwhile
            self._opened(owned, _Failed("", is_taken=False))
        else:
            self._work.run(partial(self._take, owned, result), partial(self._opened, owned))

    def _take(self, owned: AdoptedLog, disk: Disk) -> OpenLog | _Failed:
        """Make a log of a mirror, and open it. Any thread."""
        try:
            mirror = Mirror(disk, owned.log_id, owned.node)  # it is synced, and ends with a whole record
            mirror.close()
            check_replay(disk, mirror.manifest)
            if owned.state == LOST:
                return _Failed("", is_taken=False)
            claim(disk, mirror.manifest, owned.number)
            self._directory.move_mirror(owned.log_id)
        except (OSError, ManifestError, MirrorError, Refused) as error:
            return _Failed(str(error), is_taken=owned.log_id in self._directory.found())
        return self._open(owned.log_id)

    def _reopen(self, log_id: bytes, least: int) -> OpenLog | _Failed:
        """Open a log that an earlier run has taken over, unless another node owns it now. Any thread."""
        try:
            if self.parts.is_lost(log_id, facts_of(self._directory.open(log_id))):
                return _Failed("", is_lost=True)
        except (OSError, LogError) as error:
            return _Failed(str(error))
        return self._open(log_id, least)

    def _open(self, log_id: bytes, least: int = 0) -> OpenLog | _Failed:
        """Open an adopted log, and make the first record of the new epoch durable. Any thread."""
        try:
            disk = self._directory.open(log_id)
            manifest = name_files(disk)
            opened = self.parts.open(
                disk, max(least, manifest.won if manifest else 0), manifest.mark if manifest else 0
            )
            try:
                opened.writer.append_anchor()
                opened.writer.write()
                if opened.writer.group or not opened.writer.sync():
                    raise OSError(opened.writer.failure)
                drop_manifest(disk)
            except OSError:
                opened.close()
                raise
        except (OSError, ManifestError, LogError) as error:
            return _Failed(str(error))
        return opened

    def _opened(self, owned: AdoptedLog, result: OpenLog | _Failed | OSError) -> None:
        if isinstance(result, OSError):
            result = _Failed(str(result))
        if isinstance(result, _Failed):
            self._failed(owned, result)
            return
        owned.log, owned.node, owned.failure = result, result.identity.node, ""
        if owned.state == LOST:
            self._let_go(owned)
            return
        owned.state = FILLING
        self.parts.announce(owned.log_id, result.identity.epoch)
        self._work.run(partial(self._fill, result), partial(self._filled, owned, result))

    def _fill(self, opened: OpenLog) -> Broker:
        """Return a broker with what a log owes. Any thread."""
        broker = self.parts.make_broker(opened)
        broker.begin(*self.parts.clocks())
        snapshot = opened.take_snapshot()
        assert snapshot is not None
        recover(broker, snapshot, broker.now)
        broker.commit()
        return broker

    def _filled(self, owned: AdoptedLog, opened: OpenLog, broker: Broker | OSError) -> None:
        if isinstance(broker, OSError):
            raise broker  # it reads and writes nothing but the log, which notes that a write has failed
        if owned.state == LOST:
            self._let_go(owned)
            return
        owned.state, owned.broker = ATTACHING, broker
        opened.serve(broker)
        self._share()
        self.parts.copy(opened)
        if self.parts.attach is None:
            self._serve(owned)
        else:
            self._attach(owned, self.parts.attach(broker))

    def _failed(self, owned: AdoptedLog, failed: _Failed) -> None:
        if failed.is_lost or owned.state == LOST:
            self._let_go(owned)
            return
        self._current, owned.state, owned.failure = None, FAILED, failed.why
        if failed.is_taken:
            log.error(
                "CLUSTER: cannot open the adopted log %s: %s; trying again",
                owned.log_id.hex(),
                failed.why,
            )
            owned.retry_at = self.parts.clocks()[0] + RETRY_AFTER
            self.parts.give_up(owned.log_id)
        else:
            log.error("CLUSTER: cannot adopt the log of node %d: %s", owned.node, failed.why)
            del self.logs[owned.log_id]
            if owned.log_id not in self._mirrors.kept:
                self._mirrors.put_back(owned.log_id, owned.node)
        self.parts.failed(owned.log_id, failed.why)
        self._begin_next()

    # serving

    def _attach(self, owned: AdoptedLog, attach_some: Callable[[], bool]) -> None:
        if owned.state != ATTACHING:
            return
        if attach_some():
            self._work.run(_nothing, lambda result: self._attach(owned, attach_some))  # in another turn
            return
        owned.is_attached = True
        self._serve(owned)

    def _serve(self, owned: AdoptedLog) -> None:
        owned.state, self._current = SERVING, None
        assert owned.log is not None
        assert owned.broker is not None
        took, epoch = self.parts.clocks()[0] - owned.began, owned.log.identity.epoch.number
        figures = owned.node, epoch, len(owned.broker.topics), took / 1e9
        if epoch < owned.least:
            self.begin_again(owned.log_id, owned.least)
            return
        if owned.number:
            log.warning("CLUSTER: adopted the log of node %d, in epoch %d: %d topics, after %.1f s", *figures)
        else:
            log.info("CLUSTER: opened the log of node %d again, in epoch %d: %d topics, after %.1f s", *figures)
        self._begin_next()

    # the end

    def _let_go(self, owned: AdoptedLog) -> None:
        """End what was begun with a log that another node owns, and set its files aside."""
        opened = self._detach(owned)
        self._work.run(partial(self._put_aside, owned.log_id, opened), partial(self._was_put_aside, owned))

    def _detach(self, owned: AdoptedLog) -> OpenLog | None:
        """Deliver nothing more of a log, and copy it no more. Returns the log, which is to be closed; None: it was not open."""
        if owned.broker is not None:
            self.parts.end_copying(owned.log_id)
            self.parts.detach(owned.broker)
        opened, owned.log, owned.broker, owned.is_attached = owned.log, None, None, False
        if opened is not None:
            opened.upkeep = None  # it needs no checkpoint
        return opened

    def _put_aside(self, log_id: bytes, opened: OpenLog | None) -> str:
        if opened is not None:
            opened.close()
        return self._directory.set_aside(log_id) if log_id in self._directory.found() else ""

    def _was_put_aside(self, owned: AdoptedLog, result: str | OSError) -> None:
        del self.logs[owned.log_id]
        if self._current is owned:
            self._current = None
        if isinstance(result, OSError):
            log.error("CLUSTER: cannot set aside the log %s, which another node owns: %s", owned.log_id.hex(), result)
        elif result:
            log.warning(
                "CLUSTER: another node owns the log %s now: what was recorded here is kept in %s",
                owned.log_id.hex(),
                result,
            )
        elif owned.log_id not in self._mirrors.kept:
            self._mirrors.put_back(owned.log_id, owned.node)
        self._begin_next()

    def close(self) -> None:
        """Write what the next start needs, and close the logs, when all connections are gone."""
        for owned in self.logs.values():
            if owned.log is not None:
                if owned.broker is not None:
                    owned.broker.commit()
                owned.log.close()

    # by the clock

    def tick(self, now: int) -> None:
        """Do what is due by time. Call it several times a second."""
        for owned in self.logs.values():
            if owned.state == FAILED and now >= owned.retry_at:
                owned.state = WAITING
            if owned.state == SERVING and owned.broker is not None and not owned.is_attached:
                owned.broker.begin(*self.parts.clocks())
                owned.broker.commit()
        if now >= self._timer_due:
            self._timer_due = now + TIMER_EVERY
            for owned in self.logs.values():
                if owned.log is not None and owned.broker is not None:
                    owned.log.timer()
            self._share()
        self._begin_next()

    def _share(self) -> None:
        """Divide the memory among all logs of this node."""
        caches = [self.parts.cache, *(owned.log.cache for owned in self.logs.values() if owned.log is not None)]
        for cache, part in zip(
            caches, shares(self.parts.budget, [cache.cached_bytes for cache in caches]), strict=True
        ):
            cache.budget = part

    # queries

    def owns(self, log_id: bytes) -> bool:
        """Return True if this node has taken over a log, or is taking it over: it keeps no mirror of it."""
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
