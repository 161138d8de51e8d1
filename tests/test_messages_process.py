"""/channel/messages on a real process: every state, pages, bodies of any kind, from memory and disk, and what is refused."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from penstock.client import Consumer
from tests.daemons import Daemon, nsqd

pytestmark = pytest.mark.process

BODIES = [b"plain", "\u03b1\u03b2\u03b3".encode() * 200, b"\xff\0binary", b"</script><b>&", b'{"a": 1}']


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with nsqd(tmp_path_factory.mktemp("node"), "-mem-budget", "65536", "-max-attempts", "dead=1") as node:
        yield node


def get(node: Daemon, **arguments: object) -> httpx.Response:
    params = {name: str(value) for name, value in arguments.items()}
    return httpx.get(f"http://{node.http}/channel/messages", params=params, timeout=30)


def look(node: Daemon, topic: str, state: str, **arguments: object) -> dict[str, Any]:
    answer = get(node, topic=topic, channel="c", state=state, **arguments)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def publish(node: Daemon, topic: str, *bodies: bytes, **arguments: str) -> None:
    httpx.post(f"http://{node.http}/topic/create", params={"topic": topic}).raise_for_status()
    httpx.post(f"http://{node.http}/channel/create", params={"topic": topic, "channel": "c"}).raise_for_status()
    for body in bodies:
        answer = httpx.post(f"http://{node.http}/pub", params={"topic": topic, **arguments}, content=body)
        answer.raise_for_status()


def test_bodies_of_any_kind(shared: Daemon) -> None:
    publish(shared, "bodies", *BODIES)
    found = look(shared, "bodies", "ready")
    assert found["total"] == 5
    assert "next" not in found
    one, long, binary, markup, text = found["messages"]
    assert one == one | {"offset": 0, "attempts": 0, "body": "plain", "body_size": 5}
    assert len(one["id"]) == 16
    assert abs(one["timestamp"] - time.time_ns()) < 60e9
    assert (long["body"], long["body_size"]) == ("\u03b1\u03b2\u03b3" * 42 + "\u03b1\u03b2", 1200)  # 256 bytes
    assert base64.b64decode(binary["body_base64"]) == BODIES[2]
    assert (markup["body"], text["body"]) == ("</script><b>&", '{"a": 1}')
    short = look(shared, "bodies", "ready", preview=5)["messages"]
    assert [message.get("body") for message in short] == ["plain", "\u03b1\u03b2", None, "</scr", '{"a":']
    assert "<" not in get(shared, topic="bodies", channel="c", state="ready").text  # JSON as in HTML: it is escaped


def test_each_state_tells_when_and_why(shared: Daemon) -> None:
    publish(shared, "dead", b"1", b"2", b"3", b"4")
    publish(shared, "dead", b"later", defer="600000")
    with Consumer("dead", "c", [shared.tcp], max_in_flight=3) as consumer:
        taken = [message for _ in range(3) for message in consumer.poll(10)][:3]
        while len(taken) < 3:
            taken += consumer.poll(10)
        taken[0].requeue()
        consumer.poll(0.2)
        buried = look(shared, "dead", "buried")
        assert [(one["body"], one["attempts"], one["reason"]) for one in buried["messages"]] == [("1", 1, "requeued")]
        in_flight = look(shared, "dead", "in_flight")["messages"]
        assert [(one["body"], one["attempts"]) for one in in_flight][:2] == [("2", 1), ("3", 1)]
        assert all(0 < one["times_out_at"] - time.time_ns() < 61e9 for one in in_flight)
        (deferred,) = look(shared, "dead", "deferred")["messages"]
        assert deferred["body"] == "later"
        assert 500e9 < deferred["ready_at"] - time.time_ns() < 601e9


def test_pages_from_disk_and_a_thousand_looks_change_nothing(shared: Daemon) -> None:
    bodies = [b"%05d" % number + b"x" * 200 for number in range(3000)]
    publish(shared, "many")
    packed = b"\n".join(bodies)
    httpx.post(f"http://{shared.http}/mpub", params={"topic": "many"}, content=packed).raise_for_status()

    def stats() -> Any:
        answer = httpx.get(f"http://{shared.http}/stats", params={"format": "json", "topic": "many"}).json()
        return answer["topics"]

    before = stats()
    seen, after = [], ""
    while True:
        page = look(shared, "many", "ready", limit=700, preview=5, **({"after": after} if after else {}))
        seen += [message["body"] for message in page["messages"]]
        after = page.get("next", "")
        if not after:
            break
    assert seen == [body[:5].decode() for body in bodies]
    for _ in range(300):
        look(shared, "many", "ready", limit=5)
    assert stats() == before
    with Consumer("many", "c", [shared.tcp]) as consumer:
        message = consumer.poll(10)[0]
        assert (message.attempts, message.body) == (1, bodies[0])
        message.finish()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"topic": "bad", "channel": "c"}, (400, "INVALID_ARG_STATE")),
        ({"topic": "bad", "channel": "c", "state": "READY"}, (400, "INVALID_ARG_STATE")),
        ({"topic": "bad", "channel": "x", "state": "ready"}, (404, "CHANNEL_NOT_FOUND")),
        ({"topic": "nowhere", "channel": "c", "state": "ready"}, (404, "TOPIC_NOT_FOUND")),
        ({"topic": "bad", "channel": "c", "state": "ready", "limit": "1001"}, (400, "INVALID_ARG_LIMIT")),
        ({"topic": "bad", "channel": "c", "state": "ready", "limit": "-1"}, (400, "INVALID_ARG_LIMIT")),
        ({"topic": "bad", "channel": "c", "state": "ready", "preview": "9" * 30}, (400, "INVALID_ARG_PREVIEW")),
        ({"topic": "bad", "channel": "c", "state": "ready", "after": "<script>"}, (400, "INVALID_ARG_AFTER")),
        ({"topic": "bad", "channel": "c", "state": "deferred", "after": "x:1"}, (400, "INVALID_ARG_AFTER")),
        ({"channel": "c", "state": "ready"}, (400, "MISSING_ARG_TOPIC")),
        ({"topic": "bad", "state": "ready"}, (400, "MISSING_ARG_CHANNEL")),
    ],
)
def test_what_is_refused(shared: Daemon, arguments: dict[str, str], error: tuple[int, str]) -> None:
    publish(shared, "bad")
    answer = get(shared, **arguments)
    assert (answer.status_code, json.loads(answer.text)["message"]) == error


def test_an_ephemeral_channel_is_looked_at_in_memory(shared: Daemon) -> None:
    for path, arguments in (
        ("/topic/create", {"topic": "e#ephemeral"}),
        ("/channel/create", {"topic": "e#ephemeral", "channel": "c"}),
    ):
        httpx.post(f"http://{shared.http}{path}", params=arguments).raise_for_status()
    httpx.post(f"http://{shared.http}/pub", params={"topic": "e#ephemeral"}, content=b"here").raise_for_status()
    assert [one["body"] for one in look(shared, "e#ephemeral", "ready")["messages"]] == ["here"]
