"""The Store protocol, by which the core uses storage.

The commit log implements it; nsqd/storage/memory.py serves ephemeral topics and tests. The core defines the protocol and never
looks behind it. Topics and readers are identified by numbers that are never used again, so a topic that is deleted and created
again under its old name starts clean.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from nsqd.core.sequence.journal import TopicJournal
from nsqd.core.sequence.mark import Mark, Promise
from shared.histogram import Histogram


@dataclass(frozen=True, slots=True)
class LogFigures:
    """The state of the log at one moment."""

    size: int  # bytes of its segments
    segments: int
    live: int  # bytes of messages that are referenced or retained, when they were last counted
    checkpoints: int  # checkpoints written since the start
    unsynced: int  # bytes that were written and are not durable yet
    memory: int  # bytes of messages in memory
    damage: int  # bytes found wrong at the start, and messages found corrupt since
    torn: int  # bytes cut off at the log's end by the start; they may have been acknowledged
    retries: int  # reads that failed and were repeated: the disk fails, or file descriptors ran out
    replay: float  # s that reading the log took at the start
    syncs: Histogram  # durations of syncs, in ns
    failed_syncs: int  # since the start; after one nothing more becomes durable


class Store(Protocol):
    """Storage as the broker uses it in each turn. The changes of a topic go to the topic's journal."""

    @property
    def refusal(self) -> str:
        """Return the reason for which nothing more can be published, such as a full disk; "": it can."""

    def begin(self, now: int, wall: int) -> str:
        """Begin a turn at `now` (monotonic ns) and `wall` (ns since the epoch). Returns `refusal`."""

    def commit(self) -> Sequence[Promise]:
        """Write the turn's records as one group.

        Returns a promise for each mark for which a reply waits and which has not reached the group's end. Mostly there is none.
        """

    def record(self, kind: int, content: bytes) -> tuple[Mark, ...]:
        """Record a change of no single topic. Returns the marks for which a reply about it waits."""

    def topic(self, number: int, name: str) -> TopicJournal:
        """Return the journal of a topic. The number is new, or known from the log. Ephemeral topics are not logged."""
