"""Take over the directory of a Disque (data_import.py). Its jobs get new ids, because the id of a job names its owner.

Bodies, the order, the ends of life, the rest of the delays and the counters are kept. A job with a retry time is queued, or
delayed for the rest of its delay. A job with retry 0 is only imported if Disque has certainly not delivered it, that is during
its delay: a fetch leaves no trace in the file, and such a job must not be delivered twice.

A queue whose name we do not take gets another one: each byte that is not allowed becomes `%` and two hex digits.
"""

import hashlib
import re
import time
from collections.abc import Callable
from pathlib import Path

from nsqd.core.broker import Broker
from nsqd.core.limits import TooMany
from nsqd.core.message.ids import SEQUENCE
from nsqd.core.sequence.put_batch import USUAL, JobOptions
from nsqd.storage.data_import import DataImport, DataImportError, report_unreadable
from nsqd.storage.disque_aof import FILE, AofJob, AofJobs, AofState, read_aof
from penstock.protocol.names import EPHEMERAL_SUFFIX
from shared.log import log
from shared.values import SECOND

MARKER = "disque-import"
ASIDE = "imported-from-disque"
BATCH, BATCH_BYTES = 1000, 1024 * 1024  # jobs and bytes in a group, at most
MOST_TOLD = 20  # renamed queues that have a line each in the log
_NOT_ALLOWED = re.compile(rb"[^!-~]")
_DIGEST = 32  # hex digits that end a name which is too long


class DisqueImport(DataImport):
    """The import of Disque's append-only file: each job is put into the tube of its queue's name."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, MARKER, ASIDE, "Disque", "Disque's append-only file")
        self._file = path / FILE
        self.aof: AofJobs | None = None  # None: there is no file to take over
        self.imported = 0  # jobs
        self.perhaps_delivered = 0  # jobs that were left out because they may have been delivered
        self.renamed: dict[bytes, str] = {}  # queues that have another name here

    @property
    def wanted(self) -> bool:
        """Return True if there is a file to take over."""
        return self.aof is not None

    @property
    def unreadable(self) -> list[tuple[Path, int, int]]:
        """Return the incomplete command at the file's end, as (file, from, size of the file)."""
        aof = self.aof
        return [(self._file, aof.cut_at, aof.size)] if aof is not None and aof.cut_at is not None else []

    def _files(self) -> list[Path]:
        return [self._file] if self._file.exists() else []

    def _find(self) -> bool:
        if self._file.exists():
            self.aof = read_aof(self._file, int(time.time()))
        return self.wanted

    def run(self, broker: Broker, commit: Callable[[], None]) -> None:
        """Put all jobs into their tubes. `commit` ends a turn and begins the next, or raises the error that occurred.

        Raises DataImportError if there are too many queues.
        """
        assert self.aof is not None
        count = size = 0
        for job in self.aof.jobs:
            if not job.retry and not _is_certainly_undelivered(job, broker.wall):
                self.perhaps_delivered += 1
                continue
            here = name_here(job.queue)
            if here.encode() != job.queue:
                self.renamed[job.queue] = here
            try:
                _put(broker, job, here)
            except TooMany as error:
                raise DataImportError(str(error)) from None
            self.imported += 1
            count, size = count + 1, size + len(job.body)
            if count == BATCH or size >= BATCH_BYTES:
                commit()
                count = size = 0
        commit()
        self._report()

    def _report(self) -> None:
        for name, here in list(self.renamed.items())[:MOST_TOLD]:
            log.warning("IMPORT: queue %r has the name %s here", name, here)
        if len(self.renamed) > MOST_TOLD:
            log.warning("IMPORT: %d more queues have other names here", len(self.renamed) - MOST_TOLD)
        report_unreadable(self.unreadable, "a whole command")
        if self.perhaps_delivered:
            log.warning(
                "IMPORT: not imported: %d jobs with retry 0, which may have been delivered", self.perhaps_delivered
            )
        assert self.aof is not None
        log.info(
            "IMPORT: imported %d jobs of Disque, with new ids; %d more had expired", self.imported, self.aof.expired
        )


def name_here(name: bytes) -> str:
    """Return the name of a queue here: the same, if clients can name it and nsqd keeps its jobs on disk."""
    here = _NOT_ALLOWED.sub(lambda match: b"%%%02x" % match[0][0], name)
    if here.startswith(b"#"):
        here = b"%23" + here[1:]
    if here.endswith(EPHEMERAL_SUFFIX.encode()):
        here = here.removesuffix(EPHEMERAL_SUFFIX.encode()) + b"%23ephemeral"
    from nsqd.protocols.disque.context import MOST_NAME  # only an import needs it, no other start

    if len(here) > MOST_NAME:
        digest = hashlib.sha256(name, usedforsecurity=False).hexdigest()[:_DIGEST].encode()
        here = here[: MOST_NAME - 1 - _DIGEST] + b"%" + digest
    return (here or b"%").decode()


def _is_certainly_undelivered(job: AofJob, wall: int) -> bool:
    """Return True if the job's delay is not over, and no client queued it before, as far as the file says."""
    return (
        job.state is AofState.ACTIVE
        and not (job.is_delivered or job.nacks or job.additional_deliveries)
        and job.created + job.delay * SECOND > wall
    )


def _put(broker: Broker, job: AofJob, queue: str) -> None:
    tube = broker.tubes.made(queue)
    topic = broker.topics[queue]
    left = job.created + job.delay * SECOND - broker.wall if job.state is AofState.ACTIVE else 0
    due = broker.now + left if job.delay and left > 0 else 0
    created = min(job.created, broker.wall)  # the clock of the node that made it may have been ahead
    ttl = max(1, job.expires - created // SECOND)
    options = JobOptions(USUAL.priority, job.retry, job.delay, due, True, ttl, job.replicate)
    ordinal = topic.offsets.end
    topic.put_with_id(job.body, options, broker.ids.issue_numbers(1) & SEQUENCE, created)
    delivered = max(job.nacks + job.additional_deliveries, job.is_delivered)
    if delivered:
        tube.amend(ordinal, (delivered, job.additional_deliveries, job.nacks, 0, 0), False)
