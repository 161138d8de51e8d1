"""/storage: the content of the log, and the topics that take its space."""

import pytest

from tests.local_node import LocalNode
from tests.nsqd.http.asking import get, post


def test_what_the_log_holds() -> None:
    node = LocalNode("-data-path", "/data")
    node.disk.capacity, before = 1 << 40, node.clock.wall
    post(node, "/topic/create", topic="kept", retention="1h")
    post(node, "/mpub", b"\n".join([b"x" * 1000] * 50), topic="kept")
    post(node, "/pub", b"x", topic="small")
    post(node, "/pub", b"x" * 100_000, topic="gone#ephemeral")
    for _ in range(90):
        node.syncer.latencies.note(2_000_000)
    for _ in range(10):
        node.syncer.latencies.note(8_000_000)
    shown = get(node, "/storage")
    assert (shown["path"], shown["refusal"], shown["topic_count"]) == ("/data/log", "", 2)
    assert (shown["disk_free"], shown["disk_total"]) == (node.disk.free(), 1 << 40)
    assert 0 < shown["disk_free"] < shown["disk_total"]
    assert shown["syncs"] > 100
    assert (shown["sync_p50_ms"], shown["sync_p99_ms"]) == (pytest.approx(2, rel=0.1), pytest.approx(8, rel=0.1))
    kept, small = shown["topics"]
    assert (kept["topic"], kept["messages"], kept["retained"]) == ("kept", 50, 50)
    assert (small["topic"], small["messages"], small["retained"]) == ("small", 1, 0)
    assert 50_000 < kept["live_bytes"] < 60_000
    assert shown["live_bytes"] == kept["live_bytes"] + small["live_bytes"]
    newest, oldest = shown["files"]
    assert (oldest["number"], oldest["live_bytes"]) == (1, kept["live_bytes"])
    assert (newest["number"], newest["live_bytes"]) == (2, small["live_bytes"])
    assert oldest["bytes"] + newest["bytes"] == shown["log_bytes"] + 64  # except for the first header
    assert before < oldest["first_timestamp"] < newest["first_timestamp"] < shown["counted"] <= node.clock.wall
    node = node.killed()
    again = get(node, "/storage")
    assert (again["topics"], again["live_bytes"]) == (shown["topics"], shown["live_bytes"])
    assert again["files"][-1] == oldest
