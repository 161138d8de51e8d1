"""The checker's own history: a line for each event, synced to disk before the checker sends anything else.

SECONDS publish TOPIC FIRST-LAST delay=MS       about to be sent; then one of
SECONDS ok|refused FIRST-LAST                   without either line the outcome is unknown
SECONDS deliver TOPIC/CHANNEL NUMBER id=ID attempts=N
SECONDS fin|req TOPIC/CHANNEL NUMBER ...
SECONDS settled COUNT                           this many FINs and REQs of a connection are known to be handled
SECONDS start|crash|drain ...
"""

from __future__ import annotations

import os
import time
from pathlib import Path


class History:
    """A file of lines that only grows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("ab")
        self._lines: list[str] = []  # lines not written yet
        self._began = time.monotonic_ns()

    def add(self, text: str) -> None:
        """Add a line, which is on disk after the next `sync`."""
        self._lines.append(f"{(time.monotonic_ns() - self._began) / 1e9:.6f} {text}\n")

    def sync(self) -> None:
        """Write all added lines and sync them to disk."""
        if not self._lines:
            return
        self._file.write("".join(self._lines).encode())
        self._file.flush()
        os.fdatasync(self._file.fileno())
        self._lines.clear()

    def close(self) -> None:
        """Write the remaining lines and close the file."""
        self.sync()
        self._file.close()
