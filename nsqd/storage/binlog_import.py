"""Take over the directory of a beanstalkd (data_import.py). Jobs keep their ids, states, counts and remaining delays."""

from collections.abc import Callable
from pathlib import Path

from nsqd.core.broker import Broker
from nsqd.core.message.ids import SEQUENCE
from nsqd.core.sequence.put_batch import JobOptions
from nsqd.storage.binlog import BURIED, DELAYED, Binlog, LoggedJob, find_binlogs, read_binlogs
from nsqd.storage.data_import import DataImport, report_unreadable
from shared.log import log
from shared.values import SECOND

MARKER = "binlog-import"
ASIDE = "imported-from-beanstalkd"
BATCH = 1000  # number of jobs in a group
_U32 = (1 << 32) - 1


class BinlogImport(DataImport):
    """The import of beanstalkd's binlog: each job is put into the tube of its name."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, MARKER, ASIDE, "beanstalkd", "beanstalkd's binlog")
        self.binlog = Binlog()

    @property
    def wanted(self) -> bool:
        """Return True if there are binlog files to take over."""
        return bool(self.binlog.files)

    def _files(self) -> list[Path]:
        return find_binlogs(self._path)

    def _find(self) -> bool:
        self.binlog = read_binlogs(self._files())
        return self.wanted

    def run(self, broker: Broker, commit: Callable[[], None]) -> None:
        """Put all jobs into their tubes. `commit` ends a turn and begins the next, or raises the error that occurred."""
        jobs = sorted(self.binlog.jobs.values(), key=lambda job: job.id)
        for number, job in enumerate(jobs, 1):
            if job.id > SEQUENCE:
                log.error("IMPORT: skipped job %d: its id is too high", job.id)
                continue
            _put(broker, job)
            if number % BATCH == 0:
                commit()
        commit()
        report_unreadable(self.binlog.unreadable, "jobs")
        log.info("IMPORT: imported %d jobs of beanstalkd", len(jobs))


def _put(broker: Broker, job: LoggedJob) -> None:
    tube = broker.tubes.made(job.tube)
    delay, ttr = min(_U32, max(0, job.delay) // SECOND), min(_U32, max(1, job.ttr // SECOND))
    due = broker.now + max(0, job.due - broker.wall) if job.state == DELAYED else 0
    topic = broker.topics[job.tube]
    ordinal = topic.offsets.end
    topic.put_with_id(job.body, JobOptions(job.priority, ttr, delay, due, True), job.id, max(0, job.created))
    tube.amend(ordinal, job.counts, job.state == BURIED)
