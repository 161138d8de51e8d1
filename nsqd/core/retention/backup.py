"""A copy of a running node, as storage makes it and HTTP sends it."""

from collections.abc import Sequence
from typing import Protocol


class Busy(Exception):
    """Another copy is being made."""


class Part(Protocol):
    """A file, as far as it is to be copied."""

    @property
    def name(self) -> str:
        """Within the log's directory."""

    @property
    def size(self) -> int:
        """Bytes to be copied."""

    def read(self, at: int, size: int) -> bytes:
        """Exactly so much of it. Raises OSError. (any thread)"""


class Backup(Protocol):
    """Its methods are for the trio thread."""

    def begin(self) -> tuple[int, Sequence[Part]]:
        """The copy's number, and what is to be copied: it stays there as long as somebody calls `go_on`, until `end`.

        Raises Busy, OSError.
        """

    def go_on(self, number: int) -> None:
        """It is being copied still. Call it every few seconds: a copy that nobody makes any more holds nothing for ever."""

    def end(self, number: int) -> None:
        """It is copied, or not wanted any more."""
