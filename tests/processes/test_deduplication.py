"""Headers and de-duplicated publish on a real process: HTTP and TCP, over kill -9, and what is refused."""

from __future__ import annotations

import io
import json
import signal
from pathlib import Path
from typing import Any

import httpx
import msgpack
import pytest

from tests.daemons import OK, Conversation, Daemon, nsqd, post, several, sized

pytestmark = pytest.mark.process
SHARED_FLAGS = ("-retention", "1h")

FEATURE = json.dumps({"feature_negotiation": True, "deduplication": True}).encode()


def pub(node: Daemon, topic: str, body: bytes, headers: dict[str, str] | None = None, **arguments: object) -> int:
    """How many messages of the request were repeated."""
    path = "mpub" if b"\n" in body else "pub"
    params = {"topic": topic} | {name: str(value) for name, value in arguments.items()}
    raw = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]
    answer = httpx.post(f"http://{node.http}/{path}", params=params, content=body, headers=raw)
    assert (answer.status_code, answer.text) == (200, "OK")
    return int(answer.headers.get("x-nsq-duplicates", 0))


def read(node: Daemon, topic: str, **arguments: str | int) -> list[dict[str, Any]]:
    answer = httpx.get(f"http://{node.http}/topic/read", params={"topic": topic, **arguments}, timeout=30)
    assert answer.status_code == 200, answer.text
    lines = [json.loads(line) for line in answer.text.splitlines()]
    return [{name: value for name, value in line.items() if name not in ("id", "timestamp")} for line in lines]


def producer(node: Daemon) -> Conversation:
    client = Conversation(node, b"  V2IDENTIFY\n" + sized(FEATURE))
    frame = client.frame()
    assert frame is not None
    assert json.loads(frame[1])["deduplication"] is True
    return client


def test_headers_are_told_where_messages_are_read_back_and_listed(shared: Daemon) -> None:
    post(shared, "/topic/create", topic="headed")
    post(shared, "/channel/create", topic="headed", channel="c")
    pub(shared, "headed", b"plain")
    pub(shared, "headed", b"one", {"X-Nsq-Header-TraceParent": "00-ab-cd-01", "x-nsq-header-n": "\u00e4"}, key="k1")
    pub(shared, "headed", b"two\nthree", {"X-Nsq-Header-n": ""}, producer="p", sequence=41)
    headers = {"traceparent": "00-ab-cd-01", "n": "\u00e4"}
    told: list[dict[str, Any]] = [
        {"offset": 0, "body": "plain"},
        {"offset": 1, "body": "one", "headers": headers, "key": "k1"},
        {"offset": 2, "body": "two", "headers": {"n": ""}, "producer": "p", "sequence": 41},
        {"offset": 3, "body": "three", "headers": {"n": ""}, "producer": "p", "sequence": 42},
    ]
    assert read(shared, "headed") == told
    assert read(shared, "headed", **{"from": 3}) == told[3:]
    answer = httpx.get(
        f"http://{shared.http}/topic/read",
        params={"topic": "headed", "to": "3"},
        headers={"Accept": "application/msgpack"},
    )
    batches = list(msgpack.Unpacker(io.BytesIO(answer.content)))
    assert [(first, count, more) for first, count, _, *more in batches] == [
        (0, 1, []),
        (1, 1, [{"headers": headers, "key": "k1"}]),
        (2, 1, [{"headers": {"n": ""}, "producer": "p", "sequence": 41}]),
    ]
    assert list(listed(shared, "headed")) == ["plain", "one", "two", "three"]
    assert listed(shared, "headed")["three"] == {"headers": {"n": ""}, "producer": "p", "sequence": 42}
    post(shared, "/topic/create", topic="elsewhere")
    post(shared, "/channel/create", topic="elsewhere", channel="c")
    post(shared, "/channel/messages/move", topic="headed", channel="c", state="ready", count="4", to="elsewhere")
    assert listed(shared, "elsewhere") == {
        "plain": {},
        "one": {"headers": headers},
        "two": {"headers": {"n": ""}},
        "three": {"headers": {"n": ""}},
    }


def listed(node: Daemon, topic: str) -> dict[str, dict[str, Any]]:
    """Return the attributes of the listed messages, by body."""
    params = {"topic": topic, "channel": "c", "state": "ready"}
    answer = httpx.get(f"http://{node.http}/channel/messages", params=params).raise_for_status()
    names = ("headers", "key", "producer", "sequence")
    return {one["body"]: {name: one[name] for name in names if name in one} for one in answer.json()["messages"]}


@pytest.mark.parametrize("durability", ["always", "interval", "os"])
def test_a_kill_between_publish_and_retry_gives_one_message(durability: str, tmp_path: Path) -> None:
    arguments = ("-durability", durability, "-retention", "1h")
    for life in range(3):  # in the third, replay begins with the checkpoint of the second's stop
        with nsqd(tmp_path, *arguments) as node:
            assert pub(node, "t", b"one", key="k1") == min(life, 1)
            assert pub(node, "t", b"two\nthree", producer="p", sequence=0) == 2 * min(life, 1)
            assert pub(node, "t", b"three\nfour", producer="p", sequence=1) == (1 if life == 0 else 2)
            assert pub(node, "t", b"later", key="k2", defer="600000") == min(life, 1)
            with producer(node) as client:
                client.send(b"PUB t k1\n" + sized(b"one") + b"PUB t k3\n" + sized(b"five"))
                client.send(b"MPUB t q 7\n" + several(b"six", b"seven"))
                assert [client.frame() for _ in range(3)] == [OK] * 3
            bodies = [line["body"] for line in read(node, "t", wait_ms=10_000, min=8)]
            assert sorted(bodies) == sorted(["one", "two", "three", "four", "later", "five", "six", "seven"])
            metrics = httpx.get(f"http://{node.http}/metrics").text
            assert f"nsqd_duplicates_total {[2, 10][life > 0]}.0" in metrics
            if life == 1:
                fill(node)
            node.stop([signal.SIGKILL, signal.SIGTERM][life == 1])


def fill(node: Daemon) -> None:
    """With so much behind the last checkpoint a stop leaves one."""
    for _ in range(10):
        pub(node, "u", b"x" * 100_000)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"key": ""}, "INVALID_KEY"),
        ({"key": "two words"}, "INVALID_KEY"),
        ({"key": "\u00e4"}, "INVALID_KEY"),
        ({"key": "k" * 129}, "INVALID_KEY"),
        ({"key": "k", "producer": "p", "sequence": "1"}, "INVALID_KEY"),
        ({"producer": "p\n", "sequence": "1"}, "INVALID_PRODUCER"),
        ({"producer": "p"}, "MISSING_ARG_SEQUENCE"),
        ({"sequence": "1"}, "MISSING_ARG_PRODUCER"),
        ({"producer": "p", "sequence": "-1"}, "INVALID_SEQUENCE"),
        ({"producer": "p", "sequence": str(2**62)}, "INVALID_SEQUENCE"),
        ({"producer": "p", "sequence": "9" * 5000}, "INVALID_SEQUENCE"),
    ],
)
@pytest.mark.parametrize("path", ["pub", "mpub"])
def test_arguments_that_make_no_sense(path: str, arguments: dict[str, str], message: str, shared: Daemon) -> None:
    answer = httpx.post(f"http://{shared.http}/{path}", params={"topic": "nothing", **arguments}, content=b"x")
    assert (answer.status_code, answer.json()) == (400, {"message": message})
    assert httpx.get(f"http://{shared.http}/topic/read?topic=nothing").status_code == 404


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ([(f"X-Nsq-Header-{number}", "x") for number in range(33)], "TOO_MANY_HEADERS"),
        ([("X-Nsq-Header-a", "x" * 8192)], "TOO_MANY_HEADERS"),
        ([("X-Nsq-Header-a", "1"), ("x-nsq-header-A", "2")], "INVALID_HEADER"),
        ([("X-Nsq-Header-", "1")], "INVALID_HEADER"),
        ([("X-Nsq-Header-a", b"\xff")], "INVALID_HEADER"),
    ],
)
def test_headers_that_are_refused(headers: list[tuple[str, Any]], message: str, shared: Daemon) -> None:
    raw = [(name.encode(), value if isinstance(value, bytes) else value.encode()) for name, value in headers]
    answer = httpx.post(f"http://{shared.http}/pub?topic=nothing", content=b"x", headers=raw)
    assert (answer.status_code, answer.json()) == (400, {"message": message})
