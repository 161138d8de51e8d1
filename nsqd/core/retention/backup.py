"""The protocol of backups: copies of a running node, which storage makes and HTTP sends."""

from collections.abc import Sequence
from typing import Protocol

METADATA = "nsqd.dat"  # file next to the log in a data directory: topics and channels, as NSQ has it, and ids


class Busy(Exception):
    """Another backup is in progress, so no second one can begin."""


class BackupPart(Protocol):
    """The part of one file that is to be copied."""

    @property
    def name(self) -> str:
        """Return the file's name within the log's directory."""

    @property
    def size(self) -> int:
        """Return the number of bytes that are to be copied."""

    def read(self, at: int, size: int) -> bytes:
        """Return exactly `size` bytes from `at` on. Raises OSError. Any thread may call it."""


class Backup(Protocol):
    """The maker of backups. Its methods are for the trio thread."""

    def begin(self) -> tuple[int, Sequence[BackupPart]]:
        """Begin a backup. Returns its number and the parts to copy, which stay as long as `keep_alive` is called, until `end`.

        Raises Busy, OSError.
        """

    def keep_alive(self, number: int) -> None:
        """Keep the backup alive. Call this every few seconds, so that an abandoned backup does not hold files indefinitely."""

    def end(self, number: int) -> None:
        """End the backup, which is complete or no longer needed."""
