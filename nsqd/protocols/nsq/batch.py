"""Publish messages of one request in slices, one a turn, if there are more than a turn may take.

All of them are read and found valid before the first is published, and the client is answered after the last. If the client
disconnects before that, a part may be published that was not acknowledged.
"""

from dataclasses import replace

from nsqd.core.message.attributes import NONE, Attributes
from nsqd.core.topic import Topic

SLICE = 8192  # messages of a client in a turn: reading, encoding and writing the shortest ones takes about 5 ms


class MpubBatch:
    """The messages of one MPUB or /mpub, and how many of them were published."""

    __slots__ = ("_at", "_attributes", "_bodies", "_left", "last_size")

    def __init__(self, bodies: list[bytes], attributes: Attributes = NONE) -> None:
        self._bodies = bodies
        self._attributes = attributes
        self._at = 0  # messages that were published so far
        self._left = sum(map(len, bodies))  # bytes of the bodies that were not
        self.last_size = 0  # bytes of the bodies of the slice that was published last

    @property
    def is_new(self) -> bool:
        """Return True if nothing was published so far."""
        return not self._at

    @property
    def left(self) -> tuple[int, int]:
        """Return the number of messages that are still to be published, and the bytes of their bodies."""
        return max(0, len(self._bodies) - self._at), self._left

    @property
    def is_done(self) -> bool:
        return self._at >= len(self._bodies)

    def skip_duplicates(self, topic: Topic) -> int:
        """Mark a large batch as done if the topic knows its key already. Return the number of messages published before."""
        key, count = self._attributes.key, len(self._bodies)
        if not key or self._at or count <= SLICE or not topic.intake.recognizes(key):
            return 0
        self._at, self._left = count, 0
        return topic.publish_with(self._bodies, self._attributes)

    def next_portion(self) -> tuple[list[bytes], Attributes]:
        """Return the next slice and its attributes. Only the last one has the key, so that a broken batch can be repeated."""
        start = self._at
        self._at = end = start + SLICE
        if end >= len(self._bodies):
            bodies = self._bodies[start:] if start else self._bodies
            return bodies, self._attributes.behind(start)
        attributes = replace(self._attributes, key="") if self._attributes.key else self._attributes
        return self._bodies[start:end], attributes.behind(start)

    def publish(self, topic: Topic) -> int:
        """Publish the next slice. Return the number of its messages that had not been published before."""
        bodies, attributes = self.next_portion()
        self.last_size = sum(map(len, bodies))
        self._left -= self.last_size
        if attributes:
            return len(bodies) - topic.publish_with(bodies, attributes)
        topic.publish(bodies, self.last_size)
        return len(bodies)
