"""Where messages stand on disk: an extent's records as byte ranges of segments (locations), and reading them back.

Records of other topics may lie in between. A location spans a small gap; a larger gap begins a new location.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from nsqd.core import records
from nsqd.core.message.frame import HEADER_SIZE as FRAME_HEADER
from nsqd.core.message.frame import ID_SIZE, split
from nsqd.core.message.ids import between
from nsqd.core.records import RecordKind
from nsqd.storage.log.disk import Disk, read_from
from nsqd.storage.log.files import Mend, SegmentFile, SegmentFiles
from nsqd.storage.log.records import HEADER_SIZE, PREFIX_SIZE, decode
from nsqd.storage.log.scan import resume
from nsqd.storage.stored_extent import Location, StoredExtent

_ID = slice(FRAME_HEADER - ID_SIZE, FRAME_HEADER)  # the message id in a frame
OVERHEAD = 64  # bytes that a message takes in memory beside its frame


@dataclass(slots=True)
class FoundFrames:
    """The messages that were read of an extent, or of a part of it."""

    first: int  # ordinal of the first message
    frames: list[bytes]  # b"" where no frame was found
    ids: bytearray  # ids of the frames, 16 bytes each, end to end; zeros where no frame was found
    largest: int = 0  # bytes of the largest frame
    # (first, end, attributes): packed attributes of the messages that have any
    attributed: list[tuple[int, int, bytes]] = field(default_factory=list)

    def attributes(self) -> list[bytes]:
        """Return the packed attributes of each message; b"" for a message without any."""
        attributes = [b""] * len(self.frames)
        for first, end, packed in self.attributed:
            for ordinal in range(max(first, self.first), min(end, self.first + len(attributes))):
                attributes[ordinal - self.first] = packed
        return attributes

    def put_frames(self, ordinal: int, frames: list[bytes], largest: int) -> None:
        """Store the frames of messages from `ordinal` on, as far as they belong to the extent."""
        low, high = max(self.first, ordinal), min(self.first + len(self.frames), ordinal + len(frames))
        if low >= high:
            return
        part = frames[low - ordinal : high - ordinal]
        start, end = low - self.first, high - self.first
        self.frames[start:end] = part
        ids = between(part[0][_ID], part[-1][_ID], len(part)) or b"".join([frame[_ID] for frame in part])
        self.ids[start * ID_SIZE : end * ID_SIZE] = ids
        self.largest = max(self.largest, largest)


def no_frames(first: int, count: int) -> FoundFrames:
    """Return a result with no frames yet, for `count` messages."""
    return FoundFrames(first, [b""] * count, bytearray(count * ID_SIZE))


def read_frames(
    disk: Disk, files: SegmentFiles, topic: int, stored: StoredExtent, locations: list[Location]
) -> FoundFrames:
    """Read the extent's messages, as far as they stand where `locations` say. Raises OSError."""
    found = no_frames(stored.first, stored.count)
    for location in locations:
        collect_frames(disk, files.at(location[0]), location, topic, found, files.mend)
    return found


def read_frames_cached(
    disk: Disk, files: SegmentFiles, topic: int, stored: StoredExtent, locations: list[Location]
) -> FoundFrames | None:
    """Return the result of `find` if it is complete and needs no wait for the disk, otherwise None. Raises OSError."""
    found = no_frames(stored.first, stored.count)
    for location in locations:
        segment, edition, start, end = location
        current = files.at(segment)
        if edition != current.edition:
            return None
        file = disk.open(current.name)
        try:
            data = file.read_cached(start, end - start)
        finally:
            file.close()
        if data is None or not _collect_publishes(data, start, current.seed, topic, found):
            return None
    return found if all(found.frames) else None


def collect_frames(
    disk: Disk, file: SegmentFile, location: Location, topic: int, found: FoundFrames, mend: Mend | None = None
) -> bool:
    """Put the topic's frames in a location of `file` into their places. Returns False if something in the location is damaged.

    If the segment was cleaned since the location was noted, the whole segment is searched. `mend` may replace what is damaged.
    """
    data, start = read_location(disk, file, location)
    if _collect_publishes(data, start, file.seed, topic, found):
        return True
    if mend is None or not mend(location[0], file, start, start + len(data)):
        return False
    data, start = read_location(disk, file, location)
    return _collect_publishes(data, start, file.seed, topic, found)


def read_location(disk: Disk, file: SegmentFile, location: Location) -> tuple[bytes, int]:
    """Return the bytes of a location, and the offset in the file at which they begin. Raises OSError.

    If the segment was cleaned since the location was noted, this returns the whole segment.
    """
    _, when_noted, start, end = location
    if file.edition != when_noted:
        start, end = HEADER_SIZE, disk.size(file.name)
    return read_from(disk, file.name, start, end - start), start


def _collect_publishes(data: bytes, start: int, seed: int, topic: int, found: FoundFrames) -> bool:
    """Put the topic's messages from `data`, at offset `start` of a segment, into `found`. Returns False if some are damaged."""
    whole = True
    for published in publishes(data, start, seed, topic):
        if published is None:
            whole = False
            continue
        ordinal, count, largest, attributes, at, stop = published
        found.put_frames(ordinal, split(data, at, stop, count, largest), largest)
        if attributes:
            found.attributed.append((ordinal, ordinal + count, attributes))
    return whole


Published = tuple[int, int, int, bytes, int, int]


def publishes(data: bytes, start: int, seed: int, topic: int) -> Iterator[Published | None]:
    """Yield the topic's PUBLISH records in `data`, which stands at offset `start` of a segment.

    For each record this yields the first ordinal, the count, bytes of the largest frame, the attributes (packed), and the start
    and end of its frames in `data`. None stands for damaged bytes; the intact records after them follow.
    """
    at = 0
    while at < len(data):
        stop = decode(data, at, seed, start)
        if not stop:
            at = resume(data, at, seed, start)
            yield None
            continue
        if data[at + PREFIX_SIZE] == RecordKind.PUBLISH:
            content = at + PREFIX_SIZE + 1
            number, ordinal, count, _, largest, flags = records.PUBLISH.unpack_from(data, content)
            if number == topic:
                attributes, frames = records.attributes_of(data, content, flags)
                yield ordinal, count, largest, attributes, frames, stop
        at = stop
