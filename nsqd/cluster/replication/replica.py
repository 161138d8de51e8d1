"""One replica: a copy of another node's log, byte for byte, with a mark of its own durable position.

Marks inside the log describe the leader's disk, not this one. So the replica has a mark of its own, in its
manifest. A start syncs the files, checks every record from the segment of the mark on, and cuts the replica off at the first
wrong byte after the mark. Wrong bytes before the mark stay: the leader replaces them.

A full resync is written apart, to files that the manifest does not name, until `switch`.

See docs/contributing/design/cluster-protocol.md#replicas.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace

from nsqd.cluster.replication.manifest import NAME, Manifest, ReplicaFile, read_manifest, write_manifest
from nsqd.storage.log.clocks import NOTE, NOTE_BEGUN
from nsqd.storage.log.disk import Disk, File, read_from
from nsqd.storage.log.epochs import Epoch
from nsqd.storage.log.records import HEADER_SIZE, NotASegment, SegmentHeader, WrongVersion, decode, decode_header
from nsqd.storage.log.scan import resume

MARK_EVERY = 16 * 1024 * 1024  # bytes after which a sync writes the mark, so that a start checks no more than that


class ReplicaError(Exception):
    """The bytes do not continue the replica."""


@dataclass(slots=True)
class ReplicaSync:
    """Files to be synced, and what is durable then. Any thread may run it."""

    position: int  # everything before it is durable afterwards; 0: it is only written apart
    files: list[File]
    disk: Disk
    manifest: Manifest | None  # by which the resync becomes the replica; None: this is no switch

    def run(self) -> None:
        """Sync the files, and write the manifest if it changes. Raises OSError."""
        for file in self.files:
            file.sync()
        if self.manifest is not None:
            self.disk.sync_directory()
            write_manifest(self.disk, self.manifest)


class Replica:
    """A copy of a log, for use by one thread. After an OSError it is `close`d and opened again."""

    def __init__(self, disk: Disk, log_id: bytes, node: int, trusted: int | None = None) -> None:
        """Open or begin the replica of the log `log_id` of the node `node`.

        `trusted`: a sync has failed, so nothing can be trusted after this position, up to which the replica was durable, or
        after the mark; None: no sync has failed. Raises OSError, ManifestError, ReplicaError.
        """
        self._disk = disk
        self.manifest = read_manifest(disk) or Manifest(log_id, node)
        if self.manifest.log_id != log_id:
            raise ReplicaError("the directory holds the replica of another log")
        self.damage: list[tuple[str, int, int]] = []  # ranges before the mark that are wrong: (file, from, to)
        self._copy = 1 + max((file.copy for file in self.manifest.files), default=0)
        self._remove_others()
        self.end = self._check(trusted)  # position up to which the replica is written
        self.durable = self.end  # position up to which it survives a power cut
        self.is_resyncing = False  # True during a full resync: bytes are written apart
        self._resync_files: list[ReplicaFile] = []
        self._resync_epochs: tuple[tuple[Epoch, int], ...] = ()
        self._switch_at: int | None = None  # the resync is complete up to this position, and is to be synced
        self._file: File | None = None  # the file that is written; None: none was opened since the start
        self._size = 0  # bytes of that file
        self._unsynced: list[File] = []  # older files with bytes that are not synced
        # (position, bases): segments before the position that are not among the bases go once it is durable
        self._leaving: list[tuple[int, frozenset[int]]] = []

    # the start

    def _remove_others(self) -> None:
        """Remove the files that the manifest does not name: of an unfinished resync, and those that a switch has replaced."""
        self._disk.sync_directory()  # if the last run ended before that, a manifest that names them might come back
        named = {NAME, NOTE, NOTE_BEGUN, *(file.name for file in self.manifest.files)}
        others = [name for name in self._disk.names() if name not in named]
        for name in others:
            self._disk.remove(name)
        if others:  # a manifest that was not finished must not come back under that name when the next one is renamed
            self._disk.sync_directory()

    def _check(self, trusted: int | None) -> int:
        """Sync the files, check them from the mark's segment on, and cut them at the first wrong byte. Returns the end."""
        manifest = self.manifest
        last = None if trusted is None else max(trusted, manifest.mark)
        names = set(self._disk.names())
        kept: list[ReplicaFile] = []
        end = 0
        for place, file in enumerate(manifest.files):
            following = manifest.files[place + 1].base if place + 1 < len(manifest.files) else None
            if following is not None and following <= manifest.mark:
                if file.name in names:
                    kept.append(file)
                else:  # a promotion asks other nodes for it, as for one that its leader has lost
                    self.damage.append((file.name, HEADER_SIZE, HEADER_SIZE + following - file.base))
                end = following
                continue
            if last is not None and kept and file.base >= last:
                break  # its header cannot be trusted either
            if file.name not in names:
                break  # it is lost, and what follows it continues nothing
            with closing(self._disk.open(file.name)) as opened:
                opened.sync()
            limit = following if last is None else last
            stop = self._checked_end(file, limit)
            if stop < file.base:
                break
            kept.append(file)
            end = stop
            if following is None or stop < following:
                break
        whole = set(kept)
        gone = [file for file in manifest.files if file not in whole]
        epochs = tuple((epoch, start) for epoch, start in manifest.epochs if start <= end)
        if gone or epochs != manifest.epochs or manifest.mark != end:
            self.manifest = replace(manifest, files=tuple(kept), mark=end, epochs=epochs)
            write_manifest(self._disk, self.manifest)
        for file in gone:
            if file.name in names:
                self._disk.remove(file.name)
        return end

    def _checked_end(self, file: ReplicaFile, limit: int | None) -> int:
        """Return the position up to which a file's records are right, and cut it there; less than its base: it has no header.

        `limit`: the position at which it ends at the latest.
        """
        data = read_from(self._disk, file.name, 0, self._disk.size(file.name))
        try:
            header = decode_header(data)
        except (NotASegment, WrongVersion):
            return file.base - 1
        at, seed = HEADER_SIZE, header.seed
        stop = len(data) if limit is None else min(len(data), HEADER_SIZE + max(0, limit - file.base))
        mark = HEADER_SIZE + self.manifest.mark - file.base
        while at < stop:
            after = decode(data, at, seed)
            if not after:
                after = resume(data[:stop], at, seed)
                if after > mark or after == stop:
                    break
                self.damage.append((file.name, at, after))
            at = after
        at = min(at, stop)
        if at < len(data):
            with closing(self._disk.open(file.name)) as opened:
                opened.truncate(at)
                opened.sync()
        return file.base + at - HEADER_SIZE

    # frames of the leader

    def resume(self, epochs: list[tuple[Epoch, int]]) -> None:
        """Note that the bytes that come continue the replica. `epochs`: those of the log."""
        self._drop_resync()
        self._leaving.clear()  # the log may have other segments now; the leader says again which
        self.manifest = replace(self.manifest, epochs=tuple((epoch, at) for epoch, at in epochs if at <= self.end))
        self._write_manifest()

    def resync(self, base: int, epochs: list[tuple[Epoch, int]]) -> None:
        """Begin a full resync, from the segment at `base` on. `epochs`: those of the log."""
        self._drop_resync()
        job = self.sync_job()
        if job is not None:  # its files are closed now; perhaps the replica is continued later anyway
            job.run()
            self.synced(job)
        self.close()
        self._leaving.clear()
        self.is_resyncing = True
        files = self.manifest.files  # the newest one is whole only if the log continues where it ends
        self._resync_files = [file for file in (files if base == self.end else files[:-1]) if file.base < base]
        self._resync_epochs = tuple(epochs)
        self._copy += 1

    def begin_segment(self, data: bytes) -> None:
        """Begin a segment with the header `data`. Raises ReplicaError, OSError."""
        try:
            header = decode_header(data[:HEADER_SIZE])
        except (NotASegment, WrongVersion) as error:
            raise ReplicaError(f"the header of a segment cannot be read: {error}") from None
        files = self._resync_files if self.is_resyncing else self.manifest.files
        if len(data) != HEADER_SIZE or header.log_id != self.manifest.log_id:
            raise ReplicaError("a segment is of another log, or more than its header came")
        if not self.is_resyncing and header.generation:
            raise ReplicaError("a segment that was rewritten does not continue the replica")
        if files and header.base == files[-1].base and not header.generation and self._is_bare(files[-1]):
            self._rewrite_header(files[-1], data, header)
            return
        if (files and header.base <= files[-1].base) or (not self.is_resyncing and header.base != self.end):
            raise ReplicaError("a segment does not follow the one before")
        name = ReplicaFile(header.base, header.generation, self._copy)
        file = self._disk.create(name.name)
        try:
            file.append([data], 0)
        except OSError:
            file.close()
            raise
        if self._file is not None:
            self._unsynced.append(self._file)
        self._file, self._size = file, HEADER_SIZE
        if not header.generation:  # the sender may be another node, which has promoted the log
            self.manifest = replace(self.manifest, node=header.node)
        if self.is_resyncing:
            self._resync_files.append(name)
            return
        self._note_epoch(header)
        self._name((*self.manifest.files, name))  # so that a kill does not lose what is written to the file from now on

    def _is_bare(self, newest: ReplicaFile) -> bool:
        """Return True if nothing but a header was written to the newest segment."""
        return self._size == HEADER_SIZE if self._file is not None else self.end == newest.base

    def _rewrite_header(self, newest: ReplicaFile, data: bytes, header: SegmentHeader) -> None:
        """Replace the header of the newest segment: its leader restarted before it wrote a record, and began it again."""
        if self._file is None:
            self._file = self._disk.open(newest.name)
            self._size = HEADER_SIZE
        self._file.append([data], 0)
        if not self.is_resyncing:
            self._note_epoch(header)
            self._write_manifest()

    def _note_epoch(self, header: SegmentHeader) -> None:
        if not header.generation:
            self.manifest = self.manifest.with_epoch(header.epoch, header.base)

    def append(self, base: int, at: int, data: memoryview) -> None:
        """Write bytes that stand from offset `at` of the file of the segment at `base` on. Raises ReplicaError, OSError."""
        files = self._resync_files if self.is_resyncing else self.manifest.files
        if not files or files[-1].base != base:
            raise ReplicaError("bytes are not of the newest segment")
        if self._file is None:
            if self.is_resyncing:
                raise ReplicaError("bytes came before their segment")
            self._file = self._disk.open(files[-1].name)
            self._size = HEADER_SIZE + self.end - base
        if at != self._size:
            raise ReplicaError(f"bytes at {at} do not follow {self._size}")
        self._file.append([data], at)
        self._size += len(data)
        if not self.is_resyncing:
            self.end += len(data)

    def switch(self, position: int) -> None:
        """End a full resync at `position`: the next sync makes it the replica.

        Raises ReplicaError.
        """
        if not self.is_resyncing or self._file is None or self._switch_at is not None:
            raise ReplicaError("there is nothing to switch to")
        newest = self._resync_files[-1]
        if newest.generation or newest.base + self._size - HEADER_SIZE != position:
            raise ReplicaError("the resync does not end there")
        self._switch_at = position

    def _switched(self, job: ReplicaSync) -> None:
        assert job.manifest is not None
        replaced = set(self.manifest.files) - set(self._resync_files)
        self.manifest, self.durable = job.manifest, job.position
        self.end = self._resync_files[-1].base + self._size - HEADER_SIZE
        files = tuple(self._resync_files)
        self.is_resyncing, self._resync_files, self._switch_at = False, [], None
        if files != self.manifest.files:  # segments were begun meanwhile
            self._name(files)
        for gone in replaced:
            self._disk.remove(gone.name)

    def keep(self, position: int, bases: list[int]) -> None:
        """Note which segments the log has when it ends at `position`: the others go once the replica is durable to there."""
        self._leaving.append((position, frozenset(bases)))
        self._remove_leaving()

    # durability

    def sync_job(self) -> ReplicaSync | None:
        """Return the sync to run now. None if everything is durable."""
        if self.is_resyncing:
            return self._resync_job()
        if self._file is None or self.durable >= self.end:
            return None
        return ReplicaSync(self.end, [*self._unsynced, self._file], self._disk, None)

    def _resync_job(self) -> ReplicaSync | None:
        """Return the sync of a resync: its complete files or, with a switch, all of them."""
        if self._switch_at is None:
            return ReplicaSync(0, list(self._unsynced), self._disk, None) if self._unsynced else None
        assert self._file is not None
        at = self._switch_at
        epochs = tuple((epoch, start) for epoch, start in self._resync_epochs if start <= at)
        manifest = replace(self.manifest, files=tuple(self._resync_files), mark=at, epochs=epochs)
        return ReplicaSync(at, [*self._unsynced, self._file], self._disk, manifest)

    def synced(self, job: ReplicaSync) -> None:
        """Note that the job was run: everything that it covers is durable.

        Raises OSError if the manifest cannot be written or files cannot be removed.
        """
        if job.manifest is not None:
            if not self.is_resyncing or self._switch_at != job.position:
                return  # it was stopped meanwhile
            self._switched(job)
        self.durable = max(self.durable, job.position)
        # The last file was being written when the job began: if it is complete now, its end may not be synced.
        for file in job.files[:-1] if job.position else job.files:
            if file in self._unsynced:
                self._unsynced.remove(file)
                file.close()
        if self.is_resyncing:
            return
        self._remove_leaving()
        if self.durable - self.manifest.mark >= MARK_EVERY:  # not in the job: segments may have begun meanwhile
            self.note_durable()

    def _remove_leaving(self) -> None:
        ready = [one for one in self._leaving if one[0] <= self.durable]
        if not ready or self.is_resyncing:
            return
        self._leaving = [one for one in self._leaving if one[0] > self.durable]
        files = self.manifest.files
        gone = {file for file in files[:-1] for end, bases in ready if file.base < end and file.base not in bases}
        if not gone:
            return
        # A start takes a gap that lies before the mark for one that the log has.
        left = tuple(file for file in files if file not in gone)
        self.manifest = replace(self.manifest, files=left, mark=self.durable)
        self._write_manifest()
        for file in gone:
            self._disk.remove(file.name)

    def _name(self, files: tuple[ReplicaFile, ...]) -> None:
        """Have the manifest name files of which some are new: a power cut may keep a rename and lose an earlier creation."""
        self._disk.sync_directory()
        self.manifest = replace(self.manifest, files=files)
        self._write_manifest()

    def _write_manifest(self) -> None:
        write_manifest(self._disk, self.manifest)

    # the end

    def note_durable(self) -> None:
        """Write the durable position, so that the next start does not check the bytes before it. Raises OSError."""
        if not self.is_resyncing and self.manifest.mark < self.durable:
            self.manifest = replace(self.manifest, mark=self.durable)
            self._write_manifest()

    def give_up_resync(self) -> None:
        """Remove the files of a resync, unless it is complete: then it may be the replica already. Raises OSError."""
        if self.is_resyncing and self._switch_at is None:
            self._drop_resync()

    def _drop_resync(self) -> None:
        """Discard an unfinished resync with its files, except those that the replica has as well."""
        if self.is_resyncing:
            self.close()
            for file in set(self._resync_files) - set(self.manifest.files):
                self._disk.remove(file.name)
        self.is_resyncing, self._resync_files, self._switch_at = False, [], None

    def close(self) -> None:
        """Close the files without a sync."""
        for file in (*self._unsynced, *([self._file] if self._file else [])):
            file.close()
        self._file, self._unsynced = None, []
