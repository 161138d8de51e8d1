"""GET /cursors: tell how far every reader with a cursor is behind, in all topics.

    GET /cursors[?limit=100][&after=TOPIC/NAME]     {"cursor_count": all of them, "cursors": [...]}

The cursors are sorted by topic and name, beginning behind TOPIC/NAME. Each is told as in /topic/cursors, with its "topic"
first.
"""

from itertools import islice
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from nsqd.core.topic import Topic
from nsqd.http.arguments import bounded
from nsqd.http.cursors import describe_cursor
from nsqd.http.node import Node
from shared.http.api import Routes, json_response, query
from shared.http.errors import HttpError

LIMIT, MOST = 100, 1000  # cursors in an answer
PORTION = 1000  # topics in one turn: most have no cursor; about a tenth of a millisecond
PER_TURN = 200  # cursors described in one turn: less than a millisecond

Key = tuple[str, str]  # topic and name: neither has a slash


class AllCursors:
    """The route for the cursors of all topics."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def routes(self) -> Routes:
        """Return the path, its method and its handler."""
        return {"/cursors": {"GET": self.cursors}}

    async def cursors(self, request: Request) -> Response:
        """Answer one page of cursors, sorted by topic and name."""
        arguments = query(request)
        limit, after = bounded(arguments, "limit", LIMIT, MOST), _after(arguments)
        keys = await self._keys()
        page = sorted(key for key in keys if key > after)[:limit]
        cursors: list[dict[str, Any]] = []
        for start in range(0, len(page), PER_TURN):
            part = page[start : start + PER_TURN]
            cursors += await self._node.bridge.call(lambda part=part: self._describe(part))  # type: ignore[misc]
        return json_response({"cursor_count": len(keys), "cursors": cursors})

    async def _keys(self) -> list[Key]:
        """Return the keys of all cursors."""
        call = self._node.bridge.call
        topics = iter(await call(lambda: list(self._node.broker.topics.values())))
        keys: list[Key] = []
        while portion := list(islice(topics, PORTION)):
            keys += await call(lambda portion=portion: _keys_of(portion))  # type: ignore[misc]
        return keys

    def _describe(self, keys: list[Key]) -> list[dict[str, Any]]:
        """Describe the cursors that still exist. Runs in the trio thread."""
        found = []
        for name, cursor_name in keys:
            topic = self._node.broker.topics.get(name)
            cursor = topic.cursors.get(cursor_name) if topic is not None else None
            if topic is not None and cursor is not None:
                found.append(
                    {"topic": name, **describe_cursor(cursor_name, cursor, self._node.history.window(topic.number))}
                )
        return found


def _keys_of(topics: list[Topic]) -> list[Key]:
    """Return the keys of the topics' cursors. Runs in the trio thread."""
    return [(topic.name, name) for topic in topics if topic.cursors and not topic.deleted for name in topic.cursors]


def _after(arguments: dict[str, str]) -> Key:
    topic, slash, name = arguments.get("after", "/").partition("/")
    if not slash:
        raise HttpError(400, "INVALID_ARG_AFTER")
    return topic, name
