"""Check a log without changing it: every record of every segment, and what a start would find.

A start trusts checkpoints and reads only the records after the last one; this module reads everything. Wrong bytes below the
highest durable mark are corrupt. Wrong bytes past it are torn: a start cuts them off, though they may have been acknowledged.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from nsqd.core.reader import ReaderKind
from nsqd.core.topic_state import TopicState
from nsqd.core.work_queue.state import TubeState
from nsqd.storage.log.disk import Disk, read_from
from nsqd.storage.log.files import file_of
from nsqd.storage.log.frozen import FrozenDisk
from nsqd.storage.log.reader import LogRecords
from nsqd.storage.log.reading import message_ends, missing_segments, missing_spots, replayed
from nsqd.storage.log.records import HEADER_SIZE
from nsqd.storage.log.scan import wrong_ranges
from nsqd.storage.log.segments import Segment
from nsqd.storage.sequence import Sequence


@dataclass(frozen=True, slots=True)
class TopicFindings:
    """The state that a start would find for a topic."""

    name: str
    published: int  # number of messages ever published
    not_distributed: int  # of these, messages that no reader was given yet
    live: int  # of these, messages that a reader references, or that no reader was given yet
    retained: int  # of these, messages that are only retained
    # for each reader: its kind, its name, and the number of messages by state
    readers: list[tuple[ReaderKind, str, dict[str, int]]]
    queue_pause: str = ""  # "in", "out" or "all": the pause of the queue of Disque's clients; "": it is not paused


@dataclass(slots=True)
class Findings:
    """The results of checking a log."""

    log_id: str = ""
    segments: int = 0
    size: int = 0  # bytes of all segments
    torn: int = 0  # bytes at the end that a start would cut off or move; they may have been acknowledged
    cuts: list[tuple[str, int, int]] = field(default_factory=list)  # ranges that it would cut off: (segment, from, to)
    damage: list[tuple[str, int, int]] = field(default_factory=list)  # corrupt ranges: (segment, from, to)
    headers: list[str] = field(default_factory=list)  # segments with corrupt headers that a start rebuilds
    unreadable: list[str] = field(default_factory=list)  # files that are no segments
    copies: list[tuple[str, int]] = field(default_factory=list)  # copies that earlier starts have made: (name, bytes)
    topics: list[TopicFindings] = field(default_factory=list)

    @property
    def damaged(self) -> bool:
        """Return True if bytes are wrong that were durable."""
        return bool(self.damage or self.headers)

    @property
    def whole(self) -> bool:
        """Return True if nothing is corrupt, and nothing must be cut off."""
        return not self.damaged and not self.torn


def verify(disk: Disk, progress: Callable[[int, int], None]) -> Findings:
    """Check a log. `progress` is called with the number of segments done and of all segments. Raises LogError, OSError."""
    frozen = FrozenDisk(disk)
    reader = LogRecords(frozen)
    segments, copies = list(reader.segments), reader.quarantine.copies
    findings = Findings(segments=len(segments), unreadable=reader.files.unreadable, copies=copies, torn=reader.torn)
    if not segments:
        return findings
    findings.log_id = segments[0].header.log_id.hex()
    replay, _ = replayed(reader)
    replay.conclude()
    findings.torn, findings.cuts = reader.torn, reader.cuts
    findings.headers, findings.damage = reader.damage.headers, list(reader.damage.spots)
    for place, segment in enumerate(segments):
        progress(place, len(segments))
        findings.size += frozen.size(segment.name)
        if segment in reader.segments:
            end = min([reader.end, *(later.base for later in segments[place + 1 : place + 2])])
            findings.damage += [spot for spot in _spots(frozen, segment, end) if spot not in findings.damage]
    progress(len(segments), len(segments))
    ends = message_ends(replay)
    findings.damage += missing_spots(reader, replay, missing_segments(reader, ends))
    findings.damage += _cut_off(frozen, segments, ends)
    findings.topics = [_topic_findings(topic, replay.sequences[number]) for number, topic in replay.topics.items()]
    return findings


def _topic_findings(topic: TopicState, sequence: Sequence) -> TopicFindings:
    distributed, plain = topic.distributed, sequence.plain(0, topic.distributed)
    readers = [(reader.kind, reader.name, reader.figures(distributed, plain)) for reader in topic.readers.values()]
    pauses = [tube.paused.ways for tube in topic.readers.values() if isinstance(tube, TubeState) and tube.paused]
    counts = topic.end, topic.end - distributed, *_counted(sequence)
    return TopicFindings(topic.name, *counts, readers, "".join(pauses))


def _spots(disk: FrozenDisk, segment: Segment, end: int) -> list[tuple[str, int, int]]:
    """Return the corrupt ranges of a segment, up to the log position `end`."""
    stop = min(disk.size(segment.name), HEADER_SIZE + end - segment.base)
    data = read_from(disk, segment.name, HEADER_SIZE, max(0, stop - HEADER_SIZE))
    return [(segment.name, *spot) for spot in wrong_ranges(data, HEADER_SIZE, stop, segment.header.seed)]


def _cut_off(
    disk: FrozenDisk, segments: list[Segment], ends: Mapping[tuple[int, int], int]
) -> list[tuple[str, int, int]]:
    """Return the ranges past the ends of files in which messages should be. Replay does not read the oldest segments."""
    files = {(segment.base, file_of(segment.header).edition): segment.name for segment in segments}
    sizes = {place: disk.size(files[place]) for place in ends if place in files}
    return [(files[place], size, ends[place]) for place, size in sorted(sizes.items()) if size < ends[place]]


def _counted(sequence: Sequence) -> tuple[int, int]:
    """Return the number of a topic's live messages, and of those that are only retained."""
    live = sum(stored.count - stored.released for stored in sequence.live())
    first = sequence.first
    if first is None:
        return live, 0
    kept = sum(stored.end - max(first, stored.first) for stored in sequence.all_retained())
    return live, kept + sum(stored.released for stored in sequence.live() if stored.first >= first)
