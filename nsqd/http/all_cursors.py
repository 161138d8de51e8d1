"""GET /cursors: how far every reader with a cursor is behind, in all topics.

    GET /cursors[?limit=100][&after=TOPIC/NAME[/ID]]     {"cursor_count": all of them, "cursors": [...]}

The cursors are sorted by topic, name and log, beginning after TOPIC/NAME. Each is as in /topic/cursors, with its "topic"
and "log" first. Those of logs that the node has promoted follow that of its own log: a page that begins behind one of them is
asked for with the id of its log (the first 32 characters of "log").
"""

from itertools import islice
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from nsqd.core.broker import Broker
from nsqd.core.topic import Topic
from nsqd.http.arguments import page_after
from nsqd.http.cursors import describe_cursor
from nsqd.http.node import Node
from shared.http.api import json_response
from shared.http.argument import Argument, bounded
from shared.http.route import STATS, Route

LIMIT, MOST = 100, 1000  # cursors in an answer
BATCH = 1000  # topics in one turn: most have no cursor; about a tenth of a millisecond
PER_TURN = 200  # cursors described in one turn: less than a millisecond

# topic and name, neither of which has a slash, and the id of a promoted log; "": the node's own log
Key = tuple[str, str, str]


class AllCursors:
    """The route for the cursors of all topics."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def routes(self) -> list[Route]:
        return [
            Route("GET /cursors", self.cursors, STATS, (_LIMIT, _AFTER), "List the cursors of all topics"),
        ]

    async def cursors(self, request: Request, limit: int, after: Key) -> Response:
        """Answer one page of cursors, sorted by topic and name."""
        keys = await self._keys()
        page, _ = page_after(keys, after, limit)
        cursors: list[dict[str, Any]] = []
        for start in range(0, len(page), PER_TURN):
            part = page[start : start + PER_TURN]
            cursors += await self._node.bridge.call(lambda part=part: self._describe(part))  # type: ignore[misc]
        return json_response({"cursor_count": len(keys), "cursors": cursors})

    async def _keys(self) -> list[Key]:
        """Return the keys of all cursors."""
        call = self._node.bridge.call
        keys: list[Key] = []
        for log_id, broker in await call(self._brokers):
            topics = iter(await call(lambda broker=broker: list(broker.topics.values())))  # type: ignore[misc]
            while batch := list(islice(topics, BATCH)):
                keys += await call(lambda batch=batch, log_id=log_id: _keys_of(batch, log_id))  # type: ignore[misc]
        return keys

    def _brokers(self) -> list[tuple[str, Broker]]:
        """Return the brokers of all logs, each with the log's id; "": clients publish into it. Runs in the trio thread."""
        home, *others = self._node.broker.logs
        histories = [(other.context.history, other) for other in others]
        return [("", home), *((history.log_id.hex(), other) for history, other in histories if history is not None)]

    def _describe(self, keys: list[Key]) -> list[dict[str, Any]]:
        """Describe the cursors that still exist. Runs in the trio thread."""
        found, brokers = [], dict(self._brokers())
        for name, cursor_name, log_id in keys:
            broker = brokers.get(log_id)
            topic = broker.topics.get(name) if broker is not None else None
            cursor = topic.cursors.get(cursor_name) if topic is not None else None
            if broker is not None and topic is not None and cursor is not None:
                window = (broker.context.history or self._node.history).window(topic.number)
                described = describe_cursor(cursor_name, cursor, window)
                found.append({"topic": name, "log": window.log, **described})
        return found


def _keys_of(topics: list[Topic], log_id: str) -> list[Key]:
    """Return the keys of the topics' cursors. Runs in the trio thread."""
    held = [topic for topic in topics if topic.cursors and not topic.deleted]
    return [(topic.name, name, log_id) for topic in held for name in topic.cursors]


def _read_key(text: str) -> Key:
    topic, rest = text.split("/", 1)
    name, _, log_id = rest.partition("/")
    return topic, name, log_id


_LIMIT = bounded("limit", MOST, LIMIT)
_AFTER = Argument("after", _read_key, ("", "", ""), "TOPIC/NAME or TOPIC/NAME/LOG")
