"""Extents: stretches of a topic's sequence, as storage hands them to readers."""


class Extent:
    """A stretch of a topic's sequence: the frames from `first` to `end`, all with a delay or all without one.

    It only grows at its end. The store may replace a frame that no channel references now by b"", to free its memory.
    """

    __slots__ = ("delayed", "first", "frames", "ids", "largest")

    def __init__(self, first: int, delayed: bool) -> None:
        self.first = first  # ordinal of frames[0]
        self.delayed = (
            delayed  # True: published with a delay, after which the topic's delay queue releases each message
        )
        self.frames: list[bytes] = []
        self.ids = bytearray()  # the frames' ids, 16 bytes each, end to end
        self.largest = 0  # bytes of the largest frame; bounds how much a consumer is given at once

    @property
    def end(self) -> int:
        """Return the ordinal after the last message."""
        return self.first + len(self.frames)

    def __repr__(self) -> str:
        return f"<Extent {self.first}..{self.end}{' delayed' if self.delayed else ''}>"
