"""A job, and its row of 67 bytes, the form in which the table and the log hold it.

A million jobs as objects would take 400 MB. So a job is kept as a row: code that needs the job unpacks the row, changes the
object and packs it again.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct

from nsqd.core.sequence.put_batch import JobOptions
from shared.values import SECOND

ROW = Struct("<QIIIQQIIIIIIHIB")  # the fields of Job in their order, without the ordinal
STATE_AT = ROW.size - 1  # offset of the state in a row; a state of 0 means that there is no job
BRIEF = Struct("<QI16xQ30xB")  # unpacks id, priority, due and state of a row
LIFE = Struct("<20xQ28xI7x")  # unpacks when the job was created, and its ttl
# The outline of a row, for reserving and finishing a job: id, priority, ttr, created, reserves, ttl, failures and state.
OUTLINE = Struct("<QI4xIQ8xI16xI2xIB")
Outline = tuple[int, int, int, int, int, int, int, int]
RESERVATION = Struct("<QI")  # due and reserves of a row, at DUE_AT
DUE, DUE_AT = Struct("<Q"), 28  # the due time of a row, and its offset
_DUE_END = DUE_AT + DUE.size
_TTL_AT = 56  # offset of the ttl in a row
_ID = Struct("<Q")  # a row begins with it


class JobState(IntEnum):
    """The state of a job, numbered as in beanstalkd's binlog. A row without a job has 0 in its place."""

    READY = 1
    RESERVED = 2
    BURIED = 3
    DELAYED = 4


STATES = (JobState.READY, *JobState)  # by number
_BURIED = JobState.BURIED


@dataclass(slots=True)
class Job:
    """Everything that is known of a job except its body."""

    ordinal: int  # ordinal of its message in the topic's sequence
    id: int  # id of its message: 64 bits; clients see the client id (job_index.py)
    priority: int  # 0 is the most urgent
    delay: int  # s, as the last put or release asked for it
    ttr: int  # time to run: s that a reservation lasts
    created: int  # ns since the epoch
    due: int = 0  # ns: when the delay or the reservation ends; for a buried job, its number in the order of burial
    reserves: int = 0
    timeouts: int = 0
    releases: int = 0
    buries: int = 0
    kicks: int = 0
    ttl: int = 0  # s from its creation until the job is deleted, whatever its state is; 0: never
    copies: int = 0  # how many nodes were to have it before its put was answered; 0: as many as the topic asks for
    failures: int = 0  # reservations that failed, since it was kicked: released, or over before it was finished
    state: JobState = JobState.READY

    @property
    def expires(self) -> int:
        """Return the end of the job's time to live, in s since the epoch; 0: it has none."""
        return self.ttl and expiry(self.created, self.ttl)

    def is_over(self, wall: int) -> bool:
        """Return True if the time to live is over at `wall` (ns since the epoch): then the job no longer exists for clients."""
        return is_over(self.created, self.ttl, wall)

    def pack(self) -> bytes:
        """Return the job packed as a row."""
        return ROW.pack(
            self.id, self.priority, self.delay, self.ttr, self.created, self.due, self.reserves, self.timeouts,
            self.releases, self.buries, self.kicks, self.ttl, self.copies, self.failures, self.state,
        )  # fmt: skip


def is_over(created: int, ttl: int, wall: int) -> bool:
    """Return True if the life of `ttl` s (0: endless) that began at `created` is over at `wall`, both ns since the epoch."""
    return ttl > 0 and created + ttl * SECOND <= wall


def expiry(created: int, ttl: int) -> int:
    """Return the end (s since the epoch) of the life of a job that was created at `created` (ns since the epoch): `ttl` s."""
    return -(-created // SECOND) + ttl


def unpack(ordinal: int, row: bytes | bytearray, at: int = 0) -> Job:
    """Return the job whose row begins at `at`."""
    job = Job(ordinal, *ROW.unpack_from(row, at))
    job.state = STATES[job.state]
    return job


def delayed_by(row: bytes, offset: int) -> bytes:
    """Return the row with its due time later by `offset` ns; the row itself if the job does not wait for a time."""
    (due,) = DUE.unpack_from(row, DUE_AT)
    if not due or row[STATE_AT] == _BURIED:
        return row
    return row[:DUE_AT] + DUE.pack(due + offset) + row[_DUE_END:]


def have_times(rows: bytes | bytearray) -> bool:
    """Return True if any job of these rows (end to end) may have a `due`, since it is not ready."""
    states = rows[STATE_AT :: ROW.size]
    return states.count(0) + states.count(JobState.READY) < len(states)


def row_without_id(options: JobOptions, created: int, state: JobState) -> bytes:
    """Return the rows, without the id, of new jobs in that state with these options. `created`: ns since the epoch."""
    priority, ttr, delay, due, _, ttl, copies = options
    row = ROW.pack(0, priority, delay, ttr, created, due, 0, 0, 0, 0, 0, ttl, copies, 0, state)
    return row[_ID.size :]


def rows_from(ids: Iterable[int], common: bytes) -> list[bytes]:
    """Return the rows of jobs with these ids that have the rest of the row in common."""
    return [job_id + common for job_id in map(_ID.pack, ids)]


def lives(rows: bytes | bytearray) -> Iterator[tuple[int, int]]:
    """Yield, for each of the rows (end to end) with a ttl, its index and when its job's life ends (s since the epoch)."""
    if any(any(rows[_TTL_AT + byte :: ROW.size]) for byte in range(4)):
        for index, (created, ttl) in enumerate(LIFE.iter_unpack(rows)):
            if ttl and rows[index * ROW.size + STATE_AT]:
                yield index, expiry(created, ttl)
