"""What a real nsqd tells those who watch many: figures of all topics, rows of some, ages, the log's contents, all cursors."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from nsqd.http.overview import PORTION
from tests.daemons import OK, Conversation, Daemon, nsqd

pytestmark = pytest.mark.process


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Daemon]:
    with nsqd(tmp_path) as daemon:
        yield daemon


def post(node: Daemon, path: str, content: bytes = b"") -> None:
    httpx.post(f"http://{node.http}{path}", content=content, timeout=20.0).raise_for_status()


def get(node: Daemon, path: str) -> Any:
    """Return the JSON of an answer, or its status and message."""
    answer = httpx.get(f"http://{node.http}{path}", timeout=20.0)
    told = answer.json()
    return told if answer.status_code == 200 else (answer.status_code, told["message"])


def test_figures_and_rows(fresh: Daemon) -> None:
    post(fresh, "/pub?topic=new", b"x")
    post(fresh, "/topic/create?topic=t")
    post(fresh, "/channel/create?topic=t&channel=c")
    before = time.time_ns()
    post(fresh, "/mpub?topic=t", b"a\nb")
    post(fresh, "/channel/pause?topic=t&channel=c")
    told = get(fresh, "/topics/figures?columns=depth,oldest")
    assert told["totals"] == {
        "topics": 2,
        "channels": 1,
        "depth": 3,
        "in_flight": 0,
        "deferred": 0,
        "buried": 0,
        "clients": 0,
        "messages": 3,
    }
    assert (told["health"], told["paused"], told["paused_count"]) == ("OK", ["t/c"], 1)
    assert told["idle"] == {"count": 1, "names": ["t/c"]}
    assert (told["names"], told["columns"]["depth"]) == (["new", "t"], [1, 2])
    new, t = told["columns"]["oldest"]
    assert told["oldest"] == new < before < t < time.time_ns()
    assert "names" not in get(fresh, "/topics/figures")
    assert get(fresh, "/topics/figures?columns=")["columns"] == {}
    rows = get(fresh, "/topics/rows?topic=t&topic=missing&topic=new&topic=t&topic=%00")["topics"]
    assert [(row["topic_name"], row["paused"], row["depth"], row["oldest"]) for row in rows] == [
        ("t", True, 2, t),
        ("new", False, 1, new),
    ]
    ages = get(fresh, "/topic/ages?topic=t")
    assert ages.pop("changes").keys() <= {"c"}  # of a channel that is some steps old
    assert ages == {"topic": 0, "channels": {"c": t}, "buried": {}}
    assert get(fresh, "/topic/ages?topic=new") == {"topic": new, "channels": {}, "buried": {}, "changes": {}}


def test_what_may_need_an_operator(fresh: Daemon) -> None:
    post(fresh, "/topic/create?topic=fine")
    post(fresh, "/channel/create?topic=fine&channel=c")
    told = get(fresh, "/channels/attention")
    assert (told["channels"], told["topics"], told["tubes"], told["left_out"]) == ([], [], [], 0)
    assert told["version"] == get(fresh, "/info")["version"]
    before = time.time_ns()
    post(fresh, "/mpub?topic=fine", b"a\nb")
    post(fresh, "/pub?topic=lonely", b"x")
    post(fresh, "/topic/create?topic=paused")
    post(fresh, "/channel/create?topic=paused&channel=c")
    post(fresh, "/channel/pause?topic=paused&channel=c&by=ann")
    told = get(fresh, "/channels/attention?depth=5&age=60&limit=1")
    (row,) = told["channels"]
    assert (row["topic"], row["channel"], row["depth"], row["clients"]) == ("fine", "c", 2, 0)
    assert before < row["oldest"] < told["now"]
    assert ([one["topic"] for one in told["topics"]], told["left_out"]) == (["lonely"], 1)
    paused = get(fresh, "/channels/attention")["channels"][1]
    (pause,) = get(fresh, "/pauses")["pauses"]
    assert (paused["topic"], paused["paused"], paused["paused_at"]) == ("paused", True, pause["at"])
    for name, values in {"limit": ("-1", "10001", "x"), "depth": ("1e3", "9" * 17), "age": ("-5", "1m")}.items():
        for value in values:
            assert get(fresh, f"/channels/attention?{name}={value}") == (400, f"INVALID_ARG_{name.upper()}")


def test_more_topics_than_a_portion(shared: Daemon) -> None:
    count = PORTION + 7
    with Conversation(shared, b"  V2") as client:
        for number in range(count):
            client.send(b"PUB many-%05d\n\0\0\0\1x" % number)
        assert [client.frame() for _ in range(count)] == [OK] * count
    told = get(shared, "/topics/figures?columns=messages,depth")
    assert told["totals"]["topics"] == len(told["names"]) == count
    assert told["names"] == sorted(told["names"])
    assert told["columns"] == {"messages": [1] * count, "depth": [1] * count}


def test_hostile_arguments(shared: Daemon) -> None:
    post(shared, "/topic/create?topic=t")
    for columns in ("depths", "depth,", ",", "depth,__class__", "x" * 10_000):
        assert get(shared, f"/topics/figures?columns={columns}") == (400, "INVALID_ARG_COLUMNS")
    assert get(shared, "/topics/figures?columns=" + ",".join(["depth"] * 2000))["columns"].keys() == {"depth"}
    assert get(shared, "/topics/rows") == (400, "MISSING_ARG_TOPIC")
    assert get(shared, "/topics/rows?" + "topic=t&" * 200)["topics"][0]["topic_name"] == "t"
    assert get(shared, "/topics/rows?" + "topic=t&" * 201) == (400, "TOO_MANY_TOPICS")
    assert get(shared, "/topics/rows?topic=%zz") == (400, "INVALID_REQUEST")
    assert get(shared, "/topic/ages") == (400, "MISSING_ARG_TOPIC")
    assert get(shared, "/topic/ages?topic=%20") == (400, "INVALID_TOPIC")
    assert get(shared, "/topic/ages?topic=missing") == (404, "TOPIC_NOT_FOUND")
    for limit in ("-1", "1001", "x", "1e2", "%D9%A1"):
        assert get(shared, f"/cursors?limit={limit}") == (400, "INVALID_ARG_LIMIT")
    assert get(shared, "/cursors?after=t") == (400, "INVALID_ARG_AFTER")
    for path in ("/topics/figures", "/topics/rows", "/topic/ages", "/storage", "/cursors", "/channels/attention"):
        assert httpx.post(f"http://{shared.http}{path}").status_code == 405


def test_what_the_log_holds(tmp_path: Path) -> None:
    with nsqd(tmp_path) as node:
        before = time.time_ns()
        post(node, "/topic/create?topic=kept&retention=1h")
        post(node, "/mpub?topic=kept", b"\n".join([b"x" * 1000] * 50))
        post(node, "/pub?topic=small", b"x")
        post(node, "/pub?topic=gone%23ephemeral", b"x" * 100_000)
        told = get(node, "/storage")
        assert told["path"] == str(tmp_path.resolve() / "log")
        assert told["refusal"] == ""
        assert 0 < told["disk_free"] < told["disk_total"]
        assert told["syncs"] > 0
        assert 0 < told["sync_p50_ms"] <= told["sync_p99_ms"]
        assert told["topic_count"] == 2
        kept, small = told["topics"]
        assert (kept["topic"], kept["messages"], kept["retained"]) == ("kept", 50, 50)
        assert (small["topic"], small["messages"], small["retained"]) == ("small", 1, 0)
        assert 50_000 < kept["live_bytes"] < 60_000
        assert told["live_bytes"] == kept["live_bytes"] + small["live_bytes"]
        (file,) = told["files"]
        assert (file["number"], file["live_bytes"]) == (1, told["live_bytes"])
        assert file["bytes"] == told["log_bytes"] + 64  # but for its header
        assert before < file["first_timestamp"] < told["counted"] < time.time_ns()
        assert get(node, "/storage")["counted"] == told["counted"]
    with nsqd(tmp_path) as node:
        told = get(node, "/storage")
        assert [(one["topic"], one["messages"], one["retained"]) for one in told["topics"]] == [
            ("kept", 50, 50),
            ("small", 1, 0),
        ]
        assert told["files"][-1]["live_bytes"] == told["live_bytes"] > 50_000


def test_cursors_of_all_topics(fresh: Daemon) -> None:
    assert get(fresh, "/cursors") == {"cursor_count": 0, "cursors": []}
    for topic in ("a", "a-b", "z"):
        post(fresh, f"/topic/create?topic={topic}&retention=1h")
        post(fresh, f"/mpub?topic={topic}", b"1\n2\n3")
    for topic, name in (("z", "spark"), ("a", "y"), ("a", "x"), ("a-b", "x")):
        post(fresh, f"/topic/cursor?topic={topic}&name={name}&to=1&owner=me&hold=1h")
    told = get(fresh, "/cursors")
    assert told["cursor_count"] == 4
    assert [(one["topic"], one["name"]) for one in told["cursors"]] == [
        ("a", "x"),
        ("a", "y"),
        ("a-b", "x"),
        ("z", "spark"),
    ]
    listed = get(fresh, "/topic/cursors?topic=z")
    (same,) = listed["cursors"]
    assert told["cursors"][3] == {"topic": "z", "log": listed["log"], **same}
    assert (same["owner"], same["offset"], same["lag"]) == ("me", 1, 2)
    page = get(fresh, "/cursors?limit=2&after=a/x")
    assert (page["cursor_count"], [one["topic"] for one in page["cursors"]]) == (4, ["a", "a-b"])
    assert get(fresh, "/cursors?limit=0")["cursors"] == []
    assert get(fresh, "/cursors?after=z/spark")["cursors"] == []
