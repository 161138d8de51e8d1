"""The queue-scan worker pool. It alone times out messages in flight and releases deferred ones.

The pool has max(1, min(readers / 4, --queue-scan-worker-pool-max)) cooperative workers, and is resized as readers, which are
channels and tubes, come and go. A pass serves up to --queue-scan-selection-count queues: those due first, by the node-wide
index of earliest due times, then some chosen at random, as NSQ does. Each worker takes queues from the selection until it has
moved WORKER_MESSAGES messages. Another pass follows in the same turn if more than a quarter of the queues was dirty (had
something due), or if any queue in the index is still due. A turn ends after TURN_MESSAGES messages, and the next one continues
after the I/O. Unlike NSQ's pool, this one has no blind spot: a new channel is in the index with its first message, and the
random choice only adds queues to look at.

See docs/contributing/design/channel.md#time.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from nsqd.core.timing.agenda import Agenda, ScanQueue

RESOLUTION = 25_000_000  # ns between scanning turns when nothing is overdue: at most 40 wake-ups a second
INTERVAL = 100_000_000  # ns between passes when nothing is due, as in NSQ
TURN_MESSAGES = 400  # messages after which a turn continues with I/O, even if more are due: about 10 ms with delivery
WORKER_MESSAGES = 100  # messages that a worker serves in a pass: about 2 ms with delivery
NEVER = 1 << 62  # monotonic ns
DIRTY = 0.25  # share of a pass that had something due, above which another pass follows


@dataclass(slots=True)
class ScanStatistics:
    """The counters of the pool that /metrics shows."""

    workers: int = 1
    passes: int = 0
    served: int = 0  # messages timed out, released, or moved from a page into the timer heap
    selected: int = 0  # queues looked at
    dirty: int = 0  # queues that had something due
    last_dirty_share: float = 0.0


class ScanPool:
    """The pool that serves all queues of a node. `random_below(n)` returns a number in 0..n-1."""

    def __init__(
        self, agenda: Agenda, selection_count: int, workers_max: int, random_below: Callable[[int], int]
    ) -> None:
        self._agenda = agenda
        self._index = agenda.index
        self._selection_count = selection_count
        self._workers_max = workers_max
        self._random_below = random_below
        self._queues: list[ScanQueue] = []  # all readers, to choose from at random
        self._places: dict[int, int] = {}  # id() of a reader -> its place in _queues
        self._next_turn = 0  # monotonic ns; no scan before it
        self.statistics = ScanStatistics()

    # adding and removing queues

    def add(self, queue: ScanQueue) -> None:
        """Add a reader that was just created."""
        self._places[id(queue)] = len(self._queues)
        self._queues.append(queue)
        self._resize()

    def discard(self, queue: ScanQueue) -> None:
        """Remove a reader that was deleted. One of a promoted log may not have been added yet."""
        place = self._places.pop(id(queue), None)
        if place is None:
            return
        last = self._queues.pop()
        if last is not queue:
            self._queues[place] = last
            self._places[id(last)] = place
        self._resize()

    def _resize(self) -> None:
        self.statistics.workers = max(1, min(len(self._queues) // 4, self._workers_max))

    # serving queues

    def next_turn(self) -> int | None:
        """Return the time to call `turn` (monotonic ns), or None if nothing waits for a time."""
        due = self._index.next_due()
        return None if due is None else max(due, self._next_turn)

    def turn(self, now: int) -> None:
        """Serve the queues in passes: time out and release the messages that are due at `now` (monotonic ns).

        If it is too early, sets `scan_at` of the agenda, before which no turn has to call this.
        """
        due = self._index.next_due()
        if due is None:
            self._agenda.scan_at = NEVER
            return
        scan_at = max(self._next_turn, min(due, self._next_turn - RESOLUTION + INTERVAL))
        if now < scan_at:
            self._agenda.scan_at = scan_at
            return
        enough = self.statistics.served + TURN_MESSAGES
        more = True
        while more and self.statistics.served < enough:
            dirty = self._pass(now, enough)
            more = dirty > DIRTY or (dirty > 0 and self._is_due(now))  # a pass that moved nothing ends the turn
        self._next_turn = now if self._is_due(now) else now + RESOLUTION

    def _is_due(self, now: int) -> bool:
        due = self._index.next_due()
        return due is not None and due <= now

    def _pass(self, now: int, enough: int) -> float:
        """Serve one selection of queues, until `enough` messages were served in all. Return the share that was dirty (0..1)."""
        waiting = deque(self._select(now))
        statistics = self.statistics
        looked_at = dirty = 0
        for _ in range(statistics.workers):
            budget = WORKER_MESSAGES
            while waiting and budget > 0 and statistics.served < enough:
                served = self._serve(waiting.popleft(), now, budget)
                budget -= served
                statistics.served += served
                looked_at += 1
                dirty += served > 0
        for queue in waiting:  # the workers have used up their budgets, or that of the turn: the queue stays due
            self._reschedule(queue, queue.next_due())
        statistics.passes += 1
        statistics.selected += looked_at
        statistics.dirty += dirty
        statistics.last_dirty_share = dirty / looked_at if looked_at else 0.0
        return statistics.last_dirty_share

    def _select(self, now: int) -> list[ScanQueue]:
        """Select the due queues, earliest first, then random ones. The due ones leave the index until they are served."""
        selected = self._index.pop_due(now, self._selection_count)
        for queue in selected:
            queue.scan_entry = None
        seen = set(map(id, selected))
        for _ in range(min(len(self._queues), self._selection_count) - len(selected)):
            queue = self._queues[self._random_below(len(self._queues))]
            if id(queue) not in seen:
                seen.add(id(queue))
                selected.append(queue)
        return selected

    def _serve(self, queue: ScanQueue, now: int, limit: int) -> int:
        """Serve up to about `limit` messages of a queue if it is due, and index its next due time. Return how many."""
        due, served = queue.next_due(), 0
        if due is not None and due <= now:
            served = queue.scan(now, limit)
            due = queue.next_due()
        self._reschedule(queue, due)
        return served

    def _reschedule(self, queue: ScanQueue, due: int | None) -> None:
        """Make the index agree with `due`, the time when the queue has something to do next (None: never).

        An entry that is too early may stay: it is corrected when its time has come.
        """
        if due is None:
            self._agenda.cancel_scan(queue)
        elif queue.scan_entry is None or due < queue.scan_entry[0]:
            self._agenda.schedule_scan(queue, due)

    def check(self) -> None:
        """Raise AssertionError if an invariant of this class does not hold."""
        self._index.check()
        for place, queue in enumerate(self._queues):
            assert self._places[id(queue)] == place
            due = queue.next_due()
            assert due is None or (queue.scan_entry is not None and queue.scan_entry[0] <= due)

    def __repr__(self) -> str:
        return f"<ScanPool: {self.statistics.workers} workers, {len(self._queues)} queues>"
