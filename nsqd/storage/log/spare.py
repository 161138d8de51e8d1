"""The next segment's file, made ahead: a block that was written before is synced in less time than a new one.

A block that is new in its file costs an entry in the file system's journal with its sync (0.22 ms against 0.15 for 200 kB on
the machine where this was measured), and space that is only allocated costs the same. So while somebody waits for syncs, a
thread fills a file with zeros, and the next segment takes it over. What stands behind the records is cut off when a segment
ends or, after a crash, when the log is opened.
"""

import threading
from contextlib import suppress

from nsqd.storage.log.disk import Disk, File
from shared.log import log

# a number follows, for no name is used twice: after a power cut the directory may have changed in any order
NAME = "spare."
CHUNK = 4 * 1024 * 1024  # bytes that are filled and synced at a time
ROOM = 8  # times its size must be free on the disk


class Spare:
    """Makes the next segment's file. Its methods are for the reactor's thread, but for `_fill`."""

    def __init__(self, disk: Disk, size: int) -> None:
        """Remove what a process before us left. `size`: bytes to be made ahead. Raises OSError."""
        self._disk = disk
        self._size = size
        self._file: File | None = None  # being filled, or ready
        self._closed = False
        self._failed = False
        self._thread: threading.Thread | None = None
        self.ready = False  # the file can be taken
        self._asked = False  # `prepare` was called since the last file was taken
        self._number = 0
        for name in disk.names():
            if name.startswith(NAME):
                disk.remove(name)

    @property
    def _name(self) -> str:
        return f"{NAME}{self._number}"

    def prepare(self) -> None:
        """Begin to make a file, unless that was done already."""
        if not self._asked:
            self._asked = True
            self._start()

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._fill, name="spare", daemon=True)
        self._thread.start()

    def _fill(self) -> None:
        """Make the file. (the thread)"""
        try:
            if self._disk.free() < ROOM * self._size:
                self._failed = True
                return
            self._number += 1
            file = self._file = self._disk.create(self._name)
            for at in range(0, self._size, CHUNK):
                if self._closed:
                    return
                file.append([bytes(min(CHUNK, self._size - at))], at)
                file.sync()
            self.ready = True
        except OSError as error:
            log.warning("LOG: cannot make a segment ahead: %s", error)
            self._discard()
            self._failed = True

    def take(self, name: str) -> File | None:
        """Return the file, renamed to `name`; None if there is none. Whoever takes it cuts off what it does not use."""
        if self._failed:  # another try, with the next segment
            self._failed = self._asked = False
        if not self.ready:
            return None
        try:
            self._disk.rename(self._name, name)
        except OSError as error:
            log.warning("LOG: cannot use the segment that was made ahead: %s", error)
            self._discard()
            self._asked = False
            return None
        file, self._file = self._file, None
        self.ready = self._asked = False
        return file

    def close(self) -> None:
        """End the thread, and remove the file."""
        self._closed = True
        if self._thread is not None:
            self._thread.join()
        self._discard()

    def _discard(self) -> None:
        self.ready = False
        if self._file is not None:
            self._file.close()
            self._file = None
            with suppress(OSError):  # else the next start removes it
                self._disk.remove(self._name)
