"""Extents: stretches of a topic's sequence, as storage hands them to readers."""

from bisect import bisect_right
from collections.abc import Iterator
from itertools import islice
from operator import itemgetter

from nsqd.core.message.attributes import group_in, priority_in, unpack
from nsqd.core.message.frame import with_headers
from penstock.protocol.headers import USUAL_PRIORITY, pack_headers

_start = itemgetter(0)


class Extent:
    """A stretch of a topic's sequence: the frames from `first` to `end`, all with a delay or all without one.

    It only grows at its end. The store may replace a frame that no channel references now by b"", to free its memory.
    """

    __slots__ = ("delayed", "first", "frames", "headers", "ids", "largest", "longest_headers")

    def __init__(self, first: int, delayed: bool) -> None:
        self.first = first  # ordinal of frames[0]
        self.delayed = (
            delayed  # True: published with a delay, after which the topic's delay queue releases each message
        )
        self.frames: list[bytes] = []
        self.ids = bytearray()  # the frames' ids, 16 bytes each, end to end
        self.largest = 0  # bytes of the largest frame; bounds how much a consumer is given at once
        # (first, end, packed attributes) of the messages that have headers, ascending and disjoint
        self.headers: list[tuple[int, int, bytes]] = []
        self.longest_headers = 0  # bytes of the longest packed attributes in `headers`

    def keep_headers(self, first: int, end: int, packed: bytes) -> None:
        """Keep the packed attributes, which have headers, of messages first..end, which follow those kept before."""
        self.headers.append((first, end, packed))
        self.longest_headers = max(self.longest_headers, len(packed))

    def with_headers(self, first: int, frames: list[bytes]) -> list[bytes]:
        """Return the frames of messages from `first` on, with the headers of those that have any."""
        if not self.headers:
            return frames
        frames, stop = list(frames), first + len(frames)
        for start, end, packed in islice(self.headers, max(0, bisect_right(self.headers, first, key=_start) - 1), None):
            if start >= stop:
                break
            headers = pack_headers(unpack(packed, start).headers)
            for index in range(max(start, first) - first, min(end, stop) - first):
                frames[index] = with_headers(frames[index], headers)
        return frames

    def group_of(self, ordinal: int) -> bytes:
        """Return the group of a message: its header `group`; b"": it is of none."""
        place = bisect_right(self.headers, ordinal, key=_start) - 1
        if place < 0:
            return b""
        _, end, packed = self.headers[place]
        return group_in(packed) if ordinal < end else b""

    def priorities(self, first: int, end: int) -> Iterator[tuple[int, int, int]]:
        """Yield (first, end, priority) of the messages first..end whose priority is not the usual one, ascending."""
        for start, stop, packed in islice(
            self.headers, max(0, bisect_right(self.headers, first, key=_start) - 1), None
        ):
            if start >= end:
                return
            if stop > first and (priority := priority_in(packed)) != USUAL_PRIORITY:
                yield max(start, first), min(stop, end), priority

    def priority_of(self, ordinal: int) -> int:
        """Return the priority of a message."""
        return next((priority for _, _, priority in self.priorities(ordinal, ordinal + 1)), USUAL_PRIORITY)

    @property
    def end(self) -> int:
        """Return the ordinal after the last message."""
        return self.first + len(self.frames)

    def __repr__(self) -> str:
        return f"<Extent {self.first}..{self.end}{' delayed' if self.delayed else ''}>"
