"""GET /tubes: what clients of beanstalkd see as tubes, also those whose names no topic can have.

    GET /tubes[?limit=100][&after=NAME]     {"tube_count": all of them, "tubes": [...]}, by name, those behind NAME

Each is told as `picture` does; /stats tells the same of a topic that is a tube.
"""

import time
from heapq import nsmallest
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from nsqd.core.jobs import JobState
from nsqd.core.tube import Tube
from nsqd.http.arguments import bounded
from nsqd.http.node import Node
from shared.http.api import Routes, json_response, query

LIMIT, MOST = 100, 1000  # tubes in an answer


class TubesRoute:
    """The route."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def routes(self) -> Routes:
        """Every path and its method."""
        return {"/tubes": {"GET": self.tubes}}

    async def tubes(self, request: Request) -> Response:
        """A page of them."""
        arguments = query(request)
        limit, after = bounded(arguments, "limit", LIMIT, MOST), arguments.get("after", "")
        return json_response(await self._node.bridge.call(lambda: self._page(after, limit)))

    def _page(self, after: str, limit: int) -> dict[str, Any]:
        topics, now = self._node.broker.topics, time.monotonic_ns()
        names = [name for name, topic in topics.items() if topic.tube is not None]
        found = (topics[name].tube for name in nsmallest(limit, (name for name in names if name > after)))
        tubes = [{"tube_name": tube.topic.name, **picture(tube, now)} for tube in found if tube is not None]
        return {"tube_count": len(names), "tubes": tubes}


def picture(tube: Tube, now: int) -> dict[str, int]:
    """Jobs in each state, jobs that came, clients that use, watch, and wait for it; s for which it is paused."""
    users = tube.broker.tubes.users.get(tube.topic.name)
    return {
        "urgent_count": tube.urgent,
        "ready_count": tube.counts[JobState.READY],
        "reserved_count": tube.counts[JobState.RESERVED],
        "delayed_count": tube.counts[JobState.DELAYED],
        "buried_count": tube.counts[JobState.BURIED],
        "job_count": tube.total,
        "using_count": users.using if users is not None else 0,
        "watching_count": users.watching if users is not None else 0,
        "waiting_count": len(users.waiting) if users is not None else 0,
        "pause_left": max(0, tube.pause_until - now) // 1_000_000_000,
    }
