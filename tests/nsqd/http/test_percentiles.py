"""Percentiles of end-to-end latencies: in /stats as JSON and as text, and in /metrics."""

import re

import pytest

from tests.daemons import OK, Conversation, several
from tests.local_node import LocalNode
from tests.nsqd.http.asking import get, post

MS, SECOND = 1_000_000, 1_000_000_000
FLAGS = ("-e2e-processing-latency-percentile", "0.5,1", "-e2e-processing-latency-percentile", "0.99")


def consume(node: LocalNode, count: int, after: int) -> None:
    """Publish some messages to channel `ch` of `t`, and finish them after so many ns."""
    with Conversation(node, b"  V2SUB t ch\nRDY 100\n") as client:
        assert client.frame() == OK
        client.send(b"MPUB t\n" + several(*[b"x"] * count))
        frames = [client.frame() for _ in range(count + 1)]
        node.advance(after)
        client.send(b"".join(b"FIN %s\n" % frame[1][10:26] for frame in frames if frame and frame[0] == 2) + b"CLS\n")
        assert client.frame() == (0, b"CLOSE_WAIT")  # by then the FINs are done


@pytest.fixture(scope="module")
def node() -> LocalNode:
    node = LocalNode(*FLAGS)
    consume(node, 7, after=200 * MS)
    post(node, "/channel/create", topic="t", channel="idle")
    post(node, "/topic/create", topic="alone")
    return node


def test_percentiles_in_stats(node: LocalNode) -> None:
    alone, topic = get(node, "/stats", format="json")["topics"]
    busy, idle = topic["channels"]
    assert alone["e2e_processing_latency"] == {"count": 0, "percentiles": None}
    for shown in (topic, busy):
        latency = shown["e2e_processing_latency"]
        assert latency["count"] == 7
        assert [entry["quantile"] for entry in latency["percentiles"]] == [1, 0.99, 0.5]
        assert all(200 * MS < entry["value"] < 220 * MS for entry in latency["percentiles"])
    values = [{"quantile": q, "value": 0} for q in (1, 0.99, 0.5)]
    assert idle["e2e_processing_latency"] == {"count": 0, "percentiles": values}
    assert '{"quantile":1,"value":' in node.client.get("/stats?format=json").text


def test_percentiles_as_text(node: LocalNode) -> None:
    text, value = node.client.get("/stats").text, r"2[01][0-9]\.[0-9]ms"
    assert re.search(rf"^   \[t +\] .* e2e%: {value}, {value}, {value}$", text, re.MULTILINE)
    assert re.search(r"^      \[idle +\] .* e2e%: 0\.0ns, 0\.0ns, 0\.0ns$", text, re.MULTILINE)
    assert re.search(r"^   \[alone +\] .* e2e%: $", text, re.MULTILINE)


def test_percentiles_as_a_histogram(node: LocalNode) -> None:
    text = node.client.get("/metrics").text
    assert "# TYPE nsqd_e2e_processing_latency_seconds histogram" in text
    for bound, count in {"0.1": 0, "0.25": 7, "3600.0": 7, "+Inf": 7}.items():
        assert f'nsqd_e2e_processing_latency_seconds_bucket{{le="{bound}"}} {count}.0\n' in text
    assert "nsqd_e2e_processing_latency_seconds_count 7.0\n" in text
