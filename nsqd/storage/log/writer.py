"""The end of the log: records are collected in groups, a group is one write, and segments follow upon each other.

A group that cannot be written stays, and is tried again together with the next one: nothing overtakes it, and whoever waits
for it waits on. Nobody knows what a failed sync leaves on the disk: after one, nothing becomes durable any more.
"""

import errno
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from nsqd.core.records import ANCHOR, GROUP, Kind
from nsqd.core.sequence.mark import Mark
from nsqd.storage.log.clocks import LogClock
from nsqd.storage.log.disk import Disk, File
from nsqd.storage.log.identity import LogIdentity
from nsqd.storage.log.records import HEADER_SIZE, Record, SegmentHeader, encode_all
from nsqd.storage.log.space import Space
from nsqd.storage.log.spare import Spare
from shared.log import log

NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
SEGMENT_SIZE = 64 * 1024 * 1024  # bytes; a group is never split, so a segment may be longer by one
SPARE_AFTER = 16  # the next segment is made ahead when this part of one is filled
NEVER = 1 << 63  # no log position is as high


@dataclass(slots=True)
class SyncJob:
    """Files to be synced. Any thread may run it."""

    position: int  # everything before it is durable afterwards
    files: list[File]
    disk: Disk | None  # not None: a file is new in its directory

    def run(self) -> None:
        """Sync them. Raises OSError."""
        for file in self.files:
            file.sync()
        if self.disk is not None:
            self.disk.sync_directory()


class Writer:
    """Writes a log and syncs it, in one thread. It raises nothing: `failure` says what is wrong."""

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
        """The first group begins a segment at `position`. `bases`: where the segments begin that are there already.

        `stated` and `content_end` are what the log holds of the attributes of the same names; None: `position`.
        """
        self._disk = disk
        self._identity = identity
        self._clock = clock
        self._space = space
        self._spare = spare
        self.segment_size = segment_size  # bytes, about, after which a segment is full
        # Records for the next group: always this list, to which the recorder appends. Not empty after `write`: that failed.
        self.group: list[Record] = []
        self.places: list[tuple[int, int, int]] = []  # see `write`
        self.base = position  # of the newest segment
        self._file: File | None = None  # likewise
        self._seed = 0
        self._size = 0  # bytes in it
        self._ahead = False  # its file was made ahead, and reaches beyond them
        self._unsynced: list[File] = []  # older segments with bytes that are not durable
        self._new = False  # the newest segment's name is not durable
        self.written = Mark("written", position)  # the log's end
        self.durable = Mark("durable", position)  # everything before it survives a power cut; broken by a failed sync
        self.spare_due = NEVER  # behind this position it is worth making the next segment ahead, see `expect_syncs`
        self.stated = position if stated is None else stated  # the highest durable mark in a group that was written
        self.content_end = position if content_end is None else content_end  # the end of the last group that is no mark
        self.failure = ""  # why the last write or sync failed; "": it did not
        self.records = 0  # written, without those of marks
        self.begun: list[int] = []  # bases of segments that nobody has taken note of
        self._begins_state = False  # the next group begins a segment, with a STATE
        self._numbers = {one: number for number, one in enumerate(bases, 1)}

    def append(self, kind: int, content: bytes, frames: bytes = b"") -> None:
        """Add a record to the next group."""
        self.group.append((kind, content, frames))

    def write(self) -> int:
        """Write the group. Returns the position behind it: when `durable` is there, the group is durable.

        `places` gets (segment, start, end) of each PUBLISH record in it, in their order; whoever publishes empties the list.
        """
        if not self.group:
            return self.written.position
        try:
            full = self._size > self.segment_size or (self._spare.ready and not self._ahead)
            if full or self._file is None or self._begins_state:
                self._begin_segment()
            self._write_group()
        except OSError as error:
            if error.errno in NO_SPACE and self._space.give_up():
                log.error("LOG: the disk is full to the last byte: what was reserved is used now")
                return self.write()  # once: there is no second reserve
            self._failed(error)
            return self.written.position + 1  # the group will end beyond that
        if self.failure and not self.durable.broken:
            self.failure = ""
            log.info("LOG: it can be written again")
        return self.written.position

    @property
    def unstated(self) -> bool:
        """True if records are durable and no group says so: a start would take damage to them for a torn tail."""
        return self.durable.position >= self.content_end > self.stated and not self.group and not self.failure

    def write_mark(self) -> bool:
        """Write a group that only states the durable mark, while there are no records to be written.

        Returns False if the disk does not take it: then the next group states the mark. The reserve is not used for it.
        """
        content_end, records = self.content_end, self.records
        if self._clock.clocks.monotonic() >= self._clock.anchor_due:
            self.append_anchor()
        try:
            if self._file is None:
                self._begin_segment()
            self._write_group()  # never in a segment of its own: behind a clean stop none may be begun
        except OSError:  # nobody waits for this group
            self.group.clear()
            return False
        self.content_end, self.records = content_end, records
        return True

    def append_anchor(self) -> None:
        """Add what the clocks tell to the next group."""
        anchor = self._clock.anchor()
        self.append(Kind.ANCHOR, ANCHOR.pack(anchor.steady, anchor.wall, anchor.boot, anchor.boot_id))

    def expect_syncs(self) -> None:
        """Somebody waits for each group's sync: behind `spare_due`, make the next segment ahead."""
        if self.written.position > self.spare_due:
            self.spare_due = NEVER
            self._spare.prepare()

    def _failed(self, error: OSError) -> None:
        failure = f"cannot write to the log: {error.strerror or error}"
        if self.failure != failure and not self.durable.broken:
            self.failure = failure
            log.error("LOG: %s: nothing is acknowledged until it can be", failure)

    def _write_group(self) -> None:
        assert self._file is not None
        clock, start = self._clock, self._size
        head = Kind.GROUP, GROUP.pack(self.durable.position, clock.clocks.monotonic() + clock.offset), b""
        pieces, published, end = encode_all(self._seed, start, (head, *self.group))
        self._file.append(pieces, start)
        for place in published:
            self.places.append((self.base, *place))
        self.records += len(self.group)
        self._size = end
        self.written.position += end - start
        self.stated = self.durable.position
        self.content_end = self.written.position
        self.group.clear()

    def begin_state(self, content: bytes) -> None:
        """Begin a checkpoint: the next group, to which nothing was added yet, begins a segment with a STATE record."""
        self.group.insert(0, (Kind.STATE, content, b""))
        self._begins_state = True

    def _begin_segment(self) -> None:
        identity = self._identity
        made = self._clock.clocks.wall()
        header = SegmentHeader(identity.node, 0, identity.log_id, self.written.position, made, self._begins_state)
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
        self._file, self.base, self._seed, self._size = file, header.base, header.seed, HEADER_SIZE
        self.spare_due = self.written.position + self.segment_size // SPARE_AFTER
        self._ahead = made_ahead is not None
        self._new = True
        self._begins_state = False

    def _cut_end(self) -> None:
        """Give back the part of the file that was made ahead and not used."""
        assert self._file is not None
        self._file.truncate(self._size)
        self._ahead = False

    def number_of(self, base: int) -> int:
        """Return the number of the segment that begins there: found at the start or begun since, counted from 1. 0: unknown."""
        return self._numbers.get(base, 0)

    # durability

    def sync_job(self) -> SyncJob | None:
        """Return what is to be synced now; None if all is durable, or nothing becomes durable any more."""
        if self.durable.broken or self._file is None or self.durable.position >= self.written.position:
            return None
        return SyncJob(self.written.position, [*self._unsynced, self._file], self._disk if self._new else None)

    def synced(self, job: SyncJob) -> None:
        """The job was run: what it covers is durable."""
        self.durable.position = max(self.durable.position, job.position)
        for file in job.files[:-1]:
            if file in self._unsynced:  # else somebody synced it meanwhile, in the turn
                self._unsynced.remove(file)
                file.close()
        if job.disk is not None and job.files[-1] is self._file:
            self._new = False

    def sync_failed(self, error: OSError) -> None:
        """The sync failed. From now on nothing becomes durable."""
        self.durable.broken = True
        self.failure = f"cannot sync the log: {error.strerror or error}"

    def sync(self) -> bool:
        """Make all that is written durable, here and now. Returns False if that fails, or a sync failed before."""
        if self.durable.broken or self._file is None or self.durable.position >= self.written.position:
            return not self.durable.broken
        try:
            for file in self._unsynced:
                file.sync()
            self._file.sync()
            if self._new:
                self._disk.sync_directory()
        except OSError as error:
            self.sync_failed(error)
            return False
        while self._unsynced:
            self._unsynced.pop().close()
        self._new = False
        self.durable.position = self.written.position
        return True

    def close(self) -> None:
        """Close the files. Nothing is synced."""
        self._spare.close()
        if self._ahead:
            with suppress(OSError):  # else the next start does it
                self._cut_end()
        for file in (*self._unsynced, *([self._file] if self._file else [])):
            file.close()


def segment_name(base: int, generation: int) -> str:
    """Return the name of a segment's file."""
    return f"{base:020d}.{generation}.log"
