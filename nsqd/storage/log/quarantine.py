"""Copies of the bytes that a start cuts off or cannot read, in files next to the segments. They may still hold messages.

`<segment>.<offset>.torn` was cut off the log's end, `<segment>.<offset>.damaged` was skipped. A copy is durable before anything
is cut. The copies together take at most MOST_BYTES in MOST_FILES files. The oldest torn copies are removed for a new torn one;
other copies are never removed. If there is no room for a copy, or no space on the disk, nothing is copied, and the start
continues.
"""

import re
from contextlib import closing, suppress

from nsqd.storage.log.disk import Disk, read_from
from nsqd.storage.log.writer import NO_SPACE

TORN, DAMAGED = "torn", "damaged"
MOST_BYTES = 512 * 1024 * 1024
MOST_FILES = 1000
_NAME = re.compile(r"\d{20}\.\d{1,9}\.log\.\d+\.(?:\d+\.)?(torn|damaged)")
_UNFINISHED = ".tmp"


class Quarantine:
    """The quarantined copies in one log's directory."""

    def __init__(self, disk: Disk) -> None:
        """List the existing copies, and remove those that were not finished. Raises OSError."""
        self.notes: dict[tuple[str, int], str] = {}  # the result for each piece in this start, by segment and offset
        self._disk = disk
        self._sizes: dict[str, int] = {}  # bytes of each copy, by file name
        for name in disk.names():
            if _NAME.fullmatch(name):
                self._sizes[name] = disk.size(name)
            elif name.endswith(_UNFINISHED) and _NAME.fullmatch(name.removesuffix(_UNFINISHED)):
                disk.remove(name)

    @property
    def copies(self) -> list[tuple[str, int]]:
        """Return the name and the bytes of each copy, by position in the log."""
        return sorted(self._sizes.items())

    def copy_damaged(self, segment: str, at: int, data: bytes, kind: str) -> None:
        """Copy `data`, which is at offset `at` of the segment, unless the same copy exists. Raises OSError."""
        if (segment, at) in self.notes:
            return
        name, exists = self._name(segment, at, kind, data)
        if not data.rstrip(b"\0"):
            self.notes[segment, at] = "it is all zeros"
        elif exists or self._make_room(len(data), kind):
            if not exists:
                self._write(segment, at, name, data)
            self.notes.setdefault((segment, at), f"a copy is in {name}")
        else:
            self.notes[segment, at] = "no copy was made: the copies use up their limit, move them elsewhere"

    def move(self, segment: str, size: int) -> None:
        """Move a whole segment of `size` bytes away from the log's end. Remove it if there is no room. Raises OSError."""
        name, _ = self._name(segment, 0, TORN, None)
        if self._make_room(size, TORN):
            self._disk.rename(segment, name)
            self._sizes[name] = size
            self.notes[segment, 0] = f"the segment is in {name}"
        else:
            self._disk.remove(segment)
            self.notes[segment, 0] = "the segment is removed: the copies take all the room they may, move them away"

    def free_name(self, name: str) -> str:
        """Return the name, with a number appended if a file of that name exists."""
        names, free, number = set(self._disk.names()), name, 1
        while free in names:
            number += 1
            free = f"{name}.{number}"
        return free

    def _name(self, segment: str, at: int, kind: str, data: bytes | None) -> tuple[str, bool]:
        """Return the name for a copy, and True if it exists. An earlier start may have copied other bytes of that place."""
        name, number = f"{segment}.{at}.{kind}", 1
        while name in self._sizes:
            is_same_size = data is not None and self._sizes[name] == len(data)
            if is_same_size and read_from(self._disk, name, 0, self._sizes[name]) == data:
                return name, True
            number += 1
            name = f"{segment}.{at}.{number}.{kind}"
        return name, False

    def _make_room(self, size: int, kind: str) -> bool:
        """Remove as many of the oldest torn copies as needed. Returns False, and removes none, if that is not enough."""
        torn = [name for name, _ in self.copies if name.endswith(TORN)] if kind == TORN else []
        count, total, leaving = len(self._sizes) + 1, sum(self._sizes.values()) + size, list[str]()
        while total > MOST_BYTES or count > MOST_FILES:
            if not torn:
                return False
            leaving.append(torn.pop(0))
            count, total = count - 1, total - self._sizes[leaving[-1]]
        for name in leaving:
            self._disk.remove(name)
            del self._sizes[name]
        return True

    def _write(self, segment: str, at: int, name: str, data: bytes) -> None:
        unfinished = name + _UNFINISHED
        try:
            with closing(self._disk.create(unfinished)) as file:
                file.append([data], 0)
                file.sync()
        except OSError as error:
            with suppress(OSError):  # the file was not created, or the next start removes it
                self._disk.remove(unfinished)
            if error.errno in NO_SPACE and self._disk.reserved():  # the space is reserved again when the disk has room
                self._disk.release()
                self._write(segment, at, name, data)
                return
            if error.errno not in NO_SPACE:
                raise
            self.notes[segment, at] = f"no copy was made: {error.strerror or error}"
            return
        self._disk.rename(unfinished, name)
        self._disk.sync_directory()
        self._sizes[name] = len(data)
