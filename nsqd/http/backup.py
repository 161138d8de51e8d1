"""GET /backup: send the data directory of the running node as a tar stream, as it was at one moment. One at a time.

Unpacked, it is a data directory that nsqd starts with. While it is sent no file of the log is removed or cleaned.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from nsqd.core.retention.backup import BackupPart, Busy
from nsqd.http.archive import METADATA, archive_size, stream_archive
from nsqd.http.node import Node
from shared.http.api import V1_HEADERS, Routes
from shared.http.errors import HttpError
from shared.log import log


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
        size = archive_size(parts, metadata)
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
        call, backup = self._node.bridge.call, self._node.backup
        try:
            async for chunk in stream_archive(parts, metadata, lambda: call(partial(backup.keep_alive, copy))):
                yield chunk
        finally:
            await asyncio.shield(asyncio.ensure_future(call(partial(backup.end, copy))))


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # the file does not exist yet; only tools read it
        return b""
