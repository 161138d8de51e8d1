"""Take over another daemon's directory: once, at the first start there, completely or not at all.

A marker file records the progress. If the process ends while it reads, the next start discards the log and begins again; the
original files are unchanged. Once everything is in the log, and synced, the originals are moved to a directory of their own; if
the process ends during that, the next start completes it.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path

from shared.files import replace_file, sync_directory
from shared.log import log

READING, MOVING = b"reading\n", b"moving\n"


class DataImportError(Exception):
    """The import cannot continue. The one-line text says why."""


class DataImport(ABC):
    """One import. Call `prepare` before the log is opened, and `finish` when everything is in it."""

    def __init__(self, path: Path, marker: str, archive: str, daemon: str, kind: str) -> None:
        """Name the `marker` and the directory `archive` in `path`. `daemon`, `kind`: the daemon and its files in log lines."""
        self._path, self._marker, self._archive = path, path / marker, path / archive
        self._daemon, self._kind = daemon, kind
        # Names of the daemon's files in a directory that has a log already. If the operator went back to that daemon, its new
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
            self.leftovers = [file.name for file in self._files()]
            if self.leftovers:
                log.warning(
                    "IMPORT: %s already has a log: %d files of %s are not imported, for example %s",
                    self._path, len(self.leftovers), self._kind, self.leftovers[0],
                )  # fmt: skip
            return False
        if not self._find():
            if marker == READING:
                raise DataImportError(
                    f"it was interrupted, and {self._daemon}'s files are gone: put them back, or remove {self._marker.name} and"
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
        log.info("IMPORT: done; the files of %s were moved to %s", self._daemon, self._archive)

    def _finish_moving(self) -> None:
        self._archive.mkdir(mode=0o700, exist_ok=True)
        self._archive_files(self._archive)
        sync_directory(self._archive)
        self._marker.unlink()
        sync_directory(self._path)

    def _archive_files(self, archive: Path) -> None:
        """Move the daemon's files that are still in the directory to `archive`."""
        for path in self._files():
            os.replace(path, archive / path.name)

    @abstractmethod
    def _files(self) -> list[Path]:
        """Return the daemon's files that exist now, in order."""

    @abstractmethod
    def _find(self) -> bool:
        """Read the files, and return True if there is something to take over. Change nothing. Raises OSError."""


def report_unreadable(ranges: Iterable[tuple[Path, int, int]], kind: str) -> None:
    """Log the ranges (file, from, size of the file) that were skipped, because they are not `kind`."""
    line = "IMPORT: %s: skipped %d bytes from %d on, which are not %s; everything else was imported"
    for path, start, size in ranges:
        log.error(line, path.name, size - start, start, kind)
