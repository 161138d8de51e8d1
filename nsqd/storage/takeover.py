"""Taking over another daemon's directory: once, at the first start there, all of it or nothing.

A marker file tells how far it is. Should the process die while it reads, the next start throws the log away and begins anew;
the originals are as they were. Once everything is in the log, and synced, they are moved aside; should it die then, the next
start goes on with that.
"""

from abc import ABC, abstractmethod
from pathlib import Path

from shared.files import replace_file, sync_directory
from shared.log import log

READING, MOVING = b"reading\n", b"moving\n"


class TakeOverError(Exception):
    """It cannot go on; one line says why."""


class TakeOver(ABC):
    """See above. `prepare` before the log is opened; `finish` when all is in it."""

    def __init__(self, path: Path, marker: str, aside: str, whose: str, what: str) -> None:
        """`marker`, `aside`: names in `path`; `whose` and `what`: the daemon, and its files, in the log's lines."""
        self._path = path
        self._marker = path / marker
        self._aside = path / aside
        self._whose, self._what = whose, what
        self.left: list[str] = []  # names of such files beside a log: who went back must not lose what came there

    def prepare(self) -> bool:
        """True if there is something to take over. Raises TakeOverError, and what `_find` raises; then nothing has changed."""
        marker = self._marker.read_bytes() if self._marker.exists() else b""
        if marker == MOVING:
            self._finish_moving()
            return False
        logs = list((self._path / "log").glob("*.log")) if (self._path / "log").is_dir() else []
        if logs and marker != READING:
            self.left = self._names()
            if self.left:
                log.warning(
                    "IMPORT: there is a log in %s already: %d files of %s are not taken over, e.g. %s",
                    self._path, len(self.left), self._what, self.left[0],
                )  # fmt: skip
            return False
        if not self._find():
            if marker == READING:
                raise TakeOverError(
                    f"it was interrupted, and {self._whose}'s files are gone: put them back, or remove {self._marker.name} and"
                    " log to begin with nothing"
                )
            return False
        replace_file(self._marker, READING)
        for file in logs:
            file.unlink()
        return True

    def finish(self) -> None:
        """All of it is in the log, and synced. Raises OSError."""
        replace_file(self._marker, MOVING)
        self._finish_moving()
        log.info("IMPORT: done; the files of %s are in %s", self._whose, self._aside)

    def _finish_moving(self) -> None:
        self._aside.mkdir(mode=0o700, exist_ok=True)
        self._move(self._aside)
        sync_directory(self._aside)
        self._marker.unlink()
        sync_directory(self._path)

    @abstractmethod
    def _names(self) -> list[str]:
        """Of the files that there are."""

    @abstractmethod
    def _find(self) -> bool:
        """Look at them: whether there is something. Changes nothing."""

    @abstractmethod
    def _move(self, aside: Path) -> None:
        """Those that are still here go there."""
