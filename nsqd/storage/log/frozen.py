"""A disk whose files can be read and are never changed."""

from collections.abc import Sequence

from nsqd.storage.log.disk import Disk, File


class _FrozenFile:
    """An open File that ignores changes."""

    def __init__(self, file: File) -> None:
        self._file = file

    def append(self, buffers: Sequence[bytes | memoryview], at: int) -> None:
        pass

    def sync(self) -> None:
        pass

    def read(self, at: int, size: int) -> bytes:
        return self._file.read(at, size)

    def read_cached(self, at: int, size: int) -> bytes | None:
        return None

    def truncate(self, size: int) -> None:
        pass

    def drop_cached(self) -> None:
        pass

    def close(self) -> None:
        self._file.close()


class _NoFile:
    """A new File that holds nothing and ignores writes."""

    def append(self, buffers: Sequence[bytes | memoryview], at: int) -> None:
        pass

    def sync(self) -> None:
        pass

    def read(self, at: int, size: int) -> bytes:
        return b""

    def read_cached(self, at: int, size: int) -> bytes | None:
        return None

    def truncate(self, size: int) -> None:
        pass

    def drop_cached(self) -> None:
        pass

    def close(self) -> None:
        pass


class FrozenDisk:
    """A Disk that ignores all changes: a start on it leaves what it would repair as it is on disk."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def names(self) -> list[str]:
        return self._disk.names()

    def create(self, name: str) -> File:
        return _NoFile()

    def open(self, name: str) -> File:
        return _FrozenFile(self._disk.open(name))

    def size(self, name: str) -> int:
        return self._disk.size(name)

    def rename(self, old: str, new: str) -> None:
        pass

    def rename_unopened(self, old: str, new: str) -> bool:
        return False

    def remove(self, name: str) -> None:
        pass

    def sync_directory(self) -> None:
        pass

    def free(self) -> int:
        return self._disk.free()

    def total(self) -> int:
        return self._disk.total()

    def reserved(self) -> int:
        return self._disk.reserved()

    def reserve(self, size: int) -> None:
        pass

    def release(self) -> None:
        pass
