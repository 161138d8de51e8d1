"""What a node has left: for who empties one (nsqd/http/drain.py). Looked at in portions, while it goes on.

Only while nothing is published may a sum of nothing be believed: then messages go from a topic to its channels, and from there
away, and a topic is looked at before its channels, so none is overlooked on its way. What a channel has is looked at as one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from nsqd.core.broker import Broker
from nsqd.core.channel.channel import Channel
from nsqd.core.topic import Topic
from nsqd.core.work_queue.job import JobState
from nsqd.core.work_queue.tube import Tube


class Left(NamedTuple):
    """Of a topic alone, a channel, a tube, or a sum."""

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
    """Every topic, channel and tube but those of the topic `aside`. It may be gone on with in later turns."""
    for topic in list(broker.topics.values()):
        if topic.deleted or topic.name == aside:
            continue
        yield _of_topic(topic, broker.tubes.tube(topic.name))
        for channel in list(topic.channels.values()):
            if not channel.deleted:
                yield _of_channel(channel)


def _of_topic(topic: Topic, tube: Tube | None) -> Left:
    """With its tube, which may have nothing to do with a channel."""
    own = Left(depth=topic.depth)
    return own if tube is None else own.plus(_of_tube(topic, tube))


def _of_channel(channel: Channel) -> Left:
    return Left(channel.depth, channel.in_flight_count, channel.deferred_count, len(channel.buried))


def _of_tube(topic: Topic, tube: Tube) -> Left:
    """What was handed out and is no job yet, for it is being read from disk, counts as one, about."""
    waiting = sum(tube.table.counts[state] for state in (JobState.READY, JobState.RESERVED, JobState.DELAYED))
    return Left(
        buried=tube.table.counts[JobState.BURIED], jobs=waiting + topic.edge.distributed - tube.arrivals.position
    )
