"""/stats as JSON: the keys, their order and their values, as the original answers."""

import json
import re

import pytest

from tests.daemons import OK, Conversation, sized
from tests.local_node import LocalNode
from tests.nsqd.http.asking import get
from tests.nsqd.http.raw import JSON, ask, busy_node, channel_of, is_ok, stats

CLIENT = [
    "client_id", "hostname", "version", "remote_address", "state", "ready_count", "in_flight_count", "message_count",
    "finish_count", "requeue_count", "connect_ts", "sample_rate", "deflate", "snappy", "user_agent",
]  # fmt: skip
TLS = ["tls", "tls_cipher_suite", "tls_version", "tls_negotiated_protocol", "tls_negotiated_protocol_is_mutual"]
CHANNEL = [
    "channel_name", "depth", "backend_depth", "in_flight_count", "deferred_count", "message_count", "requeue_count",
    "timeout_count", "client_count", "clients", "paused", "e2e_processing_latency",
]  # fmt: skip
TOPIC = [
    "topic_name", "channels", "depth", "backend_depth", "message_count", "message_bytes", "paused",
    "e2e_processing_latency",
]  # fmt: skip
MEMORY = [
    "heap_objects", "heap_idle_bytes", "heap_in_use_bytes", "heap_released_bytes", "gc_pause_usec_100",
    "gc_pause_usec_99", "gc_pause_usec_95", "next_gc_bytes", "gc_total_runs",
]  # fmt: skip


@pytest.fixture(scope="module")
def busy() -> LocalNode:
    return busy_node()


def test_all_that_a_node_reports(busy: LocalNode) -> None:
    answer = ask(busy, "GET", "/stats?format=json")
    assert (answer.status, answer.headers["content-type"]) == (200, JSON)
    assert b", " not in answer.body
    assert b'"client_id":"\\u003cme\\u003e","hostname":"h\\u00261"' in answer.body
    root = json.loads(answer.body)
    assert list(root) == ["version", "health", "start_time", "topics", "memory", "producers"]
    assert (root["version"], root["health"], list(root["memory"])) == ("1.3.0", "OK", MEMORY)
    alpha, beta = root["topics"]
    assert (list(alpha), list(beta)) == (TOPIC, TOPIC)
    assert [alpha[key] for key in TOPIC] == ["alpha", [], 1, 0, 1, 1, True, {"count": 0, "percentiles": None}]
    assert [beta[key] for key in TOPIC[2:7]] == [0, 0, 2, 10, False]
    a, z = beta["channels"]
    assert (list(a), list(z)) == (CHANNEL, CHANNEL)
    assert [a[key] for key in CHANNEL[:9]] == ["a", 0, 0, 1, 1, 2, 0, 0, 1]
    assert [z[key] for key in CHANNEL[:11]] == ["z", 1, 0, 0, 1, 2, 0, 0, 0, [], True]
    (client,) = a["clients"]
    assert [client[key] for key in CLIENT[4:10]] == [3, 5, 1, 1, 0, 0]
    assert re.fullmatch(r"127\.0\.0\.1:\d+", client["remote_address"])
    assert [p["pub_counts"] for p in root["producers"]] == [
        [{"topic": "beta", "count": 2}],
        [{"topic": "alpha", "count": 1}],
    ]
    for producer in root["producers"]:
        assert list(producer) == [*CLIENT, "pub_counts", *TLS]
    assert (root["producers"][1]["client_id"], root["producers"][1]["hostname"]) == ("127.0.0.1", "127.0.0.1")


def test_the_extensions_have_who_publishes_over_http() -> None:
    node = busy_node()
    for _ in range(2):
        node.client.post("/pub?topic=web", content=b"x")
        node.client.post("/mpub?topic=web&key=k", content=b"a\nb")  # the other server: and once, by its key
    node.client.post("/pub?topic=web&defer=1000", content=b"x")
    node.client.post("/pub?topic=web&channel=none", content=b"x")  # refused
    asked = {"headers": {"X-Nsq-Extensions": "true"}, "params": {"format": "json", "topic": "web"}}
    producers = node.client.get("/stats", **asked).json()["producers"]
    (one,) = (each for each in producers if each["version"] == "HTTP")
    assert (one["remote_address"], one["pub_counts"]) == ("127.0.0.1", [{"topic": "web", "count": 5}])
    text = node.client.get("/stats", headers=asked["headers"]).text
    assert re.search(r"\[HTTP :127.0.0.1 *\] msgs: 5 +topics: web=5 connected: ", text)
    assert "HTTP" not in node.client.get("/stats").text


def test_the_extensions_have_the_oldest_message(busy: LocalNode) -> None:
    root = busy.client.get("/stats?format=json", headers={"X-Nsq-Extensions": "true"}).json()
    for topic in root["topics"]:
        ages = get(busy, "/topic/ages", topic=topic["topic_name"])
        assert topic["oldest"] == ages["topic"]
        assert {channel["channel_name"]: channel["oldest"] for channel in topic["channels"]} == ages["channels"]
    alpha, beta = root["topics"]
    assert alpha["oldest"] > beta["oldest"] == 0 == beta["channels"][0]["oldest"]
    assert beta["channels"][1]["oldest"] > 0


def test_filters_and_what_is_null(busy: LocalNode) -> None:
    assert stats(busy, "topic=unknown")["topics"] is None
    assert stats(busy, "channel=unknown")["topics"] == []
    assert stats(busy, "topic=beta&channel=unknown")["topics"] == []
    assert [topic["topic_name"] for topic in stats(busy, "channel=z")["topics"]] == ["beta"]
    assert [c["channel_name"] for c in stats(busy, "channel=z")["topics"][0]["channels"]] == ["z"]
    assert len(stats(busy, "topic=&channel=")["topics"]) == 2
    for no in ("false", "0"):
        root = stats(busy, f"include_clients={no}&include_mem={no}&topic=beta")
        assert list(root) == ["version", "health", "start_time", "topics", "producers"]
        assert root["producers"] is None
        assert [c["clients"] for c in root["topics"][0]["channels"]] == [None, None]
    for yes in ("true", "1", "", "no", "False"):
        root = stats(busy, f"include_clients={yes}&include_mem={yes}&topic=beta")
        assert "memory" in root
        assert root["topics"][0]["channels"][0]["clients"]


def test_what_a_client_calls_itself_does_no_harm() -> None:
    odd = rb'{"client_id":"\ud800","hostname":"\u0000\n\r\u2028</script>","user_agent":"' + b"\xff" + rb'\udfff"}'
    node = LocalNode()
    with Conversation(node, b"  V2IDENTIFY\n" + sized(odd) + b"PUB t\n" + sized(b"x") + b"SUB t c\n") as client:
        assert ([client.frame() for _ in range(3)], channel_of(node, "t")["client_count"]) == ([OK] * 3, 1)
        for target in ("/stats?format=json", "/stats"):
            assert ask(node, "GET", target).status == 200
    assert is_ok(ask(node, "GET", "/livez"))
