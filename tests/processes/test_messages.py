"""/channel/messages on a real process: every state, pages, bodies of any kind, from memory and disk, and what is refused."""

from __future__ import annotations

import base64
import json
import signal
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.client import Consumer
from penstock.sansio.message import Message
from tests.daemons import Daemon, nsqd

pytestmark = pytest.mark.process
SHARED_FLAGS = ("-mem-budget", "65536", "-max-attempts", "dead=1")

BODIES = [b"plain", "\u03b1\u03b2\u03b3".encode() * 200, b"\xff\0binary", b"</script><b>&", b'{"a": 1}']


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
        taken: list[Message] = []
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
    asked = {"topic": "many", "channel": "c", "state": "ready", "limit": "5"}
    with httpx.Client() as client:
        for _ in range(1000):
            client.get(f"http://{shared.http}/channel/messages", params=asked).raise_for_status()
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


def test_a_whole_body(shared: Daemon) -> None:
    body = bytes(range(256)) * 4000
    publish(shared, "whole", b"small", body)
    url = f"http://{shared.http}/channel/message?topic=whole&channel=c&offset="
    answer = httpx.get(url + "1")
    assert answer.content == body
    assert answer.headers["content-type"] == "application/octet-stream"
    assert len(answer.headers["x-nsq-message-id"]) == 16
    refused = {"2": (404, "MESSAGE_NOT_FOUND"), "x": (400, "INVALID_ARG_OFFSET"), "9" * 30: (400, "INVALID_ARG_OFFSET")}
    for offset, error in refused.items():
        answer = httpx.get(url + offset)
        assert (answer.status_code, answer.json()["message"]) == error
    answer = httpx.get(f"http://{shared.http}/channel/message?topic=whole&channel=d&offset=0")
    assert (answer.status_code, answer.json()["message"]) == (404, "CHANNEL_NOT_FOUND")


def test_an_ephemeral_channel_is_looked_at_in_memory(shared: Daemon) -> None:
    for path, arguments in (
        ("/topic/create", {"topic": "e#ephemeral"}),
        ("/channel/create", {"topic": "e#ephemeral", "channel": "c"}),
    ):
        httpx.post(f"http://{shared.http}{path}", params=arguments).raise_for_status()
    httpx.post(f"http://{shared.http}/pub", params={"topic": "e#ephemeral"}, content=b"here").raise_for_status()
    assert [one["body"] for one in look(shared, "e#ephemeral", "ready")["messages"]] == ["here"]


def act(node: Daemon, what: str, topic: str, **arguments: object) -> Any:
    params = {"topic": topic, "channel": "c", **{name: str(value) for name, value in arguments.items()}}
    answer = httpx.post(f"http://{node.http}/channel/messages/{what}", params=params)
    return answer.json() if answer.status_code == 200 else (answer.status_code, answer.json()["message"])


def counts(node: Daemon, topic: str) -> tuple[int, ...]:
    """How many are ready, in flight, deferred and buried."""
    return tuple(look(node, topic, state)["total"] for state in ("ready", "in_flight", "deferred", "buried"))


def in_every_state(node: Daemon, topic: str) -> tuple[Consumer, dict[str, int]]:
    """A topic with one message in each state, and the offset of each. The consumer takes no more."""
    publish(node, topic, b"deferred", b"buried", b"in_flight")
    consumer = Consumer(topic, "c", [node.tcp], max_in_flight=3)
    taken: list[Any] = []
    while len(taken) < 3:
        taken += consumer.poll(10)
    taken[0].requeue(600_000)
    consumer.poll(0.1)
    assert act(node, "bury", topic, offset=1) == {"buried": 1}
    httpx.post(f"http://{node.http}/channel/pause", params={"topic": topic, "channel": "c"}).raise_for_status()
    publish(node, topic, b"ready")
    found = {state: look(node, topic, state)["messages"] for state in ("ready", "in_flight", "deferred", "buried")}
    assert [[one["body"] for one in messages] for messages in found.values()] == [[state] for state in found]
    return consumer, {state: messages[0]["offset"] for state, messages in found.items()}


@pytest.mark.parametrize("state", ["ready", "in_flight", "deferred", "buried"])
@pytest.mark.parametrize(
    ("what", "done", "after"),
    [("finish", "finished", -1), ("requeue", "requeued", 0), ("kick", "kicked", 0), ("bury", "buried", 3)],
)
def test_every_action_in_every_state(shared: Daemon, state: str, what: str, done: str, after: int) -> None:
    topic = f"{what}-{state}"
    consumer, offsets = in_every_state(shared, topic)
    with consumer:
        assert act(shared, what, topic, offset=offsets[state]) == {done: 1}
        wanted = [1, 1, 1, 1]
        wanted[list(offsets).index(state)] -= 1
        if after >= 0:
            wanted[after] += 1
        assert counts(shared, topic) == tuple(wanted)
        if what == "finish":
            assert act(shared, what, topic, offset=offsets[state]) == {done: 0}
        if after == 0:
            attempts = {one["body"]: one["attempts"] for one in look(shared, topic, "ready")["messages"]}
            assert attempts[state] == (0 if what == "kick" or state == "ready" else 1)
        stats = httpx.get(f"http://{shared.http}/stats", params={"format": "json", "topic": topic}).json()
        assert stats["topics"][0]["channels"][0]["in_flight_count"] == wanted[1]


def test_they_are_moved_and_survive_a_kill(tmp_path: Path) -> None:
    with nsqd(tmp_path) as node:
        consumer, offsets = in_every_state(node, "from")
        with consumer:
            wanted = ",".join(map(str, offsets.values()))
            assert act(node, "move", "from", offset=wanted, to="to") == {"moved": 4}
            assert counts(node, "from") == (0, 0, 0, 0)
        publish(node, "from", b"late", b"held", b"gone")
        listed = {one["body"]: one["offset"] for one in look(node, "from", "ready")["messages"]}
        assert act(node, "requeue", "from", offset=listed["late"], delay=3_000_000) == {"requeued": 1}
        assert act(node, "bury", "from", offset=listed["held"], reason="poison") == {"buried": 1}
        assert act(node, "finish", "from", state="ready", count=10) == {"finished": 1}
        node.stop(signal.SIGKILL)
    with nsqd(tmp_path) as node:
        assert counts(node, "from") == (0, 0, 1, 1)
        (held,) = look(node, "from", "buried")["messages"]
        assert (held["body"], held["reason"], held["attempts"]) == ("held", "poison", 0)
        publish(node, "to")
        with Consumer("to", "c", [node.tcp]) as consumer:
            bodies: list[bytes] = []
            while len(bodies) < 4:
                for message in consumer.poll(10):
                    bodies.append(message.body)
                    message.finish()
        assert sorted(bodies) == [b"buried", b"deferred", b"in_flight", b"ready"]


def test_a_consumer_loses_what_is_taken_from_it(shared: Daemon) -> None:
    publish(shared, "taken", b"1")
    with Consumer("taken", "c", [shared.tcp]) as consumer:
        (message,) = consumer.poll(10)
        assert act(shared, "kick", "taken", state="in_flight", count=5) == {"kicked": 1}
        (again,) = consumer.poll(10)
        assert (again.body, again.attempts) == (b"1", 1)
        message.finish()
        assert consumer.poll(0.2) == []
        assert counts(shared, "taken")[:2] in ((0, 1), (0, 0))


@pytest.mark.parametrize(
    ("what", "arguments", "error"),
    [
        ("finish", {}, (400, "MISSING_ARG_OFFSET")),
        ("finish", {"offset": "a"}, (400, "INVALID_ARG_OFFSET")),
        ("finish", {"offset": "-1"}, (400, "INVALID_ARG_OFFSET")),
        ("finish", {"offset": "1,,2"}, (400, "INVALID_ARG_OFFSET")),
        ("finish", {"offset": "9" * 40}, (400, "INVALID_ARG_OFFSET")),
        ("finish", {"offset": ",".join(map(str, range(1001)))}, (400, "INVALID_ARG_OFFSET")),
        ("finish", {"state": "ready"}, (400, "MISSING_ARG_COUNT")),
        ("finish", {"state": "gone", "count": 1}, (400, "INVALID_ARG_STATE")),
        ("finish", {"state": "ready", "count": 1001}, (400, "INVALID_ARG_COUNT")),
        ("requeue", {"offset": "1", "delay": "soon"}, (400, "INVALID_ARG_DELAY")),
        ("requeue", {"offset": "1", "delay": 10**12}, (400, "INVALID_ARG_DELAY")),
        ("bury", {"offset": "1", "reason": "x" * 201}, (400, "INVALID_ARG_REASON")),
        ("move", {"offset": "1"}, (400, "INVALID_ARG_TO")),
        ("move", {"offset": "1", "to": "no name!"}, (400, "INVALID_ARG_TO")),
        ("finish", {"offset": "77", "topic": "nowhere"}, (404, "TOPIC_NOT_FOUND")),
        ("bury", {"offset": "77,10000000000"}, {"buried": 0}),
    ],
)
def test_what_cannot_be_done(shared: Daemon, what: str, arguments: dict[str, Any], error: Any) -> None:
    publish(shared, "bad")
    assert act(shared, what, **({"topic": "bad"} | arguments)) == error


def test_every_listing_counts_all_states_and_says_who_has_a_message(shared: Daemon) -> None:
    consumer, _ = in_every_state(shared, "counted")
    with consumer:
        (stats,) = httpx.get(f"http://{shared.http}/stats?format=json&topic=counted").json()["topics"][0]["channels"]
        (client,) = stats["clients"]
        for state in ("ready", "in_flight", "deferred", "buried"):
            found = look(shared, "counted", state)
            assert found["counts"] == {"ready": 1, "in_flight": 1, "deferred": 1, "buried": 1}
            (one,) = found["messages"]
            names = ("client_id", "hostname", "remote_address", "user_agent")
            assert one.get("client") == ({name: client[name] for name in names} if state == "in_flight" else None)


def test_a_filter_looks_at_so_many_and_lists_those_that_match(shared: Daemon) -> None:
    publish(shared, "chosen", *(b"hay %d" % number for number in range(30)))
    url = f"http://{shared.http}/pub?topic=chosen"
    httpx.post(url, content=b"Needle", headers={"X-Nsq-Header-Trace": "7f"}).raise_for_status()
    listed = look(shared, "chosen", "ready")["messages"]
    for wanted in ({"contains": "needle"}, {"header": "trace=7f"}, {"published_after": listed[30]["timestamp"]}):
        found = look(shared, "chosen", "ready", **wanted)
        assert ([one["body"] for one in found["messages"]], found["scanned"]) == (["Needle"], 31)
    part = look(shared, "chosen", "ready", contains="needle", limit=10)
    assert (part["messages"], part["scanned"], part["total"]) == ([], 10, 31)
    rest = look(shared, "chosen", "ready", contains="needle", limit=30, after=part["next"])
    assert ([one["offset"] for one in rest["messages"]], rest["scanned"]) == ([30], 21)
    assert look(shared, "chosen", "ready", min_attempts=1)["messages"] == []
    assert act(shared, "bury", "chosen", offset="3,4", reason="poison pill") == {"buried": 2}
    assert [one["offset"] for one in look(shared, "chosen", "buried", reason="POISON")["messages"]] == [3, 4]
    assert "scanned" not in look(shared, "chosen", "buried")


def test_one_message_with_all_that_it_is(shared: Daemon) -> None:
    publish(shared, "alone")
    url = f"http://{shared.http}/pub?topic=alone"
    httpx.post(url, content=b"x" * 70_000, headers={"X-Nsq-Header-Trace": "7f"}).raise_for_status()
    asked = {"topic": "alone", "channel": "c", "offset": "0", "format": "json"}
    found = httpx.get(f"http://{shared.http}/channel/message", params=asked).json()
    (listed,) = look(shared, "alone", "ready", preview=0)["messages"]
    assert (found["body"], found["headers"]) == ("x" * 70_000, {"trace": "7f"})
    assert {name: found[name] for name in ("id", "offset", "timestamp", "body_size")} == {
        name: listed[name] for name in ("id", "offset", "timestamp", "body_size")
    }


def test_a_client_is_disconnected_and_loses_what_it_has(shared: Daemon) -> None:
    publish(shared, "parted", b"1", b"2")
    url = f"http://{shared.http}/client/disconnect"
    with Consumer("parted", "c", [shared.tcp], max_in_flight=5) as consumer:
        taken: list[Message] = []
        while len(taken) < 2:
            taken += consumer.poll(10)
        address = look(shared, "parted", "in_flight")["messages"][0]["client"]["remote_address"]
        asked = {"topic": "parted", "channel": "c", "client": address}
        for wrong in ({"client": "10.0.0.1:1"}, {"client": "@"}):
            answer = httpx.post(url, params=asked | wrong)
            assert (answer.status_code, answer.json()["message"]) == (404, "CLIENT_NOT_FOUND")
        assert httpx.post(url, params={"topic": "parted", "channel": "c"}).status_code == 400
        httpx.post(f"http://{shared.http}/channel/pause?topic=parted&channel=c").raise_for_status()
        assert httpx.post(url, params=asked).json() == {"disconnected": 1, "requeued": 2}
        assert counts(shared, "parted")[:2] == (2, 0)
        assert httpx.post(url, params=asked).status_code == 404


def test_a_request_that_would_take_too_much_memory_is_refused(shared: Daemon) -> None:
    publish(shared, "huge", *[b"x" * 1_000_000] * 70)
    answer = get(shared, topic="huge", channel="c", state="ready", limit="100")
    assert (answer.status_code, answer.json()["message"]) == (413, "TOO_MUCH_AT_ONCE")
    assert act(shared, "finish", "huge", state="ready", count=100) == (413, "TOO_MUCH_AT_ONCE")
    assert act(shared, "move", "huge", state="ready", count=40, to="elsewhere") == {"moved": 40}
    assert look(shared, "huge", "ready", limit=30)["total"] == 30
