"""/topic/read and /topic/offsets on a real process: by offset and by time, over kill -9, in both forms, and what is refused."""

from __future__ import annotations

import base64
import json
import signal
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import msgpack
import pytest

from penstock.client import Consumer
from tests.daemons import Daemon, nsqd, post

pytestmark = pytest.mark.process


def publish(node: Daemon, topic: str, bodies: list[bytes]) -> None:
    packed = len(bodies).to_bytes(4, "big") + b"".join(len(body).to_bytes(4, "big") + body for body in bodies)
    post(node, "/mpub", packed, topic=topic, binary="true")


def get(node: Daemon, path: str, accept: str = "*/*", **arguments: object) -> httpx.Response:
    params = {name.removesuffix("_"): str(value) for name, value in arguments.items()}
    return httpx.get(f"http://{node.http}{path}", params=params, headers={"Accept": accept}, timeout=30)


def read(node: Daemon, topic: str, **arguments: object) -> list[dict[str, Any]]:
    answer = get(node, "/topic/read", topic=topic, **arguments)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in answer.text.splitlines()]


def read_all(node: Daemon, topic: str, start: object, **arguments: object) -> list[tuple[int, int, str, bytes]]:
    """(offset, timestamp, id, body) of everything from a place on, in msgpack, an answer at a time."""
    found: list[tuple[int, int, str, bytes]] = []
    while True:
        answer = get(node, "/topic/read", "application/msgpack", topic=topic, from_=start, **arguments)
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"] == "application/msgpack"
        unpacker = msgpack.Unpacker()
        unpacker.feed(answer.content)
        for first, count, frames in unpacker:
            at = 0
            for offset in range(first, first + count):
                end = at + 4 + int.from_bytes(frames[at : at + 4], "big")
                stamp = int.from_bytes(frames[at + 8 : at + 16], "big")
                found.append((offset, stamp, frames[at + 18 : at + 34].decode(), frames[at + 34 : end]))
                at = end
            assert at == len(frames)
        start = int(answer.headers["x-nsq-next-offset"])
        if start == int(answer.headers["x-nsq-end-offset"]):
            return found


def offsets(node: Daemon, topic: str, **arguments: object) -> dict[str, Any]:
    answer = get(node, "/topic/offsets", topic=topic, **arguments)
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


def refused(node: Daemon, path: str = "/topic/read", **arguments: object) -> tuple[int, str]:
    answer = get(node, path, **arguments)
    return answer.status_code, answer.json()["message"]


def as_time(stamp: int) -> str:
    """Return the nanoseconds as a time, rounded up to a microsecond."""
    return datetime.fromtimestamp(-(-stamp // 1000) / 1_000_000, UTC).isoformat()


def test_it_is_read_twice_by_offset_and_by_time_with_equal_results_after_a_kill(tmp_path: Path) -> None:
    bodies = [b"%d " % number + b"x" * (number % 300) for number in range(5000)]
    with nsqd(tmp_path, "-mem-budget", "1048576") as node:
        post(node, "/topic/create", topic="t", retention="1h")
        post(node, "/channel/create", topic="t", channel="c")
        for start in range(0, 2000, 100):
            publish(node, "t", bodies[start : start + 100])
        time.sleep(0.01)
        middle = time.time_ns()
        for start in range(2000, 5000, 100):
            publish(node, "t", bodies[start : start + 100])
        post(node, "/channel/empty", topic="t", channel="c")  # they are finished
        before = read_all(node, "t", "earliest", max_bytes=100_000)
        log = offsets(node, "t")["log"]
        node.stop(signal.SIGKILL)
    assert [body for *_, body in before] == bodies
    assert [offset for offset, *_ in before] == list(range(5000))
    with nsqd(tmp_path) as node:
        assert read_all(node, "t", 0, log=log) == before
        assert read_all(node, "t", "1970-01-01T00:00:00Z") == before
        assert read_all(node, "t", as_time(middle)) == before[2000:]
        assert read_all(node, "t", "-1h") == before
        told = offsets(node, "t", time=as_time(middle))
        assert told == told | {"topic": "t", "log": log, "first": 0, "next": 5000, "offset": 2000}
        assert told["bytes"] > sum(map(len, bodies))
        assert before[0][1] <= told["first_timestamp"] <= told["last_timestamp"]
        assert offsets(node, "t", time="2100-01-01T00:00:00+02:00")["offset"] == 5000


def test_lines_and_limits(shared: Daemon) -> None:
    post(shared, "/topic/create", topic="lines", retention_bytes="1000000")
    odd = [b"plain", "\N{GREEK SMALL LETTER ALPHA}\n</script>".encode(), b"\xff\0\x01", b"{}", b"last"]
    publish(shared, "lines", odd)
    lines = read(shared, "lines")
    assert [line["offset"] for line in lines] == [0, 1, 2, 3, 4]
    assert [line.get("body") for line in lines] == ["plain", "\u03b1\n</script>", None, "{}", "last"]
    assert base64.b64decode(lines[2]["body_base64"]) == odd[2]
    assert all(len(line["id"]) == 16 and line["timestamp"] > 10**18 for line in lines)
    assert read(shared, "lines", from_=1, to=3) == lines[1:3]
    assert read(shared, "lines", from_=1, limit=2) == lines[1:3]
    assert read(shared, "lines", to=2) == lines[:2]
    assert read(shared, "lines", from_=3, to=2) == []
    assert read(shared, "lines", from_="latest") == []
    assert read(shared, "lines", from_=5) == []
    assert read(shared, "lines", limit=0) == []
    assert read(shared, "lines", max_bytes=1) == lines[:1]  # one always
    answer = get(shared, "/topic/read", topic="lines", from_=1, max_bytes=80)
    assert [json.loads(line)["offset"] for line in answer.text.splitlines()] == [1]
    assert (answer.headers["x-nsq-next-offset"], answer.headers["x-nsq-end-offset"]) == ("2", "5")
    assert read(shared, "lines", from_=2, to=10**18) == lines[2:]


def told_after(node: Daemon, topic: str, offset: int) -> float:
    """Publish the message of that offset while somebody waits for it. Returns how long he waited then, in s."""
    told: list[dict[str, Any]] = []
    reader = threading.Thread(target=lambda: told.extend(read(node, topic, from_=offset, wait_ms=20_000)))
    reader.start()
    time.sleep(0.3)
    began = time.monotonic()
    publish(node, topic, [b"lone"])
    reader.join(30)
    assert [line["body"] for line in told] == ["lone"]
    return time.monotonic() - began


@pytest.mark.parametrize("durability", ["always", "interval", "os"])
def test_a_lone_message_on_a_quiet_node_is_told_at_once(shared: Daemon, durability: str) -> None:
    topic = f"quiet-{durability}"
    post(shared, "/topic/create", topic=topic, retention="1h", durability=durability)
    # What nobody waits for is synced after a second. A busy machine may take as long, but not every time.
    assert any(told_after(shared, topic, offset) < 0.8 for offset in range(9))


def test_waiting_ends_with_the_first_message_or_with_the_time(shared: Daemon) -> None:
    post(shared, "/topic/create", topic="later", retention="1h")
    began = time.monotonic()
    assert read(shared, "later", wait_ms=300) == []
    assert time.monotonic() - began >= 0.3
    timer = threading.Timer(0.2, publish, (shared, "later", [b"now"]))
    timer.start()
    assert [line["body"] for line in read(shared, "later", from_=0, wait_ms=20_000)] == ["now"]
    timer.join()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({}, (400, "MISSING_ARG_TOPIC")),
        ({"topic": "no such name!"}, (400, "INVALID_TOPIC")),
        ({"topic": "unknown"}, (404, "TOPIC_NOT_FOUND")),
        ({"topic": "memory#ephemeral"}, (400, "EPHEMERAL_TOPIC")),
        ({"topic": "short", "from_": 4}, (416, "OFFSET_IN_FUTURE")),
        ({"topic": "short", "from_": 10**18}, (416, "OFFSET_IN_FUTURE")),
        ({"topic": "short", "from_": 10**19}, (400, "INVALID_ARG_FROM")),
        ({"topic": "short", "from_": "-1"}, (400, "INVALID_ARG_FROM")),
        ({"topic": "short", "from_": "-1parsec"}, (400, "INVALID_ARG_FROM")),
        ({"topic": "short", "from_": ""}, (400, "INVALID_ARG_FROM")),
        ({"topic": "short", "from_": "1.5"}, (400, "INVALID_ARG_FROM")),
        ({"topic": "short", "from_": "\u0661"}, (400, "INVALID_ARG_FROM")),
        ({"topic": "short", "from_": "2026-11-21T10:00:00"}, (400, "INVALID_ARG_FROM")),
        ({"topic": "short", "from_": "2026-13-01T00:00:00Z"}, (400, "INVALID_ARG_FROM")),
        ({"topic": "short", "to": "soon"}, (400, "INVALID_ARG_TO")),
        ({"topic": "short", "limit": "x"}, (400, "INVALID_ARG_LIMIT")),
        ({"topic": "short", "limit": 10**9}, (400, "INVALID_ARG_LIMIT")),
        ({"topic": "short", "max_bytes": 1 << 40}, (400, "INVALID_ARG_MAX_BYTES")),
        ({"topic": "short", "wait_ms": 3_600_000}, (400, "INVALID_ARG_WAIT_MS")),
        ({"topic": "short", "log": "0" * 32 + "-1"}, (409, "OTHER_LOG")),
        ({"topic": "short", "accept": "image/png"}, (406, "NOT_ACCEPTABLE")),
        ({"topic": "kept for nobody".replace(" ", "-"), "from_": 0}, (410, "OFFSET_GONE")),
    ],
)
def test_what_is_refused(shared: Daemon, arguments: dict[str, Any], error: tuple[int, str]) -> None:
    post(shared, "/topic/create", topic="memory#ephemeral")
    post(shared, "/topic/create", topic="short", retention="1h")
    if offsets(shared, "short")["next"] == 0:
        publish(shared, "short", [b"a", b"b", b"c"])
        publish(shared, "kept-for-nobody", [b"a", b"b", b"c"])
    assert refused(shared, **arguments) == error
    assert [line["body"] for line in read(shared, "short")] == ["a", "b", "c"]


def test_what_retention_has_passed_is_gone(tmp_path: Path) -> None:
    with nsqd(tmp_path) as node:
        publish(node, "t", [b"before"])
        post(node, "/topic/config", topic="t", retention="1h")
        publish(node, "t", [b"after"])
        assert refused(node, topic="t", from_=0) == (410, "OFFSET_GONE")
        answer = get(node, "/topic/read", topic="t", from_=0)
        assert answer.headers["x-nsq-first-offset"] == "1"
        assert [line["body"] for line in read(node, "t")] == ["after"]
        post(node, "/topic/delete", topic="t")
        post(node, "/topic/create", topic="t", retention="1h")
        assert offsets(node, "t")["next"] == 0


def test_reading_changes_nothing(shared: Daemon) -> None:
    post(shared, "/topic/create", topic="calm", retention="1h")
    post(shared, "/channel/create", topic="calm", channel="c")
    publish(shared, "calm", [b"%d" % number for number in range(50)])

    def stats() -> Any:
        return get(shared, "/stats", format="json", topic="calm").json()["topics"]

    before = stats()
    for _ in range(100):
        assert len(read(shared, "calm")) == 50
    assert stats() == before


def drained(node: Daemon, topic: str, channel: str, count: int) -> list[bytes]:
    """So many messages of a channel, finished."""
    with Consumer(topic, channel, [node.tcp]) as consumer:
        bodies = []
        for message in consumer:
            bodies.append(message.body)
            message.finish()
            if len(bodies) == count:
                return bodies
    raise AssertionError("the consumer ended")


def created(node: Daemon, **arguments: object) -> tuple[int, str]:
    params = {name.removesuffix("_"): str(value) for name, value in arguments.items()}
    answer = httpx.post(f"http://{node.http}/channel/create", params=params)
    return answer.status_code, answer.json()["message"] if answer.content else ""


def test_a_channel_begins_with_what_others_have_finished(tmp_path: Path) -> None:
    bodies = [b"%d" % number for number in range(3000)]
    with nsqd(tmp_path, "-mem-budget", "65536") as node:
        post(node, "/topic/create", topic="t", retention="1h")
        post(node, "/channel/create", topic="t", channel="first")
        publish(node, "t", bodies[:2000])
        assert drained(node, "t", "first", 2000) == bodies[:2000]
        middle = as_time(time.time_ns())
        publish(node, "t", bodies[2000:])
        assert created(node, topic="t", channel="all", from_="earliest") == (200, "")
        assert created(node, topic="t", channel="some", from_=2990) == (200, "")
        assert created(node, topic="t", channel="time", from_=middle) == (200, "")
        assert created(node, topic="t", channel="none", from_="latest") == (200, "")
        depths = {
            c["channel_name"]: c["depth"] for c in get(node, "/stats", format="json").json()["topics"][0]["channels"]
        }
        assert depths == {"first": 1000, "all": 3000, "some": 10, "time": 1000, "none": 0}
        assert drained(node, "t", "some", 10) == bodies[2990:]
        node.stop(signal.SIGKILL)
    with nsqd(tmp_path) as node:
        assert drained(node, "t", "all", 3000) == bodies
        assert drained(node, "t", "time", 1000) == bodies[2000:]
        assert drained(node, "t", "first", 1000) == bodies[2000:]
        publish(node, "t", [b"new"])
        for channel in ("all", "some", "none"):
            assert drained(node, "t", channel, 1) == [b"new"]
        assert len(read_all(node, "t", 0)) == 3001


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"topic": "begun", "channel": "there", "from_": "earliest"}, (409, "CHANNEL_EXISTS")),
        ({"topic": "begun", "channel": "new", "from_": 3}, (416, "OFFSET_IN_FUTURE")),
        ({"topic": "begun", "channel": "new", "from_": "never"}, (400, "INVALID_ARG_FROM")),
        ({"topic": "begun", "channel": "new", "from_": 0, "log": "x"}, (409, "OTHER_LOG")),
        ({"topic": "nowhere", "channel": "new", "from_": 0}, (404, "TOPIC_NOT_FOUND")),
        ({"topic": "begun", "channel": "no name", "from_": 0}, (400, "INVALID_ARG_CHANNEL")),
        ({"topic": "unkept", "channel": "new", "from_": 0}, (410, "OFFSET_GONE")),
    ],
)
def test_where_a_channel_cannot_begin(shared: Daemon, arguments: dict[str, Any], error: tuple[int, str]) -> None:
    post(shared, "/topic/create", topic="begun", retention="1h")
    post(shared, "/channel/create", topic="begun", channel="there")
    if offsets(shared, "begun")["next"] == 0:
        publish(shared, "begun", [b"a", b"b"])
        publish(shared, "unkept", [b"a"])
    assert created(shared, **arguments) == error
    channels = get(shared, "/stats", format="json", topic="begun").json()["topics"][0]["channels"]
    assert [channel["channel_name"] for channel in channels] == ["there"]
