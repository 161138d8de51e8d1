"""GET /backup: send the data directory of the running node as a tar stream, as it was at one moment. One at a time.

Unpacked, it is a data directory that nsqd starts with. While it is sent no file of the log is removed or cleaned.
"""

import asyncio
import tarfile
import time
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from nsqd.core.retention.backup import BackupPart, Busy
from nsqd.http.node import Node
from shared.http.api import V1_HEADERS, Routes
from shared.http.errors import HttpError
from shared.log import log

CHUNK = 1024 * 1024  # bytes
BLOCK = tarfile.BLOCKSIZE
METADATA = "nsqd.dat"


class BackupRoute:
    """The route that sends a backup of the node."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def routes(self) -> Routes:
        """Return the path, its method and its handler."""
        return {"/backup": {"GET": self.backup}}

    async def backup(self, request: Request) -> Response:
        """Answer the whole data directory as a tar stream."""
        metadata = await asyncio.to_thread(_content, Path(self._node.options.data_path or ".") / METADATA)
        copy, parts = await self._node.bridge.call(self._begin)
        size = sum(_padded(part.size) + BLOCK for part in parts) + 2 * BLOCK
        size += _padded(len(metadata)) + BLOCK if metadata else 0
        headers = {"Content-Length": str(size), "Content-Disposition": 'attachment; filename="nsqd.tar"'}
        return StreamingResponse(
            self._stream(copy, parts, metadata), media_type="application/x-tar", headers=V1_HEADERS | headers
        )

    def _begin(self) -> tuple[int, Sequence[BackupPart]]:
        """Begin a copy of the log, and return its number and its parts. Runs in the trio thread. Raises HttpError 409, 503."""
        try:
            return self._node.backup.begin()
        except Busy:
            raise HttpError(409, "BACKUP_RUNNING") from None
        except OSError as error:
            log.error("HTTP: cannot make a backup, syncing failed: %s", error)
            raise HttpError(503, "CANNOT_SYNC") from None

    async def _stream(self, copy: int, parts: Sequence[BackupPart], metadata: bytes) -> AsyncIterator[bytes]:
        now, backup = int(time.time()), self._node.backup
        try:
            if metadata:
                yield _header(METADATA, len(metadata), now) + metadata + bytes(_padded(len(metadata)) - len(metadata))
            for part in parts:
                yield _header(f"log/{part.name}", part.size, now)
                for at in range(0, part.size, CHUNK):
                    size = min(CHUNK, part.size - at)
                    yield await asyncio.to_thread(part.read, at, size)
                    await self._node.bridge.call(partial(backup.keep_alive, copy))
                yield bytes(_padded(part.size) - part.size)
            yield bytes(2 * BLOCK)
        finally:
            await asyncio.shield(asyncio.ensure_future(self._node.bridge.call(partial(backup.end, copy))))


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # the file does not exist yet; only tools read it
        return b""


def _header(name: str, size: int, now: int) -> bytes:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mtime, entry.mode = size, now, 0o600
    return entry.tobuf(tarfile.USTAR_FORMAT) if size < 1 << 33 else entry.tobuf(tarfile.GNU_FORMAT)


def _padded(size: int) -> int:
    return -(-size // BLOCK) * BLOCK
