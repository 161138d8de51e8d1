"""A disk whose files can be read and are never changed."""

from collections.abc import Sequence

from nsqd.storage.log.disk import Disk, File


class _FrozenFile:
    """An open File that ignores changes. One that was created holds nothing."""

    def __init__(self, file: File | None = None) -> None:
        self._file = file

    def read(self, at: int, size: int) -> bytes:
        return self._file.read(at, size) if self._file is not None else b""

    def read_cached(self, at: int, size: int) -> bytes | None:
        return None

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def append(self, buffers: Sequence[bytes | memoryview], at: int) -> None: ...
    def sync(self) -> None: ...
    def truncate(self, size: int) -> None: ...
    def drop_cached(self) -> None: ...


class FrozenDisk:
    """A Disk that ignores all changes: a start on it leaves what it would repair as it is on disk."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def names(self) -> list[str]:
        return self._disk.names()

    def create(self, name: str) -> File:
        return _FrozenFile()

    def open(self, name: str) -> File:
        return _FrozenFile(self._disk.open(name))

    def size(self, name: str) -> int:
        return self._disk.size(name)

    def free(self) -> int:
        return self._disk.free()

    def total(self) -> int:
        return self._disk.total()

    def reserved(self) -> int:
        return self._disk.reserved()

    def rename_unopened(self, old: str, new: str) -> bool:
        return False

    def rename(self, old: str, new: str) -> None: ...
    def remove(self, name: str) -> None: ...
    def sync_directory(self) -> None: ...
    def reserve(self, size: int) -> None: ...
    def release(self) -> None: ...
