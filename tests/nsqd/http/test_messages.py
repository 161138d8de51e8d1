"""/channel/messages and /channel/message: every state, pages, bodies of any kind, from memory and disk, and what is refused."""

import base64
from typing import Any

import pytest

from nsqd.http import inspection
from tests.cases import each
from tests.daemons import Conversation
from tests.local_node import LocalNode
from tests.nsqd.http.asking import ask, consumer, get, post, reply_of

FLAGS = ("-mem-budget", "65536", "-max-attempts", "dead=1")

SECOND = 1_000_000_000
STATES = ("ready", "in_flight", "deferred", "buried")
BODIES = [b"plain", "\u03b1\u03b2\u03b3".encode() * 200, b"\xff\0binary", b"</script><b>&", b'{"a": 1}']


def look(node: LocalNode, topic: str, state: str, **arguments: object) -> dict[str, Any]:
    return get(node, "/channel/messages", topic=topic, channel="c", state=state, **arguments)


def publish(node: LocalNode, topic: str, *bodies: bytes, **arguments: object) -> None:
    """Publish the bodies to a topic with a channel."""
    post(node, "/topic/create", topic=topic)
    post(node, "/channel/create", topic=topic, channel="c")
    for body in bodies:
        post(node, "/pub", body, topic=topic, **arguments)


def push_out(node: LocalNode, topic: str) -> None:
    """Publish so much elsewhere that only the log has the bodies of a topic."""
    for _ in range(2):
        post(node, "/pub", b"x" * 1_000_000, topic="large")
    assert node.broker.topics[topic].journal.frame_in_memory(0) == b""


def act(node: LocalNode, what: str, topic: str, **arguments: object) -> Any:
    asked = {"topic": topic, "channel": "c"} | arguments
    return reply_of(ask(node, "POST", f"/channel/messages/{what}", **asked))


def in_every_state(node: LocalNode, topic: str) -> tuple[Conversation, dict[str, int]]:
    """Make a topic with one message in each state. Return a client that takes no more, and the offset of each."""
    publish(node, topic, b"deferred", b"buried", b"in_flight")
    client = consumer(node, topic, ready=3)
    taken = [client.message() for _ in range(3)]
    client.send(b"REQ %s 600000\n" % taken[0].id)
    assert act(node, "bury", topic, offset=1) == {"buried": 1}
    post(node, "/channel/pause", topic=topic, channel="c")
    publish(node, topic, b"ready")
    found = {state: look(node, topic, state)["messages"] for state in STATES}
    assert [[one["body"] for one in messages] for messages in found.values()] == [[state] for state in found]
    return client, {state: messages[0]["offset"] for state, messages in found.items()}


def test_bodies_of_any_kind(node: LocalNode) -> None:
    before = node.clock.wall
    publish(node, "bodies", *BODIES)
    found = look(node, "bodies", "ready")
    assert found["total"] == 5
    assert "next" not in found
    one, long, binary, markup, text = found["messages"]
    assert one == one | {"offset": 0, "attempts": 0, "body": "plain", "body_size": 5}
    assert len(one["id"]) == 16
    assert before < one["timestamp"] <= node.clock.wall
    assert (long["body"], long["body_size"]) == ("\u03b1\u03b2\u03b3" * 42 + "\u03b1\u03b2", 1200)  # 256 bytes
    assert base64.b64decode(binary["body_base64"]) == BODIES[2]
    assert (markup["body"], text["body"]) == ("</script><b>&", '{"a": 1}')
    short = look(node, "bodies", "ready", preview=5)["messages"]
    assert [message.get("body") for message in short] == ["plain", "\u03b1\u03b2", None, "</scr", '{"a":']
    page = ask(node, "GET", "/channel/messages", topic="bodies", channel="c", state="ready")
    assert "<" not in page.text  # JSON as in HTML: it is escaped


def test_each_state_has_its_time_and_reason(node: LocalNode) -> None:
    publish(node, "dead", b"1", b"2", b"3", b"4")
    publish(node, "dead", b"later", defer=600_000)
    begin = node.clock.wall
    with consumer(node, "dead", ready=3) as client:
        taken = [client.message() for _ in range(3)]
        client.send(b"REQ %s 0\n" % taken[0].id)
        assert client.message().body == b"4"
        buried = look(node, "dead", "buried")
        assert [(one["body"], one["attempts"], one["reason"]) for one in buried["messages"]] == [("1", 1, "requeued")]
        in_flight = look(node, "dead", "in_flight")["messages"]
        assert [(one["body"], one["attempts"]) for one in in_flight] == [("2", 1), ("3", 1), ("4", 1)]
        assert all(0 <= one["times_out_at"] - begin - 60 * SECOND < SECOND for one in in_flight)
        (deferred,) = look(node, "dead", "deferred")["messages"]
        assert deferred["body"] == "later"
        assert -SECOND < deferred["ready_at"] - begin - 600 * SECOND <= 0


def test_pages_from_disk_and_many_looks_change_nothing(node: LocalNode) -> None:
    bodies = [b"%05d" % number + b"x" * 200 for number in range(3000)]
    publish(node, "many")
    post(node, "/mpub", b"\n".join(bodies), topic="many")
    push_out(node, "many")
    before = get(node, "/stats", format="json", topic="many")["topics"]
    page = look(node, "many", "ready", limit=700, preview=5)
    seen = page["messages"]
    while "next" in page:
        page = look(node, "many", "ready", limit=700, preview=5, after=page["next"])
        seen += page["messages"]
    assert [message["body"] for message in seen] == [body[:5].decode() for body in bodies]
    for _ in range(20):
        assert len(look(node, "many", "ready", limit=5)["messages"]) == 5
    assert get(node, "/stats", format="json", topic="many")["topics"] == before
    with consumer(node, "many", ready=1) as client:
        message = client.message()
        assert (message.attempts, message.body) == (1, bodies[0])


@each("arguments, error", [
    ({"topic": "bad", "channel": "x", "state": "ready"}, (404, "CHANNEL_NOT_FOUND")),
    ({"topic": "nowhere", "channel": "c", "state": "ready"}, (404, "TOPIC_NOT_FOUND")),
    ({"topic": "bad", "channel": "c", "state": "ready", "after": "<script>"}, (400, "INVALID_ARG_AFTER")),
    ({"topic": "bad", "channel": "c", "state": "deferred", "after": "x:1"}, (400, "INVALID_ARG_AFTER")),
])  # fmt: skip
def test_what_is_refused(node: LocalNode, arguments: dict[str, str], error: tuple[int, str]) -> None:
    publish(node, "bad")
    assert get(node, "/channel/messages", **arguments) == error


def test_a_whole_body(node: LocalNode) -> None:
    body = bytes(range(256)) * 4000
    publish(node, "whole", b"small", body)
    asked = {"topic": "whole", "channel": "c"}
    answer = ask(node, "GET", "/channel/message", **asked, offset=1)
    assert (answer.content, answer.headers["content-type"]) == (body, "application/octet-stream")
    assert len(answer.headers["x-nsq-message-id"]) == 16
    assert get(node, "/channel/message", **asked, offset=2) == (404, "MESSAGE_NOT_FOUND")
    assert get(node, "/channel/message", topic="whole", channel="d", offset=0) == (404, "CHANNEL_NOT_FOUND")


def test_a_filter_examines_the_limit_and_lists_what_matches(node: LocalNode) -> None:
    publish(node, "chosen", *(b"hay %d" % number for number in range(30)))
    headers = {"X-Nsq-Header-Trace": "7f"}
    node.client.post("/pub?topic=chosen", content=b"Needle", headers=headers).raise_for_status()
    listed = look(node, "chosen", "ready")["messages"]
    for wanted in ({"contains": "needle"}, {"header": "trace=7f"}, {"published_after": listed[30]["timestamp"]}):
        found = look(node, "chosen", "ready", **wanted)
        assert ([one["body"] for one in found["messages"]], found["scanned"]) == (["Needle"], 31)
    part = look(node, "chosen", "ready", contains="needle", limit=10)
    assert (part["messages"], part["scanned"], part["total"]) == ([], 10, 31)
    rest = look(node, "chosen", "ready", contains="needle", limit=30, after=part["next"])
    assert ([one["offset"] for one in rest["messages"]], rest["scanned"]) == ([30], 21)
    assert look(node, "chosen", "ready", min_attempts=1)["messages"] == []
    assert act(node, "bury", "chosen", offset="3,4", reason="poison pill") == {"buried": 2}
    assert [one["offset"] for one in look(node, "chosen", "buried", reason="POISON")["messages"]] == [3, 4]
    assert "scanned" not in look(node, "chosen", "buried")


def test_one_message_with_all_that_it_is(node: LocalNode) -> None:
    publish(node, "alone")
    headers = {"X-Nsq-Header-Trace": "7f"}
    node.client.post("/pub?topic=alone&key=k", content=b"x" * 70_000, headers=headers).raise_for_status()
    found = get(node, "/channel/message", topic="alone", channel="c", offset=0, format="json")
    (listed,) = look(node, "alone", "ready", preview=1)["messages"]
    assert (listed.pop("body"), listed.pop("attempts"), found) == ("x", 0, listed | {"body": "x" * 70_000})
    assert (found["headers"], found["key"]) == ({"trace": "7f"}, "k")
    (listed,) = look(node, "alone", "ready", preview=0)["messages"]  # as for one who may not read
    assert (listed["body"], "headers" in listed, "key" in listed) == ("", False, False)


def test_a_request_that_would_read_too_much_is_refused(node: LocalNode, monkeypatch: pytest.MonkeyPatch) -> None:
    assert inspection.MOST_READ == 64 << 20
    monkeypatch.setattr(inspection, "MOST_READ", 64 << 13)
    publish(node, "huge")
    post(node, "/mpub", b"\n".join([b"x" * 10_000] * 70), topic="huge")
    push_out(node, "huge")
    assert look(node, "huge", "ready", limit=100) == (413, "TOO_MUCH_AT_ONCE")
    assert act(node, "finish", "huge", state="ready", count=100) == (413, "TOO_MUCH_AT_ONCE")
    assert act(node, "move", "huge", state="ready", count=40, to="elsewhere") == {"moved": 40}
    assert look(node, "huge", "ready", limit=30)["total"] == 30
