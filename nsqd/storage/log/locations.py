"""Locations of messages on disk: an extent's records as byte ranges of segments, and reading them back.

Records of other topics may lie in between. A location spans a small gap; a larger gap begins a new location.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from nsqd.core import records
from nsqd.core.message.frame import HEADER_SIZE as FRAME_HEADER
from nsqd.core.message.frame import ID_SIZE, split
from nsqd.core.message.ids import between
from nsqd.core.records import RecordKind
from nsqd.storage.log.disk import Disk, read_from
from nsqd.storage.log.files import ByteRepair, SegmentFile, SegmentFiles
from nsqd.storage.log.records import HEADER_SIZE, PREFIX_SIZE, decode
from nsqd.storage.log.scan import resume
from nsqd.storage.stored_extent import Location, StoredExtent

# a PUBLISH record: first ordinal, count, bytes of the largest frame, packed attributes, start and end of its frames
Published = tuple[int, int, int, bytes, int, int]
_ID = slice(FRAME_HEADER - ID_SIZE, FRAME_HEADER)  # the message id in a frame
OVERHEAD = 64  # bytes of memory for each message, in addition to its frame


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

    def put_publishes(self, data: bytes, published: Iterable[Published | None]) -> bool:
        """Put the frames of these records in `data` into their places. Returns False if some bytes are corrupt."""
        is_whole = True
        for one in published:
            if one is None:
                is_whole = False
                continue
            ordinal, count, largest, attributes, at, stop = one
            self.put_frames(ordinal, split(data, at, stop, count, largest), largest)
            if attributes:
                self.attributed.append((ordinal, ordinal + count, attributes))
        return is_whole

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
    """Read the extent's messages, as far as they are at `locations`. Raises OSError."""
    found = no_frames(stored.first, stored.count)
    for location in locations:
        collect_frames(disk, files.at(location[0]), location, topic, found, files.repair)
    return found


def read_frames_cached(
    disk: Disk, files: SegmentFiles, topic: int, stored: StoredExtent, locations: list[Location]
) -> FoundFrames | None:
    """Return the same if it is complete and needs no wait for the disk, otherwise None. Raises OSError."""
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
        if data is None or not found.put_publishes(data, publishes(data, start, current.seed, topic)):
            return None
    return found if all(found.frames) else None


def collect_frames(
    disk: Disk, file: SegmentFile, location: Location, topic: int, found: FoundFrames, repair: ByteRepair | None = None
) -> bool:
    """Put the topic's frames in a location of `file` into their places. Returns False if some bytes there are corrupt."""
    return found.put_publishes(*read_publishes(disk, file, location, topic, repair))


def read_publishes(
    disk: Disk, file: SegmentFile, location: Location, topic: int, repair: ByteRepair | None = None
) -> tuple[bytes, list[Published | None]]:
    """Return the bytes of a location, and the topic's PUBLISH records in them (see `publishes`). Raises OSError.

    If the segment was cleaned since the location was noted, this reads the whole segment. `repair` may replace bytes that are
    corrupt, or missing at the end of the file; of a segment that was cleaned, it may have all records instead.
    """
    base, when_noted, start, end = location
    if file.edition != when_noted:
        start, end = HEADER_SIZE, disk.size(file.name)
    data = read_from(disk, file.name, start, end - start)
    found = list(publishes(data, start, file.seed, topic))
    is_whole = None not in found and len(data) == end - start
    if not is_whole and repair is not None and repair(base, file, start, end):
        data = read_from(disk, file.name, start, end - start)
        found = list(publishes(data, start, file.seed, topic))
    elif not is_whole and repair is not None and (fetched := repair.fetch(base, file, start)):
        data, seed = fetched
        found = list(publishes(data, HEADER_SIZE, seed, topic))
    return data, found


def publishes(data: bytes, start: int, seed: int, topic: int) -> Iterator[Published | None]:
    """Yield the topic's PUBLISH records in `data`, which begins at offset `start` of a segment.

    Corrupt bytes yield None; the intact records after them follow.
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
