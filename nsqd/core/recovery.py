"""Topics and channels as the log remembers them, and a broker made from that.

What was in flight is ready again; attempts, delays and burials are kept. Where a channel stands in its topic's sequence is its
cursor; what it owes from before the cursor comes back one by one.
"""

from __future__ import annotations

from dataclasses import dataclass

from nsqd.core.broker import Broker
from nsqd.core.channel.buried import Grave
from nsqd.core.retention.cursors import Cursor
from nsqd.core.retention.keeping import TopicConfig
from nsqd.core.sequence.puts import Terms
from nsqd.core.timing.deferred import Message
from nsqd.core.topic import Topic
from nsqd.core.work_queue.jobs import Jobs


@dataclass(frozen=True, slots=True)
class Returned:
    """A message that the cursor will not come by (any more)."""

    ordinal: int
    attempts: int  # deliveries it had
    due: int  # ns (monotonic in a RecoveredChannel); not ready before it; 0: at once


@dataclass(frozen=True, slots=True)
class RecoveredChannel:
    """A channel."""

    name: str
    number: int
    paused: bool
    start: int
    cursor: int
    holes: list[tuple[int, int]]  # (first, end) from the cursor on that it is done with, ascending
    ready: int  # messages from the cursor to the edge that it will deliver as it comes by
    returned: list[Returned]
    buried: list[tuple[bytes, Grave]]
    far: list[bytes]  # messages from before the cursor that wait for long, as Channel.take_far wants them


@dataclass(frozen=True, slots=True)
class RecoveredTube:
    """A tube."""

    number: int
    start: int
    edge: int
    holes: list[tuple[int, int]]  # (first, end) from the edge on that it is done with, ascending
    jobs: Jobs  # as they were
    again: tuple[int, int]  # of these messages no later record may tell that they are jobs: it is to be told anew
    offset: int  # their times are later by so much than the core counts


@dataclass(frozen=True, slots=True)
class RecoveredTopic:
    """A topic."""

    name: str
    number: int
    paused: bool
    end: int
    distributed: int
    delayed: list[tuple[int, int]]  # (ordinal, due, monotonic ns) of messages at or past the edge that have a delay
    channels: list[RecoveredChannel]
    config: TopicConfig
    cursors: dict[str, Cursor]
    keys: dict[str, int]  # what it remembers of publishers (see seen.py); monotonic ns
    producers: dict[str, int]
    tube: RecoveredTube | None
    terms: dict[int, Terms]  # by ordinal, of messages at or past the edge that were put; due: monotonic


@dataclass(frozen=True, slots=True)
class LogPicture:
    """All there is."""

    topics: list[RecoveredTopic]
    next_number: int  # for the next topic or channel

    def numbers(self) -> list[int]:
        """Of all topics and channels."""
        channels = [channel.number for topic in self.topics for channel in topic.channels]
        tubes = [topic.tube.number for topic in self.topics if topic.tube is not None]
        return [topic.number for topic in self.topics] + channels + tubes


def recover(broker: Broker, picture: LogPicture, now: int) -> None:
    """Fill an empty broker. Nothing is delivered before all of it exists."""
    for topic in picture.topics:
        _recover_topic(broker, topic, now)
    broker.registry.continue_numbers(picture.next_number)
    broker.fetch_changes()  # nsqlookupd is told of everything when it is connected


def _recover_topic(broker: Broker, recovered: RecoveredTopic, now: int) -> None:
    topic = broker.directory.adopt(recovered.name, recovered.number, recovered.config)
    topic.cursors.update(recovered.cursors)
    topic.intake.seen.restore(recovered.keys, recovered.producers, now)
    topic.resume(recovered.end, recovered.distributed, recovered.paused, recovered.delayed, now)
    for channel in recovered.channels:
        _recover_channel(broker, topic, channel, now)
    if recovered.tube is not None:
        _recover_tube(broker, topic, recovered.tube, recovered.terms)
    topic.distribute()


def _recover_tube(broker: Broker, topic: Topic, recovered: RecoveredTube, terms: dict[int, Terms]) -> None:
    tube = broker.tubes.resume(topic, recovered.number)
    tube.terms.update(terms)
    tube.resume(recovered.start, recovered.edge, recovered.holes, recovered.jobs, recovered.offset)
    for ordinal in range(*recovered.again):
        row = tube.jobs.row(ordinal)
        if row:
            tube.journal.job(ordinal, row)
    for ordinal in [ordinal for ordinal in tube.terms if ordinal < tube.edge or ordinal in tube.jobs]:
        del tube.terms[ordinal]
    tube.wake()


def _recover_channel(broker: Broker, topic: Topic, recovered: RecoveredChannel, now: int) -> None:
    channel = topic.make_channel(recovered.name, recovered.number, recovered.start)
    broker.registry.channel_created(topic.name, channel.name)
    channel.resume(recovered.start, recovered.cursor, recovered.ready, recovered.paused)
    for first, end in recovered.holes:
        channel.skip(first, end, 0)
    for message in recovered.returned:
        channel.take_back(Message(message.ordinal, message.attempts), message.due, now)
    channel.take_far(recovered.far)
    for message_id, grave in recovered.buried:
        channel.buried.add(message_id, grave)
