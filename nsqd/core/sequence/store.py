"""What the core asks of storage. The commit log implements it; nsqd/storage/memory.py serves what is ephemeral, and tests.

The core states it and never looks behind it. Topics and readers are named by numbers never used again, so what is deleted and
created anew under its old name starts clean.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from nsqd.core.sequence.journal import TopicJournal
from nsqd.core.sequence.mark import Promise
from shared.histogram import Histogram


@dataclass(frozen=True, slots=True)
class LogFigures:
    """One look at the log."""

    size: int  # bytes of its segments
    segments: int
    live: int  # bytes of messages that are owed or retained, at the last look
    checkpoints: int  # since the start
    unsynced: int  # bytes that were written and are not durable
    memory: int  # bytes of messages in memory
    damage: int  # bytes found wrong at the start, and messages found damaged since
    torn: int  # bytes cut off at the log's end by the start; they may have been acknowledged
    retries: int  # reads that failed and were tried again: the disk fails, or descriptors are missing
    replay: float  # s that the start took
    syncs: Histogram  # ns


class Store(Protocol):
    """The turn of storage: what the broker asks of it. What becomes of a topic is recorded in its journal."""

    @property
    def refusal(self) -> str:
        """Why nothing more can be published, e.g. for want of space; "" if it can."""

    def begin(self, now: int, wall: int) -> None:
        """A turn begins at `now` (monotonic ns) and `wall` (ns since the epoch)."""

    def commit(self) -> Sequence[Promise]:
        """Write the turn's records as one group. Returns what it promises and is not so yet, one promise for each mark that
        somebody waits for; mostly there is none."""

    def topic(self, number: int, name: str) -> TopicJournal:
        """The journal of a topic with that number, never used before or known from the log. What is ephemeral is not logged."""
