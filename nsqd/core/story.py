"""The story of a message: the last events that touched it, in words, for bug reports and failing simulations.

A ToldStore stands between the core and its store, and notes everything that the core records, including what is ephemeral. A
node that runs without a story pays nothing.
"""

from collections import deque
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple, cast

from nsqd.core.message.frame import HEADER_SIZE, ID_SIZE
from nsqd.core.reader import ReaderKind
from nsqd.core.sequence.journal import ReaderJournal, TopicJournal
from nsqd.core.sequence.store import Store
from shared.values import SECOND

MOST_EVENTS = 100_000  # of all messages
MOST_IDS = 200_000  # of the published messages among them, 16 bytes each
MOST_LINES = 1000  # of one message


class StoryEvent(NamedTuple):
    """One event, which concerns messages first..end of a topic."""

    wall: int  # ns since the epoch
    topic: int  # the topic's number
    where: str  # the topic, and the reader if it concerns one
    what: str  # what happened, in words
    first: int
    end: int
    ids: bytes = b""  # of the messages, 16 bytes each, if they were just published
    bodies: tuple[bytes, ...] = ()  # of the same messages, if the story keeps bodies


class Story:
    """The latest events of messages that were published while the story was kept."""

    def __init__(self, *, keeps_bodies: bool = False) -> None:
        """Begin without events. `keeps_bodies`: keep bodies in memory, so that messages can be found by them."""
        self.wall = 0  # ns since the epoch, of the current turn
        self.keeps_bodies = keeps_bodies
        self._events: deque[StoryEvent] = deque()
        self._ids = 0  # how many ids all events have together

    def note_event(self, topic: int, where: str, what: str, first: int, end: int) -> None:
        """Note an event of messages first..end."""
        self._add(StoryEvent(self.wall, topic, where, what, first, end))

    def published(self, topic: int, where: str, what: str, first: int, frames: list[bytes], ids: bytes) -> None:
        """Note the publish of messages from `first` on."""
        bodies = tuple(frame[HEADER_SIZE:] for frame in frames) if self.keeps_bodies else ()
        self._add(StoryEvent(self.wall, topic, where, what, first, first + len(frames), ids, bodies))

    def events(self) -> tuple[StoryEvent, ...]:
        """Return all events that are kept, the oldest first."""
        return tuple(self._events)

    def _add(self, event: StoryEvent) -> None:
        self._events.append(event)
        self._ids += len(event.ids) // ID_SIZE
        while len(self._events) > MOST_EVENTS or self._ids > MOST_IDS:
            self._ids -= len(self._events.popleft().ids) // ID_SIZE

    def __repr__(self) -> str:
        return f"<Story of {len(self._events)} events>"


def story_of(events: Sequence[StoryEvent], message_id: bytes) -> list[str]:
    """Return a line for each of the last MOST_LINES events of the message, the oldest first; [] if it is not known."""
    for event in events:
        at = event.ids.find(message_id)
        while at >= 0 and at % ID_SIZE:
            at = event.ids.find(message_id, at + 1)
        if at >= 0:
            return _lines(events, event.topic, event.first + at // ID_SIZE)
    return []


def story_of_body(events: Sequence[StoryEvent], body: bytes) -> list[str]:
    """Return the lines, as `story_of` does, for the first message with that body in each publish event."""
    places = [(event.topic, event.first + event.bodies.index(body)) for event in events if body in event.bodies]
    return [line for place in places for line in _lines(events, *place)]


def _lines(events: Sequence[StoryEvent], topic: int, ordinal: int) -> list[str]:
    touched = [event for event in events if event.topic == topic and event.first <= ordinal < event.end]
    return [
        f"{event.wall / SECOND:.6f} {event.where}: message {ordinal} {event.what}" for event in touched[-MOST_LINES:]
    ]


class RecordingStore:
    """A Store that notes what it is told, and passes every call on to the store behind it."""

    def __init__(self, store: Store, story: Story) -> None:
        self._store = store
        self._story = story

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def begin(self, now: int, wall: int) -> None:
        self._story.wall = wall
        self._store.begin(now, wall)

    def topic(self, number: int, name: str) -> TopicJournal:
        return cast(TopicJournal, _RecordingTopic(self._store.topic(number, name), self._story, number, name))

    def __repr__(self) -> str:
        return f"<ToldStore: {self._store!r}, {self._story!r}>"


def recording_store(store: Store, story: Story) -> Store:
    """Return a store that notes in the story everything that the core records."""
    return cast(Store, RecordingStore(store, story))


class _RecordingTopic:
    """A TopicJournal that notes the messages' events, and passes every call on to the journal behind it."""

    def __init__(self, journal: TopicJournal, story: Story, number: int, name: str) -> None:
        self._journal = journal
        self._story = story
        self._number = number
        self._where = f"topic {name}"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

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
        whose = f"only readers {list(owners)} get it" if owners is not None else f"{references} readers get it"
        what = f"is published{f', due at {due} ns' if due else ''}; {whose}"
        self._story.published(self._number, self._where, what, first, frames, ids)
        self._journal.publish(first, frames, ids, largest, due, attributes, references, owners)

    def distribute(self, first: int, end: int, references: int) -> None:
        self._story.note_event(
            self._number, self._where, f"is passed by the edge: {references} readers get it", first, end
        )
        self._journal.distribute(first, end, references)

    def hole(self, first: int, end: int) -> None:
        self._story.note_event(self._number, self._where, "is dropped: the topic is emptied", first, end)
        self._journal.hole(first, end)

    def add_references(self, first: int, end: int) -> list[tuple[int, int, bool]]:
        self._story.note_event(self._number, self._where, "is owed to a new channel, too", first, end)
        return self._journal.add_references(first, end)

    def reader(self, number: int, name: str, kind: int, start: int) -> ReaderJournal:
        journal = self._journal.reader(number, name, kind, start)
        where = f"{self._where}, {ReaderKind(kind).name.lower().replace('_', ' ')} {name}"
        return cast(ReaderJournal, _RecordingReader(journal, self._story, self._number, where, start))

    def drop(self) -> None:
        self._story.note_event(self._number, self._where, "goes with the topic", 0, 1 << 63)
        self._journal.drop()

    def __repr__(self) -> str:
        return f"<recording {self._journal!r}>"


class _RecordingReader:
    """A ReaderJournal that does the same for one reader."""

    def __init__(self, journal: ReaderJournal, story: Story, topic: int, where: str, start: int) -> None:
        self._journal = journal
        self._story = story
        self._topic = topic
        self._where = where
        self._cursor = start

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    def _note(self, what: str, first: int, end: int) -> None:
        self._story.note_event(self._topic, self._where, what, first, end)

    def advance(self, cursor: int) -> None:
        self._note("is delivered for the first time, or passed over", self._cursor, cursor)
        self._cursor = cursor
        self._journal.advance(cursor)

    def finish(self, first: int, count: int) -> None:
        self._note("is finished", first, first + count)
        self._journal.finish(first, count)

    def finish_all(self, end: int) -> None:
        self._note("is finished: everything is dropped", 0, end)
        self._journal.finish_all(end)

    def requeue(self, ordinal: int, attempts: int, failures: int, due: int) -> None:
        when = f"ready at {due} ns" if due else "ready, or delivered again"
        self._note(f"comes back with {attempts} deliveries and {failures} failures: {when}", ordinal, ordinal + 1)
        self._journal.requeue(ordinal, attempts, failures, due)

    def bury(self, ordinal: int, message_id: bytes, attempts: int, failures: int, reason: str) -> None:
        self._note(f"is buried after {attempts} deliveries and {failures} failures: {reason}", ordinal, ordinal + 1)
        self._journal.bury(ordinal, message_id, attempts, failures, reason)

    def job(self, ordinal: int, row: bytes) -> None:
        self._note("is a job in another state", ordinal, ordinal + 1)
        self._journal.job(ordinal, row)

    def drop(self) -> None:
        self._note("goes with its reader", 0, 1 << 63)
        self._journal.drop()

    def __repr__(self) -> str:
        return f"<recording {self._journal!r}>"
