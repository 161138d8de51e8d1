"""Files for the next segments, whose blocks were written before: syncing such a block takes less time than a new one.

A block that is new in its file adds an entry to the file system's journal when it is synced (0.22 ms against 0.15 for 200 kB),
and space that is only allocated costs the same. So while replies wait for syncs, the next segment gets a file with such blocks:
that of a removed segment, with its old records (their CRCs begin with another value), or one that a thread fills with zeros,
slice by slice, as the log grows. The rest after the last record is cut off when a segment ends or when the log is opened.

The file's content is dropped from the page cache. Otherwise the system keeps it in large pieces of memory, and to sync one
small group costs as much as to sync a whole piece: 0.30 ms against 0.18.

A reused file loses its name as a segment before it loses its header, and gets the header of a spare file before it gets the
name of another segment. Each step is durable before the next. So a power cut leaves a whole segment, or a file that says what
its old records are.
"""

import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from itertools import count

from nsqd.storage.log.disk import Disk, File
from nsqd.storage.log.records import spare_header
from shared.log import log

# A number follows, because no name is used twice: after a power cut the directory may have changed in any order.
NAME = "spare."
CHUNK = 256 * 1024  # bytes that are filled and synced at a time: two milliseconds
SLICES = 32  # a file is filled in this many slices, each requested by `prepare`
ROOM = 8  # this many times the file's size must be free on the disk
MOST_FILES = 2  # files that are ready or on their way


@dataclass(slots=True)
class SpareFile:
    """A file for a segment, and what it holds."""

    name: str
    file: File | None  # None: it is not open yet
    former: int = 0  # initial CRC value of the records that the file holds; 0: it holds zeros
    filled: int = 0  # bytes that were filled with zeros


class Spare:
    """Keeps files for the next segments. Its methods are for the reactor's thread, except for `_work`."""

    def __init__(self, disk: Disk, size: int) -> None:
        """Remove the files that a previous process left. `size`: bytes of a segment. Raises OSError."""
        self._disk, self._size = disk, size
        self._slice = max(CHUNK, size // SLICES)  # bytes
        self.ready: deque[SpareFile] = deque()  # files that can be taken
        self._used: list[SpareFile] = []  # files of former segments that still have their headers
        self._new: SpareFile | None = None  # the file that is being filled with zeros
        self._unasked = 2  # segments that have begun since `prepare` was called; past 1 no reply waits for syncs
        self._at_once = False  # True: the thread fills all slices without waiting for the log to grow
        self._failed = False
        self._closed = False
        self._thread: threading.Thread | None = None
        self._numbers = count(1)  # both threads take from it
        for name in disk.names():
            if name.startswith(NAME):
                disk.remove(name)

    def prepare(self, at_once: bool = False, zeros: bool = True) -> bool:
        """Continue a file, unless one is ready. Returns False if nothing is left to do for the next segment.

        `at_once`: make the whole file, not only the next slice. `zeros`: make a file of zeros; otherwise only files of former
        segments are used.
        """
        self._unasked = 0
        if self.ready or self._failed:
            return False
        if not zeros:
            return True
        self._at_once = at_once
        self._start()
        return True

    def reuse(self, name: str, size: int, former: int) -> bool:
        """Keep the file `name` of a segment that is no longer needed. Returns False if it is of no use.

        `size`: bytes of the file; `former`: initial CRC value of its records.
        """
        if self._unasked > 1 or self._closed or size < self._size // 2 or not former:
            return False
        if len(self.ready) + len(self._used) >= MOST_FILES:
            return False
        spare = SpareFile(f"{NAME}{next(self._numbers)}", None, former)
        try:
            if not self._disk.rename_unopened(name, spare.name):
                return False
        except OSError:  # the caller removes the file, and reports what is wrong
            return False
        self._used.append(spare)
        self._start()
        return True

    def _start(self) -> None:
        if self._thread is not None and self._thread.is_alive():
            return  # it is late; the next call continues
        self._thread = threading.Thread(target=self._work, name="spare", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        """Give former segments their new header, or else fill a slice with zeros. Runs in a thread of its own."""
        try:
            filled = False
            while not self._closed and not self._failed:
                if self._used:
                    self._mark_used()
                elif self.ready or (filled and not self._at_once):
                    return
                else:
                    self._fill()
                    filled = True
        except OSError as error:
            log.warning("LOG: cannot create a spare segment: %s", error)
            self._failed = True

    def _mark_used(self) -> None:
        used = list(self._used)  # more may be added meanwhile
        self._disk.sync_directory()  # a segment must not come back under its name once its header is overwritten
        for spare in used:
            spare.file = self._disk.open(spare.name)
            spare.file.append([spare_header(spare.former)], 0)
            spare.file.sync()
            spare.file.drop_cached()
            self._used.remove(spare)
            self.ready.append(spare)

    def _fill(self) -> None:
        """Fill the next slice of a new file with zeros."""
        if self._disk.free() < ROOM * self._size:
            self._failed = True
            return
        if self._new is None:
            name = f"{NAME}{next(self._numbers)}"
            self._new = SpareFile(name, self._disk.create(name))
        new = self._new
        assert new.file is not None
        end = min(self._size, new.filled + self._slice)
        while new.filled < end and not self._closed:
            size = min(CHUNK, end - new.filled)
            new.file.append([bytes(size)], new.filled)
            new.file.sync()
            new.filled += size
        if new.filled == self._size:
            new.file.drop_cached()
            self._new = None
            self.ready.append(new)

    def claim(self, name: str) -> tuple[File, int] | None:
        """Return a file, open and renamed to `name`, and the initial CRC value of the records that it holds (0: it is zeros).

        None means that no file is ready. The caller cuts off what it does not use.
        """
        self._unasked += 1
        if self._failed:  # the next segment gets another try
            self._discard()
        if not self.ready:
            return None
        spare = self.ready.popleft()
        try:
            self._disk.rename(spare.name, name)
        except OSError as error:
            log.warning("LOG: cannot use the spare segment: %s", error)
            self._remove(spare)
            return None
        assert spare.file is not None, "a file that is ready is open"
        return spare.file, spare.former

    def close(self) -> None:
        """End the thread, and remove the files."""
        self._closed = True
        self._discard()
        while self.ready:
            self._remove(self.ready.popleft())

    def _discard(self) -> None:
        """Remove what is not ready, and allow another try."""
        if self._thread is not None:
            self._thread.join()
        left = [*self._used, *([self._new] if self._new else [])]
        self._used, self._new, self._failed = [], None, False
        for spare in left:
            self._remove(spare)

    def _remove(self, spare: SpareFile) -> None:
        if spare.file is not None:
            spare.file.close()
        with suppress(OSError):  # if this fails, the next start removes the file
            self._disk.remove(spare.name)
