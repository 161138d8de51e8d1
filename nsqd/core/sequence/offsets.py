"""How far a topic is distributed: the part of a topic that its readers see.

The *distributed offset* is the ordinal up to which messages belong to the readers. It follows the end of the sequence unless
the topic has no reader, is paused, or is still asking nsqlookupd for its channels. A new reader starts at the distributed
offset.

See docs/contributing/design/channel.md#positions.
"""

from nsqd.core.sequence.delay_queue import DelayQueue
from nsqd.core.sequence.gate import Gate


class TopicOffsets:
    """The distributed offset and the end of one topic's sequence. Only the topic moves them."""

    __slots__ = ("delay_queue", "distributed", "end", "gate", "ordinary", "put_count")

    def __init__(self, number: int) -> None:
        """Start with an empty sequence. `number`: the topic's number."""
        self.end = 0  # ordinal of the next message to be sealed
        self.distributed = 0  # the distributed offset: messages before it belong to the readers; <= end
        self.ordinary = 0  # how many messages without a delay were ever distributed
        self.put_count = 0  # how many messages were ever distributed
        self.gate: Gate | None = None  # what holds back messages that are delivered; None: nothing does
        self.delay_queue = DelayQueue(number)  # messages published with a delay, until the delay is over

    def check(self) -> None:
        """Raise AssertionError if an invariant of the distributed offset or its delay queue does not hold."""
        assert 0 <= self.distributed <= self.end
        self.delay_queue.check(self.distributed)

    def __repr__(self) -> str:
        return f"<Edge {self.distributed} of {self.end}>"
