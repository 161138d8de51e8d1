"""A job, and its row of 57 bytes, the form in which the table and the log hold it.

A million jobs as objects would take 400 MB. So a job is kept as a row: code that needs the job unpacks the row, changes the
object and packs it again.
"""

from dataclasses import dataclass
from enum import IntEnum
from struct import Struct

ROW = Struct("<QIIIQQIIIIIB")  # the fields of Job in their order, without the ordinal
STATE_AT = ROW.size - 1  # offset of the state in a row; a state of 0 means that there is no job
BRIEF = Struct("<QI16xQ20xB")  # unpacks id, priority, due and state of a row
DUE, DUE_AT = Struct("<Q"), 28  # the due time of a row, and its offset
_ID = Struct("<Q")  # a row begins with it
_NODE_AT = 6  # the last two bytes of the id, from this offset on, are the node number


class JobState(IntEnum):
    """The state of a job, numbered as in beanstalkd's binlog. A row without a job has 0 in its place."""

    READY = 1
    RESERVED = 2
    BURIED = 3
    DELAYED = 4


_STATES = (JobState.READY, *JobState)  # by number
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
    state: JobState = JobState.READY

    def pack(self) -> bytes:
        """Return the job packed as a row."""
        return ROW.pack(
            self.id, self.priority, self.delay, self.ttr, self.created, self.due, self.reserves, self.timeouts,
            self.releases, self.buries, self.kicks, self.state,
        )  # fmt: skip


def unpack(ordinal: int, row: bytes | bytearray, at: int = 0) -> Job:
    """Return the job whose row begins at `at`."""
    job = Job(ordinal, *ROW.unpack_from(row, at))
    job.state = _STATES[job.state]
    return job


def delayed_by(row: bytes, offset: int) -> bytes:
    """Return the row with its due time later by `offset` ns; the row itself if the job does not wait for a time."""
    due = int(DUE.unpack_from(row, DUE_AT)[0])
    if not due or row[STATE_AT] == _BURIED:
        return row
    return row[:DUE_AT] + DUE.pack(due + offset) + row[DUE_AT + DUE.size :]


def have_times(rows: bytes | bytearray) -> bool:
    """Return True if any job of these rows (end to end) may have a `due`, since it is not ready."""
    states = rows[STATE_AT :: ROW.size]
    return states.count(0) + states.count(JobState.READY) < len(states)


def of_node(rows: bytes, node: int) -> bytes:
    """Return the rows (end to end) with this node number (16 bits) in their ids, unless they have one already.

    The node is the one that wrote the rows. In an old log that was renumbered, the id of the message itself may have another
    node number.
    """
    if any(rows[_NODE_AT :: ROW.size]) or any(rows[_NODE_AT + 1 :: ROW.size]):
        return rows
    whole, states = bytearray(rows), rows[STATE_AT :: ROW.size]
    for at, byte in enumerate(node.to_bytes(2, "little"), _NODE_AT):
        whole[at :: ROW.size] = states.translate(b"\0" + bytes((byte,)) * 255)  # a row without a job stays as it is
    return bytes(whole)


def rows_with_options(
    ids: list[int], priority: int, ttr: int, delay: int, created: int, due: int, state: JobState
) -> list[bytes]:
    """Return the rows of new jobs that differ only in their ids. `ttr` and `delay` are in s, `created` and `due` in ns."""
    row = ROW.pack(0, priority, delay, ttr, created, due, 0, 0, 0, 0, 0, state)[_ID.size :]
    return [job_id + row for job_id in map(_ID.pack, ids)]
