"""The outcomes of a channel's messages by producer: counts and, if configured, single events, for the statistics topic.

A topic that is measured remembers where in its sequence the latest changes from one producer to another are (Producers).
Messages published before the oldest of these changes, or before the process started, count as messages without a producer.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from zlib import crc32

from nsqd.core.message.frame import ID_SIZE
from shared.histogram import Histogram

MOST_CHANGES = 10_000  # changes of producer that are remembered for a topic
MOST_EVENTS = 100_000  # events that wait to be fetched
FINISHED, REQUEUED, TIMED_OUT, BURIED = "finished", "requeued", "timed_out", "buried"


class Producers:
    """The producer of each message of a topic, as stretches of its sequence."""

    __slots__ = ("_firsts", "_names")

    def __init__(self) -> None:
        self._firsts: list[int] = []  # ordinals, ascending
        self._names: list[str] = []  # the producer of the messages from there to the next of _firsts

    def note_producer(self, first: int, name: str) -> None:
        """Note that messages from `first` on come from the producer of this name; "": from no known one."""
        if name == (self._names[-1] if self._names else ""):
            return
        self._firsts.append(first)
        self._names.append(name)
        if len(self._firsts) > MOST_CHANGES:
            del self._firsts[: MOST_CHANGES // 2], self._names[: MOST_CHANGES // 2]

    def __repr__(self) -> str:
        return f"<Producers: {len(self._firsts)} changes>"

    def parts(self, first: int, count: int) -> Iterator[tuple[int, int, str]]:
        """Yield messages first..first+count in stretches of one producer: (first ordinal, count, name)."""
        end = first + count
        place = bisect_right(self._firsts, first)
        while first < end:
            name = self._names[place - 1] if place else ""
            stop = min(end, self._firsts[place]) if place < len(self._firsts) else end
            yield first, stop - first, name
            first, place = stop, bisect_right(self._firsts, stop, place)


class OutcomeEvent(NamedTuple):
    """One outcome of one message in a channel."""

    at: int  # ns since the epoch
    what: str
    topic: str
    channel: str
    message_id: bytes
    producer: str
    attempts: int
    latency: int  # ns from publish; -1: not measured


@dataclass(slots=True)
class Events:
    """The events of all channels that have not been fetched yet."""

    share: float = 0.0  # share of messages whose events are kept; 1: all
    waiting: list[OutcomeEvent] = field(default_factory=list)
    dropped: int = 0  # events dropped because MOST_EVENTS waited, since the start

    def wants(self, message_id: bytes) -> bool:
        """Return True if the message is in the share. All nodes decide alike: they keep all events of a message, or none."""
        return crc32(message_id) < self.share * (1 << 32)

    def add(self, event: OutcomeEvent) -> None:
        """Keep the event if there is room, else count it as dropped."""
        if len(self.waiting) < MOST_EVENTS:
            self.waiting.append(event)
        else:
            self.dropped += 1

    def fetch(self) -> list[OutcomeEvent]:
        """Return the events since the last call, and forget them."""
        waiting, self.waiting = self.waiting, []
        return waiting


@dataclass(slots=True)
class Outcome:
    """The counts of one producer's messages since the last Outcomes.fetch_counts."""

    finished: int = 0
    requeued: int = 0
    timed_out: int = 0
    buried: int = 0
    attempts: int = 0  # deliveries of the finished messages
    latencies: Histogram = field(default_factory=Histogram)  # ns from publish to FIN

    def add(self, other: Outcome) -> None:
        """Add the counts of another log's messages of the same producer."""
        self.finished += other.finished
        self.requeued += other.requeued
        self.timed_out += other.timed_out
        self.buried += other.buried
        self.attempts += other.attempts
        self.latencies.merge(other.latencies)


class Outcomes:
    """The outcomes of one channel's messages, by producer."""

    __slots__ = ("_by", "_channel", "_events", "_producers", "_topic")

    def __init__(self, topic: str, channel: str, producers: Producers, events: Events) -> None:
        self._topic = topic
        self._channel = channel
        self._producers = producers
        self._events = events
        self._by: dict[str, Outcome] = {}  # by producer

    def finished(self, first: int, ids: bytes, attempts: int, latencies: Sequence[int], wall: int) -> None:
        """Record that messages with these ids, from ordinal `first` on, were finished after `attempts` deliveries each.

        `ids`: 16 bytes each, end to end; `latencies`: ns of each message, or empty; `wall`: ns since the epoch.
        """
        for start, count, name in self._producers.parts(first, len(ids) // ID_SIZE):
            outcome = self._of(name)
            outcome.finished += count
            outcome.attempts += count * attempts
            part = latencies[start - first : start - first + count]
            if len(part) == 1:
                outcome.latencies.record(part[0])
            else:
                outcome.latencies.record_many(part)
        if self._events.share:
            for index in range(len(ids) // ID_SIZE):
                latency = latencies[index] if latencies else -1
                message_id = ids[index * ID_SIZE : (index + 1) * ID_SIZE]
                self._add_event(FINISHED, first + index, message_id, attempts, latency, wall)

    def returned(self, what: str, first: int, message_id: bytes, attempts: int, wall: int) -> None:
        """Record that a message was requeued, timed out or buried. `what`: the name of the count in Outcome."""
        outcome = self._of(self._producer(first))
        setattr(outcome, what, getattr(outcome, what) + 1)
        if self._events.share:
            self._add_event(what, first, message_id, attempts, -1, wall)

    def fetch_counts(self) -> dict[str, Outcome]:
        """Return the outcomes recorded since the last call, by producer, and forget them."""
        taken, self._by = self._by, {}
        return taken

    def __repr__(self) -> str:
        return f"<Outcomes of {self._topic}:{self._channel}, {len(self._by)} producers>"

    def _of(self, producer: str) -> Outcome:
        outcome = self._by.get(producer)
        if outcome is None:
            outcome = self._by[producer] = Outcome()
        return outcome

    def _producer(self, ordinal: int) -> str:
        return next(self._producers.parts(ordinal, 1))[2]

    def _add_event(self, what: str, ordinal: int, message_id: bytes, attempts: int, latency: int, wall: int) -> None:
        if self._events.wants(message_id):
            producer = self._producer(ordinal)
            self._events.add(
                OutcomeEvent(wall, what, self._topic, self._channel, message_id, producer, attempts, latency)
            )
