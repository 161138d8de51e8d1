"""A job, and the row of 57 bytes that the table and the log hold of it.

A million jobs as objects would take 400 MB. So a job is kept as a row; whoever needs one unpacks it, changes it and packs it
again.
"""

from dataclasses import dataclass
from enum import IntEnum
from struct import Struct

ROW = Struct("<QIIIQQIIIIIB")  # the fields of Job in their order, without the ordinal
STATE_AT = ROW.size - 1  # where the state stands in a row; 0 there: there is no job
BRIEF = Struct("<QI16xQ20xB")  # of a row: id, priority, due, state
DUE, DUE_AT = Struct("<Q"), 28  # of a row: due
_ID = Struct("<Q")  # a row begins with it
_NODE_AT = 6  # the bytes of the id from there on are the node's number


class JobState(IntEnum):
    """The numbers are those of beanstalkd's binlog. A row without a job has 0."""

    READY = 1
    RESERVED = 2
    BURIED = 3
    DELAYED = 4


_STATES = (JobState.READY, *JobState)  # by number


@dataclass(slots=True)
class Job:
    """All that is known of a job but its body."""

    ordinal: int  # of its message, in the topic's sequence
    id: int  # 64 bits: its message's; clients name it by its number (job_index.py)
    priority: int  # 0 is the most urgent
    delay: int  # s, as the last put or release asked for it
    ttr: int  # s that a reservation lasts
    created: int  # ns since the epoch
    due: int = 0  # ns: when the delay or the reservation ends; of a buried job its number in the order of burial
    reserves: int = 0
    timeouts: int = 0
    releases: int = 0
    buries: int = 0
    kicks: int = 0
    state: JobState = JobState.READY

    def pack(self) -> bytes:
        """Return the job's row."""
        return ROW.pack(
            self.id, self.priority, self.delay, self.ttr, self.created, self.due, self.reserves, self.timeouts,
            self.releases, self.buries, self.kicks, self.state,
        )  # fmt: skip


def unpack(ordinal: int, row: bytes | bytearray, at: int = 0) -> Job:
    """Return the job whose row begins at `at`."""
    job = Job(ordinal, *ROW.unpack_from(row, at))
    job.state = _STATES[job.state]
    return job


def time_of(row: bytes) -> int:
    """Return when the row's job is due (ns); 0 if it waits for no time."""
    return int(DUE.unpack_from(row, DUE_AT)[0]) if row[STATE_AT] != JobState.BURIED else 0


def with_time(row: bytes, due: int) -> bytes:
    """Return the row with another due time (ns)."""
    return row[:DUE_AT] + DUE.pack(due) + row[DUE_AT + DUE.size :]


def have_times(rows: bytes | bytearray) -> bool:
    """True if a job of these rows, end to end, may have a `due`: it is not ready."""
    states = rows[STATE_AT :: ROW.size]
    return states.count(0) + states.count(JobState.READY) < len(states)


def of_node(rows: bytes, node: int) -> bytes:
    """Return rows, end to end, with that node number (16 bits) in their ids, unless they have one already.

    The node wrote the rows; in an old log that was renumbered, the message's own id may have another number.
    """
    if any(rows[_NODE_AT :: ROW.size]) or any(rows[_NODE_AT + 1 :: ROW.size]):
        return rows
    whole, states = bytearray(rows), rows[STATE_AT :: ROW.size]
    for at, byte in enumerate(node.to_bytes(2, "little"), _NODE_AT):
        whole[at :: ROW.size] = states.translate(b"\0" + bytes((byte,)) * 255)  # where there is no job, nothing is
    return bytes(whole)


def rows_on_terms(
    ids: list[int], priority: int, ttr: int, delay: int, created: int, due: int, state: JobState
) -> list[bytes]:
    """Return the rows of new jobs that differ in nothing but their ids. `ttr` and `delay` are s, `created` and `due` ns."""
    row = ROW.pack(0, priority, delay, ttr, created, due, 0, 0, 0, 0, 0, state)[_ID.size :]
    return [job_id + row for job_id in map(_ID.pack, ids)]
