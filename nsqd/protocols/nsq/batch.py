"""Messages that a client published together, more than one turn may take: they are published in portions, one a turn.

All of them were read and found good before the first is published, and the client is answered after the last. A client that
is gone before may leave a part published, which was not acknowledged.
"""

from dataclasses import replace

from nsqd.core.message.attributes import NONE, Attributes
from nsqd.core.topic import Topic

PORTION = 8192  # messages of a client in a turn: reading, encoding and writing the shortest ones takes about 5 ms


class Batch:
    """The messages of one MPUB or /mpub, and how many of them were published."""

    __slots__ = ("_at", "_attributes", "_bodies")

    def __init__(self, bodies: list[bytes], attributes: Attributes = NONE) -> None:
        self._bodies = bodies
        self._attributes = attributes
        self._at = 0  # how many were published

    @property
    def is_done(self) -> bool:
        return self._at >= len(self._bodies)

    def skip_known(self, topic: Topic) -> int:
        """If the topic knows the batch by its key, all is done. Returns how many messages were published before."""
        key, count = self._attributes.key, len(self._bodies)
        if not key or self._at or count <= PORTION or not topic.intake.recognizes(key):
            return 0
        self._at = count
        return topic.publish_with(self._bodies, self._attributes)

    def take(self) -> tuple[list[bytes], Attributes]:
        """The next portion, to be published now.

        The key stands with the last one: a batch that is broken off is not known by it, and can be published again.
        """
        start = self._at
        self._at = end = start + PORTION
        if end >= len(self._bodies):
            bodies = self._bodies[start:] if start else self._bodies
            return bodies, self._attributes.behind(start)
        attributes = replace(self._attributes, key="") if self._attributes.key else self._attributes
        return self._bodies[start:end], attributes.behind(start)

    def publish(self, topic: Topic) -> int:
        """Publish the next portion. Returns how many of its messages had not been published before."""
        bodies, attributes = self.take()
        if attributes:
            return len(bodies) - topic.publish_with(bodies, attributes)
        topic.publish(bodies, sum(map(len, bodies)))
        return len(bodies)
