"""Read beanstalkd's binlog, version 7. This module changes nothing on disk.

    binlog.N      int32 version, then records, little-endian, up to zeros or the end
    record        int32 length of the tube's name; the name; 80 bytes of the job; the job's body, CR LF included
                  a name of length 0: only the 80 bytes, of a job that is known

Files are read in the order of their numbers. An invalid record ends its file, as it does for beanstalkd. But a large body (up
to MOST_BODY) does not make a record invalid: beanstalkd loses jobs of its largest sizes, and the jobs after them.

See docs/contributing/design/beanstalkd.md#binlog.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct

VERSION = 7
MOST_BODY = 1 << 30  # bytes: beanstalkd allows no larger body
MOST_NAME = 200
_FILE = re.compile(r"binlog\.([0-9]{1,9})")
_INT = Struct("<i")
_JOB = Struct("<QIxxxxqqixxxxqqIIIIIBxxx")
DELETED, READY, RESERVED, BURIED, DELAYED = range(5)  # states of a job


@dataclass(slots=True)
class LoggedJob:
    """A job in the state in which beanstalkd last wrote it."""

    id: int
    tube: str
    body: bytes
    priority: int = 0
    delay: int = 0  # ns; the same unit in `ttr`
    ttr: int = 0
    created: int = 0  # ns since the epoch; the same unit in `due`
    due: int = 0
    counts: tuple[int, int, int, int, int] = (0, 0, 0, 0, 0)  # reserves, timeouts, releases, buries, kicks
    state: int = READY


@dataclass(slots=True)
class Binlog:
    """The content of beanstalkd's binlog files."""

    files: list[Path] = field(default_factory=list)
    jobs: dict[int, LoggedJob] = field(default_factory=dict)  # jobs that were not deleted, by id
    highest: int = 0  # the highest id in the files
    # ranges that are unreadable: (file, from, size of the file)
    unreadable: list[tuple[Path, int, int]] = field(default_factory=list)


def find_binlogs(path: Path) -> list[Path]:
    """Return beanstalkd's files in the directory, in the order of their numbers. Raises OSError."""
    found = [(int(match[1]), file) for file in path.iterdir() if (match := _FILE.fullmatch(file.name))]
    return [file for _, file in sorted(found)]


def read_binlogs(files: list[Path]) -> Binlog:
    """Read all jobs that were not deleted. Raises OSError."""
    binlog = Binlog(files)
    for file in files:
        data = file.read_bytes()
        at = _INT.size
        if len(data) < at or _INT.unpack_from(data)[0] != VERSION:
            if data.strip(b"\0"):
                binlog.unreadable.append((file, 0, len(data)))
            continue
        while at < len(data):
            end = _read(binlog, data, at)
            if end <= at:
                if end < 0:
                    binlog.unreadable.append((file, at, len(data)))
                break
            at = end
    return binlog


def _read(binlog: Binlog, data: bytes, at: int) -> int:
    """Read one record into `binlog`. Returns where it ends; 0 if there are no more records; -1 if it is invalid."""
    if len(data) < at + _INT.size + _JOB.size:
        return -1 if data[at:].strip(b"\0") else 0
    (name_size,) = _INT.unpack_from(data, at)
    job_at: int = at + _INT.size + name_size
    if not 0 <= name_size <= MOST_NAME or len(data) < job_at + _JOB.size:
        return -1
    fields: tuple[int, ...] = _JOB.unpack_from(data, job_at)
    number, priority, delay, ttr, size, created, due, reserves, timeouts, releases, buries, kicks, state = fields
    if not number:
        return 0 if not name_size else -1
    end = job_at + _JOB.size
    known = binlog.jobs.get(number)
    if name_size:
        if not 2 <= size <= MOST_BODY + 2 or len(data) < end + size or not 0 <= state <= DELAYED:
            return -1
        name = data[at + _INT.size : job_at].decode("latin-1")
        known = LoggedJob(number, name, data[end : end + size - 2])
        end += size
    binlog.highest = max(binlog.highest, number)
    if state == DELETED:
        binlog.jobs.pop(number, None)
    elif known is not None:
        known.priority, known.delay, known.ttr, known.created, known.due = priority, delay, ttr, created, due
        known.counts, known.state = (reserves, timeouts, releases, buries, kicks), state
        binlog.jobs[number] = known
    return end
