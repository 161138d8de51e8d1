"""Find the records in a segment's bytes that are wrong in some places."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from nsqd.core.records import EPOCH, GROUP, RecordKind
from nsqd.storage.log.epochs import Epoch, unpack
from nsqd.storage.log.records import HEADER_SIZE, PREFIX_SIZE, SegmentHeader, decode

MOST_PROBED = 200  # candidates of each kind with which the epoch of a segment is found
MOST_CHECKED = 64 * 1024 * 1024  # bytes of candidate records that are checked after a wrong one, at most: 0.1 s
_ZEROS = bytes(65536)


def _pattern(size: int, kind: RecordKind) -> bytes:
    """Return a pattern for the head of a record of a kind whose content has `size` bytes."""
    return re.escape((size + 1).to_bytes(4, "big")) + b".{4}" + re.escape(bytes((kind,)))


_GROUP_RECORD = re.compile(_pattern(GROUP.size, RecordKind.GROUP), re.DOTALL)
_EPOCH_RECORD = re.compile(_pattern(EPOCH.size, RecordKind.EPOCH) + b".{%d}" % EPOCH.size, re.DOTALL)
# The pattern finds candidates for records shorter than 64 MiB.
_PUBLISH_RECORD = re.compile(b"(?=[\\0-\\3].{7}%s)" % re.escape(bytes((RecordKind.PUBLISH,))), re.DOTALL)
_ANY_RECORD = re.compile(b"(?=[\\0-\\3].{7}[\\1-%s])" % re.escape(bytes((max(RecordKind),))), re.DOTALL)


def resume(data: bytes, at: int, seed: int, start: int = 0) -> int:
    """Return the start of the next good record after a wrong one at `at`; the end of `data` if there is none.

    `start`: offset of `data` in the file.
    """
    if at + PREFIX_SIZE <= len(data):
        by_length = at + PREFIX_SIZE + int.from_bytes(data[at : at + 4], "big")
        if by_length < len(data) and decode(data, by_length, seed, start):
            return _first_record(data, at + 1, by_length, seed, start)  # the length may be what is wrong
    groups = (match.start() for match in _GROUP_RECORD.finditer(data, at + 1))
    group = next((place for place in groups if decode(data, place, seed, start)), len(data))
    return _first_record(data, at + 1, group, seed, start)


def wrong_ranges(data: bytes, start: int, stop: int, seed: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of a segment without valid records, from offset `start` to `stop`. `data`: the bytes that are there."""
    at = 0
    while at < len(data):
        after = decode(data, at, seed, start)
        if not after:
            after = resume(data, at, seed, start)
            if after == len(data):
                break
            yield start + at, start + after
        at = after
    if start + at < stop:
        yield start + at, stop


def probable_records(data: bytes) -> list[int]:
    """Return some offsets at which records may begin in a segment, small ones first: their CRCs are quickly computed."""
    found = [HEADER_SIZE]
    for pattern in (_GROUP_RECORD, _PUBLISH_RECORD):  # a segment that was cleaned has no groups
        found += [match.start() for match in islice(pattern.finditer(data, HEADER_SIZE), MOST_PROBED)]
    return sorted(found, key=lambda at: data[at : at + 4])


def stated_epochs(data: bytes) -> list[Epoch]:
    """Return the epochs in what may be EPOCH records of a segment. The CRC of another record decides whether they are right."""
    content = PREFIX_SIZE + 1
    return [unpack(data, match.start() + content) for match in islice(_EPOCH_RECORD.finditer(data), MOST_PROBED)]


def _first_record(data: bytes, at: int, end: int, seed: int, start: int) -> int:
    """Return the start of the first good record between `at` and `end`; `end` if none is found."""
    checked = 0
    for match in _ANY_RECORD.finditer(data, at, end):
        place = match.start()
        size = PREFIX_SIZE + int.from_bytes(data[place : place + 4], "big")
        if place + size > end:
            continue
        if decode(data, place, seed, start):
            return place
        checked += size
        if checked > MOST_CHECKED:
            break
    return end


def content_end(data: bytes, at: int, header: SegmentHeader) -> int:
    """Return the end of the content of a segment that is intact up to `at`: torn or corrupt records, too, are content.

    Zeros follow, or the former content of a reused file.
    """
    end = _filled(data)
    if not header.former:
        return end
    for match in _GROUP_RECORD.finditer(data, at):
        at = max(at, match.start() if decode(data, match.start(), header.seed) else 0)
    while after := decode(data, at, header.seed):
        at = after
    if not any(data[at : at + PREFIX_SIZE]):
        return min(at, end)
    return at if decode(data, at, header.former) else min(end, resume(data, at, header.former))


def _filled(data: bytes) -> int:
    """Return the offset at which the trailing zeros of `data` begin."""
    end = len(data)
    while end > len(_ZEROS) and data[end - len(_ZEROS) : end] == _ZEROS:
        end -= len(_ZEROS)
    first = max(0, end - len(_ZEROS))
    return first + len(data[first:end].rstrip(b"\0"))


def highest_mark(data: bytes, at: int, seed: int) -> int:
    """Return the highest durable mark that a group from offset `at` of a segment on states; 0 if there is none."""
    marks = [
        GROUP.unpack_from(data, match.start() + PREFIX_SIZE + 1)[0]
        for match in _GROUP_RECORD.finditer(data[: _filled(data)], max(at, HEADER_SIZE))
        if decode(data, match.start(), seed)
    ]
    return max(marks, default=0)
