"""/pauses, and pausing with who and until when: the answer, the ends of a pause, kills, and refusals."""

import logging
from typing import Any

import pytest

from tests.daemons import OK, Conversation
from tests.local_node import SECOND, LocalNode
from tests.nsqd.http.asking import ask, get, post, reply_of

SOON = 4  # s
MONTH = 30 * 24 * 3600  # s


def pauses(node: LocalNode) -> dict[str, Any]:
    return get(node, "/pauses")


def wall(node: LocalNode) -> int:
    return node.clock.wall // SECOND


@pytest.fixture
def node() -> LocalNode:
    node = LocalNode()
    post(node, "/topic/create", topic="t")
    post(node, "/channel/create", topic="t", channel="c")
    return node


def test_a_pause_ends_by_itself_and_delivery_goes_on(node: LocalNode, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "penstock")
    with Conversation(node, b"  V2SUB t c\nRDY 9\n") as consumer:
        assert consumer.frame() == OK
        began = wall(node)
        until = began + SOON
        answer = post(node, "/topic/pause", topic="t", by="ann", until=until)
        assert (answer.status_code, answer.content) == (200, b"")
        post(node, "/channel/pause", topic="t", channel="c", until=until, by="z\u00f6lf")
        post(node, "/pub", "x", topic="t")
        assert pauses(node) == {
            "pauses": [
                {"topic": "t", "channel": "", "by": "ann", "at": began, "until": until},
                {"topic": "t", "channel": "c", "by": "z\u00f6lf", "at": began, "until": until},
            ],
            "count": 2,
        }
        assert consumer.message().body == b"x"
        # a pause ends within a second, and a network may be slow
        assert until <= node.clock.wall / SECOND < until + 1.5
    assert pauses(node) == {"pauses": [], "count": 0}
    assert [line for line in caplog.messages if line.startswith("PAUSE:")] == [
        "PAUSE: unpaused t: its pause has expired",
        "PAUSE: unpaused t c: its pause has expired",
    ]


@pytest.mark.parametrize("path", ["/topic/pause", "/channel/pause"])
def test_errors(path: str, node: LocalNode) -> None:
    now = wall(node)
    for until in (now, now + MONTH + 1):
        assert reply_of(ask(node, "POST", path, topic="t", channel="c", until=until)) == (400, "INVALID_ARG_UNTIL")
    assert reply_of(ask(node, "POST", path, topic="nope", channel="c", by="ann")) == (404, "TOPIC_NOT_FOUND")
    assert pauses(node) == {"pauses": [], "count": 0}
    limits = {"by": "\u00e9" * 100, "until": wall(node) + MONTH}
    assert post(node, path, topic="t", channel="c", **limits).status_code == 200
    assert {key: pauses(node)["pauses"][0][key] for key in limits} == limits


def test_five_hundred_are_listed_sorted_and_all_are_counted() -> None:
    node = LocalNode()
    topic = node.broker.topic("b")
    for number in reversed(range(510)):
        node.broker.pause(topic.channel(f"{number:03}"), True)
    listed = pauses(node)
    assert listed["count"] == 510
    assert [one["channel"] for one in listed["pauses"]] == [f"{number:03}" for number in range(500)]
    post(node, "/topic/delete", topic="b")
    assert pauses(node) == {"pauses": [], "count": 0}
