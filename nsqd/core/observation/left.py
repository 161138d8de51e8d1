"""What a node has left: for who empties one (nsqd/http/drain.py). Looked at in portions, while it goes on.

Only while nothing is published may a sum of nothing be believed: then messages go from a topic to its readers, and from there
away, and a topic is looked at before its readers, so none is overlooked on its way. What a reader has is looked at as one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from nsqd.core.broker import Broker
from nsqd.core.reader import Reader


class Left(NamedTuple):
    """Of a topic alone, a reader, or a sum."""

    depth: int = 0  # messages: those that no channel has been given, and those that are ready in one
    in_flight: int = 0
    deferred: int = 0
    buried: int = 0  # messages, and jobs
    jobs: int = 0  # of tubes: ready, reserved or delayed

    def plus(self, other: Left) -> Left:
        """The sum."""
        return Left(*map(sum, zip(self, other, strict=True)))

    @property
    def is_nothing(self) -> bool:
        """Nothing will be delivered any more. What is buried waits for an operator, not for a consumer."""
        return not (self.depth or self.in_flight or self.deferred or self.jobs)


def walk(broker: Broker, aside: str) -> Iterator[Left]:
    """Every topic and reader but those of the topic `aside`. It may be gone on with in later turns."""
    for topic in list(broker.topics.values()):
        if topic.deleted or topic.name == aside:
            continue
        yield Left(depth=topic.depth)
        for reader in list(topic.readers.values()):
            if not reader.deleted:
                yield _of_reader(reader)


def _of_reader(reader: Reader) -> Left:
    counts = reader.counts()
    if reader.takes_terms:
        return Left(buried=counts.buried, jobs=sum(counts) - counts.buried + reader.coming)
    return Left(counts.ready, counts.in_flight, counts.deferred, counts.buried)
