"""Looking through a log without changing it: each record of each segment, and what a start would find.

A start believes checkpoints and reads only what is behind the last one; this reads everything. What is wrong below the highest
durable mark is damage. What is wrong behind it is torn: a start cuts it off, though it may have been acknowledged.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from nsqd.core.recovery import LogPicture, RecoveredChannel, RecoveredTopic, RecoveredTube
from nsqd.core.timing.deferred import FAR_SIZE
from nsqd.core.work_queue.job import JobState
from nsqd.storage.log.clocks import LogClock, system_clocks
from nsqd.storage.log.disk import Disk, read_from
from nsqd.storage.log.frozen import FrozenDisk
from nsqd.storage.log.reader import Reader, resume
from nsqd.storage.log.reading import replayed
from nsqd.storage.log.records import HEADER_SIZE, decode
from nsqd.storage.log.recovered import RecoveredStore
from nsqd.storage.log.segments import Segment


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
    picture: LogPicture | None = None
    live: dict[str, int] = field(default_factory=dict)  # messages that somebody owes, or no channel was given, by topic
    retained: dict[str, int] = field(default_factory=dict)  # messages that are only retained, by topic

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
    replay, store, _ = replayed(reader)
    findings.picture = replay.picture(LogClock(system_clocks()))
    findings.torn, findings.cuts = reader.torn, reader.cuts
    findings.headers = reader.damage.headers
    findings.damage = list(reader.damage.spots)
    for place, segment in enumerate(segments):
        progress(place, len(segments))
        findings.size += frozen.size(segment.name)
        if segment in reader.segments:
            findings.damage += [spot for spot in _spots(frozen, segment, reader.end) if spot not in findings.damage]
    progress(len(segments), len(segments))
    for topic in findings.picture.topics:
        findings.live[topic.name], findings.retained[topic.name] = _counted(store, topic)
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


def _counted(store: RecoveredStore, topic: RecoveredTopic) -> tuple[int, int]:
    sequence = store.sequence(topic.number)
    live = sum(held.count - held.freed for held in sequence.live())
    first = sequence.first
    if first is None:
        return live, 0
    kept = sum(held.end - max(first, held.first) for held in sequence.retained())
    return live, kept + sum(held.freed for held in sequence.live() if held.first >= first)


def jobs_of(tube: RecoveredTube) -> dict[str, int]:
    """How many jobs of a tube are in which state after a start; messages that are none yet will be."""
    found = dict.fromkeys(("ready", "delayed", "buried"), 0)
    names = {
        JobState.READY: "ready",
        JobState.RESERVED: "ready",
        JobState.DELAYED: "delayed",
        JobState.BURIED: "buried",
    }
    for state, count in tube.jobs.states().items():
        found[names[state]] += count
    return found


def waiting(channel: RecoveredChannel) -> dict[str, int]:
    """How many messages of a channel are in which state."""
    far = sum(map(len, channel.far)) // FAR_SIZE
    due = sum(one.due > 0 for one in channel.returned)
    return {
        "ready": channel.ready + len(channel.returned) - due,
        "deferred": due + far,
        "buried": len(channel.buried),
    }
