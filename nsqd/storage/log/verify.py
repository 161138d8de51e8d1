"""Looking through a log without changing it: each record of each segment, and what a start would find.

A start believes checkpoints and reads only what is behind the last one; this reads everything. What is wrong below the highest
durable mark is damage. What is wrong behind it is torn: a start cuts it off, though it may have been acknowledged.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from nsqd.core.reader import Kind
from nsqd.storage.log.disk import Disk, read_from
from nsqd.storage.log.frozen import FrozenDisk
from nsqd.storage.log.reader import Reader, resume
from nsqd.storage.log.reading import replayed
from nsqd.storage.log.records import HEADER_SIZE, decode
from nsqd.storage.log.segments import Segment
from nsqd.storage.sequence import Sequence


@dataclass(frozen=True, slots=True)
class TopicFindings:
    """What a start would find of a topic."""

    name: str
    published: int  # messages, ever
    not_distributed: int  # of them, those that no reader was given yet
    live: int  # of them, those that a reader owes, or that no reader was given yet
    retained: int  # of them, those that are only retained
    # of each its kind, its name, and how many messages are in which state
    readers: list[tuple[Kind, str, dict[str, int]]]


@dataclass(slots=True)
class Findings:
    """What there is."""

    log_id: str = ""
    segments: int = 0
    size: int = 0  # bytes
    torn: int = 0  # bytes at the end that a start would cut off or set aside, and that may have been acknowledged
    cuts: list[tuple[str, int, int]] = field(default_factory=list)  # where they stand: (segment, from, to)
    damage: list[tuple[str, int, int]] = field(default_factory=list)  # likewise, what is damaged
    headers: list[str] = field(default_factory=list)  # segments with damaged headers that a start rebuilds
    unreadable: list[str] = field(default_factory=list)  # files that are no segments
    copies: list[tuple[str, int]] = field(default_factory=list)  # that earlier starts have made: name, bytes
    topics: list[TopicFindings] = field(default_factory=list)

    @property
    def damaged(self) -> bool:
        """Bytes are wrong that were durable."""
        return bool(self.damage or self.headers)

    @property
    def whole(self) -> bool:
        """Nothing is damaged, and nothing must be cut off."""
        return not self.damaged and not self.torn


def verify(disk: Disk, progress: Callable[[int, int], None]) -> Findings:
    """Look through all of it. `progress` is told segments done, and how many there are. Raises LogError, OSError."""
    frozen = FrozenDisk(disk)
    reader = Reader(frozen)
    files = reader.files
    findings = Findings(segments=len(reader.segments), unreadable=files.unreadable)
    findings.copies, findings.torn = reader.quarantine.copies, reader.torn
    if not reader.segments:
        return findings
    findings.log_id = reader.segments[0].header.log_id.hex()
    segments = list(reader.segments)
    replay, _ = replayed(reader)
    replay.settle()
    findings.torn, findings.cuts = reader.torn, reader.cuts
    findings.headers = reader.damage.headers
    findings.damage = list(reader.damage.spots)
    for place, segment in enumerate(segments):
        progress(place, len(segments))
        findings.size += frozen.size(segment.name)
        if segment in reader.segments:
            findings.damage += [spot for spot in _spots(frozen, segment, reader.end) if spot not in findings.damage]
    progress(len(segments), len(segments))
    for number, topic in replay.topics.items():
        sequence = replay.sequences[number]
        live, retained = _counted(sequence)
        edge = topic.distributed
        plain = sequence.plain(0, edge)
        readers = [(reader.kind, reader.name, reader.figures(edge, plain)) for reader in topic.readers.values()]
        findings.topics.append(TopicFindings(topic.name, topic.end, topic.end - edge, live, retained, readers))
    return findings


def _spots(disk: FrozenDisk, segment: Segment, end: int) -> list[tuple[str, int, int]]:
    """Where a segment is damaged, up to the log's end."""
    data = read_from(disk, segment.name, 0, min(disk.size(segment.name), HEADER_SIZE + end - segment.base))
    spots, at, seed = [], HEADER_SIZE, segment.header.seed
    while at < len(data):
        stop = decode(data, at, seed)
        if not stop:
            stop = resume(data, at, seed)
            spots.append((segment.name, at, stop))
        at = stop
    return spots


def _counted(sequence: Sequence) -> tuple[int, int]:
    """How many of a topic's messages are live, and how many are only retained."""
    live = sum(held.count - held.freed for held in sequence.live())
    first = sequence.first
    if first is None:
        return live, 0
    kept = sum(held.end - max(first, held.first) for held in sequence.retained())
    return live, kept + sum(held.freed for held in sequence.live() if held.first >= first)
