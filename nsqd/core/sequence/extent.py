"""Extents: stretches of a topic's sequence, as storage hands them to readers."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import islice
from operator import itemgetter

from nsqd.core.message.attributes import PACKED_TTL, group_in, groups_in, has_headers, priority_in, ttl_in, unpack
from nsqd.core.message.frame import STAMP, with_headers
from penstock.protocol.headers import USUAL_PRIORITY, pack_headers

NO_GROUP = hash(b"")  # the group of a message without a header `group`: 0
_start = itemgetter(0)


def limit_at(wall: int, ttl: int) -> bytes:
    """Return the bytes in a frame of the time `ttl` ns before `wall` (ns since the epoch); 0: of the earliest time."""
    return max(0, wall - ttl).to_bytes(8, "big") if ttl else bytes(8)


class Extent:
    """A stretch of a topic's sequence: the frames from `first` to `end`, all with a delay or all without one.

    It only grows at its end. The store may replace a frame that no channel references now by b"", to free its memory.
    """

    __slots__ = ("delayed", "first", "frames", "has_ttl", "headers", "ids", "largest", "longest_headers")

    def __init__(self, first: int, delayed: bool) -> None:
        self.first = first  # ordinal of frames[0]
        # True: published with a delay, after which the topic's delay queue releases each message
        self.delayed = delayed
        self.frames: list[bytes] = []
        self.ids = bytearray()  # the frames' ids, 16 bytes each, end to end
        self.largest = 0  # bytes of the largest frame; bounds how much a consumer is given at once
        # (first, end, packed attributes) of the messages that have headers, or are jobs with a priority; ascending and disjoint
        self.headers: list[tuple[int, int, bytes]] = []
        self.longest_headers = 0  # bytes of the longest packed attributes in `headers`
        self.has_ttl = False  # True: some messages may have a ttl of their own

    def keep_headers(self, first: int, end: int, packed: bytes) -> None:
        """Keep packed attributes that channels need, of messages first..end, which follow those kept before."""
        last = self.headers[-1] if self.headers else (0, 0, b"")
        if last[1:] == (first, packed):
            self.headers[-1] = last[0], end, packed
            return
        self.headers.append((first, end, packed))
        self.longest_headers = max(self.longest_headers, len(packed))
        self.has_ttl = self.has_ttl or PACKED_TTL in packed

    def attributed(self, first: int, end: int) -> Iterator[tuple[int, int, bytes]]:
        """Yield (first, end, packed attributes) of those messages first..end whose attributes channels need, ascending."""
        at = max(0, bisect_right(self.headers, first, key=_start) - 1)
        for start, stop, packed in islice(self.headers, at, None):
            if start >= end:
                return
            if stop > first:
                yield max(start, first), min(stop, end), packed

    def with_headers(self, first: int, frames: list[bytes]) -> list[bytes]:
        """Return the frames of messages from `first` on, with the headers of those that have any."""
        if not self.headers:
            return frames
        frames = list(frames)
        for start, end, packed in self.attributed(first, first + len(frames)):
            headers = pack_headers(unpack(packed, start).headers)
            for index in range(start - first, end - first) if has_headers(packed) else ():
                frames[index] = with_headers(frames[index], headers)
        return frames

    def headers_of(self, ordinal: int) -> bytes:
        """Return the packed headers of a message, with their length."""
        headers = [unpack(packed, start).headers for start, _, packed in self.attributed(ordinal, ordinal + 1)]
        return pack_headers(headers[0] if headers else ())

    def group_of(self, ordinal: int) -> int:
        """Return the group of a message: the hash of its header `group`, or NO_GROUP.

        So a group in flight takes 32 bytes, however long its key is. Keys with the same hash would be one group: in order, too.
        """
        place = bisect_right(self.headers, ordinal, key=_start) - 1
        if place < 0:
            return NO_GROUP
        _, end, packed = self.headers[place]
        return hash(group_in(packed)) if ordinal < end else NO_GROUP

    def groups(self, first: int, end: int) -> list[int]:
        """Return the group of each of the messages first..end."""
        place = max(0, bisect_right(self.headers, first, key=_start) - 1)
        own = self.headers[place : bisect_left(self.headers, end, place, key=_start)]
        if own and own[0][0] <= first and own[-1][1] >= end:
            groups = list(map(hash, groups_in(own)))
            count = own[-1][1] - own[0][0]
            if len(own) < count:  # there are gaps, or entries of several messages
                for index in reversed([at for at, (start, stop, _) in enumerate(own) if stop - start > 1]):
                    groups[index : index + 1] = [groups[index]] * (own[index][1] - own[index][0])
            if len(groups) == count:
                return groups if count == end - first else groups[first - own[0][0] : end - own[0][0]]
        groups = [NO_GROUP] * (end - first)
        for start, stop, packed in self.attributed(first, end):
            groups[start - first : stop - first] = [hash(group_in(packed))] * (stop - start)
        return groups

    def priorities(self, first: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Yield (first, end, priority) of the messages first..end whose priority is not the usual one, ascending."""
        for start, stop, packed in self.attributed(first, end):
            if (priority := priority_in(packed)) != USUAL_PRIORITY:
                yield start, stop, priority

    def priority_of(self, ordinal: int) -> int:
        """Return the priority of a message."""
        return next((priority for _, _, priority in self.priorities(ordinal, ordinal + 1)), USUAL_PRIORITY)

    def leading(self, first: int, end: int, wall: int, ttl: int) -> tuple[int, bool]:
        """Return (count, True) if the first `count` of the messages first..end have expired at `wall`, else (count, False).

        A message expires `ttl` ns (0: never) after its publish, or earlier if it has a ttl of its own. A frame that is gone
        has expired. `wall`: ns since the epoch.
        """
        frames, limit = self.frames[first - self.first : end - self.first], limit_at(wall, ttl)
        expired = [frame[STAMP] < limit for frame in frames]
        for start, stop, packed in self.attributed(first, end) if self.has_ttl else ():
            if own := ttl_in(packed):
                limit, part = limit_at(wall, own), slice(start - first, stop - first)
                expired[part] = [
                    was or frame[STAMP] < limit for was, frame in zip(expired[part], frames[part], strict=True)
                ]
        if True not in expired:
            return len(expired), False  # nearly always
        return (expired.index(not expired[0]) if False in expired else len(expired)), expired[0]

    @property
    def end(self) -> int:
        """Return the ordinal after the last message."""
        return self.first + len(self.frames)

    def __repr__(self) -> str:
        return f"<Extent {self.first}..{self.end}{' delayed' if self.delayed else ''}>"
