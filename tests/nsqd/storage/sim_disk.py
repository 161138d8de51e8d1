"""A disk in memory that can lose what a real one may lose. Implements Disk and File of nsqd/storage/log/disk.py.

A file has its content at the last sync, and the writes and truncations since; so has the directory. `kill` keeps all writes,
also unsynced ones; `crash` is a power cut, which may keep any part of the unsynced writes. Blocks are written back whole and in
any order, each as it was at some time since the sync; one of them may be torn at a sector.

See docs/contributing/testing.md#the-simulated-disk.
"""

import errno
import os
from collections import Counter
from collections.abc import Sequence
from random import Random

BLOCK = 4096  # bytes: the unit of writing back
SECTOR = 512  # bytes that a disk writes as a whole


class PowerCut(BaseException):
    """The machine stops here. Not an Exception: nothing may catch it."""


class _Node:
    """An inode."""

    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)  # as a reader sees it
        self.synced = bytearray(data)  # as of the last sync
        self.pending: list[tuple[int, bytes | None]] = []  # since then: (offset, bytes), or (size, None): truncated

    def apply(self, at: int, piece: bytes | None) -> None:
        _apply(self.data, at, piece)
        self.pending.append((at, piece))

    def sync(self) -> None:
        for at, piece in self.pending:
            _apply(self.synced, at, piece)
        self.pending.clear()

    def copy(self) -> "_Node":
        node = _Node()
        node.data, node.synced, node.pending = bytearray(self.data), bytearray(self.synced), list(self.pending)
        return node

    def crashed(self, random: Random, block: int) -> "_Node":
        """As a power cut may leave it."""
        content = bytearray(self.synced)
        phase: list[tuple[int, bytes]] = []
        for at, piece in self.pending:
            if piece is not None:
                phase.append((at, piece))
                continue
            if random.random() < 0.5:  # the truncation, and so all after it, did not happen
                break
            _write_back(content, phase, random, block)
            phase = []
            _apply(content, at, None)
        _write_back(content, phase, random, block)
        return _Node(bytes(content))


class SimFile:
    def __init__(self, disk: "SimDisk", node: _Node) -> None:
        self._disk, self._node = disk, node
        self.closed = False

    def append(self, pieces: Sequence[bytes | memoryview], at: int) -> None:
        data = b"".join(pieces)
        allowed = self._disk.room(max(0, at + len(data) - len(self._node.data)))
        whole = len(data)
        if allowed < 0:
            whole = max(0, whole + allowed)  # as much as there is space for
        try:
            self._act("append")
        except (OSError, PowerCut):
            self._write(at, data[: self._part(pieces, whole)])
            raise
        self._write(at, data[:whole])
        if whole < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _part(self, pieces: list[bytes], whole: int) -> int:
        """How many bytes of a write that fails are done: any number, or as often some of its pieces, as records are."""
        random = self._disk.random
        if random.random() < 0.5:
            return random.randrange(whole + 1)
        return min(whole, sum(map(len, pieces[: random.randrange(len(pieces) + 1)])))

    def _write(self, at: int, data: bytes) -> None:
        if data:
            self._node.apply(at, data)

    def sync(self) -> None:
        self._act("sync")
        self._node.sync()

    def read(self, at: int, size: int) -> bytes:
        self._act("read")
        return bytes(self._node.data[at : at + size])

    def read_cached(self, at: int, size: int) -> bytes | None:
        if self._disk.random.random() >= self._disk.cached:
            return None
        data = self.read(at, size)
        return data if len(data) == size else None

    def truncate(self, size: int) -> None:
        self._act("truncate")
        self._node.apply(size, None)

    def drop_cached(self) -> None:
        pass  # see `SimDisk.cached`

    def close(self) -> None:
        if self.closed:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        self.closed = True
        self._disk.open_files -= 1

    def _act(self, operation: str) -> None:
        if self.closed:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        self._disk.act(operation)


class SimDisk:
    """One directory. `random` decides how much of a failing write is done."""

    def __init__(self, random: Random | None = None, block: int = BLOCK) -> None:
        self.random, self.block = random or Random(1), block
        self.capacity: int | None = None  # bytes; None: no end
        self.others = 0  # bytes of it that others have filled
        self.held = 0  # bytes of the reserve
        self.cached = 0.0  # how often what is read is in the system's memory, 0 to 1
        self.cut_in: int | None = None  # operations that change something until the power is cut; None: never
        self.cut_write_in: int | None = None  # writes until the power is cut in the middle of one; None: never
        self.operations: Counter[str] = Counter()  # done or tried, by name
        self.open_files = 0
        self._faults: dict[tuple[str, int], int] = {}  # (operation, its number) -> errno
        self._nodes: dict[str, _Node] = {}
        self._synced: dict[str, _Node] = {}  # the directory as of its last sync
        self._pending: list[tuple[str, str, str | _Node]] = []  # since then: (what, name, new name or node)

    # Disk

    def names(self) -> list[str]:
        self.act("names")
        return sorted(self._nodes)

    def create(self, name: str) -> SimFile:
        self.act("create")
        node = self._nodes.get(name)
        if node is None:
            node = self._nodes[name] = _Node()
            self._pending.append(("create", name, node))
        else:
            node.apply(0, None)
        return self._opened(node)

    def open(self, name: str) -> SimFile:
        self.act("open")
        return self._opened(self._find(name))

    def size(self, name: str) -> int:
        return len(self._find(name).data)

    def rename(self, old: str, new: str) -> None:
        self.act("rename")
        self._nodes[new] = self._find(old)
        del self._nodes[old]
        self._pending.append(("rename", old, new))

    def rename_unopened(self, old: str, new: str) -> bool:
        self.rename(old, new)  # a file is read in one step
        return True

    def remove(self, name: str) -> None:
        self.act("remove")
        self._find(name)
        del self._nodes[name]
        self._pending.append(("remove", name, ""))

    def sync_directory(self) -> None:
        self.act("sync_directory")
        self._synced = dict(self._nodes)
        self._pending.clear()

    def free(self) -> int:
        return 1 << 40 if self.capacity is None else max(0, self.capacity - self._used())

    def total(self) -> int:
        return 1 << 40 if self.capacity is None else self.capacity

    def reserved(self) -> int:
        return self.held

    def reserve(self, size: int) -> None:
        self.act("reserve")
        self.held = size

    def release(self) -> None:
        self.act("release")
        self.held = 0

    def fail(self, operation: str, number: int, code: int, times: int = 1) -> None:
        """The operation fails with that errno from the `number`th from now on (1: the next), `times` times."""
        first = self.operations[operation] + number
        self._faults.update(dict.fromkeys([(operation, first + i) for i in range(times)], code))

    def repair(self) -> None:
        self._faults.clear()

    def kill(self) -> "SimDisk":
        """Return the disk after the process has ended."""
        disk = SimDisk(self.random, self.block)
        disk.capacity, disk.held, disk.cached = self.capacity, self.held, self.cached
        copies = {id(node): node.copy() for node in (*self._nodes.values(), *self._synced.values())}
        for _, _, node in self._pending:
            if isinstance(node, _Node) and id(node) not in copies:
                copies[id(node)] = node.copy()
        disk._nodes = {name: copies[id(node)] for name, node in self._nodes.items()}
        disk._synced = {name: copies[id(node)] for name, node in self._synced.items()}
        disk._pending = [
            (what, name, copies[id(other)] if isinstance(other, _Node) else other)
            for what, name, other in self._pending
        ]
        return disk

    def crash(self, random: Random) -> "SimDisk":
        """Return the disk after a power cut."""
        names, in_order = dict(self._synced), random.random() < 0.5
        done = random.randrange(len(self._pending) + 1)
        for number, (what, name, other) in enumerate(self._pending):
            if number < done if in_order else random.random() < 0.5:
                _change(names, what, name, other)
        disk = SimDisk(self.random, self.block)
        disk.capacity, disk.held, disk.cached = self.capacity, self.held, self.cached
        crashed = {id(node): node.crashed(random, self.block) for node in names.values()}
        disk._nodes = {name: crashed[id(node)] for name, node in names.items()}
        disk._synced = dict(disk._nodes)
        return disk

    # for tests that look at the files, or spoil them

    def content(self, name: str) -> bytes:
        """Return the bytes of a file as a reader sees them."""
        return bytes(self._find(name).data)

    def put(self, name: str, data: bytes) -> None:
        """A file with that content, safely on disk."""
        self._nodes[name] = self._synced[name] = _Node(data)

    def flip(self, name: str, at: int, mask: int = 1) -> None:
        """Some bits of a byte are wrong."""
        wrong = bytearray(self.content(name))
        wrong[at] ^= mask
        self.put(name, bytes(wrong))

    def spoil(self, name: str, start: int = 0, stop: int = 0, data: bytes = b"") -> None:
        """Replace bytes; by zeros if none are given."""
        content = self.content(name)
        self.put(name, content[:start] + (data or bytes(stop - start)) + content[stop:])

    def segments(self) -> list[str]:
        """Return the names of the files that are the log's segments."""
        return [name for name in sorted(self._nodes) if name.endswith(".log")]

    def synced(self, name: str) -> bytes:
        """Return the bytes of a file that survive a power cut; none if its name does not."""
        node = self._synced.get(name)
        return bytes(node.synced) if node is not None else b""

    def overwrite(self, name: str, at: int, data: bytes) -> None:
        """Replace bytes of a file that a process may have open. A sync does not undo it."""
        node = self._find(name)
        for content in (node.data, node.synced):
            if len(content) >= at + len(data):
                content[at : at + len(data)] = data

    def shorten(self, name: str, size: int) -> None:
        """Cut off the end of a file that a process may have open."""
        node = self._find(name)
        for content in (node.data, node.synced):
            del content[size:]
        node.pending = [(at, piece) for at, piece in node.pending if at + len(piece or b"") <= size]

    def vanish(self, name: str) -> None:
        """Remove a file that a process may have open."""
        node = self._find(name)
        del self._nodes[name]
        self._synced = {one: other for one, other in self._synced.items() if other is not node}
        self._pending = [one for one in self._pending if one[2] is not node and one[1] != name]

    def act(self, operation: str) -> None:
        """An operation begins. Raises what was planned for it."""
        self.operations[operation] += 1
        if self.cut_in is not None and operation not in ("names", "open", "read"):
            self.cut_in -= 1
            if self.cut_in < 0:
                raise PowerCut
        if self.cut_write_in is not None and operation == "append":
            self.cut_write_in -= 1
            if self.cut_write_in < 0:
                raise PowerCut
        code = self._faults.pop((operation, self.operations[operation]), 0)
        if code:
            raise OSError(code, os.strerror(code))

    def room(self, growth: int) -> int:
        """Bytes left after growing by that; negative: that many too much."""
        return 0 if self.capacity is None else min(0, self.capacity - self._used() - growth)

    def _used(self) -> int:
        return self.others + self.held + sum(len(node.data) for node in self._nodes.values())

    def _find(self, name: str) -> _Node:
        node = self._nodes.get(name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        return node

    def _opened(self, node: _Node) -> SimFile:
        self.open_files += 1
        return SimFile(self, node)


def _apply(data: bytearray, at: int, piece: bytes | None) -> None:
    """Write a piece, or (None) cut off or grow to `at`, with zeros in between."""
    if len(data) < at:
        data.extend(bytes(at - len(data)))
    if piece is None:
        del data[at:]
    else:
        data[at : at + len(piece)] = piece


def _write_back(content: bytearray, writes: list[tuple[int, bytes]], random: Random, block: int) -> None:
    """Some of the blocks that were written to, each as it was after some of the writes to it."""
    touched: dict[int, list[tuple[int, bytes]]] = {}
    for at, piece in writes:
        for number in range(at // block, (at + len(piece) - 1) // block + 1):
            start, stop = max(at, number * block), min(at + len(piece), (number + 1) * block)
            touched.setdefault(number, []).append((start, piece[start - at : stop - at]))
    torn = random.choice(sorted(touched)) if touched and random.random() < 0.5 else -1
    likely = random.choice((0.1, 0.5, 0.9))  # that a block was written back
    for number in sorted(touched):
        parts = touched[number]
        if number == torn:
            _tear(content, parts, random, max(64, block * SECTOR // BLOCK))
        elif random.random() < likely:
            for at, piece in parts[: random.randrange(1, len(parts) + 1)]:
                _apply(content, at, piece)
    if writes and random.random() < 0.2:  # the file has grown already, and its new end is a hole
        _apply(content, max(len(content), *(at + len(piece) for at, piece in writes), 0), b"")


def _tear(content: bytearray, parts: list[tuple[int, bytes]], random: Random, sector: int) -> None:
    """A block of which only some sectors are new."""
    for at, piece in parts:
        for start in range(at - at % sector, at + len(piece), sector):
            if random.random() < 0.5:
                first, stop = max(start, at), min(start + sector, at + len(piece))
                _apply(content, first, piece[first - at : stop - at])


def _change(names: dict[str, _Node], what: str, name: str, other: str | _Node) -> None:
    if isinstance(other, _Node):
        names[name] = other
    elif what == "remove":
        names.pop(name, None)
    elif name in names:
        names[other] = names.pop(name)
