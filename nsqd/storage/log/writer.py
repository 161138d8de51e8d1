"""The end of the log: records are collected in groups, each group is one write, and segments follow one another.

A group that cannot be written is kept and written together with the next one, so nothing overtakes it, and replies that wait
for it keep waiting. A failed sync leaves the disk in an unknown state: after one, no group becomes durable.

See docs/contributing/design/log.md#groups.
"""

import errno
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from nsqd.core.records import ANCHOR, EPOCH, GROUP, RecordKind
from nsqd.core.sequence.mark import Mark
from nsqd.storage.log.clocks import LogClock
from nsqd.storage.log.disk import Disk, File
from nsqd.storage.log.epochs import Epoch, EpochTable
from nsqd.storage.log.files import SegmentFiles, segment_name
from nsqd.storage.log.followers import Followers
from nsqd.storage.log.identity import LogIdentity
from nsqd.storage.log.parent import Parent
from nsqd.storage.log.records import HEADER_SIZE, PREFIX_SIZE, NewRecord, SegmentHeader, encode_all
from nsqd.storage.log.space import Space
from nsqd.storage.log.spare import Spare
from shared.log import log

NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
SEGMENT_SIZE = 64 * 1024 * 1024  # bytes; a group is never split, so a segment may exceed this by one group
LARGE_GROUP = 32 * 1024  # bytes: to sync such groups over zeros saves less time than it takes to write the zeros
BLOCK = 4096  # bytes: the system writes whole blocks to the disk
# The next segment's file is requested when one part in SPARE_AFTER of the current one is filled, and then again after each part
# in SPARE_STEPS. If the current one has no blocks made ahead, it is requested after one part in SPARE_STEPS already.
SPARE_AFTER = 16
SPARE_STEPS = 64
NEVER = 1 << 63  # every log position is below this


@dataclass(slots=True)
class SyncJob:
    """A set of files to be synced. Any thread may run it."""

    position: int  # everything before this position is durable after the sync
    files: list[File]
    disk: Disk | None  # not None: a file is new in this directory, which is synced as well

    def run(self) -> None:
        """Sync the files and, if one of them is new, the directory. Raises OSError."""
        for file in self.files:
            file.sync()
        if self.disk is not None:
            self.disk.sync_directory()


class Tap(Protocol):
    """A receiver of every byte of the log once it is written, in order: the followers' (replication/sending.py)."""

    def began(self, header: SegmentHeader) -> None:
        """Note that the next group begins a segment with this header."""

    def wrote(self, segment: int, at: int, buffers: list[bytes], size: int) -> None:
        """Copy the `size` bytes of a group, from offset `at` of the file of the segment with this base on."""


class Writer:
    """The writer of a log, which also syncs it, for use by one thread. It raises nothing: `failure` is the error."""

    def __init__(
        self, disk: Disk, identity: LogIdentity, position: int, clock: LogClock, space: Space, spare: Spare,
        segment_size: int = SEGMENT_SIZE, stated: int | None = None, content_end: int | None = None,
        files: SegmentFiles | None = None, epochs: EpochTable | None = None,
    ) -> None:  # fmt: skip
        """Prepare to begin a segment at `position` with the first group, and the epoch of `identity` with it.

        `files` and `epochs`: those of the existing segments. `stated` and `content_end`: the values of these attributes in the
        log; None: `position`.
        """
        self._disk, self.identity, self.clock, self._space, self._spare = disk, identity, clock, space, spare
        self.files = SegmentFiles() if files is None else files  # shared with the code that reads and cleans
        self.epochs = EpochTable() if epochs is None else epochs
        self.segment_size = segment_size  # bytes, approximately, after which a segment is full
        # Records of the next group. It is always the same list, to which the recorder appends. If it is not empty after
        # `write`, the write failed.
        self.group: list[NewRecord] = []
        self.places: list[tuple[int, int, int]] = []  # (segment, start, end) of PUBLISH records, see `write`
        self.base = position  # base of the newest segment
        self._file: File | None = None  # file of the newest segment; None: none was begun yet
        self._has_epoch = False  # True: the epoch's record is written
        self._seed = 0
        self._size = 0  # bytes written to the newest segment
        self._groups = 0  # number of groups in the newest segment
        self._ahead = False  # the newest segment's file was made ahead, and is longer than `_size`
        self._is_torn = False  # its last write failed: there may be a part of it after `_size`
        self._unsynced: list[File] = []  # older segments with bytes that are not durable
        self._new = False  # the newest segment's name is not durable
        self.written = Mark("written", position)  # its position is the log's end
        self.durable = Mark("durable", position)  # everything before it survives a power cut; broken by a failed sync
        self.spare_due = NEVER  # past this position it is worth making the next segment ahead, see `expect_syncs`
        self.stated = position if stated is None else stated  # the highest durable mark that a written group states
        self.content_end = position if content_end is None else content_end  # end of the last group with records
        self.failure = ""  # why the last write or sync failed; "": it succeeded
        self.followers = Followers()  # the last that the log states
        self.parents: list[Parent] = []  # the logs that this one was restored from, the oldest first
        self.failed_syncs = 0  # since the start
        self.tap: Tap | None = None  # None: no other node keeps a copy of the log
        self.records = 0  # records written, not counting those of groups that only state a mark
        self.begun: list[int] = []  # bases of new segments; `Tidying` empties the list
        self._begins_state = False  # True: the next group begins a segment, with a STATE record
        # True: a segment could not be begun, and its file may exist. A start assumes that the log continues in that file, so
        # nothing may be written past its base elsewhere.
        self._must_begin = False
        self._numbers = {base: number for number, base in enumerate(self.files.bases, 1)}

    def all_epochs(self) -> list[tuple[Epoch, int]]:
        """Return each epoch, also that of this process if nothing was written in it, and the position at which it begins."""
        own = [] if self._has_epoch else [(self.identity.epoch, self.written.position)]
        return [*self.epochs, *own]

    def append(self, kind: int, content: bytes, frames: bytes = b"") -> None:
        """Add a record to the next group; `write` writes it."""
        self.group.append((kind, content, frames))

    def state_followers(self, followers: Followers) -> None:
        """Add the record FOLLOWERS to the next group."""
        self.followers = followers
        self.append(RecordKind.FOLLOWERS, followers.pack())

    def state_parent(self, parent: Parent) -> None:
        """Add the record PARENT to the next group."""
        self.parents.append(parent)
        self.append(RecordKind.PARENT, parent.pack())

    def write(self) -> int:
        """Write the group. Returns the position after it: when `durable` reaches that position, the group is durable.

        `places` receives (segment, start, end) of each PUBLISH record in the group, in order; the recorder empties the list.
        """
        if not self.group:
            return self.written.position
        try:
            self._cut_torn()
            is_empty = self._size == HEADER_SIZE  # a write that failed has begun the segment
            full = self._size > self.segment_size or (self._spare.ready and not self._ahead and not is_empty)
            if self._file is None or not self._has_epoch:
                self._begin_epoch()
            if full or self._begins_state or self._must_begin:
                self._begin_segment()
            self._write_group(self.group)
            self.records += len(self.group)
            self.content_end = self.written.position
            self.group.clear()
        except OSError as error:
            if error.errno in NO_SPACE and self._space.release_reserve():
                log.error("LOG: the disk is full: using the reserved space")
                return self.write()  # this recurses once: there is no second reserve
            self._failed(error)
            return self._expected_end()
        if self.failure and not self.durable.broken:
            self.failure = ""
            log.info("LOG: writing works again")
        return self.written.position

    def _expected_end(self) -> int:
        """Return the position that the group reaches at least once it is written: other records may come before and after.

        A copy on another node may end within a group: with a lower position, replies would leave before their records come.
        """
        epoch = 0 if self._has_epoch else _size_of([_HEAD, (RecordKind.EPOCH, bytes(EPOCH.size), b"")])
        return self.written.position + epoch + _size_of([_HEAD, *self.group])

    @property
    def unstated(self) -> bool:
        """Return True if records are durable and no group says so: if corrupt, a start would take them for a torn tail."""
        return self.durable.position >= self.content_end > self.stated and not self.group and not self.failure

    def write_mark(self) -> bool:
        """Write a group that only states the durable mark. The caller makes sure that no records wait to be written.

        Returns False if the write fails: then the next group states the mark. This write does not use the reserve.
        """
        if self.clock.clocks.monotonic() >= self.clock.anchor_due:
            self.append_anchor()
        if self._must_begin and self._file is not None:
            self.group.clear()
            return False
        try:
            self._cut_torn()
            if self._file is None or not self._has_epoch:
                self._begin_epoch()
            self._write_group(self.group)  # never in a segment of its own: no segment may begin after a clean stop
        except OSError:  # no reply waits for this group
            return False
        finally:
            self.group.clear()
        return True

    def append_anchor(self) -> None:
        """Add an ANCHOR record with the current clocks to the next group."""
        anchor = self.clock.anchor()
        self.append(RecordKind.ANCHOR, ANCHOR.pack(anchor.steady, anchor.wall, anchor.boot, anchor.boot_id))

    def expect_syncs(self) -> None:
        """Make the next segment ahead once the log is past `spare_due`. Called when a reply waits for a group's sync."""
        if self.written.position > self.spare_due:
            is_worth_zeros = self._size < self._groups * LARGE_GROUP
            continues = self._spare.prepare(at_once=not self._ahead, zeros=is_worth_zeros)
            self.spare_due = self.written.position + self.segment_size // SPARE_STEPS if continues else NEVER

    def _failed(self, error: OSError) -> None:
        failure = f"cannot write to the log: {error.strerror or error}"
        if self.failure != failure and not self.durable.broken:
            self.failure = failure
            log.error("LOG: %s: no publish is acknowledged until writing works again", failure)

    def _begin_epoch(self) -> None:
        """Begin the first segment of this process, with the record of its epoch as the first group."""
        if self._file is None:
            begins_state, self._begins_state = self._begins_state, False
            try:
                self._begin_segment()
            finally:
                self._begins_state = begins_state
        if not self._has_epoch:
            epoch = self.identity.epoch
            self._write_group([(RecordKind.EPOCH, EPOCH.pack(*epoch, self.base), b"")])
            self.epochs.begin(epoch, self.base)
            self._has_epoch = True

    def _write_group(self, group: list[NewRecord]) -> None:
        assert self._file is not None
        clock, start = self.clock, self._size
        head = RecordKind.GROUP, GROUP.pack(self.durable.position, clock.clocks.monotonic() + clock.offset), b""
        buffers, published, end = encode_all(self._seed, start, (head, *group))
        padding = [_padding(end)] if self._ahead else []
        self._is_torn = True
        self._file.append(buffers + padding, start)
        self._is_torn = False
        for first, last in published:
            self.places.append((self.base, first, last))
        self._groups += 1
        self._size = end
        self.written.position += end - start
        self.stated = self.durable.position
        if self.tap is not None:
            self.tap.wrote(self.base, start, buffers, end - start)

    def begin_state(self, content: bytes) -> None:
        """Begin a checkpoint: the next group, which is empty now, begins a segment with a STATE record."""
        self.group.insert(0, (RecordKind.STATE, content, b""))
        self._begins_state = True

    def _begin_segment(self) -> None:
        identity = self.identity
        if self._ahead:
            self._cut_end()
        base = self.written.position
        name = segment_name(base, 0)
        self._must_begin = True
        spare = self._spare.claim(name)
        file, former = spare or (self._disk.create(name), 0)
        header = SegmentHeader(identity.node, 0, identity.log_id, base, identity.epoch, self._begins_state, former)
        try:
            file.append([header.encode()], 0)
        except OSError:
            file.close()
            raise
        if self._file is not None:
            self._unsynced.append(self._file)
        self._numbers.setdefault(header.base, len(self._numbers) + 1)
        self.files.put(header)
        self.begun.append(header.base)
        self._file, self.base, self._seed, self._size = file, header.base, header.seed, HEADER_SIZE
        self._groups = 0
        self._ahead = spare is not None
        self.spare_due = base + self.segment_size // (SPARE_AFTER if self._ahead else SPARE_STEPS)
        self._new = True
        self._begins_state = self._must_begin = False
        if self.tap is not None:
            self.tap.began(header)

    def _cut_end(self) -> None:
        """Truncate the unused rest of the file that was made ahead."""
        assert self._file is not None
        self._file.truncate(self._size)
        self._ahead = False

    def _cut_torn(self) -> None:
        """Truncate the file, durably, after a failed write: a power cut might bring that back in place of the next group.

        Then the log would have other bytes than a copy that has the next group.
        """
        if self._is_torn and self._file is not None:
            self._cut_end()
            self._is_torn = False
            try:
                self._file.sync()
            except OSError as error:
                self.sync_failed(error)

    def reuse(self, base: int, size: int) -> bool:
        """Keep the file of an unneeded segment, `size` bytes, for a later one. Returns False if it is of no use: remove it."""
        file = self.files.at(base)
        return self._spare.reuse(file.name, size, file.seed)

    def number_of(self, base: int) -> int:
        """Return the number of the segment that begins at `base`, or 0 if it is unknown.

        Numbers count from 1, first the segments found at the start, then those begun since.
        """
        return self._numbers.get(base, 0)

    # Durability

    def sync_job(self) -> SyncJob | None:
        """Return the files to sync now; None if everything is durable, or nothing can become durable."""
        if self.durable.broken or self._file is None or self.durable.position >= self.written.position:
            return None
        return SyncJob(self.written.position, [*self._unsynced, self._file], self._disk if self._new else None)

    def synced(self, job: SyncJob) -> None:
        """Note that the job was run: everything that it covers is durable."""
        self.durable.position = max(self.durable.position, job.position)
        for file in job.files[:-1]:
            if file in self._unsynced:  # otherwise `sync` has synced it meanwhile, in the turn
                self._unsynced.remove(file)
                file.close()
        if job.disk is not None and job.files[-1] is self._file:
            self._new = False

    def sync_failed(self, error: OSError) -> None:
        """Note that a sync failed. From now on nothing becomes durable."""
        self.durable.broken = True
        self.failed_syncs += 1
        self.failure = f"cannot sync the log: {error.strerror or error}"

    def sync(self) -> bool:
        """Make everything that was written durable, in this call. Returns False if this sync or an earlier one failed."""
        if (job := self.sync_job()) is not None:
            try:
                job.run()
            except OSError as error:
                self.sync_failed(error)
            else:
                self.synced(job)
        return not self.durable.broken

    def close(self) -> None:
        """Close the files without syncing them."""
        self._spare.close()
        if self._ahead:
            with suppress(OSError):  # if this fails, the next start cuts the file off
                self._cut_end()
        for file in (*self._unsynced, *([self._file] if self._file else [])):
            file.close()


_HEAD: NewRecord = RecordKind.GROUP, bytes(GROUP.size), b""


def _size_of(group: Sequence[NewRecord]) -> int:
    """Return the size of these records in the log, in bytes."""
    return sum([PREFIX_SIZE + 1 + len(content) + len(frames) for _, content, frames in group])


def _padding(end: int) -> bytes:
    """Return zeros from the end of a group to the end of a block, at least the size of a record's head.

    In a file that was a segment before they show that no record follows. And the system does not read a block from the disk
    that is written as a whole.
    """
    size = -end % BLOCK
    return bytes(size if size >= PREFIX_SIZE else size + BLOCK)
