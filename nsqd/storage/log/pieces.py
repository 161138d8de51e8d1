"""Where messages stand on disk: an extent's records as byte ranges of segments, and reading them back.

Records of other topics may lie between; a range goes over a small gap, a larger one begins a new range.
"""

from collections.abc import Mapping

from nsqd.storage.log import records
from nsqd.storage.log.disk import Disk
from nsqd.storage.log.reader import resume
from nsqd.storage.log.records import HEADER_SIZE, PREFIX_SIZE, Kind, decode, seed_of
from nsqd.storage.log.writer import segment_name
from nsqd.storage.memory import Held, Piece, add_piece

OVERHEAD = 64  # bytes that a message takes in memory beside its frame


def note(held: Held, segment: int, start: int, end: int, generation: int = 0) -> None:
    """A record of the extent stands at start..end (offsets in the file) of the segment with that base."""
    add_piece(held.pieces, segment, generation, start, end)


def frames_of(
    disk: Disk, log_id: bytes, generations: Mapping[int, int], topic: int, held: Held, pieces: list[Piece]
) -> list[bytes]:
    """The frames of the extent; b"" for those that are nowhere. Raises OSError."""
    frames = [b""] * held.count
    for piece in pieces:
        collect(disk, log_id, generations.get(piece[0], 0), piece, topic, held.first, frames)
    return frames


def collect(
    disk: Disk, log_id: bytes, generation: int, piece: Piece, topic: int, first: int, frames: list[bytes]
) -> bool:
    """Put the topic's frames in a range into their places. False if something in the range is damaged.

    A segment that was cleaned since is looked through as a whole.
    """
    segment, when_noted, start, end = piece
    seed = seed_of(log_id, segment, generation)
    file = disk.open(segment_name(segment, generation))
    try:
        if generation != when_noted:
            start, end = HEADER_SIZE, disk.size(segment_name(segment, generation))
        data = file.read(start, end - start)
    finally:
        file.close()
    at, whole = 0, True
    while at < len(data):
        stop = decode(data, at, seed, start)
        if not stop:  # damaged: what is whole behind it is wanted all the same
            at, whole = resume(data, at, seed, start), False
            continue
        if data[at + PREFIX_SIZE] == Kind.PUBLISH:
            content = data[at + PREFIX_SIZE + 1 : stop]
            number, ordinal, count, _, largest, _ = records.PUBLISH.unpack_from(content)
            low, high = max(first, ordinal), min(first + len(frames), ordinal + count)
            if number == topic and low < high:
                part = records.split(content, records.PUBLISH.size, count, largest)
                frames[low - first : high - first] = part[low - ordinal : high - ordinal]
        at = stop
    return whole
