"""The logs of the daemons that `penstock up` runs: a file for each, or standard error."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LARGEST = (
    16 << 20
)  # bytes of a file that is continued at the next start of a daemon; a larger one is kept as NAME.log.1
MOST_TAIL, TAIL_LINES = 8192, 5  # bytes and lines of the end of a log


class DaemonLogs:
    """The files in a directory; None: the daemons write to standard error."""

    def __init__(self, directory: Path | None) -> None:
        self.directory = directory

    @contextmanager
    def open(self, name: str) -> Iterator[int | None]:
        """Open the log of a daemon for its process, as a file descriptor; None: it inherits standard error. Raises OSError."""
        if self.directory is None:
            yield None
            return
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._path(name)
        if path.exists() and path.stat().st_size > LARGEST:
            path.replace(path.with_suffix(".log.1"))
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            yield file
        finally:
            os.close(file)

    def describe_end(self, name: str) -> list[str]:
        """Return the last lines of the log of a daemon that has failed; [] if they are on the terminal."""
        if self.directory is None:
            return []
        path = self._path(name)
        try:
            with path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - MOST_TAIL))
                lines = file.read(MOST_TAIL).decode("utf-8", "replace").splitlines()[-TAIL_LINES:]
        except OSError:
            return []
        return [f"penstock up: {path} ends with:\n", *(f"  {line}\n" for line in lines)]

    def _path(self, name: str) -> Path:
        assert self.directory is not None
        return self.directory / f"{name}.log"
