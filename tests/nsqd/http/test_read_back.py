"""/topic/read and /topic/offsets, and channels that begin in the past: by offset and time, over kills, and what is refused."""

import base64
import json
from datetime import UTC, datetime
from typing import Any

import httpx
import msgpack
import pytest

from tests.cases import each
from tests.local_node import LocalNode, MemorySocket
from tests.nsqd.http.asking import ask, drained, get, post, reply_of

MS, SECOND = 1_000_000, 1_000_000_000


def publish(node: LocalNode, topic: str, bodies: list[bytes]) -> None:
    packed = len(bodies).to_bytes(4, "big") + b"".join(len(body).to_bytes(4, "big") + body for body in bodies)
    post(node, "/mpub", packed, topic=topic, binary="true")


def answer(node: LocalNode, topic: str, accept: str = "*/*", **arguments: object) -> httpx.Response:
    params = {"topic": topic, **{name.removesuffix("_"): str(value) for name, value in arguments.items()}}
    return node.client.get("/topic/read", params=params, headers={"Accept": accept})


def lines_of(found: httpx.Response) -> list[dict[str, Any]]:
    assert found.status_code == 200, found.text
    assert found.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in found.text.splitlines()]


def read(node: LocalNode, topic: str, **arguments: object) -> list[dict[str, Any]]:
    return lines_of(answer(node, topic, **arguments))


def bodies_of(node: LocalNode, topic: str, **arguments: object) -> list[str]:
    return [line["body"] for line in read(node, topic, **arguments)]


def read_all(node: LocalNode, topic: str, start: object, **arguments: object) -> list[tuple[int, int, str, bytes]]:
    """Return (offset, timestamp, id, body) of everything from a place on, in msgpack, an answer at a time."""
    messages: list[tuple[int, int, str, bytes]] = []
    while True:
        found = answer(node, topic, "application/msgpack", from_=start, **arguments)
        assert found.status_code == 200, found.text
        assert found.headers["content-type"] == "application/msgpack"
        unpacker = msgpack.Unpacker()
        unpacker.feed(found.content)
        for first, count, frames in unpacker:
            at = 0
            for offset in range(first, first + count):
                end = at + 4 + int.from_bytes(frames[at : at + 4], "big")
                stamp = int.from_bytes(frames[at + 8 : at + 16], "big")
                messages.append((offset, stamp, frames[at + 18 : at + 34].decode(), frames[at + 34 : end]))
                at = end
            assert at == len(frames)
        start = int(found.headers["x-nsq-next-offset"])
        if start == int(found.headers["x-nsq-end-offset"]):
            return messages


def as_time(stamp: int) -> str:
    """Return the nanoseconds as a time, rounded up to a microsecond."""
    return datetime.fromtimestamp(-(-stamp // 1000) / 1_000_000, UTC).isoformat()


def test_it_is_read_twice_by_offset_and_by_time_with_equal_results_after_a_kill() -> None:
    bodies = [b"%d " % number + b"x" * (number % 300) for number in range(2000)]
    node = LocalNode("-mem-budget", "262144")
    post(node, "/topic/create", topic="t", retention="1h")
    post(node, "/channel/create", topic="t", channel="c")
    for start in range(0, 800, 100):
        publish(node, "t", bodies[start : start + 100])
    node.advance(10 * MS)
    middle = as_time(node.clock.wall)
    node.advance(MS)
    for start in range(800, 2000, 100):
        publish(node, "t", bodies[start : start + 100])
    post(node, "/channel/empty", topic="t", channel="c")  # they are finished
    before = read_all(node, "t", "earliest", max_bytes=50_000)
    log = get(node, "/topic/offsets", topic="t")["log"]
    assert ([body for *_, body in before], [offset for offset, *_ in before]) == (bodies, list(range(2000)))
    node = node.killed()
    assert read_all(node, "t", 0, log=log) == before
    assert read_all(node, "t", "1970-01-01T00:00:00Z") == before
    assert (read_all(node, "t", middle), read_all(node, "t", "-1h")) == (before[800:], before)
    found = get(node, "/topic/offsets", topic="t", time=middle)
    assert found == found | {"topic": "t", "log": log, "first": 0, "next": 2000, "offset": 800}
    assert found["bytes"] > sum(map(len, bodies))
    assert before[0][1] <= found["first_timestamp"] <= found["last_timestamp"]
    assert get(node, "/topic/offsets", topic="t", time="2100-01-01T00:00:00+02:00")["offset"] == 2000


def test_lines_and_limits(node: LocalNode) -> None:
    post(node, "/topic/create", topic="lines", retention_bytes="1000000")
    odd = [b"plain", "\N{GREEK SMALL LETTER ALPHA}\n</script>".encode(), b"\xff\0\x01", b"{}", b"last"]
    publish(node, "lines", odd)
    lines = read(node, "lines")
    assert [line["offset"] for line in lines] == [0, 1, 2, 3, 4]
    assert [line.get("body") for line in lines] == ["plain", "\u03b1\n</script>", None, "{}", "last"]
    assert base64.b64decode(lines[2]["body_base64"]) == odd[2]
    assert all(len(line["id"]) == 16 and line["timestamp"] > 10**18 for line in lines)
    assert read(node, "lines", from_=1, to=3) == lines[1:3]
    assert (read(node, "lines", from_=1, limit=2), read(node, "lines", to=2)) == (lines[1:3], lines[:2])
    assert (read(node, "lines", from_=3, to=2), read(node, "lines", from_="latest")) == ([], [])
    assert (read(node, "lines", from_=5), read(node, "lines", limit=0)) == ([], [])
    assert read(node, "lines", max_bytes=1) == lines[:1]  # one always
    part = answer(node, "lines", from_=1, max_bytes=80)
    assert [line["offset"] for line in lines_of(part)] == [1]
    assert (part.headers["x-nsq-next-offset"], part.headers["x-nsq-end-offset"]) == ("2", "5")
    assert read(node, "lines", from_=2, to=10**18) == lines[2:]


def waiting(node: LocalNode, topic: str, offset: int) -> MemorySocket:
    """Return a connection on which a client has waited 300 ms for the message of that offset."""
    client = node.connect("HTTP")
    target = f"/topic/read?topic={topic}&from={offset}&wait_ms=20000"
    client.sendall(f"GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    node.advance(300 * MS)
    return client


@pytest.mark.parametrize("durability", ["always", "interval", "os"])
def test_a_lone_message_on_a_quiet_node_is_returned_at_once(node: LocalNode, durability: str) -> None:
    topic = f"quiet-{durability}"
    post(node, "/topic/create", topic=topic, retention="1h", durability=durability)
    for offset in range(3):
        with waiting(node, topic, offset) as client:
            began = node.clock.now
            publish(node, topic, [b"lone"])
            (line,) = client.makefile("rb").read().partition(b"\r\n\r\n")[2].splitlines()
            assert json.loads(line)["body"] == "lone"
            assert node.clock.now - began < 50 * MS  # without a waiting client, a sync comes after 200 ms


@each("arguments, error", [
    ({"topic": "unknown"}, (404, "TOPIC_NOT_FOUND")), ({"topic": "memory#ephemeral"}, (400, "EPHEMERAL_TOPIC")),
    ({"topic": "short", "from": 4}, (416, "OFFSET_IN_FUTURE")),
    ({"topic": "short", "from": 10**18}, (416, "OFFSET_IN_FUTURE")),
    ({"topic": "short", "limit": 2, "min": 3}, (400, "INVALID_ARG_MIN")),
    ({"topic": "short", "log": "0" * 32 + "-1"}, (409, "OTHER_LOG")),
    ({"topic": "kept-for-nobody", "from": 0}, (410, "OFFSET_GONE")),
])  # fmt: skip
def test_what_is_refused(node: LocalNode, arguments: dict[str, Any], error: tuple[int, str]) -> None:
    make_short(node)
    assert (get(node, "/topic/read", **arguments), bodies_of(node, "short")) == (error, ["a", "b", "c"])
    assert reply_of(answer(node, "short", "image/png")) == (406, "NOT_ACCEPTABLE")


def make_short(node: LocalNode) -> None:
    """Make a topic with three messages, and others that cannot be read."""
    if "short" not in node.broker.topics:
        post(node, "/topic/create", topic="memory#ephemeral")
        post(node, "/topic/create", topic="short", retention="1h")
        publish(node, "short", [b"a", b"b", b"c"])
        publish(node, "kept-for-nobody", [b"a", b"b", b"c"])


def test_what_retention_has_passed_is_gone(node: LocalNode) -> None:
    publish(node, "passed", [b"before"])
    post(node, "/topic/config", topic="passed", retention="1h")
    publish(node, "passed", [b"after"])
    gone = answer(node, "passed", from_=0)
    assert (reply_of(gone), gone.headers["x-nsq-first-offset"]) == ((410, "OFFSET_GONE"), "1")
    assert bodies_of(node, "passed") == ["after"]
    post(node, "/topic/delete", topic="passed")
    post(node, "/topic/create", topic="passed", retention="1h")
    assert get(node, "/topic/offsets", topic="passed")["next"] == 0


def test_a_channel_begins_with_what_others_have_finished() -> None:
    bodies = [b"%d" % number for number in range(1200)]
    node = LocalNode("-mem-budget", "65536")
    post(node, "/topic/create", topic="t", retention="1h")
    post(node, "/channel/create", topic="t", channel="first")
    publish(node, "t", bodies[:800])
    assert drained(node, "t", "first", 800) == bodies[:800]
    middle = as_time(node.clock.wall)
    node.advance(MS)
    publish(node, "t", bodies[800:])
    for channel, place in {"all": "earliest", "some": 1190, "time": middle, "none": "latest"}.items():
        assert ask(node, "POST", "/channel/create", topic="t", channel=channel, from_=place).content == b""
    (topic,) = get(node, "/stats", format="json")["topics"]
    depths = {channel["channel_name"]: channel["depth"] for channel in topic["channels"]}
    assert depths == {"first": 400, "all": 1200, "some": 10, "time": 400, "none": 0}
    assert drained(node, "t", "some", 10) == bodies[1190:]
    node = node.killed()
    assert (drained(node, "t", "all", 1200), drained(node, "t", "time", 400)) == (bodies, bodies[800:])
    assert drained(node, "t", "first", 400) == bodies[800:]
    publish(node, "t", [b"new"])
    for channel in ("all", "some", "none"):
        assert drained(node, "t", channel, 1) == [b"new"]
    assert len(read_all(node, "t", 0)) == 1201


@each("arguments, error", [
    ({"topic": "begun", "channel": "there", "from": "earliest"}, (409, "CHANNEL_EXISTS")),
    ({"topic": "begun", "channel": "new", "from": 3}, (416, "OFFSET_IN_FUTURE")),
    ({"topic": "begun", "channel": "new", "from": 0, "log": "x"}, (409, "OTHER_LOG")),
    ({"topic": "nowhere", "channel": "new", "from": 0}, (404, "TOPIC_NOT_FOUND")),
    ({"topic": "unkept", "channel": "new", "from": 0}, (410, "OFFSET_GONE")),
])  # fmt: skip
def test_where_a_channel_cannot_begin(node: LocalNode, arguments: dict[str, Any], error: tuple[int, str]) -> None:
    if "begun" not in node.broker.topics:
        post(node, "/topic/create", topic="begun", retention="1h")
        post(node, "/channel/create", topic="begun", channel="there")
        publish(node, "begun", [b"a", b"b"])
        publish(node, "unkept", [b"a"])
    assert reply_of(ask(node, "POST", "/channel/create", **arguments)) == error
    (topic,) = get(node, "/stats", format="json", topic="begun")["topics"]
    assert [channel["channel_name"] for channel in topic["channels"]] == ["there"]
