"""A stretch of a topic's sequence, as storage hands it to readers."""


class Extent:
    """A stretch of a topic's sequence: frames `first` to `end`, published alike. It grows at its end, nothing else changes.

    A frame that no channel owes any more may be replaced by b"": the store gives its memory back.
    """

    __slots__ = ("delayed", "first", "frames", "ids", "largest")

    def __init__(self, first: int, delayed: bool) -> None:
        self.first = first  # ordinal of frames[0]
        self.delayed = delayed  # True: published with a delay; the topic's delay lane hands them out, each at its time
        self.frames: list[bytes] = []
        self.ids = bytearray()  # the frames' ids, 16 bytes each, end to end
        self.largest = 0  # bytes of the largest frame: bounds what a consumer is given at once

    @property
    def end(self) -> int:
        """The ordinal after the last."""
        return self.first + len(self.frames)

    def __repr__(self) -> str:
        return f"<Extent {self.first}..{self.end}{' delayed' if self.delayed else ''}>"
