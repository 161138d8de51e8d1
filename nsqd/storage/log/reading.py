"""The start of a log: its files are read once, its end is repaired, and its records are replayed."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from nsqd.core.recovery import LogSnapshot
from nsqd.storage.log.clocks import Anchor, LogClock
from nsqd.storage.log.disk import Disk
from nsqd.storage.log.epochs import Epoch
from nsqd.storage.log.files import segment_name
from nsqd.storage.log.identity import StoredIdentity
from nsqd.storage.log.reader import Damage, LogRecords, Record
from nsqd.storage.log.records import HEADER_SIZE, SegmentHeader
from nsqd.storage.log.replay import Replay
from shared.log import log

MISSING = "they are missing"
CALL_EVERY = 100  # records between two calls of `interrupt`


@dataclass(frozen=True, slots=True)
class StartResults:
    """The results of a start that are kept for as long as the log is open."""

    lease: int  # message ids below this may have been issued
    leased: int  # the same before a clean stop gave ids back
    roots: list[int]  # base of the segment with which replay began, if that was a complete checkpoint
    damage: Damage
    torn: int  # bytes that the start cut off at the log's end; they may have been acknowledged
    seconds: float  # duration of reading


class LogReading:
    """The content of a log, as far as opening the log needs it. It may be large, and is dropped after the log is open."""

    def __init__(self, disk: Disk, durable: int = 0, interrupt: Callable[[], None] | None = None) -> None:
        """Read and replay the whole log, and repair its end. `durable` as for LogRecords. Raises LogError, OSError.

        `interrupt` is called now and then between records; its exceptions end the reading.
        """
        began = time.perf_counter()
        self.log_records = LogRecords(disk, durable)
        self.replay, root = replayed(self.log_records, interrupt)
        # the record that began an epoch may be corrupt, or its segment rewritten
        for segment in self.log_records.segments:
            if not segment.header.generation:
                self.replay.epochs.begin(segment.header.epoch, segment.base)
        self.replay.conclude()
        self.messages = self.replay.sequences  # sequences by the topic's number
        self.missing = missing_segments(self.log_records, message_ends(self.replay))
        self.log_records.damage.spots += missing_spots(self.log_records, self.replay, self.missing)
        seconds = time.perf_counter() - began
        roots = [root] if self.replay.complete else []
        first, found = first_id(self.log_records, self.replay), self.log_records
        self.start_results = StartResults(first, self.replay.lease, roots, found.damage, found.torn, seconds)

    @property
    def identity(self) -> StoredIdentity | None:
        """Return the identity of the log; None if there is no log, or it was only begun."""
        return self.log_records.files.identity

    @property
    def bases(self) -> list[int]:
        """Return the log positions at which the segments begin, also those of missing ones."""
        return [header.base for header in self.headers]

    @property
    def headers(self) -> list[SegmentHeader]:
        """Return the headers of the segments. A missing one has that with which a replica may have it."""
        found, identity, epochs = self.log_records, self.identity, self.replay.epochs
        headers = [segment.header for segment in found.segments]
        if identity is not None:
            headers += [SegmentHeader(identity.node, 0, identity.log_id, one, epochs.at(one)) for one in self.missing]
        return sorted(headers, key=lambda header: header.base)

    @property
    def epochs(self) -> list[Epoch]:
        """Return the epochs in which files of the log may have been written, ascending."""
        return sorted(self.log_records.files.epochs)

    @property
    def highest_epoch(self) -> int:
        """Return the highest number of an epoch that the log knows; 0 if there is none."""
        return max([self.replay.epochs.highest, *(epoch.number for epoch in self.log_records.files.epochs)])

    def resume(self, clock: LogClock, noted: Anchor | None = None) -> LogSnapshot | None:
        """Set the clock to continue from the log's last time. Returns the state of the broker; None if the log is new.

        `noted`: as in LogClock.resume.
        """
        if self.replay.last:
            clock.resume(self.replay.anchor, self.replay.last, noted)
        if not self.log_records.end:  # a log that was only begun holds no state
            return None
        return LogSnapshot(
            list(self.replay.topics.values()),
            self.replay.batches,
            self.replay.schedules,
            self.replay.highest + 1,
            clock.offset,
        )

    def report(self) -> None:
        """Log the results: messages read, and what was repaired and lost."""
        reader = self.log_records
        notes = reader.quarantine.notes
        for name in reader.files.unreadable:
            log.error("LOG: %s is not a complete log segment; renaming it to %s.unreadable", name, name)
        if not reader.segments:
            return
        log.info("LOG: replayed %d messages in %.2f s", self.replay.messages, self.start_results.seconds)
        for name in reader.files.rebuilt:
            line = "LOG: the header of %s was corrupt and is rebuilt; its previous content: %s"
            log.error(line, name, notes[name, 0])
        for name, start, end in reader.cuts:
            line = "LOG: cutting off %d bytes, which may have been acknowledged, of %s at %d, the end of the intact records; %s"
            log.error(line, end - start, name, start, notes.get((name, start), MISSING))
        for name, start, end in reader.damage.spots:
            line = "LOG: DAMAGE in %s: %d bytes from %d on cannot be read; all other messages are served; %s"
            log.error(line, name, end - start, start, notes.get((name, start), MISSING))


def message_ends(replay: Replay) -> dict[tuple[int, int], int]:
    """Return the offset up to which live and retained messages are in each file of a segment, by its base and edition."""
    ends: dict[tuple[int, int], int] = {}
    for sequence in replay.sequences.values():
        for stored in (*sequence.live(), *sequence.all_retained()):
            for base, edition, _, end in stored.locations:
                ends[base, edition] = max(end, ends.get((base, edition), 0))
    return ends


def missing_segments(reader: LogRecords, ends: Mapping[tuple[int, int], int]) -> dict[int, int]:
    """Return the segments with live messages whose files are gone, by base, with their size: as far as messages are in them.

    They are before the one with which replay began, so no gap shows. `ends`: see `message_ends`.
    """
    found, sizes = {segment.base for segment in reader.segments}, dict[int, int]()
    for (base, _), end in ends.items():
        if base not in found:
            sizes[base] = max(end, sizes.get(base, 0))
    return sizes


def missing_spots(reader: LogRecords, replay: Replay, missing: Mapping[int, int]) -> list[tuple[str, int, int]]:
    """Return the missing segments as damage; without a complete checkpoint, also all that was before the first segment."""
    sizes = dict(missing)
    if reader.segments and reader.segments[0].base and not replay.complete:
        sizes[0] = HEADER_SIZE + reader.segments[0].base
    return [(segment_name(base, 0), HEADER_SIZE, size) for base, size in sorted(sizes.items())]


def interruptible(records: Iterator[Record], interrupt: Callable[[], None]) -> Iterator[Record]:
    """Yield records, and call `interrupt` before the first one and after every CALL_EVERY, so that it may end the loop."""
    for count, record in enumerate(records):
        if not count % CALL_EVERY:
            interrupt()
        yield record


def replayed(reader: LogRecords, interrupt: Callable[[], None] | None = None) -> tuple[Replay, int]:
    """Replay the log from the latest good checkpoint on, or else from its beginning. `interrupt` as for LogReading.

    Returns the state with its messages, and the base of the segment where replay began. A checkpoint is good if it is complete
    and intact, and everything before it was durable: otherwise messages that it mentions may be lost.
    """
    for root in reader.roots() if reader.segments else [0]:
        replay = Replay()
        whole = False
        for record in reader.records(root) if interrupt is None else interruptible(reader.records(root), interrupt):
            if not replay.apply(record):
                log.warning("LOG: ignoring a record of unknown kind %d at %d", record.kind, record.position)
            whole = whole or (replay.complete and not reader.damage.spots)
        durable = max(reader.stated, reader.known_durable)
        if root == 0 or (whole and durable >= reader.segments[root].base):
            return replay, reader.segments[root].base if reader.segments else 0
    raise AssertionError("the beginning is always a root")


def first_id(reader: LogRecords, replay: Replay) -> int:
    """Return the lowest message id that was surely never issued.

    A clean stop gives back the ids that were leased and not issued. Its record counts only if the whole log could be read, and
    no segment was begun after that of the stop, as each start of the process begins one: a record that is missing there may
    have leased the ids again. Otherwise the highest lease counts. That is more than was issued even if the newest lease is
    missing, because a lease is renewed when half of it is used up.
    """
    whole = not (reader.torn or reader.damage.spots or reader.files.unreadable)
    if replay.next_id and whole and replay.stopped_in == reader.segments[-1].base:
        return replay.next_id
    return replay.lease
