"""How far a topic is distributed: the part of a topic that its readers see.

The *edge* says up to where messages belong to the readers. It follows the end of the sequence unless there is no reader, the
topic is paused, or its channels are still being asked for. A new reader starts at the edge.
"""

from nsqd.core.sequence.lane import DelayLane


class Edge:
    """See above. One of a topic; only the topic moves it."""

    __slots__ = ("distributed", "end", "lane", "ordinary", "put_count")

    def __init__(self, number: int) -> None:
        """`number`: the topic's."""
        self.end = 0  # ordinal of the next message to be sealed
        self.distributed = 0  # the edge: messages before it belong to the readers; <= end
        self.ordinary = 0  # messages distributed without a delay, ever
        self.put_count = 0  # messages distributed, ever
        self.lane = DelayLane(number)  # messages published with a delay, until it is over

    def check(self) -> None:
        """Raise AssertionError if a sentence above is false."""
        assert 0 <= self.distributed <= self.end
        self.lane.check(self.distributed)

    def __repr__(self) -> str:
        return f"<Edge {self.distributed} of {self.end}>"
