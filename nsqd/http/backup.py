"""GET /backup: send the data directory of the running node as a tar stream, as it was at one moment. One at a time.

    GET /backup[?log=ID]

Unpacked, it is a data directory that nsqd starts with. While it is sent no file of the log is removed or cleaned.

It has the log into which the node publishes. The logs that the node has promoted are left out, and X-Nsq-Left-Out names them:
ID:NODE, separated by commas, with the number of the node that published into the log. With the id of such a log as `log`, a
directory with that log alone is sent, from which `penstock restore` makes a data directory. With the id of a log of which the
node keeps a replica, the replica is sent, as `penstock recover` asks for it: unpacked, it is a data directory with which the
leader of the log starts again, and asks the other nodes first whether the log is still its own: cluster.json names them. 404
LOG_NOT_FOUND: the node has neither, or cannot read it now.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from nsqd.core.retention.backup import METADATA, Backup, BackupPart, Busy
from nsqd.http.archive import archive_size, stream_archive
from nsqd.http.arguments import LOG
from nsqd.http.node import Node
from shared.auth.verbs import Verb
from shared.http.api import V1_HEADERS
from shared.http.errors import HttpError
from shared.http.route import Need, Route
from shared.log import log

MOST_NAMED = 100  # promoted logs in a header


class BackupRoute:
    """The route that sends a backup of the node."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def routes(self) -> list[Route]:
        return [
            Route("GET /backup", self.backup, Need(Verb.ADMIN, has_bodies=True), (LOG,),
                  "Send a copy of the data directory, or of a promoted log, as a tar stream"),
        ]  # fmt: skip

    async def backup(self, request: Request, log: str) -> Response:
        """Answer the whole data directory as a tar stream."""
        replica = await self._node.bridge.call(lambda: self._replica(log))
        if replica is not None:
            return _answer(stream_archive(*replica, _nothing), archive_size(*replica), {})
        metadata = Path(self._node.options.data_path or ".") / METADATA
        beside = {} if log else {METADATA: await asyncio.to_thread(_content, metadata)}
        backup, left_out = await self._node.bridge.call(lambda: self._backup_of(log))
        copy, parts = await self._node.bridge.call(lambda: self._begin(backup))
        headers = {"X-Nsq-Left-Out": left_out} if left_out and not log else {}
        return _answer(self._stream(backup, copy, parts, beside), archive_size(parts, beside), headers)

    def _replica(self, log_id: str) -> tuple[Sequence[BackupPart], Mapping[str, bytes]] | None:
        """Return this node's replica of a log; None: it has none. Runs in the trio thread. Raises HttpError 503."""
        try:
            return self._node.cluster.replica(bytes.fromhex(log_id)) if log_id and self._node.cluster else None
        except (KeyError, ValueError):
            return None
        except OSError as error:
            log.error("HTTP: cannot read a replica: %s", error)
            raise HttpError(503, "CANNOT_READ") from None

    def _backup_of(self, log_id: str) -> tuple[Backup, str]:
        """Return the maker of backups of a log, "": the node's own, and the header that names the promoted logs.

        Runs in the trio thread. Raises HttpError 404.
        """
        promoted = self._node.cluster.promoted_logs() if self._node.cluster is not None else {}
        left_out = ",".join(f"{one.hex()}:{node}" for one, (node, _) in list(promoted.items())[:MOST_NAMED])
        if not log_id:
            return self._node.backup, left_out
        for one, (_, log_of_node) in promoted.items():
            if one.hex() == log_id:
                return log_of_node.backup(), left_out
        raise HttpError(404, "LOG_NOT_FOUND")

    @staticmethod
    def _begin(backup: Backup) -> tuple[int, Sequence[BackupPart]]:
        """Begin a copy of a log, and return its number and its parts. Runs in the trio thread. Raises HttpError 409, 503."""
        try:
            return backup.begin()
        except Busy:
            raise HttpError(409, "BACKUP_RUNNING") from None
        except OSError as error:
            log.error("HTTP: cannot make a backup, syncing failed: %s", error)
            raise HttpError(503, "CANNOT_SYNC") from None

    async def _stream(
        self, backup: Backup, copy: int, parts: Sequence[BackupPart], beside: Mapping[str, bytes]
    ) -> AsyncIterator[bytes]:
        call = self._node.bridge.call
        try:
            async for chunk in stream_archive(parts, beside, lambda: call(partial(backup.keep_alive, copy))):
                yield chunk
        finally:
            await asyncio.shield(asyncio.ensure_future(call(partial(backup.end, copy))))


def _answer(content: AsyncIterator[bytes], size: int, headers: dict[str, str]) -> Response:
    headers |= {"Content-Length": str(size), "Content-Disposition": 'attachment; filename="nsqd.tar"'}
    return StreamingResponse(content, media_type="application/x-tar", headers=V1_HEADERS | headers)


async def _nothing() -> None:
    """Do nothing after a chunk: the part of a replica that is sent does not change."""


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # the file does not exist yet; only tools read it
        return b""
