"""The trace of a message: the last events that concern it, as text, for bug reports and failing simulations.

A traced store is between the core and its store, and records every change, of ephemeral topics, too. A node without a trace
pays nothing.
"""

from collections import deque
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple, cast

from nsqd.core.message.frame import ID_SIZE
from nsqd.core.reader import ReaderKind
from nsqd.core.sequence.journal import ReaderJournal, TopicJournal
from nsqd.core.sequence.store import Store
from nsqd.core.sequence.wrapper import Wrapper
from shared.values import SECOND

MOST_EVENTS = 100_000  # of all messages
MOST_IDS = 200_000  # of the published messages among them, 16 bytes each
MOST_LINES = 1000  # of one message
ENDLESS = 1 << 63  # above every ordinal


class TraceEvent(NamedTuple):
    """One event, which concerns messages first..end of a topic."""

    wall: int  # ns since the epoch
    topic: int  # the topic's number
    where: str  # the topic, and the reader if it concerns one
    text: str  # what happened
    first: int
    end: int
    ids: bytes = b""  # of the messages, 16 bytes each, if they were just published


class Trace:
    """The latest events of all messages that were published since it began."""

    def __init__(self) -> None:
        self.wall = 0  # ns since the epoch, of the current turn
        self._events: deque[TraceEvent] = deque()
        self._id_count = 0  # ids in all events together

    def add(self, topic: int, where: str, text: str, first: int, end: int) -> None:
        """Add an event of messages first..end."""
        self._add(TraceEvent(self.wall, topic, where, text, first, end))

    def add_publish(self, topic: int, where: str, text: str, first: int, frames: list[bytes], ids: bytes) -> None:
        """Add the publish of messages from `first` on."""
        self._add(TraceEvent(self.wall, topic, where, text, first, first + len(frames), ids))

    def events(self) -> tuple[TraceEvent, ...]:
        """Return all events that are kept, the oldest first."""
        return tuple(self._events)

    def _add(self, event: TraceEvent) -> None:
        self._events.append(event)
        self._id_count += len(event.ids) // ID_SIZE
        while len(self._events) > MOST_EVENTS or self._id_count > MOST_IDS:
            self._id_count -= len(self._events.popleft().ids) // ID_SIZE

    def __repr__(self) -> str:
        return f"<Trace of {len(self._events)} events>"


def trace_of(events: Sequence[TraceEvent], message_id: bytes) -> list[str]:
    """Return a line for each of the last MOST_LINES events of the message, the oldest first; [] if it is not known."""
    for event in events:
        at = event.ids.find(message_id)
        while at >= 0 and at % ID_SIZE:
            at = event.ids.find(message_id, at + 1)
        if at >= 0:
            return _lines(events, event.topic, event.first + at // ID_SIZE)
    return []


def _lines(events: Sequence[TraceEvent], topic: int, ordinal: int) -> list[str]:
    own = [event for event in events if event.topic == topic and event.first <= ordinal < event.end][-MOST_LINES:]
    return [f"{event.wall / SECOND:.6f} {event.where}: message {ordinal} {event.text}" for event in own]


def traced_store(store: Store, trace: Trace) -> Store:
    """Return a store that passes every call on to `store`, and adds what the core records to the trace."""
    return cast(Store, _TracedStore(store, trace))


class _TracedStore(Wrapper):
    def __init__(self, store: Store, trace: Trace) -> None:
        super().__init__(store)
        self._trace = trace

    def begin(self, now: int, wall: int) -> str:
        self._trace.wall = wall
        refusal: str = self._inner.begin(now, wall)
        return refusal

    def topic(self, number: int, name: str) -> TopicJournal:
        return cast(TopicJournal, _TracedTopic(self._inner.topic(number, name), self._trace, number, f"topic {name}"))


class _TracedJournal(Wrapper):
    """The journal of a topic or a reader, with the trace that its calls are added to."""

    def __init__(self, journal: Any, trace: Trace, topic: int, where: str) -> None:
        super().__init__(journal)
        self._trace = trace
        self._topic = topic
        self._where = where

    def _add(self, text: str, first: int, end: int) -> None:
        self._trace.add(self._topic, self._where, text, first, end)


class _TracedTopic(_TracedJournal):
    """A TopicJournal that adds to the trace of a message each verb that is about it."""

    def publish(
        self,
        first: int,
        frames: list[bytes],
        ids: bytes,
        largest: int,
        due: int,
        attributes: bytes,
        references: int,
        owners: Collection[int] | None = None,
    ) -> None:
        readers = f"only readers {list(owners)} get it" if owners is not None else f"{references} readers get it"
        text = f"is published{f', due at {due} ns' if due else ''}; {readers}"
        self._trace.add_publish(self._topic, self._where, text, first, frames, ids)
        self._inner.publish(first, frames, ids, largest, due, attributes, references, owners)

    def distribute(self, first: int, end: int, references: int) -> None:
        self._add(f"is distributed: {references} readers get it", first, end)
        self._inner.distribute(first, end, references)

    def hole(self, first: int, end: int) -> None:
        self._add("is dropped: the topic is emptied", first, end)
        self._inner.hole(first, end)

    def add_references(self, first: int, end: int) -> list[tuple[int, int, bool]]:
        self._add("belongs to a new channel, too", first, end)
        parts: list[tuple[int, int, bool]] = self._inner.add_references(first, end)
        return parts

    def reader(self, number: int, name: str, kind: int, start: int) -> ReaderJournal:
        journal = self._inner.reader(number, name, kind, start)
        where = f"{self._where}, {ReaderKind(kind).name.lower().replace('_', ' ')} {name}"
        return cast(ReaderJournal, _TracedReader(journal, self._trace, self._topic, where, start))

    def drop(self) -> None:
        self._add("is deleted with the topic", 0, ENDLESS)
        self._inner.drop()


class _TracedReader(_TracedJournal):
    """A ReaderJournal that does the same for one reader of the topic."""

    def __init__(self, journal: ReaderJournal, trace: Trace, topic: int, where: str, start: int) -> None:
        super().__init__(journal, trace, topic, where)
        self._cursor = start

    def advance(self, cursor: int) -> None:
        self._add("is delivered for the first time, or passed over", self._cursor, cursor)
        self._cursor = cursor
        self._inner.advance(cursor)

    def finish(self, first: int, count: int) -> None:
        self._add("is finished", first, first + count)
        self._inner.finish(first, count)

    def finish_each(self, ordinals: list[int]) -> None:
        for ordinal in ordinals:
            self._add("is finished", ordinal, ordinal + 1)
        self._inner.finish_each(ordinals)

    def finish_all(self, end: int) -> None:
        self._add("is finished: everything is dropped", 0, end)
        self._inner.finish_all(end)

    def requeue(self, ordinals: Collection[int], attempts: int, failures: int, due: int) -> None:
        when = f"ready at {due} ns" if due else "ready, or delivered again"
        for ordinal in ordinals:
            self._add(f"comes back with {attempts} deliveries and {failures} failures: {when}", ordinal, ordinal + 1)
        self._inner.requeue(ordinals, attempts, failures, due)

    def bury(self, ordinal: int, message_id: bytes, attempts: int, failures: int, reason: str) -> None:
        self._add(f"is buried after {attempts} deliveries and {failures} failures: {reason}", ordinal, ordinal + 1)
        self._inner.bury(ordinal, message_id, attempts, failures, reason)

    def job(self, ordinal: int, row: bytes) -> None:
        self._add("is a job in another state", ordinal, ordinal + 1)
        self._inner.job(ordinal, row)

    def drop(self) -> None:
        self._add("is deleted with its reader", 0, ENDLESS)
        self._inner.drop()
