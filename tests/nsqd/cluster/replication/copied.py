"""Checks of a replica: it must have the log's bytes, and a log that replay takes for the leader's, cut at the replica's end."""

from nsqd.cluster.replication.manifest import Manifest, ReplicaDisk
from nsqd.storage.log.cleaner import _live
from nsqd.storage.log.disk import Disk
from nsqd.storage.log.files import SegmentFiles
from nsqd.storage.log.locations import read_frames
from nsqd.storage.log.reader import LogRecords
from nsqd.storage.log.reading import replayed
from nsqd.storage.log.records import HEADER_SIZE, NotASegment, SegmentHeader, decode_header
from tests.nsqd.cluster.replication.archive import Archive, Key
from tests.nsqd.storage.normal import NormalTopic, normal
from tests.nsqd.storage.sim_disk import SimDisk

State = tuple[dict[int, NormalTopic], dict[int, dict[int, bytes]]]


def judge_bytes(archive: Archive, disk: SimDisk, manifest: Manifest, end: int) -> tuple[Key, int] | None:
    """Assert that the files are the log's. Returns the newest one, and its size; None: the replica is empty."""
    if not manifest.files:
        assert not end, "a replica without a segment in which it ends"
        return None
    newest = _key(disk, manifest.files[-1].name)
    size = HEADER_SIZE + end - newest[0]
    assert newest in archive.data, "the newest segment is not the log's"
    stops = archive.stops_before(newest) | {newest: size}
    for file in manifest.files:
        content = disk.content(file.name)
        header = _header(disk, file.name)
        assert (header.base, header.generation) == (file.base, file.generation), f"{file.name} is not what it says"
        if header.generation:
            is_same = archive.rewritten.get((file.segment, content[:HEADER_SIZE])) == content
            assert is_same, f"{file.name} is not the log's"
            continue
        key = header.base, header.epoch
        assert key in stops, f"{file.name} does not precede {manifest.files[-1].name} in the log"
        assert len(content) >= stops[key], f"{file.name} ends at {len(content)}, not at {stops[key]}: a hole"
        assert content[: stops[key]] == archive.data[key][: stops[key]], f"{file.name} is not the log's"
    return newest, size


def _key(disk: SimDisk, name: str) -> Key:
    header = _header(disk, name)
    assert not header.generation, "the newest segment was rewritten"
    return header.base, header.epoch


def _header(disk: SimDisk, name: str) -> SegmentHeader:
    try:
        return decode_header(disk.content(name))
    except NotASegment as error:
        raise AssertionError(f"{name}: {error}") from None


def judge_state(archive: Archive, disk: SimDisk, manifest: Manifest, end: int) -> None:
    """Assert that replay of the replica gives the state of the log cut at its end, and that every message can be read."""
    newest = judge_bytes(archive, disk, manifest, end)
    if newest is None:
        return
    found, root = _state(ReplicaDisk(disk.kill(), manifest), end)
    expected, known = _state(archive.cut(*newest), end)
    assert root == known, f"replay begins at {root}, and that of the log at {known}"
    assert found[0] == expected[0], "the replica's state is not the log's"
    assert found[1] == expected[1], "messages cannot be read from the replica"


def _state(disk: Disk, end: int) -> tuple[State, int]:
    reader = LogRecords(disk)
    replay, root = replayed(reader)
    assert not reader.damage.spots, f"damage: {reader.damage.spots}"
    assert reader.end == end, f"the log ends at {reader.end} and not at {end}"
    replay.conclude()
    files = SegmentFiles(segment.header for segment in reader.segments)
    topics, frames = {}, {}
    for number, state in replay.topics.items():
        sequence = replay.sequences[number]
        frames[number] = read = dict[int, bytes]()
        for stored in {stored.first: stored for stored in (*sequence.live(), *sequence.all_retained())}.values():
            wanted = _live(stored, sequence)
            if any(wanted):
                try:
                    found = read_frames(disk, files, number, stored, stored.locations)
                except FileNotFoundError as error:
                    raise AssertionError(f"a segment is missing: {error}") from None
                read |= {stored.first + at: frame for at, frame in enumerate(found.frames) if wanted[at]}
        topics[number] = normal(state, sequence, 0, ephemeral=False)
    return (topics, frames), root
