"""The contents of the commit log, by file and by topic, as storage returns and HTTP reports them."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class FileContent:
    """The contents of one file of the log."""

    number: int  # the files of the start count from 1, then each new file
    name: str
    size: int  # bytes
    live: int  # how many of them hold messages that are referenced or retained, about
    first: int  # when the first such message was published, about, ns since the epoch; 0: none, or not known


@dataclass(frozen=True, slots=True)
class TopicContent:
    """The contents of one topic in the log."""

    topic: int  # the topic's number
    live: int  # bytes, about, of messages that are referenced or retained
    unfinished: int  # messages that a reader is not done with, or that no channel was given yet
    retained: int  # messages that can be read back, referenced or not


class Count(Protocol):
    """A count that proceeds in batches, in the trio thread. It may or may not include changes made meanwhile."""

    def count_batch(self, most: int) -> bool:
        """Look at about `most` further extents. Returns True if there are more."""

    def topics(self) -> list[TopicContent]:
        """Return the topics that have something in the log."""

    def files(self, most: int) -> list[FileContent]:
        """Return the contents of the newest files, `most` at most, the oldest of them first."""


class Contents(Protocol):
    """The contents of the log, for operators who want to know what takes its space."""

    def count(self, topics: list[int]) -> Count:
        """Begin to count the contents of the topics with these numbers. In the trio thread."""

    def room(self) -> tuple[int, int]:
        """Return the bytes of the log's disk that the daemon can still use, and its size. Raises OSError. In any thread."""
