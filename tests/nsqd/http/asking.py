"""Requests to a node within the test's process: for tests of several routes."""

from typing import Any

import httpx

from tests.daemons import OK, Conversation
from tests.local_node import LocalNode


def ask(node: LocalNode, method: str, path: str, content: bytes | str = b"", **arguments: object) -> httpx.Response:
    """Send a request. A `_` at the end of an argument's name is left out: `from_` stands for `from`."""
    params = {name.removesuffix("_"): str(value) for name, value in arguments.items()}
    return node.client.request(method, path, params=params or None, content=content)


def told(answer: httpx.Response) -> Any:
    """Return the JSON of an answer, or the status and the message of a refusal."""
    found = answer.json() if answer.content else ""
    return found if answer.status_code == 200 else (answer.status_code, found["message"])


def get(node: LocalNode, path: str, **arguments: object) -> Any:
    """Send a GET, and return what it tells."""
    return told(ask(node, "GET", path, **arguments))


def post(node: LocalNode, path: str, content: bytes | str = b"", **arguments: object) -> httpx.Response:
    """Send a POST. Raises httpx.HTTPStatusError unless the answer is a success."""
    return ask(node, "POST", path, content, **arguments).raise_for_status()


def consumer(node: LocalNode, topic: str, ready: int) -> Conversation:
    """Return a client that consumes channel `c` of a topic, and takes so many messages at a time."""
    client = Conversation(node, b"  V2SUB %s c\nRDY %d\n" % (topic.encode(), ready))
    assert client.frame() == OK
    return client


def drained(node: LocalNode, topic: str, channel: str, count: int) -> list[bytes]:
    """Consume so many messages of a channel, and return their bodies."""
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
