"""When the log is synced, and by which thread: in the turn while a sync is quick, otherwise by a thread of its own.

A turn and a hand-over to the thread cost the same for one message as for fifty. While the thread syncs, clients that have just
been answered send their next commands a few at a time, so turns become small. Therefore a turn syncs itself where no
other client has to wait for that.

In every mode at most MOST_UNSYNCED bytes are left for the operating system to write. Records that no reply waits for, such as
FINs, are synced within a second after they were written, unless all topics leave syncing to the operating system.

The log is idle when nothing was written from one tick of the timer to the next. Then everything is synced in every mode, and
one more group states how far the log is durable, because a start takes corruption past the highest stated mark for a torn tail.

See docs/contributing/design/log.md#syncs.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from math import inf
from queue import SimpleQueue

from nsqd.storage.log.space import Space
from nsqd.storage.log.writer import SyncJob, Writer
from shared.histogram import Samples
from shared.log import log
from shared.topic_config import Durability

MOST_UNSYNCED = 32 * 1024 * 1024  # bytes: if the kernel has to write more at once, the next turn that writes stalls
MOST_TICKS_BEHIND = 10  # ticks, about a second each: in the mode `os`, a wrong bit may cost this much of the log's end
# s: below it, a sync in the turn costs less than handing it to a thread. Input that comes meanwhile becomes a larger group.
QUICK = 0.001
LONE = 0.005  # s: the same, while all that clients do waits for the sync anyway
_NO_SYNC = inf  # s, instead of such a limit: no sync is requested


class Syncer:
    """Decides when to sync. Its methods are for the reactor's thread; `wake` is called in the thread that syncs."""

    def __init__(
        self, writer: Writer, space: Space, durability: Durability, every: int, wake: Callable[[], None]
    ) -> None:
        """Prepare to sync. `durability`: the node's mode; `every`: messages after which the mode `interval` syncs."""
        self.durability, self.space = durability, space
        self.relaxed = False  # True: all topics leave syncing to the operating system
        self.latencies = Samples()  # duration of each sync, ns
        self.done: deque[tuple[SyncJob, float, OSError | None]] = deque()  # filled by the thread, for `collect`
        self._writer, self._every, self._wake = writer, every, wake
        self._average = 0.0  # moving average of the duration of recent syncs, s
        self._unsynced = 0  # messages published in the mode `interval` since the last sync began
        self._running: SyncJob | None = None  # the job that the thread runs
        self._jobs: SimpleQueue[SyncJob | None] = SimpleQueue()  # jobs for the thread; None ends it
        self._idle = threading.Event()  # set when the thread has done a job; it may be set late, for the job before
        self._thread: threading.Thread | None = None
        # the limit (s) of a sync that was requested and that the running job does not cover, as in `_sync`
        self._wanted = _NO_SYNC
        self._end = writer.written.position  # the log's end at the last tick, or after the mark written since
        self._idle_tick = False  # True: nothing was written between the last two ticks
        self._durable = writer.durable.position  # the durable mark when it last moved, as the timer saw it
        self._ticks_behind = 0  # ticks since then, while something is not durable

    def written(self, promised: bool, published: int, is_lone: bool = False) -> None:
        """Sync what was written, if a sync is due. Called once a turn.

        `promised`: a reply waits for the sync; `published`: messages of this turn in topics of the mode `interval`; `is_lone`:
        the turn has done nothing for clients but what waits for the sync.
        """
        self._unsynced += published
        writer, limit = self._writer, self._wanted
        behind = writer.written.position - writer.durable.position
        if promised:
            if writer.written.position > writer.spare_due:
                writer.expect_syncs()
            limit = min(limit, LONE if is_lone else QUICK)
        elif self._every and self._unsynced >= self._every:
            limit = 0.0
        if behind > MOST_UNSYNCED:
            limit = 0.0
        if limit != _NO_SYNC:
            self._sync(limit)
        if writer.written.position >= self.space.check_at:
            self.space.check_free(writer.written.position)

    def timer(self, due: bool = True) -> None:
        """Sync by time, every second or more often. `due`: sync records that no reply waits for, unless `relaxed`."""
        self.latencies.settle()
        end = self._writer.written.position
        self._idle_tick, self._end = end == self._end, end
        if due and not self.relaxed:
            self._sync()
        self._rest()
        self._catch_up()
        self.space.check_free(self._writer.written.position)

    def _catch_up(self) -> None:
        """Sync after MOST_TICKS_BEHIND ticks in every mode. A log may never be idle and never reach MOST_UNSYNCED bytes."""
        writer = self._writer
        if writer.durable.position != self._durable or writer.durable.position >= writer.written.position:
            self._durable, self._ticks_behind = writer.durable.position, 0
            return
        self._ticks_behind += 1
        if self._ticks_behind >= MOST_TICKS_BEHIND:
            self._sync()

    def _rest(self) -> None:
        """If the log is idle, make it durable, and state that it is. Do nothing if that is done already."""
        if not self._idle_tick or self._writer.written.position != self._end:
            return
        if self._writer.unstated and self._writer.write_mark():
            self._end = self._writer.written.position
        self._sync()

    def want(self) -> None:
        """Start a sync in the thread, whatever the mode. If one is running, another follows it."""
        self._sync()

    def collect(self) -> None:
        """Apply the results of the syncs that the thread has done. The next sync begins when the turn is written."""
        while self.done:
            job, took, error = self.done.popleft()
            self._running = None
            if error is None:
                self._writer.synced(job)
                self._record_duration(took)
            else:
                self._writer.sync_failed(error)
                self._report()
            self._rest()

    def now(self) -> bool:
        """Sync everything that is written, in the turn, after the thread's running job. Returns False if that failed."""
        self._wanted = _NO_SYNC
        while self._running is not None:
            self._wait()
            self.collect()
        return self._writer.sync()

    def sync_all(self) -> bool:
        """Write all records, sync them, and state that they are durable, in the turn. Returns False if a sync failed."""
        self._writer.write()  # records of an unfinished turn would keep the mark from being stated
        if not self.now():
            return False
        if self._writer.unstated:
            self._writer.write_mark()
        return self.now()

    def _wait(self) -> None:
        self._idle.wait()
        self._idle.clear()

    def close(self) -> None:
        """End the thread, and sync the rest of the log."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join()
        self.collect()
        if not self._writer.sync():
            log.error("LOG: %s", self._writer.failure)

    def _sync(self, limit: float = 0.0) -> None:
        """Sync what is written: in the turn if recent syncs took less than `limit` s, otherwise in the thread.

        While the thread syncs, only note the request: `written` repeats it.
        """
        if self._running is not None:
            self._wanted = min(self._wanted, limit)
            return
        self._wanted = _NO_SYNC
        if self._average < limit:
            self._sync_in_turn()
            return
        job = self._writer.sync_job()
        if job is not None:
            self._unsynced = 0
            self._running = job
            self._hand_over(job)

    def _sync_in_turn(self) -> None:
        writer = self._writer
        if writer.durable.broken or writer.durable.position >= writer.written.position:
            return
        self._unsynced = 0
        began = time.perf_counter()
        if writer.sync():
            self._record_duration(time.perf_counter() - began)
        else:
            self._report()

    def _hand_over(self, job: SyncJob) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="sync", daemon=True)
            self._thread.start()
        self._idle.clear()
        self._jobs.put(job)

    def _record_duration(self, took: float) -> None:
        # a single long sync says little about the next
        self._average += max(-QUICK, min(took - self._average, QUICK)) / 8
        self.latencies.note(round(took * 1e9))

    def _report(self) -> None:
        log.critical("LOG: %s: from now on no publish is acknowledged; restart nsqd", self._writer.failure)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            self.done.append((job, *_run(job)))
            self._idle.set()
            self._wake()


def _run(job: SyncJob) -> tuple[float, OSError | None]:
    """Run the job. Returns how many seconds it took, and the error if there was one."""
    began, failure = time.perf_counter(), None
    try:
        job.run()
    except OSError as error:
        failure = error
    return time.perf_counter() - began, failure
