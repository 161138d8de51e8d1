"""Raw HTTP to a node in the test's process: a connection for each request, and answers that are compared byte for byte.

See docs/contributing/design/nsq-http.md.
"""

import json
from dataclasses import dataclass
from typing import Any

from tests.daemons import OK, Conversation, sized
from tests.local_node import LocalNode

V1 = "nsq; version=1.0"
JSON, TEXT = "application/json; charset=utf-8", "text/plain; charset=utf-8"
ANSWER_TIME = 9.0  # s; answers take milliseconds, and after 10 s who says nothing is closed
MAX_MSG, MAX_BODY = 2000, 5000  # bytes: small limits, so that what is beyond them fits in one send


SMALL = (
    "-max-msg-size", str(MAX_MSG), "-max-body-size", str(MAX_BODY), "-node-id", "7", "-broadcast-address", "node.example",
)  # fmt: skip


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


def exchange(node: LocalNode, data: bytes) -> bytes:
    """Send the data, and return all that comes back until the node closes."""
    with node.connect("HTTP") as sock:
        sock.settimeout(ANSWER_TIME)
        sock.sendall(data)
        return b"".join(iter(lambda: sock.recv(65536), b""))


def parse(data: bytes) -> Answer:
    head, _, body = data.partition(b"\r\n\r\n")
    status, *lines = head.decode("latin-1").split("\r\n")
    pairs = (line.partition(": ") for line in lines)
    return Answer(int(status.split(" ")[1]), {name.lower(): value for name, _, value in pairs}, body)


def ask(node: LocalNode, method: str, target: str, body: bytes = b"", *headers: str) -> Answer:
    lines = [f"{method} {target} HTTP/1.1", "Connection: close", f"Content-Length: {len(body)}", *headers]
    if not any(header.startswith("Host:") for header in headers):
        lines.append("Host: localhost")
    return parse(exchange(node, "\r\n".join([*lines, "", ""]).encode("latin-1") + body))


def is_ok(answer: Answer) -> bool:
    return (answer.status, answer.body, answer.headers["content-type"]) == (200, b"OK", TEXT)


def is_empty(answer: Answer) -> bool:
    """Return whether it is a 200 with nothing in it, not even a type."""
    assert "content-type" not in answer.headers
    return (answer.status, answer.body, answer.headers["content-length"]) == (200, b"", "0")


def is_error(answer: Answer, status: int, text: str) -> bool:
    assert (answer.status, answer.body) == (status, b'{"message":"%s"}' % text.encode())
    assert answer.headers["content-type"] == JSON
    return answer.headers["x-nsq-content-type"] == V1


def stats(node: LocalNode, query: str = "") -> dict[str, Any]:
    return json.loads(ask(node, "GET", f"/stats?format=json&{query}").body)


def topic_of(node: LocalNode, topic: str) -> dict[str, Any]:
    return stats(node, f"topic={topic}")["topics"][0]


def channel_of(node: LocalNode, topic: str) -> dict[str, Any]:
    return topic_of(node, topic)["channels"][0]


def busy_node() -> LocalNode:
    """Return a node with two topics, two channels, a client that consumes and publishes, and one that only publishes."""
    node = LocalNode()
    for target in (
        "/topic/create?topic=beta", "/topic/create?topic=alpha", "/topic/pause?topic=alpha",
        "/channel/create?topic=beta&channel=z", "/channel/create?topic=beta&channel=a",
        "/channel/pause?topic=beta&channel=z",
    ):  # fmt: skip
        assert is_empty(ask(node, "POST", target))
    hello = b"  V2IDENTIFY\n" + sized(b'{"client_id":"<me>","hostname":"h&1","user_agent":"ua/1"}')
    commands = b"SUB beta a\nRDY 5\nPUB beta\n" + sized(b"hello") + b"DPUB beta 60000\n" + sized(b"later")
    both, producer = Conversation(node, hello + commands), Conversation(node, b"  V2PUB alpha\n" + sized(b"x"))
    assert (sorted([both.frame() or (9, b"") for _ in range(5)])[:4], producer.frame()) == ([OK] * 4, OK)
    return node
