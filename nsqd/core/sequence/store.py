"""What the core asks of storage. The commit log implements it; nsqd/storage/memory.py serves what is ephemeral, and tests.

The core states it and never looks behind it. Topics and readers are named by numbers never used again, so what is deleted and
created anew under its old name starts clean.
"""

from dataclasses import dataclass
from typing import Protocol

from nsqd.core.sequence.journal import TopicJournal
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
    def durable(self) -> int:
        """Every record before this position survives a power cut."""

    @property
    def refusal(self) -> str:
        """Why nothing more can be published, e.g. for want of space; "" if it can."""

    @property
    def broken(self) -> bool:
        """True if `durable` will never move again: whoever waits for it waits in vain."""

    @property
    def stuck(self) -> bool:
        """True if the last group could not be written yet: no promise of it holds before `durable` is there."""

    def begin(self, now: int, wall: int) -> None:
        """A turn begins at `now` (monotonic ns) and `wall` (ns since the epoch)."""

    def commit(self) -> int:
        """Write the turn's records as one group. Returns the position at which `durable` must be before its promises hold; 0 if
        nobody waits for a sync."""

    def topic(self, number: int, name: str) -> TopicJournal:
        """The journal of a topic with that number, never used before or known from the log. What is ephemeral is not logged."""
