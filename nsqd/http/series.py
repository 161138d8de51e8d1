"""Tell a topic's recent activity, for charts.

    GET /topic/series?topic=t

    {"topic": "t", "day": {"step": 300, "from": S, "published": [7, null, ...], "finished": [...], "depth": [...],
     "in_flight": [...]}, "hour": {"step": 10, ...}}

`from` is when the first step began, s since the epoch; null: nothing is known about that step. Counts are of a step; depth and
in_flight are those at its end. The hour begins with the first look, and is forgotten after ten minutes without a look. 404
TOPIC_NOT_FOUND.
"""

import time
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from nsqd.core.observation.series import Ring
from nsqd.http.arguments import existing_topic, topic_name
from nsqd.http.node import Node
from shared.http.api import Routes, json_response, query


class SeriesRoute:
    """The route for the series of a topic."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def routes(self) -> Routes:
        """Return the path, its method and its handler."""
        return {"/topic/series": {"GET": self.series}}

    async def series(self, request: Request) -> Response:
        """Answer both rings of a topic: the day and the hour."""
        name = topic_name(query(request))

        def look() -> dict[str, Any]:
            topic = existing_topic(self._node.broker, name)
            coarse, fine = self._node.series.rings_of(topic.number, int(time.time()))
            return {"topic": name, "day": _describe_ring(coarse), "hour": _describe_ring(fine)}

        return json_response(await self._node.bridge.observe(look))


def _describe_ring(ring: Ring | None) -> dict[str, Any] | None:
    if ring is None or ring.last < 0:
        return None
    values = {name: [_whole(value) for value in kept] for name, kept in ring.columns().items()}
    return {"step": ring.step, "from": ring.first, **values}


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
