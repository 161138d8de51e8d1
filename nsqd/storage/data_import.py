"""Take over another daemon's directory: once, at the first start there, completely or not at all.

A marker file records the progress. If the process dies while it reads, the next start discards the log and begins again; the
original files are unchanged. Once everything is in the log, and synced, the originals are moved aside; if the process dies
during that, the next start completes it.
"""

from abc import ABC, abstractmethod
from pathlib import Path

from shared.files import replace_file, sync_directory
from shared.log import log

READING, MOVING = b"reading\n", b"moving\n"


class DataImportError(Exception):
    """The import cannot continue. The one-line text says why."""


class DataImport(ABC):
    """One import. Call `prepare` before the log is opened, and `finish` when everything is in it."""

    def __init__(self, path: Path, marker: str, aside: str, whose: str, what: str) -> None:
        """Name the parts of the import.

        `marker`, `aside`: names in `path`; `whose` and `what`: the daemon and its files, as the lines in the log call them.
        """
        self._path = path
        self._marker = path / marker
        self._aside = path / aside
        self._whose, self._what = whose, what
        # Names of such files that were found beside an existing log. If the operator went back to the other daemon, its new
        # messages must not be lost silently.
        self.leftovers: list[str] = []

    def prepare(self) -> bool:
        """Return True if there is something to take over. Raises DataImportError, and the errors of `_find`.

        After one of these errors nothing has changed on disk.
        """
        marker = self._marker.read_bytes() if self._marker.exists() else b""
        if marker == MOVING:
            self._finish_moving()
            return False
        logs = list((self._path / "log").glob("*.log")) if (self._path / "log").is_dir() else []
        if logs and marker != READING:
            self.leftovers = self._names()
            if self.leftovers:
                log.warning(
                    "IMPORT: %s already has a log: %d files of %s are not imported, for example %s",
                    self._path, len(self.leftovers), self._what, self.leftovers[0],
                )  # fmt: skip
            return False
        if not self._find():
            if marker == READING:
                raise DataImportError(
                    f"it was interrupted, and {self._whose}'s files are gone: put them back, or remove {self._marker.name} and"
                    " log to begin with nothing"
                )
            return False
        replace_file(self._marker, READING)
        for file in logs:
            file.unlink()
        return True

    def finish(self) -> None:
        """Complete the import when everything is in the log, and synced. Raises OSError."""
        replace_file(self._marker, MOVING)
        self._finish_moving()
        log.info("IMPORT: done; the files of %s were moved to %s", self._whose, self._aside)

    def _finish_moving(self) -> None:
        self._aside.mkdir(mode=0o700, exist_ok=True)
        self._move(self._aside)
        sync_directory(self._aside)
        self._marker.unlink()
        sync_directory(self._path)

    @abstractmethod
    def _names(self) -> list[str]:
        """Return the names of the daemon's files that exist now."""

    @abstractmethod
    def _find(self) -> bool:
        """Look at the files, and return True if there is something to take over. Change nothing. Raises OSError."""

    @abstractmethod
    def _move(self, aside: Path) -> None:
        """Move the daemon's files that are still in the directory to `aside`."""
