"""Send parts of logs as a tar stream that unpacks to a data directory."""

import asyncio
import tarfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from nsqd.core.retention.backup import BackupPart

CHUNK = 1024 * 1024  # bytes
BLOCK = tarfile.BLOCKSIZE
METADATA = "nsqd.dat"


def archive_size(parts: Sequence[BackupPart], metadata: bytes) -> int:
    """Return how many bytes `stream_archive` sends."""
    size = sum(_padded(part.size) + BLOCK for part in parts) + 2 * BLOCK
    return size + (_padded(len(metadata)) + BLOCK if metadata else 0)


async def stream_archive(
    parts: Sequence[BackupPart], metadata: bytes, after_chunk: Callable[[], Awaitable[None]]
) -> AsyncIterator[bytes]:
    """Yield the tar stream of the parts of a log, behind nsqd.dat with the content `metadata` unless that is empty.

    `after_chunk` is awaited after each chunk of a part. Raises OSError.
    """
    now = int(time.time())
    if metadata:
        yield _header(METADATA, len(metadata), now) + metadata + bytes(_padded(len(metadata)) - len(metadata))
    for part in parts:
        yield _header(f"log/{part.name}", part.size, now)
        for at in range(0, part.size, CHUNK):
            size = min(CHUNK, part.size - at)
            yield await asyncio.to_thread(part.read, at, size)
            await after_chunk()
        yield bytes(_padded(part.size) - part.size)
    yield bytes(2 * BLOCK)


def _header(name: str, size: int, now: int) -> bytes:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mtime, entry.mode = size, now, 0o600
    return entry.tobuf(tarfile.USTAR_FORMAT) if size < 1 << 33 else entry.tobuf(tarfile.GNU_FORMAT)


def _padded(size: int) -> int:
    return -(-size // BLOCK) * BLOCK
