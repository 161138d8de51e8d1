"""Spans of OpenTelemetry: the publish and the deliveries of sampled messages.

A message or job is sampled if the `traceparent` of its headers says so, or, without one, if it is every nth. Its publish is a
span from the turn in which it came until its reply may leave. Each delivery by a channel, and each reservation of a job, is a
span until the message is finished, comes back or is buried. They are children of the message's context; without one, the
publish begins a trace. Messages from before the start, and those of promoted logs, are sampled by their headers alone.

The store of spanned_store.py makes them.
"""

import re
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from nsqd.core.message.attributes import unpack
from nsqd.core.sequence.mark import Mark, Promise

MOST_ENDED = 10_000  # spans that wait for the export
MOST_HELD = 10_000  # publishes whose replies wait, and deliveries that the channels are not done with
MOST_SAMPLED = 10_000  # messages whose deliveries are spans: the latest of the node
MOST_OF_BATCH = 100  # of the messages that were published together
SERVER, INTERNAL = 2, 1  # kinds of spans, as OTLP numbers them
_TRACEPARENT = re.compile("(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")


class Span(NamedTuple):
    """A span that has ended, or whose end is still 0."""

    name: str
    kind: int
    trace: str  # 32 hex digits
    id: str  # 16 hex digits
    parent: str  # 16 hex digits; "": none
    start: int  # ns since the epoch
    end: int
    attributes: dict[str, str | int]
    error: str = ""  # why the operation failed; "": it did not


class Sampled(NamedTuple):
    """A message whose deliveries are spans."""

    ordinal: int
    id: str
    trace: str
    parent: str  # the id of the span that deliveries are children of
    is_delayed: bool  # True: the cursor of a channel passes it before it is delivered
    owners: Collection[int] | None  # see TopicJournal.publish


def context_in(attributes: bytes) -> tuple[str, str, bool]:
    """Return the trace in the headers of packed attributes, its span, and whether it is sampled; ("", "", False): none."""
    if not attributes:
        return "", "", False
    found = _TRACEPARENT.fullmatch(dict(unpack(attributes, 0).headers).get("traceparent", ""))
    return (found[1], found[2], bool(int(found[3], 16) & 1)) if found is not None else ("", "", False)


class Spans:
    """The spans of a node: open ones, and those that wait for the export."""

    def __init__(self, clock: Callable[[], int], every: int = 0) -> None:
        """Take every `every`th message without a context, 0: none. `clock` returns ns since the epoch."""
        self.exported = 0  # spans that a collector took
        self.lost = 0  # spans that found no room, or that it did not take
        self.held = 0  # see MOST_HELD
        self.wall = 0  # ns since the epoch, of the current turn
        self._clock, self._every = clock, every
        self._skipped = 0  # messages without a context since the last one that was taken
        self._ended: deque[Span] = deque()
        self._published: list[tuple[Span, tuple[Mark, ...]]] = []  # in this turn
        # publishes that wait for promises, by their marks, in the order in which the marks reach them
        self._waiting: dict[tuple[Mark, ...], deque[tuple[Span, list[Promise]]]] = {}
        # for each sampled message, the oldest first, the list that has it
        self._sampled: deque[list[Sampled]] = deque()

    @property
    def has_published(self) -> bool:
        """Return True if a publish in this turn has a span."""
        return bool(self._published)

    def begin_turn(self, wall: int) -> None:
        """Begin a turn at `wall` (ns since the epoch)."""
        self.wall = wall
        if self._waiting:
            self._settle()

    def take(self, most: int) -> list[Span]:
        """Take up to `most` spans that have ended, the oldest first."""
        return [self._ended.popleft() for _ in range(min(most, len(self._ended)))]

    def hold(self) -> bool:
        """Count a publish, or the deliveries of a message by a channel. Returns False if there is no room for their spans."""
        if self.held >= MOST_HELD:
            self.lost += 1
            return False
        self.held += 1
        return True

    def end(self, span: Span) -> None:
        """Have a span that has ended exported."""
        if len(self._ended) >= MOST_ENDED:
            self.lost += 1
        else:
            self._ended.append(span)

    def sample(self, attributes: bytes, count: int) -> tuple[Sequence[int], str, str]:
        """Return the indexes of the messages to take of `count` published together, their trace and the span above them.

        The latter are "" for messages that have no context of their own.
        """
        trace, parent, is_sampled = context_in(attributes)
        if trace:
            return range(min(count, MOST_OF_BATCH) if is_sampled else 0), trace, parent
        if not self._every:
            return (), "", ""
        chosen = range(self._every - 1 - self._skipped, count, self._every)
        self._skipped = (self._skipped + count) % self._every
        return chosen[:MOST_OF_BATCH], "", ""

    def publish(self, span: Span, marks: tuple[Mark, ...]) -> None:
        """Note a publish in this turn, whose reply waits for these marks at most."""
        if self.hold():
            self._published.append((span, marks))

    def keep(self, topic: list[Sampled], message: Sampled) -> None:
        """Add a message to the sampled ones of a topic, in place of the node's oldest one."""
        if len(self._sampled) >= MOST_SAMPLED:
            del self._sampled.popleft()[0]
        topic.append(message)
        self._sampled.append(topic)

    def committed(self, promises: Sequence[Promise]) -> None:
        """End the publishes of the turn, whose group is written, or let them wait for promises."""
        published, self._published = self._published, []
        for span, marks in published:
            self._waiting.setdefault(marks, deque()).append((span, [one for one in promises if one.mark in marks]))
        self._settle()

    def _settle(self) -> None:
        """End the publishes whose promises are kept, or never will be."""
        for marks, waiting in list(self._waiting.items()):
            while waiting and all(one.is_kept or one.is_broken for one in waiting[0][1]):
                span, promises = waiting.popleft()
                broken = [one.mark.name for one in promises if one.is_broken]
                self.held -= 1
                self.end(span._replace(end=self._clock(), error=f"not {broken[0]}" if broken else ""))
            if not waiting:
                del self._waiting[marks]

    def __repr__(self) -> str:
        return f"<Spans: {self.held} held, {len(self._ended)} ended, {self.lost} lost>"
