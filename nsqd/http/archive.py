"""Send parts of logs as a tar stream that unpacks to a data directory."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial

from nsqd.core.retention.backup import BackupPart

CHUNK = 1024 * 1024  # bytes
BLOCK = 512  # bytes of a tar file that belong together


def archive_size(parts: Sequence[BackupPart], beside: Mapping[str, bytes]) -> int:
    """Return the number of bytes that `stream_archive` sends."""
    sizes = [*(part.size for part in parts), *map(len, beside.values())]
    return sum(_padded(size) + BLOCK for size in sizes) + 2 * BLOCK


def archive_chunks(parts: Sequence[BackupPart], beside: Mapping[str, bytes]) -> Iterator[Callable[[], bytes]]:
    """Yield functions that return the tar stream of the parts of a log, a chunk each; they read files. They raise OSError.

    The files next to the log in its data directory come first: `beside` has their contents, by name.
    """
    now = int(time.time())
    for name, content in beside.items():
        yield partial(_header, name, len(content), now)
        yield partial(bytes, content + bytes(_padded(len(content)) - len(content)))
    for part in parts:
        yield partial(_header, f"log/{part.name}", part.size, now)
        for at in range(0, part.size, CHUNK):
            yield partial(part.read, at, min(CHUNK, part.size - at))
        yield partial(bytes, _padded(part.size) - part.size)
    yield partial(bytes, 2 * BLOCK)


async def stream_archive(
    parts: Sequence[BackupPart], beside: Mapping[str, bytes], after_chunk: Callable[[], Awaitable[None]]
) -> AsyncIterator[bytes]:
    """Yield the chunks of `archive_chunks`, which are read in a thread. `after_chunk` is awaited after each. Raises OSError."""
    for chunk in archive_chunks(parts, beside):
        yield await asyncio.to_thread(chunk)
        await after_chunk()


def _header(name: str, size: int, now: int) -> bytes:
    import tarfile  # only archives need it, not the start

    entry = tarfile.TarInfo(name)
    entry.size, entry.mtime, entry.mode = size, now, 0o600
    return entry.tobuf(tarfile.USTAR_FORMAT) if size < 1 << 33 else entry.tobuf(tarfile.GNU_FORMAT)


def _padded(size: int) -> int:
    return -(-size // BLOCK) * BLOCK
