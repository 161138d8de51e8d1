"""Requests to a node within the test's process, and to handlers without a server: for tests of several routes."""

import asyncio
import json
from collections.abc import Callable, Iterator
from functools import cache
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import httpx
from starlette.requests import Request
from starlette.responses import Response

from nsqd.core.broker import Broker
from nsqd.protocols.http.publishers import HttpPublishers
from shared.http.api import Handler
from tests.daemons import OK, Conversation
from tests.local_node import LocalNode


def ask(node: LocalNode, method: str, path: str, content: bytes | str = b"", **arguments: object) -> httpx.Response:
    """Send a request. A `_` at the end of an argument's name is left out: `from_` stands for `from`."""
    params = {name.removesuffix("_"): str(value) for name, value in arguments.items()}
    return node.client.request(method, path, params=params or None, content=content)


def reply_of(answer: httpx.Response) -> Any:
    """Return the JSON of an answer, or the status and the message of a refusal."""
    found = answer.json() if answer.content else ""
    return found if answer.status_code == 200 else (answer.status_code, found["message"])


def get(node: LocalNode, path: str, **arguments: object) -> Any:
    """Send a GET, and return the JSON of the answer."""
    return reply_of(ask(node, "GET", path, **arguments))


def post(node: LocalNode, path: str, content: bytes | str = b"", **arguments: object) -> httpx.Response:
    """Send a POST. Raises httpx.HTTPStatusError unless the answer is a success."""
    return ask(node, "POST", path, content, **arguments).raise_for_status()


def consumer(node: LocalNode, topic: str, ready: int) -> Conversation:
    """Return a client that consumes channel `c` of a topic, and takes `count` messages at a time."""
    client = Conversation(node, b"  V2SUB %s c\nRDY %d\n" % (topic.encode(), ready))
    assert client.frame() == OK
    return client


def drained(node: LocalNode, topic: str, channel: str, count: int) -> list[bytes]:
    """Consume `count` messages of a channel, and return their bodies."""
    with Conversation(node, b"  V2SUB %s %s\nRDY 100\n" % (topic.encode(), channel.encode())) as client:
        assert client.frame() == OK
        found = []
        for _ in range(count):
            message = client.message()
            found.append(message.body)
            client.send(b"FIN " + message.id + b"\n")
        client.send(b"CLS\n")
        assert client.frame() == (0, b"CLOSE_WAIT"), "there are more, or not all were finished"
    return found


class Bridge:
    """A bridge with one thread at both ends."""

    async def call(self, function: Callable[[], Any]) -> Any:
        return function()

    observe = call

    async def call_each(self, steps: Iterator[Any]) -> list[Any]:
        return list(steps)


def http_node(broker: Broker, **more: Any) -> Any:
    """Return a node of which handlers see the broker, and what is named."""
    parts: dict[str, Any] = {"info": SimpleNamespace(version="1", start_time=2), "peers": list, "health": lambda: "OK"}
    parts |= {"memory": lambda: {"heap_objects": 3}, "history": None, "accounts": None, "publishers": HttpPublishers()}
    return SimpleNamespace(broker=broker, bridge=Bridge(), **parts | more)


def handled(handler: Handler, **arguments: Any) -> bytes:
    """Call a handler with the body `x`, and return the body of its answer."""
    query = urlencode(arguments).encode()
    scope = {"type": "http", "method": "GET", "path": "/", "headers": [], "query_string": query}

    async def answer() -> Response:
        return await handler(Request(scope, receive))

    return bytes(_runner().run(answer()).body)


@cache
def _runner() -> asyncio.Runner:
    """Return the event loop of all calls, because a new one costs more than a call."""
    return asyncio.Runner()


async def receive() -> dict[str, Any]:
    return {"type": "http.request", "body": b"x"}


def handled_json(handler: Handler, **arguments: Any) -> Any:
    return json.loads(handled(handler, **arguments))
