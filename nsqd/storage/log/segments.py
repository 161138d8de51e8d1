"""The files of a log: which segments exist, and which log they belong to. A corrupt header is rebuilt and written again.

All segments and `log.id` (identity.py) name the same log. So an unreadable header can be rebuilt from any of them, from the
file's name (base and generation), and from its records: of the epochs that `log.id`, the other headers and the segment's own
records name, it has the one with which the CRC of a record is right. If there is none, nothing is written to the file. Files
with other names are left alone.
"""

import re
from contextlib import closing
from dataclasses import dataclass

from nsqd.core.records import RecordKind
from nsqd.storage.log.disk import Disk, read_from
from nsqd.storage.log.epochs import NO_EPOCH, Epoch
from nsqd.storage.log.files import segment_name
from nsqd.storage.log.identity import NAME as IDENTITY
from nsqd.storage.log.identity import UNFINISHED as UNFINISHED_IDENTITY
from nsqd.storage.log.identity import StoredIdentity, read_identity
from nsqd.storage.log.quarantine import DAMAGED, Quarantine
from nsqd.storage.log.records import (
    HEADER_SIZE,
    PREFIX_SIZE,
    NotASegment,
    SegmentHeader,
    WrongVersion,
    decode,
    decode_header,
    former_of_spare,
    repaired,
    seed_of,
)
from nsqd.storage.log.scan import probable_records, stated_epochs

UNFINISHED = 4096  # bytes: the first write to a log is far smaller, and is synced before the second
END_OF_ALL = 1 << 64  # every log position is below this
FIRST_RECORDS = 4096  # bytes at a file's beginning that include a checkpoint's first records
SEGMENT_FILE = re.compile(r"(\d{20})\.(\d{1,9})\.log")


class LogError(Exception):
    """The log cannot be used. The one-line text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One segment file of the log."""

    name: str
    header: SegmentHeader

    @property
    def base(self) -> int:
        """Return the log position of the segment's first record."""
        return self.header.base


class LogFiles:
    """The files of one log as they are found at a start."""

    def __init__(self, disk: Disk, quarantine: Quarantine) -> None:
        """Find the segments, rebuild corrupt headers, and remove leftovers of a cleaning. Raises LogError, OSError."""
        self.stored = read_identity(disk)  # the content of `log.id`; None: the file is missing or corrupt
        self.identity = self.stored  # of the log; None: there is no log, or it was only begun
        self.epochs = set(self.stored.epochs) if self.stored else set()  # of which there may be files
        self.rebuilt: list[str] = []  # segments whose headers were corrupt
        self.unreadable: list[str] = []  # files that were renamed to *.unreadable
        self.unreadable_bytes = 0  # bytes in the unreadable files
        self._guessed: set[str] = set()  # segments whose epoch is unknown
        self._nodes: set[int] = set()  # numbers of the nodes that have published into the log, as the headers say
        self._disk, self._quarantine = disk, quarantine
        self.found = self._find()

    def _find(self) -> list[Segment]:
        """Return the highest generation of each segment, ascending by position."""
        newest: dict[int, int] = {}
        matches = [match for name in self._disk.names() if (match := SEGMENT_FILE.fullmatch(name))]
        names = [match for match in matches if int(match[1]) < END_OF_ALL]
        for match in names:
            newest[int(match[1])] = max(newest.get(int(match[1]), 0), int(match[2]))
        headers = {base: self._header(base, newest[base]) for base in sorted(newest)}
        known = [header for header in headers.values() if header is not None]
        self._identify(known)
        self.epochs.update(header.epoch for header in known)
        self._nodes.update(header.node for header in known)
        self._tidy([match[0] for match in names if int(match[2]) < newest[int(match[1])]])
        found = []
        for base, header in headers.items():
            name = segment_name(base, newest[base])
            if header is None and self.identity is None:
                self._rename_unreadable(name)
                continue
            found.append(Segment(name, self._written(name, header or self._rebuild(base, newest[base]))))
        return found

    def _identify(self, known: list[SegmentHeader]) -> None:
        """Set the identity of the log. Raises LogError if the files do not agree."""
        if len({header.log_id for header in known}) > 1:
            raise LogError("the segments are of different logs: one was copied here from another directory")
        if known and self.stored is None:
            self.identity = StoredIdentity(known[-1].node, known[-1].log_id)
        elif known and self.stored and known[0].log_id != self.stored.log_id:
            raise LogError(
                f"the segments and {IDENTITY} are of different logs: one was copied here from another directory;"
                f" if the segments are the right ones, remove {IDENTITY}"
            )

    def _tidy(self, replaced: list[str]) -> None:
        """Remove the older generations and unfinished files that a cleaning left, and other unfinished files."""
        if replaced:  # a kill may have left the names of their synced successors not durable
            self._disk.sync_directory()
        begun = [name for name in self._disk.names() if name.endswith(".log.tmp") or name == UNFINISHED_IDENTITY]
        for name in (*replaced, *begun):
            self._disk.remove(name)

    def _header(self, base: int, generation: int) -> SegmentHeader | None:
        """Return the header of a segment; None if more than one bit of it is wrong. Raises LogError."""
        name = segment_name(base, generation)
        try:
            header = decode_header(repaired(read_from(self._disk, name, 0, HEADER_SIZE)))
        except NotASegment:
            return None
        except WrongVersion as error:
            raise LogError(f"log segment {name} cannot be read: {error}") from None
        if (header.base, header.generation) != (base, generation):
            raise LogError(f"log segment {name} was renamed: it was {segment_name(header.base, header.generation)}")
        return header

    def _rebuild(self, base: int, generation: int) -> SegmentHeader:
        """Return the header that a segment of that name must have had."""
        assert self.identity is not None
        log_id = self.identity.log_id
        known = self._epoch_of(base, generation)
        epoch = max(self.epochs, default=NO_EPOCH) if known is None else known
        if known is None:
            self._guessed.add(segment_name(base, generation))
        else:
            self.epochs.add(known)
        seed = seed_of(log_id, base, generation, epoch)
        data = read_from(self._disk, segment_name(base, generation), 0, FIRST_RECORDS)
        group = decode(data, HEADER_SIZE, seed)
        state = bool(group and decode(data, group, seed)) and data[group + PREFIX_SIZE] == RecordKind.STATE
        former = former_of_spare(data)
        # A segment that was rewritten has the epoch of that, and perhaps another node's messages: the number is only probable.
        # An epoch of a promoted log has the number of the leader, and its messages have the number of the lost node.
        has_own = known is not None and known.node in self._nodes and not generation
        node = epoch.node if has_own else self.identity.node
        return SegmentHeader(node, generation, log_id, base, epoch, state, former)

    def _epoch_of(self, base: int, generation: int) -> Epoch | None:
        """Return the epoch with which some record of a segment is right; None if there is none."""
        assert self.identity is not None
        name = segment_name(base, generation)
        data = read_from(self._disk, name, 0, self._disk.size(name))
        log_id = self.identity.log_id
        epochs = sorted({*self.epochs, *stated_epochs(data)}, reverse=True)
        seeds = {epoch: seed_of(log_id, base, generation, epoch) for epoch in epochs}
        for place in probable_records(data):
            for epoch, seed in seeds.items():
                if decode(data, place, seed):
                    return epoch
        return None

    def _written(self, name: str, header: SegmentHeader) -> SegmentHeader:
        """Write the header to the file if the one there is corrupt. A file that holds nothing stays unchanged."""
        data = read_from(self._disk, name, 0, HEADER_SIZE)
        try:
            decode_header(data)
        except NotASegment:
            first = read_from(self._disk, name, HEADER_SIZE, FIRST_RECORDS)
            # a reused file holds old records in any case
            holds = decode(first, 0, header.seed, HEADER_SIZE) if former_of_spare(data) else any(data) or any(first)
            if holds and name in self._guessed:
                self._quarantine.copy_damaged(name, 0, data, DAMAGED)
                self.rebuilt.append(name)
            elif holds:
                self._rewrite(name, header, data)
        return header

    def _rewrite(self, name: str, header: SegmentHeader, data: bytes) -> None:
        self._quarantine.copy_damaged(name, 0, data, DAMAGED)
        with closing(self._disk.open(name)) as file:
            file.append([repaired(data) if repaired(data) != data else header.encode()], 0)
            file.sync()
        self.rebuilt.append(name)

    def _rename_unreadable(self, name: str) -> None:
        """Rename a segment of an unknown log that is small enough to have only been begun. Raises LogError for a larger one."""
        size = self._disk.size(name)
        if size > UNFINISHED:
            raise LogError(
                f"log segment {name} cannot be read: its header is corrupt, and no other file names its log;"
                f" put {IDENTITY} or another segment of the same log back from a backup"
            )
        self.unreadable.append(name)
        self.unreadable_bytes += len(read_from(self._disk, name, HEADER_SIZE, size).rstrip(b"\0"))
        self._disk.rename(name, self._quarantine.free_name(f"{name}.unreadable"))
        self._disk.sync_directory()
