"""Drain a node before it is taken away: it takes nothing more and delivers what it has (NATS calls this lame duck mode).

    POST /node/drain        begin to drain; on a node that drains already it changes nothing
    POST /node/undrain      stop draining
    GET  /node/drain        how far the draining is

All three answer:

    {"draining": true, "since": S, "depth": 3, "in_flight": 1, "deferred": 0, "buried": 2, "jobs": 0,
     "schedules": 1, "batches": 0, "done": false}

`since` is in s since the epoch, 0 while the node does not drain. `depth` counts messages that are ready in some channel, or
that no channel has been given yet; `deferred` includes follow-ups, which wait for their batch; `jobs` counts those of tubes
without the buried ones, which `buried` includes; `batches` those that are not done. A schedule publishes nothing here while the
node drains, and is left until it is deleted. `done`: the node drains, and nothing is left except buried messages and jobs.
The statistics topic and the audit topic are left out, because they may have no consumer.

Clients that publish or put are refused: E_PUB_FAILED (MPUB, DPUB) `PUB failed DRAINING` over TCP, 503 DRAINING over HTTP (also
for /channel/messages/move, and for /channel/create with `from`), DRAINING to clients of beanstalkd. Consumers and workers go
on, and find the node at nsqlookupd as before. A topic or a channel that is paused, and a topic without a channel, keeps its
messages. /readyz is 503; /ping and /livez do not change. A restart ends the draining.
"""

from itertools import islice
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from nsqd.core.observation.drain_status import DrainStatus, drain_statuses
from nsqd.http.node import Node
from shared.http.api import Handler, json_response
from shared.http.route import ADMIN, STATS, Route
from shared.log import log
from shared.values import SECOND

BATCH = 200  # topics and channels in one turn: less than a millisecond


class Drain:
    """The three routes that drain a node."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def routes(self) -> list[Route]:
        return [
            Route("GET /node/drain", self.status, STATS, (), "Return how far the draining is"),
            Route("POST /node/drain", self._setting(True), ADMIN, (), "Take no further messages"),
            Route("POST /node/undrain", self._setting(False), ADMIN, (), "Take messages again"),
        ]

    async def status(self, request: Request) -> Response:
        """Answer how far the draining is."""
        return json_response(await self._count_left())

    def _setting(self, draining: bool) -> Handler:
        async def handler(request: Request) -> Response:
            if await self._node.bridge.call(lambda: self._node.drain(draining)):
                log.info(
                    "DRAIN: %s",
                    "started, new messages are rejected" if draining else "cancelled, new messages are accepted",
                )
            return json_response(await self._count_left())

        return handler

    async def _count_left(self) -> dict[str, Any]:
        """Count what is left, and return the answer.

        Each `call` is a turn of its own. So the counts include everything that came in the turn in which draining began.
        """
        call, broker = self._node.bridge.call, self._node.broker
        began = await call(lambda: broker.draining_since)
        own = self._node.options.statistics_topic, self._node.options.audit_topic
        left, looking = DrainStatus(), drain_statuses(broker, *own)
        while batch := await call(lambda: list(islice(looking, BATCH))):
            for one in batch:
                left = left.plus(one)
        since = await call(lambda: broker.draining_since)
        done = since > 0 and since == began and left.is_drained  # the node has drained since before the count
        return {"draining": since > 0, "since": since // SECOND, **left._asdict(), "done": done}
