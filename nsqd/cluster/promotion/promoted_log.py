"""A log that this node has promoted or is promoting, and the node's calls for it.

See docs/contributing/design/cluster-protocol.md#promotion.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

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


@dataclass(slots=True)
class PromotionHost:
    """The calls by which the node opens, serves and announces promoted logs. The reactor's thread, if not said otherwise."""

    clocks: Callable[[], tuple[int, int]]  # monotonic ns, and ns since the epoch; any thread
    cache: Cache  # that of the node's own log
    budget: int  # bytes of memory for the messages of all logs
    node: int  # number of this node
    # opens a log, see nsqd.start.opening.open_promoted; any thread
    open: Callable[[Disk, Promoted, Extend | None], OpenLog]
    make_broker: Callable[[OpenLog], Broker]  # returns an empty broker for a log; any thread
    copy: Callable[[OpenLog], None]  # begins to send the log to its followers
    end_copying: Callable[[bytes], None]
    announce: Callable[[bytes, Epoch], None]  # this node leads the log in that epoch from now on
    resume: Callable[[bytes], None]  # this node is about to open a log again that it led in its last run
    step_down: Callable[[bytes], None]  # another node may promote the log; `announce` and `resume` revert that
    # Begins to deliver the messages of a broker, whose turns the reactor does from then on. The result is called until it
    # returns False, a slice of a turn each time. Topics and channels deleted since `watch` are not recreated.
    attach: Callable[[Broker, Deletions | None], Callable[[], bool]]
    detach: Callable[[Broker], Callable[[], bool]]  # ends that, in slices, too
    watch: Callable[[], Deletions]  # records deletions from now on
    noted: Callable[[bytes], Anchor | None]  # returns the latest recorded time of a log from its leader; any thread
    is_closed: Callable[[bytes], bool]
    failed: Callable[[bytes, str], None]  # a log cannot be promoted after a won election; it is a replica again
    # Returns True if another node has promoted a log with these epochs and in-sync followers since. Called at a start, in a
    # thread.
    is_lost: Callable[[bytes, Sequence[Epoch], Followers], bool]
    # Replaces corrupt bytes of a log that is being opened by those of other nodes. Returns True if the log has changed. Raises
    # OSError. Called in a thread.
    repair: Callable[[Disk, LogReading], bool]


@dataclass(slots=True)
class PromotedLog:
    """One log that this node has promoted, or is promoting."""

    log_id: bytes
    number: int  # of the epoch in which this node is to lead it; 0: it has led it before
    node: int  # number of the node that published into it; -1: not known yet
    state: str = WAITING
    log: OpenLog | None = None
    broker: Broker | None = None
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
    has_stepped_down: bool = False  # this node has stepped down because of that
