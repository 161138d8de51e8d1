"""The log's end: records collected in groups, one write a group, segments one behind the other, and how far it is durable.

A group that cannot be written stays, and is tried again with the next one: nothing behind it can overtake it, and whoever
waits for it waits on. What a failed sync leaves on the disk nobody knows: after one, nothing becomes durable any more.
"""

import errno
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from nsqd.core.records import ANCHOR, GROUP, Kind
from nsqd.storage.log.clocks import LogClock
from nsqd.storage.log.disk import Disk, File
from nsqd.storage.log.identity import LogIdentity
from nsqd.storage.log.records import HEADER_SIZE, PREFIX_SIZE, SegmentHeader, encode
from nsqd.storage.log.space import Space
from nsqd.storage.log.spare import Spare
from shared.log import log

NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
SEGMENT_SIZE = 64 * 1024 * 1024  # bytes; a group is never split, so a segment may be longer by one
SPARE_AFTER = 16  # the next segment is made ahead when this part of one is filled


@dataclass(slots=True)
class SyncJob:
    """What is to be made durable: any thread may do it."""

    position: int  # everything before it is durable afterwards
    files: list[File]
    disk: Disk | None  # a file is new in its directory

    def run(self) -> None:
        """Raises OSError."""
        for file in self.files:
            file.sync()
        if self.disk is not None:
            self.disk.sync_directory()


class Writer:
    """See above. One thread."""

    def __init__(
        self,
        disk: Disk,
        identity: LogIdentity,
        position: int,
        clock: LogClock,
        space: Space,
        spare: Spare,
        segment_size: int = SEGMENT_SIZE,
        bases: Sequence[int] = (),
        stated: int | None = None,
        content_end: int | None = None,
    ) -> None:
        """A new segment is begun at `position`, with the first group. `bases`: of those there are.

        `stated` and `content_end` are what the log holds of the attributes of the same names; None: `position`.
        """
        self._disk = disk
        self._identity = identity
        self._clock = clock
        self._space = space
        self._spare = spare
        self._segment_size = segment_size
        self._group: list[tuple[int, bytes, bytes]] = []  # (kind, content, frames) of the records to be written
        self._file: File | None = None  # of the newest segment
        self._base = position  # of it
        self._seed = 0
        self._size = 0  # bytes in it
        self._ahead = False  # its file was made ahead, and reaches beyond them
        self._places: list[tuple[int, int, int]] = []  # (segment, from, to) of the PUBLISH records that were written
        self._unsynced: list[File] = []  # older segments with bytes that are not durable
        self._new = False  # the newest segment's name is not durable
        self.written = position  # the log's end
        self.durable = position  # everything before it survives a power cut
        self.stated = position if stated is None else stated  # the highest durable mark in a group that was written
        self.content_end = position if content_end is None else content_end  # the end of the last group that is no mark
        self.failure = ""  # why the last write or sync failed; "": it did not
        self.broken = False  # a sync has failed: nothing becomes durable any more
        self.records = 0  # written, without those of marks
        self.begun: list[int] = []  # bases of segments that nobody has taken note of
        self._begins_state = False  # the next group begins a segment, with a STATE
        self._numbers = {one: number for number, one in enumerate(bases, 1)}

    def append(self, kind: int, content: bytes, frames: bytes = b"") -> None:
        """A record for the next group."""
        self._group.append((kind, content, frames))

    @property
    def has_records(self) -> bool:
        """True if there are some that are not written; after `write`, if that failed."""
        return bool(self._group)

    def write(self) -> int:
        """Write the group. Returns the position behind it: when `durable` is there, the group is."""
        if not self._group:
            return self.written
        try:
            self._try()
        except OSError as error:
            self._failed(error)
            return self.written + 1  # the group will end beyond that
        if self.failure and not self.broken:
            self.failure = ""
            log.info("LOG: it can be written again")
        return self.written

    @property
    def unstated(self) -> bool:
        """True if records are durable and no group says so: a start would take damage to them for a torn tail."""
        return self.durable >= self.content_end > self.stated and not self._group and not self.failure

    def write_mark(self) -> bool:
        """Write a group that only states the durable mark, while there are no records to be written.

        Returns False if the disk does not take it: then the next group states the mark. The reserve is not used for it.
        """
        content_end, records = self.content_end, self.records
        if self._clock.wants_anchor(self._clock.clocks.monotonic()):
            self.append_anchor()
        try:
            if self._file is None:
                self._begin_segment()
            self._write_group()  # never in a segment of its own: behind a clean stop none may be begun
        except OSError:  # nobody waits for this group
            self._group.clear()
            return False
        self.content_end, self.records = content_end, records
        return True

    def append_anchor(self) -> None:
        """Note what the clocks tell, in the next group."""
        anchor = self._clock.anchor()
        self.append(Kind.ANCHOR, ANCHOR.pack(anchor.steady, anchor.wall, anchor.boot, anchor.boot_id))

    def _try(self) -> None:
        try:
            self._write_all()
        except OSError as error:
            if error.errno not in NO_SPACE or not self._space.give_up():
                raise
            log.error("LOG: the disk is full to the last byte: what was reserved is used now")
            self._write_all()

    def _write_all(self) -> None:
        full = self._size > self._segment_size or (self._spare.ready and not self._ahead)
        if self._file is None or full or self._begins_state:
            self._begin_segment()
        self._write_group()

    def expect_syncs(self) -> None:
        """Somebody waits for each group's sync: if that goes on, it is worth making the next segment ahead."""
        if self._size > self._segment_size // SPARE_AFTER:
            self._spare.prepare()

    def _failed(self, error: OSError) -> None:
        failure = f"cannot write to the log: {error.strerror or error}"
        if self.failure != failure and not self.broken:
            self.failure = failure
            log.error("LOG: %s: nothing is acknowledged until it can be", failure)

    def _write_group(self) -> None:
        assert self._file is not None
        seed = self._seed
        pieces = encode(seed, self._size, Kind.GROUP, GROUP.pack(self.durable, self._clock.now()))
        places, at = [], self._size + sum(map(len, pieces))
        for kind, content, frames in self._group:
            end = at + PREFIX_SIZE + 1 + len(content) + len(frames)
            pieces += encode(seed, at, kind, content, frames)
            if kind == Kind.PUBLISH:
                places.append((self._base, at, end))
            at = end
        self._file.append(pieces, self._size)
        self._places += places
        self.records += len(self._group)
        size = at - self._size
        self._size = at
        self.written += size
        self.stated = self.durable
        self.content_end = self.written
        self._group.clear()

    def begin_state(self, content: bytes) -> None:
        """A checkpoint: the next group begins a segment, with a STATE. Nothing was appended to it yet."""
        self._group.insert(0, (Kind.STATE, content, b""))
        self._begins_state = True

    def _begin_segment(self) -> None:
        identity = self._identity
        made = self._clock.clocks.wall()
        header = SegmentHeader(identity.node, 0, identity.log_id, self.written, made, self._begins_state)
        if self._ahead:
            self._cut_end()
        name = segment_name(header.base, 0)
        made_ahead = self._spare.take(name)
        file = made_ahead or self._disk.create(name)
        try:
            file.append([header.encode()], 0)
        except OSError:
            file.close()
            raise
        if self._file is not None:
            self._unsynced.append(self._file)
        self._numbers.setdefault(header.base, len(self._numbers) + 1)
        self.begun.append(header.base)
        self._file, self._base, self._seed, self._size = file, header.base, header.seed, HEADER_SIZE
        self._ahead = made_ahead is not None
        self._new = True
        self._begins_state = False

    def _cut_end(self) -> None:
        """Give back what was made ahead and not used."""
        assert self._file is not None
        self._file.truncate(self._size)
        self._ahead = False

    def take_places(self) -> list[tuple[int, int, int]]:
        """Where the PUBLISH records stand that were written since the last call: (segment, from, to), in their order."""
        places, self._places = self._places, []
        return places

    @property
    def base(self) -> int:
        """Of the newest segment."""
        return self._base

    def number_of(self, base: int) -> int:
        """A segment's: those that were there at the start from 1 on, then each that is begun."""
        return self._numbers.get(base, 0)

    @property
    def segment_size(self) -> int:
        """Bytes, about, after which a segment is full."""
        return self._segment_size

    # durability

    def sync_job(self) -> SyncJob | None:
        """What is to be synced now; None if there is nothing, or no sense in it."""
        if self.broken or self._file is None or self.durable >= self.written:
            return None
        return SyncJob(self.written, [*self._unsynced, self._file], self._disk if self._new else None)

    def synced(self, job: SyncJob) -> None:
        """The job is done."""
        self.durable = max(self.durable, job.position)
        for file in job.files[:-1]:
            if file in self._unsynced:  # else somebody synced it meanwhile, in the turn
                self._unsynced.remove(file)
                file.close()
        if job.disk is not None and job.files[-1] is self._file:
            self._new = False

    def sync_failed(self, error: OSError) -> None:
        """It is not, and nothing more can be promised."""
        self.broken = True
        self.failure = f"cannot sync the log: {error.strerror or error}"

    def sync(self) -> bool:
        """Do it all here and now. False if it failed."""
        job = self.sync_job()
        if job is None:
            return not self.broken
        try:
            job.run()
        except OSError as error:
            self.sync_failed(error)
            return False
        self.synced(job)
        return True

    def close(self) -> None:
        """Close the files."""
        self._spare.close()
        if self._ahead:
            with suppress(OSError):  # else the next start does it
                self._cut_end()
        for file in (*self._unsynced, *([self._file] if self._file else [])):
            file.close()


def segment_name(base: int, generation: int) -> str:
    """A segment's file."""
    return f"{base:020d}.{generation}.log"
