"""A disk in memory that loses unsynced data in a power cut, and fails by the plan of a test."""

import errno
import gzip
from dataclasses import dataclass, field


@dataclass
class File:
    """The content of a file, now and after a power cut."""

    content: bytearray = field(default_factory=bytearray)
    durable: bytes = b""


class FakeDisk:
    """What apps.to_file.disk.Disk is, without a system. `plan` has a True for each call that is to fail."""

    def __init__(self, plan: list[bool] | None = None, never_fails: tuple[str, ...] = ()) -> None:
        self.plan = plan or []
        self.never_fails = never_fails
        self.calls: list[str] = []
        self.names: dict[str, File] = {}
        self.durable_names: dict[str, File] = {}
        self.directories = {"", ".", "/"}
        self.opened: list[File] = []  # in the order in which they were made
        self.locked: list[File] = []
        self._fds: dict[int, File] = {}

    # ---- the interface of tests

    def remove_directory(self, path: str) -> None:
        """As rm -r does."""
        for name in [name for name in self.names if name.startswith(path + "/")]:
            del self.names[name]
            self.durable_names.pop(name, None)
        self.directories = {one for one in self.directories if one != path and not one.startswith(path + "/")}

    def lines(self) -> list[bytes]:
        """All lines of all files that have a name, in the order in which the files were made."""
        named = list(map(id, self.names.values()))
        return [line for file in self.opened if id(file) in named for line in _lines(bytes(file.content))]

    @property
    def open_files(self) -> int:
        """How many files were opened and not closed."""
        return len(self._fds)

    def durable_lines(self) -> set[bytes]:
        """The lines that a power cut would leave."""
        return {line for file in self.durable_names.values() for line in _lines(file.durable)}

    # ---- the calls

    def open(self, path: str, exclusive: bool) -> int:
        self._step("open")
        self._need_directory(path)
        if path in self.names and exclusive:
            raise FileExistsError(errno.EEXIST, "exists", path)
        if path not in self.names:
            self.names[path] = File()
            self.opened.append(self.names[path])
        fd = 3 + len(self.calls)
        self._fds[fd] = self.names[path]
        return fd

    def lock(self, fd: int) -> bool:
        if any(self._fds[fd] is one for one in self.locked):
            return False
        self.locked.append(self._fds[fd])
        return True

    def size(self, fd: int) -> int:
        return len(self._fds[fd].content)

    def is_removed(self, fd: int) -> bool:
        return all(self._fds[fd] is not file for file in self.names.values())

    def ends_within_a_line(self, fd: int) -> bool:
        return not self._fds[fd].content.endswith(b"\n") and self.size(fd) > 0

    def write(self, fd: int, data: bytes) -> None:
        try:
            self._step("write")
        except OSError:
            self._fds[fd].content += data[: len(data) // 2]
            raise
        self._fds[fd].content += data

    def truncate(self, fd: int, size: int) -> None:
        self._step("truncate")
        assert size <= self.size(fd), "a hole"
        del self._fds[fd].content[size:]

    def sync(self, fd: int) -> None:
        self._step("sync")
        self._fds[fd].durable = bytes(self._fds[fd].content)

    def close(self, fd: int) -> None:
        file = self._fds.pop(fd)
        self.locked = [one for one in self.locked if one is not file]
        self._step("close")

    def exists(self, path: str) -> bool:
        return path in self.names

    def make_directory(self, path: str) -> None:
        self._step("make_directory")
        while path not in self.directories:
            self.directories.add(path)
            path = path.rpartition("/")[0]

    def sync_directory(self, path: str) -> None:
        self._step("sync_directory")
        for name in self.names.keys() | self.durable_names.keys():
            if (name.rpartition("/")[0] or ".") == path:
                if name in self.names:
                    self.durable_names[name] = self.names[name]
                else:
                    del self.durable_names[name]

    def move(self, source: str, target: str) -> None:
        self._step("move")
        self._need_directory(target)
        if target in self.names and self.names[target] is not self.names[source]:
            raise FileExistsError(errno.EEXIST, "exists", target)
        self.names[target] = self.names[source]
        self.sync_directory(target.rpartition("/")[0] or ".")
        self._step("unlink")
        del self.names[source]
        self.sync_directory(source.rpartition("/")[0] or ".")

    def remove(self, path: str) -> None:
        self._step("remove")
        del self.names[path]

    def _step(self, name: str) -> None:
        self.calls.append(name)
        if self.plan and self.plan.pop(0) and name not in self.never_fails:
            raise OSError(errno.ENOSPC, "No space left on device")

    def _need_directory(self, path: str) -> None:
        if path.rpartition("/")[0] not in self.directories:
            raise FileNotFoundError(errno.ENOENT, "no directory", path)


def _lines(content: bytes) -> list[bytes]:
    if content.startswith(b"\x1f\x8b"):
        content = gzip.decompress(content)
    return content.split(b"\n")[:-1] if content.endswith(b"\n") else content.split(b"\n") if content else []
