"""Draining a node, as before it is taken away (NATS has it as lame duck mode): it takes nothing more and hands out what it has.

    POST /node/drain        from now on; said again, it goes on as it was
    POST /node/undrain      no more
    GET  /node/drain        how far it is

All three answer:

    {"draining": true, "since": S, "depth": 3, "in_flight": 1, "deferred": 0, "buried": 2, "jobs": 0, "done": false}

`since`: s since the epoch, 0 while it does not drain. `depth`: messages ready in some channel, or that no channel has been
given yet; `jobs`: of tubes, but for buried ones, which `buried` has as well. `done`: it drains, and there is nothing left but
what is buried. The statistics topic is left out: it may have no consumer.

Whoever publishes or puts is refused: E_PUB_FAILED (MPUB, DPUB) `PUB failed DRAINING` over TCP, 503 DRAINING over HTTP (also of
/channel/messages/move, and of /channel/create with `from`), DRAINING to clients of beanstalkd. Consumers and workers go on, and
find the node at nsqlookupd as before. A topic or a channel that is paused, and a topic without a channel, keeps what it has.
/readyz is 503, /ping and /livez stay as they are. A restart forgets it.
"""

from itertools import islice
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from nsqd.core.observation.left import Left, walk
from nsqd.http.node import Node
from shared.http.api import Handler, Routes, json_response
from shared.log import log
from shared.values import SECOND

PORTION = 200  # topics and channels in one turn: less than a millisecond


class Drain:
    """The three routes."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def routes(self) -> Routes:
        """Every path and its methods."""
        return {
            "/node/drain": {"GET": self.tell, "POST": self._setting(True)},
            "/node/undrain": {"POST": self._setting(False)},
        }

    async def tell(self, request: Request) -> Response:
        """How far it is."""
        return json_response(await self._told())

    def _setting(self, draining: bool) -> Handler:
        async def handler(request: Request) -> Response:
            if await self._node.bridge.call(lambda: self._node.broker.drain(draining)):
                log.info("DRAIN: %s", "nothing is taken any more" if draining else "messages are taken again")
            return json_response(await self._told())

        return handler

    async def _told(self) -> dict[str, Any]:
        """What came in the turn in which draining began is there from the next on: each `call` is one."""
        call, broker = self._node.bridge.call, self._node.broker
        began = await call(lambda: broker.draining_since)
        left, looking = Left(), walk(broker, self._node.options.statistics_topic)
        while portion := await call(lambda: list(islice(looking, PORTION))):
            for one in portion:
                left = left.plus(one)
        since = await call(lambda: broker.draining_since)
        done = since > 0 and since == began and left.is_nothing  # it drained all the time
        return {"draining": since > 0, "since": since // SECOND, **left._asdict(), "done": done}
