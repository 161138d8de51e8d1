"""GET /debug/trace: the last events that concern a message, a line each. Only with -debug-routes.

    GET /debug/trace?id=0000000000000001

404 if nothing is known of the message: it was published before the node was started, or too many other messages were published
since.
"""

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from nsqd.core.trace import Trace, trace_of
from nsqd.http.arguments import read_message_id
from nsqd.http.node import Node
from shared.http.api import text_response
from shared.http.argument import Argument
from shared.http.errors import HttpError
from shared.http.route import ADMIN, Route


class TraceRoute:
    """The route for the trace of a message."""

    def __init__(self, node: Node, trace: Trace) -> None:
        self._node = node
        self._trace = trace

    def routes(self) -> list[Route]:
        return [
            Route("GET /debug/trace", self.trace, ADMIN, (Argument("id", read_message_id, expected="16 digits"),),
                  "Return the last events that concern a message"),
        ]  # fmt: skip

    async def trace(self, request: Request, id_: bytes) -> Response:
        """Return the events of one message, a line each."""
        events = await self._node.bridge.observe(self._trace.events)
        lines = await asyncio.to_thread(trace_of, events, id_)
        if not lines:
            raise HttpError(404, "MESSAGE_NOT_FOUND")
        return text_response("\n".join(lines) + "\n")
