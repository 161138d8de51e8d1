"""GET /storage: the content of the commit log, and the topics that take its space.

    {"path", "log_bytes", "live_bytes", "segments", "memory_bytes", "unsynced_bytes", "checkpoints", "damage", "torn",
     "retries", "replay_seconds", "syncs", "sync_p50_ms", "sync_p99_ms", "disk_free", "disk_total", "refusal", "counted",
     "promoted": [{"log", "node", "path", "log_bytes", "live_bytes", "segments", ...}, ...], "topic_count",
     "files": [{"number", "name", "bytes", "live_bytes", "first_timestamp"}, ...],
     "topics": [{"topic", "live_bytes", "messages", "retained"}, ...]}

`promoted` are the logs that the node has promoted, with the number of the node that published into each, and the same
statistics as of its own log; `live_bytes` are as the log counted them last. All other statistics are of the node's own log.

`refusal` is why publishes are refused, "" if they are not. `disk_free` and `disk_total` are null if the disk could not be
examined. `files` are the newest 200, the newest first; `first_timestamp`, the publish time of the first message in a file that
is still wanted, is left out if there is none. `topics` are the 100 with the most live bytes, of `topic_count` that have
something in the log: `messages` are those that some reader has not finished, or that no channel was given yet;
`retained` can be read back, finished or not.

Live bytes are those referenced or retained. They are counted on request, at most every ten seconds (`counted`: when,
ns since the epoch), while messages come and go. So the count is approximate, and an extent of which half is wanted counts as
half its bytes. `files` and the other counted statistics are of that time, and everything else is of now.
"""

import asyncio
from dataclasses import dataclass
from heapq import nlargest
from operator import attrgetter
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from nsqd.core.retention.contents import FileContent, TopicContent
from nsqd.core.sequence.store import LogFigures
from nsqd.http.node import Node
from shared.http.api import json_response
from shared.http.route import STATS, Route
from shared.log import log
from shared.values import SECOND

MOST_FILES, MOST_TOPICS = 200, 100
# ns that a count is reused: with a hundred million waiting messages it takes a tenth of a second, in batches
COUNT_LIFETIME = 10 * SECOND
BATCH = 500  # extents and topics in one turn: about a millisecond


@dataclass(frozen=True, slots=True)
class Counted:
    """The count of what takes the log's space, at one time."""

    at: int  # ns since the epoch
    live: int  # bytes
    topic_count: int
    topics: list[tuple[str, TopicContent]]  # by name, the largest first
    files: list[FileContent]


class StorageRoute:
    """The route for the storage of the node. It keeps the last count for a while."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._path = str(Path(node.options.data_path or ".").resolve() / "log")
        self._counting = asyncio.Lock()
        self._counted: Counted | None = None
        self._until = 0  # monotonic ns until which that count is reused

    def routes(self) -> list[Route]:
        return [
            Route("GET /storage", self.storage, STATS, (), "Return what the commit log holds"),
        ]

    async def storage(self, request: Request) -> Response:
        """Answer the statistics of the log, and the last count."""
        async with self._counting:  # requests that come meanwhile use the same count
            counted, now = self._counted, await self._node.bridge.observe(lambda: self._node.broker.now)
            if counted is None or now >= self._until:
                counted = self._counted = await self._count()
                self._until = now + COUNT_LIFETIME
        figures, refusal, promoted = await self._node.bridge.observe(self._figures)
        free, total = await asyncio.to_thread(self._room)
        answer = {
            "path": self._path,
            **_figures(figures),
            "live_bytes": min(counted.live, figures.size),
            "disk_free": free,
            "disk_total": total,
            "refusal": refusal,
            "counted": counted.at,
            "promoted": promoted,
            "topic_count": counted.topic_count,
            "files": [_file(file) for file in counted.files],
            "topics": [_topic(name, content) for name, content in counted.topics],
        }
        return json_response(answer)

    def _figures(self) -> tuple[LogFigures, str, list[dict[str, Any]]]:
        """Return the statistics of the node's log, why it refuses publishes, and the rows of promoted logs.

        Runs in the trio thread.
        """
        node = self._node
        logs = node.cluster.promoted_logs() if node.cluster is not None else {}
        promoted = [self._of_promoted(log_id, number, one.figures()) for log_id, (number, one) in logs.items()]
        return node.log(), node.broker.store.refusal, promoted

    def _of_promoted(self, log_id: bytes, node: int, figures: LogFigures) -> dict[str, Any]:
        place = Path(self._path).parent / "promoted" / log_id.hex() / "log"
        live = min(figures.live, figures.size)
        return {"log": log_id.hex(), "node": node, "path": str(place), **_figures(figures), "live_bytes": live}

    async def _count(self) -> Counted:
        node, call = self._node, self._node.bridge.observe
        names = await call(
            lambda: {topic.number: topic.name for topic in node.broker.topics.values() if not topic.ephemeral}
        )
        count = await call(lambda: node.contents.count(list(names)))
        while await call(lambda: count.count_batch(BATCH)):
            pass
        found, files, wall = await call(lambda: (count.topics(), count.files(MOST_FILES), node.broker.wall))
        largest = nlargest(MOST_TOPICS, found, key=attrgetter("live"))
        live = sum(content.live for content in found)
        topics = [(names[content.topic], content) for content in largest]
        return Counted(wall, live, len(found), topics, files[::-1])

    def _room(self) -> tuple[int, int] | tuple[None, None]:
        """Return the bytes free and in all on the disk, or None twice. Runs in a thread, because a disk may hang."""
        try:
            return self._node.contents.room()
        except OSError as error:
            log.error("HTTP: cannot read the free disk space: %s", error)
            return None, None


def _figures(log: LogFigures) -> dict[str, Any]:
    """Return the statistics of the log that /metrics has, too."""
    return {
        "log_bytes": log.size,
        "segments": log.segments,
        "memory_bytes": log.memory,
        "unsynced_bytes": log.unsynced,
        "checkpoints": log.checkpoints,
        "damage": log.damage,
        "torn": log.torn,
        "retries": log.retries,
        "replay_seconds": round(log.replay, 3),
        "syncs": log.syncs.count,
        "sync_p50_ms": _ms(log.syncs.quantile(0.5)),
        "sync_p99_ms": _ms(log.syncs.quantile(0.99)),
    }


def _ms(ns: int) -> float:
    return round(ns / 1e6, 3)


def _file(file: FileContent) -> dict[str, Any]:
    first = {"first_timestamp": file.first} if file.first else {}
    return {"number": file.number, "name": file.name, "bytes": file.size, "live_bytes": file.live, **first}


def _topic(name: str, content: TopicContent) -> dict[str, Any]:
    return {"topic": name, "live_bytes": content.live, "messages": content.unfinished, "retained": content.retained}
