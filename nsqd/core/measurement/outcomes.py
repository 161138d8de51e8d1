"""What became of a channel's messages, by who published them: counted, and if wanted event by event, for the statistics topic.

A topic that is measured remembers the latest changes in its sequence from one producer to another (Producers): what was
published before the oldest of them, or before the process started, counts as nobody's.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from zlib import crc32

from nsqd.core.message.frame import ID_SIZE
from shared.histogram import Histogram

MOST_CHANGES = 10_000  # of producers, of a topic
MOST_EVENTS = 100_000  # that wait to be fetched
FINISHED, REQUEUED, TIMED_OUT, BURIED = "finished", "requeued", "timed_out", "buried"


class Producers:
    """Who published which messages of a topic."""

    __slots__ = ("_firsts", "_names")

    def __init__(self) -> None:
        self._firsts: list[int] = []  # ordinals, ascending
        self._names: list[str] = []  # of whom the messages are from there to the next of _firsts

    def note(self, first: int, name: str) -> None:
        """Messages from `first` on are the producer's; "": nobody's."""
        if name == (self._names[-1] if self._names else ""):
            return
        self._firsts.append(first)
        self._names.append(name)
        if len(self._firsts) > MOST_CHANGES:
            del self._firsts[: MOST_CHANGES // 2], self._names[: MOST_CHANGES // 2]

    def __repr__(self) -> str:
        return f"<Producers: {len(self._firsts)} changes>"

    def parts(self, first: int, count: int) -> Iterator[tuple[int, int, str]]:
        """Messages first.. in stretches: the first, how many, whose."""
        end = first + count
        place = bisect_right(self._firsts, first)
        while first < end:
            name = self._names[place - 1] if place else ""
            stop = min(end, self._firsts[place]) if place < len(self._firsts) else end
            yield first, stop - first, name
            first, place = stop, bisect_right(self._firsts, stop, place)


class Event(NamedTuple):
    """Something that became of a message."""

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
    """Those of all channels that nobody has fetched yet."""

    share: float = 0.0  # of messages whose events are told; 1: all
    waiting: list[Event] = field(default_factory=list)
    dropped: int = 0  # beyond MOST_EVENTS, ever

    def wants(self, message_id: bytes) -> bool:
        """It is one of the share: all events of a message are told, on every node, or none."""
        return crc32(message_id) < self.share * (1 << 32)

    def add(self, event: Event) -> None:
        """Keep it, if there is room."""
        if len(self.waiting) < MOST_EVENTS:
            self.waiting.append(event)
        else:
            self.dropped += 1

    def fetch(self) -> list[Event]:
        """What came since the last call."""
        waiting, self.waiting = self.waiting, []
        return waiting


@dataclass(slots=True)
class Outcome:
    """Of a producer's messages, since it was taken last."""

    finished: int = 0
    requeued: int = 0
    timed_out: int = 0
    buried: int = 0
    attempts: int = 0  # deliveries of those that were finished
    latencies: Histogram = field(default_factory=Histogram)  # ns from publish to FIN


class Outcomes:
    """Of a channel."""

    __slots__ = ("_by", "_channel", "_events", "_producers", "_topic")

    def __init__(self, topic: str, channel: str, producers: Producers, events: Events) -> None:
        self._topic = topic
        self._channel = channel
        self._producers = producers
        self._events = events
        self._by: dict[str, Outcome] = {}  # by producer

    def finished(self, first: int, ids: bytes, attempts: int, latencies: Sequence[int], wall: int) -> None:
        """Messages first.., with these ids, were finished after so many deliveries each. `latencies`: ns, of each; or none."""
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
                self._tell(FINISHED, first + index, message_id, attempts, latency, wall)

    def returned(self, what: str, first: int, message_id: bytes, attempts: int, wall: int) -> None:
        """A message was requeued, timed out, or buried."""
        outcome = self._of(self._producer(first))
        setattr(outcome, what, getattr(outcome, what) + 1)
        if self._events.share:
            self._tell(what, first, message_id, attempts, -1, wall)

    def take(self) -> dict[str, Outcome]:
        """What was recorded since the last call, by producer."""
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

    def _tell(self, what: str, ordinal: int, message_id: bytes, attempts: int, latency: int, wall: int) -> None:
        if self._events.wants(message_id):
            producer = self._producer(ordinal)
            self._events.add(Event(wall, what, self._topic, self._channel, message_id, producer, attempts, latency))
