"""Tell what clients of beanstalkd see as tubes, also those whose names no topic can have.

    GET  /tubes[?limit=100][&after=NAME]     {"tube_count": all of them, "tubes": [...]}, by name, those behind NAME
    POST /tube/pause?tube=NAME&seconds=N     hand out no job for N seconds, or until a restart; 0: end the pause, also one by
                                             clients of Disque, who may have paused the queue until they end it

Each tube has `tube_name`, `urgent_count`, `ready_count`, `reserved_count`, `delayed_count`, `buried_count`, `job_count` (all
jobs that ever came), `using_count`, `watching_count` and `waiting_count` (clients), and `pause_left` in s; 4294967295 if
the queue is paused until clients of Disque end that. /stats tells the same about a topic that is a tube. For the jobs in tubes
see nsqd/http/jobs.py.
"""

import time
from heapq import nsmallest
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from nsqd.core.tubes import Tubes
from nsqd.core.work_queue.job import JobState
from nsqd.core.work_queue.pausable import LONGEST_PAUSE
from nsqd.http.arguments import bounded, existing_tube, tube_name
from nsqd.http.node import Node
from shared.http.api import Routes, empty_response, json_response, query
from shared.http.errors import HttpError
from shared.values import SECOND

LIMIT, MOST = 100, 1000  # tubes in an answer


class TubesRoute:
    """The two routes for the tubes of the node."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def routes(self) -> Routes:
        """Return every path, its method and its handler."""
        return {"/tubes": {"GET": self.tubes}, "/tube/pause": {"POST": self.pause}}

    async def tubes(self, request: Request) -> Response:
        """Answer a page of the tubes, by name."""
        arguments = query(request)
        limit, after = bounded(arguments, "limit", LIMIT, MOST), arguments.get("after", "")
        return json_response(await self._node.bridge.call(lambda: self._page(after, limit)))

    async def pause(self, request: Request) -> Response:
        """Pause a tube, as pause-tube does."""
        arguments = query(request)
        name = tube_name(arguments)
        if "seconds" not in arguments:
            raise HttpError(400, "MISSING_ARG_SECONDS")
        ns = bounded(arguments, "seconds", 0, LONGEST_PAUSE) * SECOND
        broker = self._node.broker
        await self._node.bridge.call(lambda: existing_tube(broker, name).pause_for(ns, broker.now))
        return empty_response()

    def _page(self, after: str, limit: int) -> dict[str, Any]:
        tubes, now = self._node.broker.tubes, time.monotonic_ns()
        named = tubes.names_of_all()
        found = nsmallest(limit, (name for name in named if name > after))
        rows = [{"tube_name": name, **tube_figures(tubes, name, now)} for name in found]
        return {"tube_count": len(named), "tubes": rows}


def tube_figures(tubes: Tubes, name: str, now: int) -> dict[str, int]:
    """Count a tube's jobs in each state, all jobs that ever came, and its clients; `pause_left` is in s."""
    tube, users = tubes.tube(name), tubes.listed.users.get(name)
    everywhere = tubes.everywhere(name)
    counts = {state: sum(one.table.counts[state] for one in everywhere) for state in JobState}
    return {
        "urgent_count": sum(one.table.urgent for one in everywhere),
        "ready_count": counts[JobState.READY],
        "reserved_count": counts[JobState.RESERVED],
        "delayed_count": counts[JobState.DELAYED],
        "buried_count": counts[JobState.BURIED],
        "job_count": sum(one.total for one in everywhere),
        "using_count": users.using if users is not None else 0,
        "watching_count": users.watching if users is not None else 0,
        "waiting_count": tubes.waiters.count_at(name),
        "pause_left": tube.pause_left(now) if tube is not None else 0,
    }
