"""Read the append-only file (AOF) of Disque 1.0. This module changes nothing on disk.

    disque.aof    commands: "*" count CR LF, then `count` times "$" size CR LF, `size` bytes, CR LF
    LOADJOB job   Disque got the job
    DELJOB id...  the job was acknowledged or deleted, or has expired

    job           little-endian: u32 number of the bytes that follow; id (40 bytes), u8 state in the low 4 bits, u8 flags,
                  u16 replicate, u32 expires, u64 created, u32 delay, u32 retry, u16 nacks, u16 additional deliveries;
                  u32 size, queue; u32 size, body; u32 count, 40 bytes for each node that may have the job

As in Disque, the jobs before a command that is cut off by the end of the file count, and any other corruption is an error. A
corrupt size that reaches beyond the end looks like a cut: Disque loses the rest of the file, and here `AofJobs` says where it
begins. Content that Disque would load but never writes is corrupt here: other commands, arguments, line ends, states and ids.
"""

import os
import re
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from struct import Struct
from typing import BinaryIO

FILE = "disque.aof"
ID_SIZE = 40  # bytes; the ids of nodes have the same size
MOST_BULK = 1 << 30  # bytes: Disque allows 512 MiB for each of queue and body
MOST_ARGUMENTS = 1 << 20  # as in Disque's protocol
_MOST_COMMAND = 64  # bytes of a command's name
_MOST_LINE = len(b"$1073741824\r\n")
_LINE = re.compile(rb"([*$])(0|[1-9][0-9]{0,9})\r\n")
_PART_OF_LINE = re.compile(rb"(?:[*$](?:(?:0|[1-9][0-9]{0,9})\r?)?)?")
_ID = re.compile(rb"D-[0-9a-f]{8}-[A-Za-z0-9+/]{24}-[0-9a-f]{4}")
_HEAD = Struct("<I40sBBHIQIIHH")
_SIZE = Struct("<I")
_DELIVERED = 1 << 2  # a bit of the flags


class AofState(IntEnum):
    """State of a job when Disque wrote it. Disque writes no job in another state, and no later change of it."""

    ACTIVE = 1  # in no queue: delayed, a copy of another node's job, or, after a rewrite, delivered
    QUEUED = 2


@dataclass(frozen=True, slots=True)
class AofJob:
    """A job as Disque last wrote it: when the job came, or when the file was rewritten."""

    id: bytes
    queue: bytes
    body: bytes
    created: int  # ns since the epoch: whole milliseconds, plus a counter of the jobs in the same one
    expires: int  # s since the epoch
    delay: int  # s from `created` to the first delivery
    retry: int  # s from one delivery to the next; 0: the job is delivered at most once
    replicate: int  # nodes that have a copy
    nacks: int
    additional_deliveries: int
    state: AofState
    is_delivered: bool  # False: it was not delivered by this node before it was written


@dataclass(frozen=True, slots=True)
class AofJobs:
    """The jobs of an AOF that were neither deleted nor have expired."""

    jobs: tuple[AofJob, ...]  # in the order of `created`, then of the id
    expired: int  # number of jobs that have expired and were not deleted
    cut_at: int | None  # offset in the file of an incomplete last command; None: there is none
    size: int  # bytes of the file


class AofError(Exception):
    """The file is corrupt before its end. The one-line text says where, how, and what to do."""

    def __init__(self, name: str, offset: int, what: str) -> None:
        """`offset`: where in the file the corrupt command begins. All commands before it are readable."""
        super().__init__(
            f"{name} is corrupt at byte {offset}: {what}."
            f" To import what is before it, truncate a copy of the file to {offset} bytes"
        )
        self.offset = offset


class _Corrupt(Exception):
    """A command is invalid."""


class _Cut(Exception):
    """The file ends within a command."""


def read_aof(path: Path, now: int) -> AofJobs:
    """Read all jobs that exist at the end. Raises AofError, OSError.

    now: s since the epoch; as when Disque loads the file, jobs that have expired by then are left out. Of two jobs with the
    same id the first counts, unless it was deleted in between. Memory never holds more bodies than those of the jobs that
    exist at that point, and one command.
    """
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        commands = _Commands(file, size)
        jobs = _Jobs(now)
        cut_at = None
        while (start := commands.at) < size:
            try:
                jobs.apply(*commands.read())
            except _Cut:
                cut_at = start
                break
            except _Corrupt as error:
                raise AofError(path.name, start, str(error)) from None
    present = sorted(jobs.present.values(), key=lambda job: (job.created, job.id))
    return AofJobs(tuple(present), len(jobs.expired), cut_at, size)


class _Jobs:
    """The jobs that exist after the commands so far."""

    def __init__(self, now: int) -> None:
        self.present: dict[bytes, AofJob] = {}
        self.expired: set[bytes] = set()  # ids of jobs that have expired by now and were not deleted
        self._now = now

    def apply(self, is_load: bool, arguments: list[bytes]) -> None:
        """Apply a LOADJOB or a DELJOB. Raises _Corrupt, and then nothing has changed."""
        if is_load:
            self._add(_parse(arguments[0]))
            return
        if wrong := [job_id for job_id in arguments if not _ID.fullmatch(job_id)]:
            raise _Corrupt(f"DELJOB of {wrong[0]!r}, which is not the id of a job")
        for job_id in arguments:
            self.present.pop(job_id, None)
            self.expired.discard(job_id)

    def _add(self, job: AofJob) -> None:
        if job.id in self.present:
            return
        if job.expires <= self._now:
            self.expired.add(job.id)
        else:
            self.expired.discard(job.id)
            self.present[job.id] = job


class _Commands:
    """The commands of a file, read one by one. No size is believed before it is compared with what the file holds."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self.at = 0  # offset of what is read next
        self._file, self._size = file, size

    def read(self) -> tuple[bool, list[bytes]]:
        """Return True for a LOADJOB, False for a DELJOB, and the command's arguments. Raises _Corrupt, _Cut, OSError."""
        count = self._number(b"*")
        if not 1 <= count <= 1 + MOST_ARGUMENTS:
            raise _Corrupt(f"a command of {count} words")
        name = self._bulk(_MOST_COMMAND)
        is_load = name.upper() == b"LOADJOB"
        if not is_load and name.upper() != b"DELJOB":
            raise _Corrupt(f"the command {name!r}, which Disque never writes")
        if count == 1 or (is_load and count > 2):
            raise _Corrupt(f"{name.decode()} with {count - 1} arguments")
        return is_load, [self._bulk(MOST_BULK if is_load else ID_SIZE) for _ in range(count - 1)]

    def _bulk(self, most: int) -> bytes:
        size = self._number(b"$")
        if size > most:
            raise _Corrupt(f"a string of {size} bytes, where at most {most} are allowed")
        if size > self._size - self.at:
            raise _Cut
        data = self._file.read(size)
        end = self._file.read(2)
        self.at += len(data) + len(end)
        if end != b"\r\n":
            if b"\r\n".startswith(end):
                raise _Cut
            raise _Corrupt(f"{end!r} instead of the end of a string of {size} bytes")
        return data

    def _number(self, kind: bytes) -> int:
        """Read a line that has the number of a command's words (`kind` is *) or the size of a string ($)."""
        line = self._file.readline(_MOST_LINE)
        self.at += len(line)
        match = _LINE.fullmatch(line)
        if match is not None and match[1] == kind:
            return int(match[2])
        if _PART_OF_LINE.fullmatch(line) and kind.startswith(line[:1]):
            raise _Cut
        raise _Corrupt(f"{line!r} instead of {kind.decode()} and a number")


def _parse(data: bytes) -> AofJob:
    """Return the job that the argument of a LOADJOB holds. Raises _Corrupt."""
    if len(data) < _HEAD.size:
        raise _Corrupt(f"a job of {len(data)} bytes")
    fields: tuple[int, bytes, int, int, int, int, int, int, int, int, int] = _HEAD.unpack_from(data)
    size, job_id, state, flags, replicate, expires, created, delay, retry, nacks, deliveries = fields
    if size != len(data) - _SIZE.size:
        raise _Corrupt(f"a job that claims {size} bytes and has {len(data) - _SIZE.size}")
    if not _ID.fullmatch(job_id):
        raise _Corrupt(f"a job with the id {job_id!r}")
    if state & 15 not in (AofState.ACTIVE, AofState.QUEUED):  # the high bits count Disque's attempts to forget the job
        raise _Corrupt(f"a job in the state {state & 15}")
    queue, at = _string(data, _HEAD.size)
    body, at = _string(data, at)
    nodes = _size(data, at)
    if at + _SIZE.size + nodes * ID_SIZE != len(data):
        raise _Corrupt(f"a job that names {nodes} nodes in {len(data) - at - _SIZE.size} bytes")
    return AofJob(
        job_id, queue, body, created, expires, delay, retry, replicate, nacks, deliveries,
        AofState(state & 15), bool(flags & _DELIVERED),
    )  # fmt: skip


def _string(data: bytes, at: int) -> tuple[bytes, int]:
    """Return the string whose size is at the offset `at`, and the offset of its end. Raises _Corrupt."""
    end = at + _SIZE.size + _size(data, at)
    if end > len(data):
        raise _Corrupt(f"a string of {end - at - _SIZE.size} bytes in {len(data) - at - _SIZE.size} bytes of a job")
    return data[at + _SIZE.size : end], end


def _size(data: bytes, at: int) -> int:
    if at + _SIZE.size > len(data):
        raise _Corrupt("a job that ends too early")
    size: int = _SIZE.unpack_from(data, at)[0]
    return size
