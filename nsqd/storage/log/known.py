"""What replay knows of topics and channels, as far as it has come."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from nsqd.core.channel.buried import Grave
from nsqd.core.message.attributes import Attributes
from nsqd.core.recovery import Returned
from nsqd.core.retention.cursors import Cursor
from nsqd.core.retention.keeping import TopicConfig
from nsqd.core.sequence.puts import Terms
from nsqd.core.work_queue.job_pages import JobPages
from nsqd.core.work_queue.tube import WORK
from nsqd.storage.log.far import Far


@dataclass(slots=True)
class KnownChannel:
    """What is known of a channel."""

    name: str
    number: int
    start: int
    cursor: int
    paused: bool = False
    floor: int = 0  # it is done with everything before this
    done: dict[int, int] = field(default_factory=dict)  # runs it is done with behind that: first -> end; may overlap
    notes: dict[int, Returned] = field(default_factory=dict)  # what was handed back last, by ordinal
    buried: dict[int, tuple[bytes, Grave]] = field(default_factory=dict)  # by ordinal, the first buried first
    far: Far = field(default_factory=lambda: Far([]))  # what it handed back for long; `done` has it as if it were done
    near: dict[int, None] = field(default_factory=dict)  # what was in `far` or pulled, was noted or buried, and is owed
    jobs: JobPages = field(default_factory=JobPages)  # of a tube; due in the log's time
    edge: int = 0  # likewise: jobs before it have a row, when the checkpoint was written
    # Likewise: messages that were no jobs yet for a checkpoint. What is known of them from before it, a replay that begins with
    # it must be told by later records.
    unsaid: tuple[int, int] = (0, 0)

    @property
    def is_tube(self) -> bool:
        """Its messages are jobs."""
        return self.name == WORK

    @property
    def reached(self) -> int:
        """The ordinal behind the last message that records of this channel speak of."""
        spoken_of = max((*self.notes, *self.buried), default=-1) + 1
        return max(self.start, self.floor, self.cursor, spoken_of, self.jobs.end, *self.done.values())

    def noted(self, ordinal: int) -> None:
        """Something happened to this message: what `notes` or `buried` has of it counts."""
        if self.far.take(ordinal):
            self.near[ordinal] = None

    def pulled(self, ordinal: int) -> None:
        """An operator has taken this message out of the sequence ahead of the cursor."""
        self.near[ordinal] = None
        self._pass_over(ordinal, ordinal + 1)

    def finish(self, first: int, count: int) -> None:
        """It is done with these, which it was not before."""
        end = first + count
        if self.jobs.count:
            self.jobs.discard(first, end)
        self.far.remove(first, end)
        if self.notes or self.buried:  # what is in `near` is in one of them, too
            for ordinal in range(first, end):
                self.notes.pop(ordinal, None)
                self.buried.pop(ordinal, None)
                self.near.pop(ordinal, None)
        self._pass_over(first, end)

    def _pass_over(self, first: int, end: int) -> None:
        if first != self.floor:
            self.done[first] = max(
                end, self.done.get(first, 0)
            )  # what was pulled and then finished is passed over twice
            return
        while end in self.done:
            end = self.done.pop(end)
        self.floor = end

    def owed(self, end: int) -> Iterator[tuple[int, int]]:
        """Every (first, end) before `end` that it is not done with, but for what is or was far."""
        position = self.floor
        for first in sorted(self.done):
            if first >= end:
                break
            if position < first:
                yield position, first
            position = max(position, self.done[first])
        if position < end:
            yield position, end


@dataclass(slots=True)
class KnownTopic:
    """What is known of a topic."""

    name: str
    number: int
    paused: bool = False
    end: int = 0
    distributed: int = 0
    channels: dict[int, KnownChannel] = field(default_factory=dict)  # by number
    delayed: dict[int, int] = field(default_factory=dict)  # ordinal -> due, of what was published with a delay
    config: TopicConfig = field(default_factory=TopicConfig)
    cursors: dict[str, Cursor] = field(default_factory=dict)
    keys: dict[str, int] = field(
        default_factory=dict
    )  # as in nsqd/core/sequence/seen.py, in the log's time: published since STATE_TOPIC
    producers: dict[str, int] = field(default_factory=dict)
    keys_before: dict[str, int] = field(default_factory=dict)  # of what was published before
    producers_before: dict[str, int] = field(default_factory=dict)
    terms: dict[int, Terms] = field(default_factory=dict)  # of messages that will be jobs, due in the log's time
    rows: dict[int, bytes] = field(default_factory=dict)  # of messages that were put, and not handed out yet

    @property
    def tube(self) -> KnownChannel | None:
        """Its tube."""
        for channel in self.channels.values():
            if channel.name == WORK:
                return channel
        return None

    @property
    def has_tube_only(self) -> bool:
        """What it hands out is for its tube alone, where each job has its own time."""
        return bool(self.channels) and all(channel.is_tube for channel in self.channels.values())

    def seen(self, attributes: Attributes, count: int, stamp: int) -> None:
        """That was published."""
        if attributes.key:
            self.keys.pop(attributes.key, None)
            self.keys[attributes.key] = stamp
        elif attributes.producer:
            self.producers.pop(attributes.producer, None)
            self.producers[attributes.producer] = attributes.sequence + count - 1
