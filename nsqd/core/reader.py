"""A reader: whatever takes messages out of a topic's sequence. A channel is one, a tube of beanstalkd another.

A topic knows its readers by this protocol alone. A third kind adds its class, its durable state and its kind, and nothing in
the topic, the broker or the log has to know of it.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, Protocol

from nsqd.core.limits import Limits
from nsqd.core.sequence.edge import Edge
from nsqd.core.sequence.journal import Extents, ReaderJournal
from nsqd.core.sequence.puts import Puts, Terms
from nsqd.core.timing.agenda import Agenda
from nsqd.core.timing.deferred import Message


class Kind(IntEnum):
    """Of a reader. A byte in the log: numbers are never used again."""

    CHANNEL = 0
    WORK_QUEUE = 1


@dataclass(frozen=True, slots=True)
class Parts:
    """What every reader is made with: the leaves it works on. It keeps those that it needs."""

    topic: str  # the topic's name
    number: int  # the reader's
    edge: Edge
    extents: Extents
    journal: ReaderJournal
    agenda: Agenda
    limits: Limits
    max_attempts: int  # deliveries before a message is buried; 0: any number


class Batch(NamedTuple):
    """Messages first..end that the edge has just passed."""

    first: int  # ordinal
    end: int
    ordinary: int  # of them, those without a delay
    delayed: int  # of them, those that wait in the topic's delay lane
    # what they were put as, if they are exactly that and were put just now; None: they may be anything
    puts: Puts | None


class Counts(NamedTuple):
    """How many messages of a reader are in which state."""

    ready: int
    in_flight: int  # with a consumer; of jobs: reserved
    deferred: int  # they wait for a time
    buried: int


class Reader(Protocol):
    """See above. It stands in the agenda while it can deliver, and while something in it waits for a time."""

    kind: Kind
    name: str
    number: int  # never used again on this node
    start: int  # messages before it are not for this reader
    delayed: int  # messages in the topic's delay lane that will be released to it
    deleted: bool
    ephemeral: bool
    watched: tuple[int, int] | None  # (due, handle) of its entry in the agenda
    takes_terms: bool  # its messages are jobs: they have terms, and wait for their time in the reader itself

    # what the topic tells

    def extend(self, batch: Batch) -> None:
        """There is more: the edge is behind these messages now."""

    def skip(self, first: int, end: int, ordinary: int) -> None:
        """Messages first..end are not for this reader, or not any more; `ordinary` of them were counted as to come."""

    def expect(self, first: int, count: int, terms: Terms) -> None:
        """Messages `first`.. will come on these terms when the edge passes them. Asked only of a reader that `takes_terms`."""

    def release(self, message: Message) -> None:
        """A message's delay at the topic is over."""

    def own(self, due: int, message: Message, now: int) -> None:
        """What waits in the topic's delay lane waits in this reader alone, until `due` (monotonic ns)."""

    def read_completed(self) -> None:
        """What was asked of the disk can be read now."""

    def delete(self) -> None:
        """All messages are dropped, and whoever is connected goes. Called by the topic."""

    # what the broker tells

    def serve(self, now: int) -> None:
        """Give each consumer that has room its share, once."""

    def scan(self, now: int, limit: int) -> int:
        """Serve up to about `limit` messages that are due; return how many: 0 means that nothing was due."""

    def next_due(self) -> int | None:
        """When `scan` has something to do (monotonic ns)."""

    # what others ask

    def counts(self) -> Counts:
        """How many of its messages are in which state."""

    @property
    def coming(self) -> int:
        """How many messages may have been handed out to it that are not among its counts yet."""

    def check(self) -> None:
        """Raise AssertionError if a sentence about it is false."""
