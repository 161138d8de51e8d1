"""GET /debug/trace: the last events that concern a message, a line each. Only with -debug-routes.

    GET /debug/trace?id=0000000000000001

404 if nothing is known of the message: it was published before the node was started, or too many other messages were published
since.
"""

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from nsqd.core.message.frame import ID_SIZE
from nsqd.core.trace import Trace, trace_of
from nsqd.http.node import Node
from shared.http.api import query, text_response
from shared.http.errors import HttpError
from shared.http.route import ADMIN, Route


class TraceRoute:
    """The route for the trace of a message."""

    def __init__(self, node: Node, trace: Trace) -> None:
        self._node = node
        self._trace = trace

    def routes(self) -> list[Route]:
        return [
            Route("GET /debug/trace", self.trace, ADMIN, "id", "Return the last events that concern a message"),
        ]

    async def trace(self, request: Request) -> Response:
        """Return the events of one message, a line each."""
        message_id = query(request).get("id", "").encode()
        if len(message_id) != ID_SIZE:
            raise HttpError(400, "INVALID_ARG_ID")
        events = await self._node.bridge.observe(self._trace.events)
        lines = await asyncio.to_thread(trace_of, events, message_id)
        if not lines:
            raise HttpError(404, "MESSAGE_NOT_FOUND")
        return text_response("\n".join(lines) + "\n")
