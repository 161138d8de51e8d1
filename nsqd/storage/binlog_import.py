"""Taking over a directory of beanstalkd's: once, at the first start there, all of it or nothing; as nsq_import.py does it.

Jobs keep their ids, states, counts and what is left of their delays. beanstalkd's files are moved aside when all is in the log.
"""

import os
from collections.abc import Callable
from pathlib import Path

from nsqd.core.broker import Broker
from nsqd.core.jobs import JobState
from nsqd.core.tube import SECOND, Terms
from nsqd.storage.binlog import BURIED, DELAYED, Binlog, LoggedJob, find_binlogs, read_binlogs
from nsqd.storage.nsq_import import MOVING, READING
from shared.files import replace_file, sync_directory
from shared.log import log

MARKER = "binlog-import"
ASIDE = "imported-from-beanstalkd"
BATCH = 1000  # jobs of a group
MOST_ID = (1 << 48) - 1
_U32 = (1 << 32) - 1


class BinlogImport:
    """See above."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._marker = path / MARKER
        self.binlog = Binlog()

    @property
    def wanted(self) -> bool:
        """There is something to take over."""
        return bool(self.binlog.files)

    def prepare(self) -> None:
        """Before the log is opened. Raises OSError; then nothing has changed."""
        marker = self._marker.read_bytes() if self._marker.exists() else b""
        if marker == MOVING:
            self._move()
            return
        files = find_binlogs(self._path)
        logs = list((self._path / "log").glob("*.log")) if (self._path / "log").is_dir() else []
        if logs and marker != READING:
            if files:
                log.warning("IMPORT: there is a log in %s already: beanstalkd's files are not taken over", self._path)
            return
        if not files:
            return
        self.binlog = read_binlogs(files)
        replace_file(self._marker, READING)
        for file in logs:
            file.unlink()

    def run(self, broker: Broker, commit: Callable[[], None]) -> None:
        """Put all jobs. `commit` ends a turn and begins one, or raises what went wrong."""
        jobs = sorted(self.binlog.jobs.values(), key=lambda job: job.id)
        for place, job in enumerate(jobs, 1):
            if job.id > MOST_ID:
                log.error("IMPORT: job %d has too high an id: it is not taken", job.id)
                continue
            _put(broker, job)
            if place % BATCH == 0:
                commit()
        commit()
        for path, start, size in self.binlog.unreadable:
            log.error("IMPORT: %s: %d bytes from %d on are no jobs; all else was taken", path.name, size - start, start)
        log.info("IMPORT: %d jobs of beanstalkd", len(jobs))

    def finish(self) -> None:
        """All of it is in the log, and synced."""
        replace_file(self._marker, MOVING)
        self._move()
        log.info("IMPORT: done; the files of beanstalkd are in %s", self._path / ASIDE)

    def _move(self) -> None:
        aside = self._path / ASIDE
        aside.mkdir(mode=0o700, exist_ok=True)
        for path in find_binlogs(self._path):
            os.replace(path, aside / path.name)
        sync_directory(aside)
        self._marker.unlink()
        sync_directory(self._path)


def _put(broker: Broker, job: LoggedJob) -> None:
    tube = broker.tubes.made(job.tube)
    delay, ttr = min(_U32, max(0, job.delay) // SECOND), min(_U32, max(1, job.ttr // SECOND))
    due = broker.now + max(0, job.due - broker.wall) if job.state == DELAYED else 0
    ordinal = tube.topic.end
    tube.topic.put(job.body, Terms(job.priority, ttr, delay, due, True), known=(job.id, max(0, job.created)))
    state = JobState.BURIED if job.state == BURIED else None
    tube.amend(ordinal, job.counts, state)
