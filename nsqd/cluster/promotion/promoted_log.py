"""A log that this node has promoted or is promoting, and the node's calls for it.

See docs/contributing/design/cluster-protocol.md#promotion.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from nsqd.core.broker import Broker
from nsqd.core.shards import Deletions
from nsqd.storage.log.cache import Cache
from nsqd.storage.log.clocks import Anchor
from nsqd.storage.log.disk import Disk
from nsqd.storage.log.epochs import Epoch
from nsqd.storage.log.followers import Followers
from nsqd.storage.log.opening import Extend, OpenLog, Promoted
from nsqd.storage.log.reading import LogReading

WAITING, READING, FILLING, ATTACHING, SERVING = "waiting", "reading", "filling", "attaching", "serving"
CLOSING = "closing"
FAILED, LOST, CLOSED = "failed", "lost", "closed"


class Directory(Protocol):
    """Where the promoted logs are, one directory for each log id: nsqd.cluster.replication.directory.PromotedDirectory."""

    def found(self) -> list[bytes]:
        """Return the ids of the logs that this node has promoted. Raises OSError."""

    def move_replica(self, log_id: bytes) -> Disk:
        """Make the directory of a replica that of a promoted log, in one step and durably. Raises OSError."""

    def put_back(self, log_id: bytes) -> int | None:
        """Make a promoted log a replica again, durably, if no epoch of this node in it was announced.

        Returns the number of the node that published into it; None: such an epoch has begun. Raises ManifestError, OSError.
        """

    def open(self, log_id: bytes) -> Disk:
        """Return the directory of a promoted log. Raises OSError."""

    def keep_diverged(self, log_id: bytes) -> str:
        """Rename a promoted log, because another node leads it now. Returns the new name. Raises OSError."""

    def remove(self, log_id: bytes) -> None:
        """Remove a log that is closed. Raises OSError."""


def _not_lost(log_id: bytes, epochs: Sequence[Epoch], followers: Followers) -> bool:
    return False


def _not_mended(disk: Disk, reading: LogReading) -> bool:
    return False


def _no_steps(broker: Broker) -> Callable[[], bool]:
    return lambda: False


@dataclass(slots=True)
class Parts:
    """The node's calls for a log that it promotes."""

    # opens a log, see nsqd.start.opening.open_promoted; any thread calls it. The leader in Promoted is this node
    open: Callable[[Disk, Promoted, Extend | None], OpenLog]
    make_broker: Callable[[OpenLog], Broker]  # returns an empty broker for a log; any thread calls it
    copy: Callable[[OpenLog], None]  # begins to send the log to its followers
    end_copying: Callable[[bytes], None]  # ends that
    clocks: Callable[[], tuple[int, int]]  # monotonic ns, and ns since the epoch
    cache: Cache  # that of the node's own log
    budget: int  # bytes of memory for the messages of all logs
    node: int  # number of this node
    # This node leads the log in that epoch from now on.
    announce: Callable[[bytes, Epoch], None] = lambda log_id, epoch: None
    # This node is about to open a log again that it led in its last run.
    resume: Callable[[bytes], None] = lambda log_id: None
    # Begins to deliver the messages of a broker; the result is called until it returns False, a slice of a turn each time. Then
    # the reactor begins, serves and commits the turns of that broker. None: it does not, so `tick` does what is needed.
    # Topics and channels that were deleted since `watch` are not recreated (law R9).
    attach: Callable[[Broker, Deletions | None], Callable[[], bool]] | None = None
    detach: Callable[[Broker], Callable[[], bool]] = _no_steps  # ends that, in slices, too
    watch: Callable[[], Deletions | None] = lambda: None  # records deletions from now on
    # Returns the latest recorded time of a log from its leader, or None. Any thread calls it.
    noted: Callable[[bytes], Anchor | None] = lambda log_id: None
    is_closed: Callable[[bytes], bool] = lambda log_id: False  # returns True if a log is closed
    # a log cannot be promoted after a won election; it is a replica again
    failed: Callable[[bytes, str], None] = lambda log_id, why: None
    # This node steps down as the leader of a log: another one may promote it. `announce` reverts that.
    give_up: Callable[[bytes], None] = lambda log_id: None
    # Asks at a start, in a thread, whether another node has promoted the log since: the log has these epochs, and these
    # in-sync followers.
    is_lost: Callable[[bytes, Sequence[Epoch], Followers], bool] = _not_lost
    # Replaces, in a thread, what is damaged in a log that is being opened by what other nodes have. Returns True if the log has
    # changed. Raises OSError.
    mend: Callable[[Disk, LogReading], bool] = _not_mended


@dataclass(slots=True)
class PromotedLog:
    """One log that this node has promoted, or is promoting."""

    log_id: bytes
    number: int  # of the epoch in which this node is to lead it; 0: it has led it before
    node: int  # number of the node that published into it; -1: not known yet
    state: str = WAITING
    log: OpenLog | None = None
    broker: Broker | None = None
    is_attached: bool = False  # the reactor does the turns of the broker
    deletions: Deletions | None = None  # deletions while this node leads the log and it is not attached
    is_announced: bool = False  # this node's leadership was announced, in this run or an earlier one
    is_called_off: bool = False  # its leader came back before the announcement
    is_ending: bool = False  # it is being detached, or closed
    is_removable: bool = False  # its files are to be removed after that
    is_new: bool = False  # this node has just made it of a diverged copy
    failure: str = ""
    retry_at: int = 0  # monotonic ns
    is_clean: bool = True  # the replica was known to have all acknowledged messages
    delivered: int = 0  # messages that had been delivered before, and were ready when it was opened
    unfinished: int = 0  # messages that waited to be delivered then
    began: int = 0  # when its opening was begun, monotonic ns
    least: int = 0  # the lowest number of the next epoch in which this node leads it
    failing_since: int | None = None  # since when its records cannot be written, monotonic ns; None: they can
    is_given_up: bool = False  # this node has stepped down because of that
