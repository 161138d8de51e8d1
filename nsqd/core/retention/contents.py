"""What the commit log holds, by file and by topic: the shapes that storage gives and HTTP tells."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class FileContent:
    """Of a file."""

    number: int  # those that were there at the start from 1 on, then each that is begun
    name: str
    size: int  # bytes
    live: int  # of them, about, of messages that are owed or retained
    first: int  # when the first of those was published, about, ns since the epoch; 0: there is none, or nobody knows


@dataclass(frozen=True, slots=True)
class TopicContent:
    """Of a topic."""

    topic: int  # its number
    live: int  # bytes, about, of messages that are owed or retained
    owed: int  # messages that somebody is not done with, or that no channel was given yet
    retained: int  # messages that can be read back, owed or not


class Count(Protocol):
    """Counting, some at a time. What goes on meanwhile may be in it, or not. In the trio thread."""

    def go_on(self, most: int) -> bool:
        """Look at about so many extents. True if there are more."""

    def topics(self) -> list[TopicContent]:
        """Those of which something was found."""

    def files(self, most: int) -> list[FileContent]:
        """The newest of them."""


class Contents(Protocol):
    """The log, as somebody sees it who wonders what takes its space."""

    def count(self, topics: list[int]) -> Count:
        """Begin to count what these have. In the trio thread."""

    def room(self) -> tuple[int, int]:
        """Bytes free on its disk, for whom it is, and in all. Raises OSError. In any thread."""
