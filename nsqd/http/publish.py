"""POST /pub and /mpub. The answer leaves after the turn's commit, like a PUB's over TCP."""

import re

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from nsqd.http.arguments import topic_name, topic_to_publish_to
from nsqd.http.node import Node
from nsqd.protocols.nsq.commands import INT32
from nsqd.protocols.nsq.fast import equal_bodies
from shared.http.api import V1_HEADERS, query, read_body
from shared.http.errors import HttpError
from shared.values import MILLISECOND

_BINARY_FALSE = ("false", "0")
_INTEGER = re.compile(
    r"(?=[+-]?[0-9])(?:\+|-(?=0+$))?0*([0-9]{0,18})"
)  # not negative, and no more than 18 digits that count


class _Ok(Response):
    """The answer OK, built once: the hot path allocates no headers."""

    _start = {  # noqa: RUF012 - never changed
        "type": "http.response.start",
        "status": 200,
        "headers": [
            (b"content-length", b"2"),
            (b"content-type", b"text/plain; charset=utf-8"),
            *((name.lower().encode(), value.encode()) for name, value in V1_HEADERS.items()),
        ],
    }
    _body = {"type": "http.response.body", "body": b"OK"}  # noqa: RUF012

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send(self._start)
        await send(self._body)


OK = _Ok()


class Publishing:
    """The two routes."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._max_msg_size = node.options.max_msg_size
        self._max_body_size = node.options.max_body_size

    async def pub(self, request: Request) -> Response:
        """One message, at once or deferred."""
        body = await read_body(request, self._max_msg_size, "MSG_TOO_BIG")
        if not body:
            raise HttpError(400, "MSG_EMPTY")
        arguments = query(request)
        topic = topic_name(arguments)
        broker, defer = self._node.broker, arguments.get("defer")
        if defer is None:
            await self._node.bridge.call(lambda: topic_to_publish_to(broker, topic).publish([body], len(body)))
        else:
            await self._node.bridge.call(lambda: self._publish_deferred(topic, body, defer))
        return OK

    async def mpub(self, request: Request) -> Response:
        """Many messages: one a line, or with binary=true as in the MPUB of TCP, without its outer length."""
        body = await read_body(request, self._max_body_size, "BODY_TOO_BIG")
        arguments = query(request)
        topic = topic_name(arguments)
        binary = "binary" in arguments and arguments["binary"] not in _BINARY_FALSE
        try:
            bodies = self._binary(body) if binary else self._lines(body)
        except HttpError:
            await self._publish(topic, [])  # the original has made the topic by now
            raise
        await self._publish(topic, bodies)
        return OK

    async def _publish(self, name: str, bodies: list[bytes]) -> None:
        """Publish, or only see to it that the topic exists."""
        broker, size = self._node.broker, sum(map(len, bodies))

        def publish() -> None:
            topic = topic_to_publish_to(broker, name)
            if bodies:
                topic.publish(bodies, size)

        await self._node.bridge.call(publish)

    def _publish_deferred(self, name: str, body: bytes, defer: str) -> None:
        broker = self._node.broker
        topic = topic_to_publish_to(broker, name)
        longest = self._node.options.max_req_timeout // MILLISECOND
        match = _INTEGER.fullmatch(defer)
        delay = int(match[1] or "0") if match else -1
        if not 0 <= delay <= longest:
            raise HttpError(400, "INVALID_DEFER")
        if delay:
            topic.publish_deferred(body, broker.now + delay * MILLISECOND)
        else:
            topic.publish([body], len(body))

    def _lines(self, body: bytes) -> list[bytes]:
        lines = list(filter(None, body.split(b"\n")))
        if max(map(len, lines), default=0) > self._max_msg_size:
            raise HttpError(413, "MSG_TOO_BIG")
        return lines

    def _binary(self, body: bytes) -> list[bytes]:
        """Nothing is published unless all of it is well-formed."""
        equal = equal_bodies(body, 0, len(body), self._max_msg_size)
        if equal is not None and len(equal) <= (self._max_body_size - 4) // 5:
            return equal
        if len(body) < 4:
            raise HttpError(413, "BAD_BODY")
        count = INT32.unpack_from(body)[0]
        if not 0 < count <= (self._max_body_size - 4) // 5:
            raise HttpError(413, "BAD_BODY")
        bodies, at = [], 4
        for _ in range(count):
            size = INT32.unpack_from(body, at)[0] if at + 4 <= len(body) else 0
            if not 0 < size <= self._max_msg_size or at + 4 + size > len(body):
                raise HttpError(413, "BAD_MESSAGE")
            bodies.append(body[at + 4 : at + 4 + size])
            at += 4 + size
        return bodies
