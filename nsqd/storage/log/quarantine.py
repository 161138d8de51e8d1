"""Copies of what a start cuts off or cannot read, in files beside the segments: an operator may still find messages in them.

`<segment>.<offset>.torn` was cut off the log's end, `<segment>.<offset>.damaged` was passed over. A copy is durable before
anything is cut. The copies together take at most MOST_BYTES in MOST_FILES files. Of torn ones the oldest make room for a new
one; a damaged one is never removed. What finds no room, or no space on the disk, is not copied, and the start goes on.
"""

import re
from contextlib import suppress

from nsqd.storage.log.disk import Disk, read_from
from nsqd.storage.log.writer import NO_SPACE

TORN, DAMAGED = "torn", "damaged"
MOST_BYTES = 512 * 1024 * 1024
MOST_FILES = 1000
_NAME = re.compile(r"\d{20}\.\d{1,9}\.log\.\d+\.(?:\d+\.)?(torn|damaged)")
_UNFINISHED = ".tmp"


class Quarantine:
    """The copies in one log's directory."""

    def __init__(self, disk: Disk) -> None:
        """Look at what is there, and remove what was not copied to its end. Raises OSError."""
        self.notes: dict[tuple[str, int], str] = {}  # what became of each piece of this start, by segment and offset
        self._disk = disk
        self._sizes: dict[str, int] = {}  # by name
        for name in disk.names():
            if _NAME.fullmatch(name):
                self._sizes[name] = disk.size(name)
            elif name.endswith(_UNFINISHED) and _NAME.fullmatch(name.removesuffix(_UNFINISHED)):
                disk.remove(name)

    @property
    def copies(self) -> list[tuple[str, int]]:
        """Name and bytes of each, by position in the log."""
        return sorted(self._sizes.items())

    def keep(self, segment: str, at: int, data: bytes, kind: str) -> None:
        """Copy `data`, which stands at that offset of the segment, unless the same copy is there. Raises OSError."""
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
            self.notes[segment, at] = "there is no copy: the copies take all the room they may, move them away"

    def move(self, segment: str, size: int) -> None:
        """Take a whole segment away from the log's end, `size` bytes, and keep it if there is room. Raises OSError."""
        name, _ = self._name(segment, 0, TORN, None)
        if self._make_room(size, TORN):
            self._disk.rename(segment, name)
            self._sizes[name] = size
            self.notes[segment, 0] = f"the segment is in {name}"
        else:
            self._disk.remove(segment)
            self.notes[segment, 0] = "the segment is removed: the copies take all the room they may, move them away"

    def free_name(self, name: str) -> str:
        """The name, with a number behind it if there is a file of that name."""
        names, free, number = set(self._disk.names()), name, 1
        while free in names:
            number += 1
            free = f"{name}.{number}"
        return free

    def _name(self, segment: str, at: int, kind: str, data: bytes | None) -> tuple[str, bool]:
        """The name for a copy, and whether exactly that copy is there. Something else may have stood at that place before."""
        name, number = f"{segment}.{at}.{kind}", 1
        while name in self._sizes:
            if (
                data is not None
                and self._sizes[name] == len(data)
                and read_from(self._disk, name, 0, len(data)) == data
            ):
                return name, True
            number += 1
            name = f"{segment}.{at}.{number}.{kind}"
        return name, False

    def _make_room(self, size: int, kind: str) -> bool:
        """Remove as many of the oldest torn copies as it takes. Returns False, and removes none, if that is not enough."""
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

    def _write_file(self, name: str, data: bytes) -> None:
        """Write and sync it, or remove what was written of it. Raises OSError."""
        try:
            file = self._disk.create(name)
            try:
                file.append([data], 0)
                file.sync()
            finally:
                file.close()
        except OSError:
            with suppress(OSError):  # it was not created, or the next start removes it
                self._disk.remove(name)
            raise

    def _write(self, segment: str, at: int, name: str, data: bytes) -> None:
        unfinished = name + _UNFINISHED
        try:
            self._write_file(unfinished, data)
        except OSError as error:
            if error.errno in NO_SPACE and self._disk.reserved():  # it is reserved again when there is space
                self._disk.release()
                self._write(segment, at, name, data)
                return
            if error.errno not in NO_SPACE:
                raise
            self.notes[segment, at] = f"there is no copy: {error.strerror or error}"
            return
        self._disk.rename(unfinished, name)
        self._disk.sync_directory()
        self._sizes[name] = len(data)
