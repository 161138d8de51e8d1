"""Tubes of beanstalkd's clients and queues of Disque's, also those whose names no topic can have.

    GET  /tubes[?limit=100][&after=NAME]     {"tube_count": all of them, "tubes": [...]}, by name, those behind NAME
    POST /tube/pause?tube=NAME&seconds=N     deliver no job for N seconds, or until a restart; 0: end the pause, also one by
                                             clients of Disque, which may have paused the queue until they end it
    POST /tube/pause?tube=NAME&queue=STATE[&by=NAME]     pause the queue as PAUSE of Disque's clients does, until the next call,
                                             also over restarts. STATE: out (deliver no job), in (clients of Disque add none),
                                             all, none; else 400 INVALID_ARG_QUEUE. `by`: as in /pauses

Each tube has `tube_name` and

* `urgent_count`, `ready_count`, `reserved_count`, `delayed_count`, `buried_count`, and `job_count`, all jobs that ever came;
* `using_count` and `watching_count`: clients; those of Disque watch while they wait;
* `waiting_count`: clients and other nodes that wait for a job, of which `disque_waiting_count` are clients of Disque and
  `node_waiting_count` other nodes of the cluster;
* `queue_paused`: in, out, all or none, the pause of the queue; `pause_left` in s (4294967295: until the pause is ended);
* `oldest` and `oldest_job`: when the oldest ready job, and the oldest in any state, were put, ns since the epoch; 0: none.

/stats has the same about a topic that is a tube, /tube/jobs the jobs in it.
"""

import time
from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from nsqd.core.observation.sums import oldest_of_tube
from nsqd.core.timing.pause import Pause
from nsqd.core.tubes import Tubes
from nsqd.core.work_queue.job import JobState
from nsqd.core.work_queue.pausable import LONGEST_PAUSE
from nsqd.core.work_queue.tube import Tube
from nsqd.http.arguments import TUBE, made_tube, page_after
from nsqd.http.node import Node
from nsqd.http.pauses import BY
from shared.auth.verbs import Verb
from shared.http.api import empty_response, json_response
from shared.http.argument import any_text, bounded, choice
from shared.http.errors import HttpError
from shared.http.route import STATS, Need, Route
from shared.values import SECOND

LIMIT, MOST = 100, 1000  # tubes in an answer
# Whether jobs that go, and jobs that come, are paused.
_WAYS = {"in": (False, True), "out": (True, False), "all": (True, True), "none": (False, False)}


class TubesRoute:
    """The two routes for the tubes of the node."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def routes(self) -> list[Route]:
        return [
            Route("GET /tubes", self.tubes, STATS, (bounded("limit", MOST, LIMIT), any_text("after", "")), "List the tubes"),
            Route("POST /tube/pause", self.pause, Need(Verb.ACT, "tube"),
                  (TUBE, bounded("seconds", LONGEST_PAUSE, None), choice("queue", _WAYS, None), BY),
                  "Pause a tube for `seconds` (0 ends that), or the `queue`, as PAUSE does"),
        ]  # fmt: skip

    async def tubes(self, request: Request, limit: int, after: str) -> Response:
        """Answer a page of the tubes, by name."""
        return json_response(await self._node.bridge.call(lambda: self._page(after, limit)))

    async def pause(
        self, request: Request, tube: str, seconds: int | None, queue: tuple[bool, bool] | None, by: str
    ) -> Response:
        """Pause a tube, as pause-tube does, or its queue, as PAUSE does."""
        broker = self._node.broker
        if queue is None and seconds is None:
            raise HttpError(400, "MISSING_ARG_SECONDS")

        def act() -> None:
            made = made_tube(self._node, request, tube)
            if queue is not None:
                made.pause_queue(Pause(by, broker.wall // SECOND, 0, *queue) if any(queue) else None)
            else:
                made.pause_for((seconds or 0) * SECOND, broker.now)

        await self._node.bridge.call(act)
        return empty_response()

    def _page(self, after: str, limit: int) -> dict[str, Any]:
        tubes, now = self._node.broker.tubes, time.monotonic_ns()
        named = tubes.names_of_all()
        found, _ = page_after(named, after, limit)
        rows = [{"tube_name": name, **tube_figures(tubes, name, now)} for name in found]
        return {"tube_count": len(named), "tubes": rows}


def tube_figures(tubes: Tubes, name: str, now: int) -> dict[str, Any]:
    """Count a tube's jobs in each state, all jobs that ever came, and its clients; `pause_left` is in s."""
    tube, users = tubes.tube(name), tubes.listed.users.get(name)
    everywhere, waiting = tubes.everywhere(name), tubes.waiters.kinds_at(name)
    oldest, oldest_job = oldest_of_tube(everywhere)
    counts = {state: sum(one.table.counts[state] for one in everywhere) for state in JobState}
    return {
        "urgent_count": sum(one.table.urgent for one in everywhere),
        "ready_count": counts[JobState.READY],
        "reserved_count": counts[JobState.RESERVED],
        "delayed_count": counts[JobState.DELAYED],
        "buried_count": counts[JobState.BURIED],
        "job_count": sum(one.total for one in everywhere),
        "using_count": users.using if users is not None else 0,
        "watching_count": tubes.watching_count(name),
        "waiting_count": tubes.waiters.count_at(name),
        "disque_waiting_count": waiting.others,
        "node_waiting_count": waiting.nodes,
        "pause_left": tube.pause_left(now) if tube is not None else 0,
        "queue_paused": _ways(everywhere),
        "oldest": oldest,
        "oldest_job": oldest_job,
    }


def _ways(everywhere: Sequence[Tube]) -> str:
    """Return the pause of a queue (in, out, all or none), whose jobs are in all these tubes; only the first takes jobs."""
    out, into = any(tube.is_held for tube in everywhere), any(tube.refuses_jobs for tube in everywhere[:1])
    return Pause(out=out, into=into).ways if out or into else "none"
