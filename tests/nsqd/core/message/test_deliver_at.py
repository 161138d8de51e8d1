"""The header `deliver-at`: a message waits until then, over restarts and for years, whatever way it was published."""

import pytest

from nsqd.core.limits import HeaderRefused
from nsqd.core.message.attributes import Attributes
from nsqd.core.message.deliver_at import LONGEST
from tests.cases import each
from tests.local_node import SECOND, LocalNode
from tests.nsqd.core.node import Node
from tests.nsqd.http.asking import ask, drained, get, post, reply_of

DAY = 86_400 * SECOND


def test_messages_wait_for_their_time() -> None:
    node = LocalNode()
    post(node, "/topic/create", topic="t")
    post(node, "/channel/create", topic="t", channel="c")
    for body, at in (
        ("years", "2035-12-30T00:00:00Z"),
        ("day", "2026-01-02T01:00:00+01:00"),
        ("past", "2020-01-01T00:00:00Z"),
    ):
        post(node, "/pub", body, topic="t", deliver_at=at)
    post(node, "/mpub", "1\n2", topic="t", deliver_at="2026-01-02T00:00:00.5Z")
    assert drained(node, "t", "c", 1) == [b"past"]
    node = node.killed(down=DAY)
    node.advance(0)
    assert drained(node, "t", "c", 1) == [b"day"]
    node.advance(SECOND)
    assert sorted(drained(node, "t", "c", 2)) == [b"1", b"2"]
    (waits,) = get(node, "/channel/messages", topic="t", channel="c", state="deferred")["messages"]
    assert waits["headers"] == {"deliver-at": "2035-12-30T00:00:00Z"}


@each("path", [
    "deliver_at=", "deliver_at=tomorrow", "deliver_at=2030-01-01T00:00:00", "deliver_at=2037-01-01T00:00:00Z",
    "deliver_at=2030-01-01T00:00:00Z&defer=5", "deliver_at=2030-01-01T00:00:00Z&channel=c", "deliver_at=9999-12-31T23:59:59Z",
])  # fmt: skip
def test_bad_times(path: str) -> None:
    node = LocalNode()
    post(node, "/topic/create", topic="t")
    post(node, "/channel/create", topic="t", channel="c")
    assert reply_of(ask(node, "POST", f"/pub?topic=t&{path}", "x")) == (400, "INVALID_DELIVER_AT")


def test_a_time_may_be_ten_years_ahead(node: Node) -> None:
    topic = node.broker.topic("t")
    at = 1_800_000_000 + node.now // SECOND + LONGEST

    def publish(year: int) -> None:
        topic.publish_with([b"x"], Attributes((("deliver-at", f"{year}-06-01T00:00:00Z"),)))

    publish(1970 + at // 31_557_600 - 1)
    with pytest.raises(HeaderRefused, match="INVALID_DELIVER_AT"):
        publish(1970 + at // 31_557_600 + 1)
    assert topic.intake.message_count == 1
