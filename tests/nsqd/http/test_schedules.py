"""/schedule and /schedules: ticks over restarts and clock changes, the list, rights, limits and bad input."""

import base64
from typing import Any

import pytest

from tests.local_node import SECOND, LocalNode
from tests.nsqd.http.asking import drained, get, post

MINUTE = 60 * SECOND


def keys(node: LocalNode) -> list[str]:
    """Return the schedules and ticks of the messages of `t`, which are all in its channel `c`."""
    messages = get(node, "/channel/messages", topic="t", channel="c", state="ready", limit=1000)["messages"]
    return [message["key"].removeprefix("schedule:") for message in messages]


def add(node: LocalNode, name: str = "n", body: str = "x", **when: Any) -> None:
    post(node, "/schedule", body, topic="t", name=name, **when)


def wall(node: LocalNode) -> int:
    return node.clock.wall // SECOND


@pytest.fixture
def node() -> LocalNode:
    node = LocalNode()
    post(node, "/topic/create", topic="t")
    post(node, "/channel/create", topic="t", channel="c")
    return node


def test_a_schedule_publishes_its_body_and_headers(node: LocalNode) -> None:
    answer = node.client.post("/schedule?topic=t&name=n&every=10m", content=b"hello", headers={"X-Nsq-Header-A": "b"})
    assert (answer.status_code, answer.content) == (200, b"")
    began = wall(node)
    described = {
        "topic": "t", "name": "n", "every": "10m0s", "missed": "once", "paused": False, "next": began + 600, "body_size": 5,
        "headers": {"a": "b"},
    }  # fmt: skip
    assert get(node, "/schedule", topic="t", name="n") == described
    encoded = base64.b64encode(b"hello").decode()
    assert get(node, "/schedule", topic="t", name="n", body="true") == {**described, "body": encoded}
    node.advance(20 * MINUTE)
    assert keys(node) == [f"n:{began + 600}", f"n:{began + 1200}"]
    assert drained(node, "t", "c", 2) == [b"hello"] * 2
    node.schedules.check()
