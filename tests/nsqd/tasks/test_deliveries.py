"""The statistics topic: its counts of every second add up to what was done."""

import json
from collections import Counter
from typing import Any

from tests.daemons import OK, Conversation
from tests.local_node import SECOND, START, LocalNode

COUNTS = ("published", "bytes", "finished", "attempts", "requeued", "timed_out", "buried")
TEN = b"\n".join([b"12345"] * 10)


def start(*flags: str) -> LocalNode:
    """A node with a topic and two channels, one of them ephemeral."""
    node = LocalNode("-statistics-topic", "_stats", "-node-id", "7", *flags)
    for path in (
        "topic/create?topic=t",
        "channel/create?topic=t&channel=c",
        "channel/create?topic=t&channel=c%23ephemeral",
    ):
        node.client.post(f"/{path}").raise_for_status()
    return node


def publish(node: LocalNode, arguments: str = "") -> None:
    assert node.client.post(f"/mpub?topic=t{arguments}", content=TEN).text == "OK"


def published(node: LocalNode) -> list[dict[str, Any]]:
    answer = node.client.get("/topic/read?topic=_stats&max_bytes=8000000").raise_for_status()
    return [json.loads(json.loads(line)["body"]) for line in answer.text.splitlines()]


def sums(rows: list[dict[str, Any]], channel: str) -> dict[str, int]:
    found = Counter[str]()
    for one in rows:
        if "at" in one and one["topic"] == "t" and one.get("channel", "") == channel:
            found.update({name: one[name] for name in COUNTS if one.get(name)})
    return found


def test_seconds_add_up() -> None:
    node = start("-msg-timeout", "3s")
    began = node.clock.wall
    publish(node)
    node.advance(SECOND)
    publish(node)
    assert node.client.post("/pub?topic=u%23ephemeral", content=b"x").text == "OK"
    subscriptions = (b"  V2SUB t c\nRDY 20\n", b"  V2SUB t c#ephemeral\nRDY 1\n")
    with Conversation(node, subscriptions[0]) as client, Conversation(node, subscriptions[1]) as other:
        assert client.frame() == other.frame() == OK
        other.send(b"FIN %s\n" % other.message().id)
        first, _, *others = [client.message().id for _ in range(20)]
        client.send(b"REQ " + first + b" 0\n" + b"".join(b"FIN %s\n" % one for one in others))
        for _ in range(2):  # the one that was handed back, and the one whose time is over
            client.send(b"FIN %s\n" % client.message().id)
        node.advance(2 * SECOND)
    rows = published(node)
    assert sums(rows, "") == {"published": 20, "bytes": 100}
    assert sums(rows, "c") == {"finished": 20, "attempts": 22, "requeued": 1, "timed_out": 1}
    seconds = [one for one in rows if one.get("channel") == "c"]
    assert {one["node"] for one in rows} == {7}
    at = began // SECOND
    assert [(one["at"], one["bytes"]) for one in rows if "bytes" in one] == [(at, 50), (at + 1, 50)]
    assert [one["at"] for one in seconds] == [at + 1, at + 4]
    assert [(one["depth"], one["in_flight"]) for one in seconds] == [(0, 1), (0, 0)]
    latencies = [one["latency"] for one in seconds]
    assert sum(count for one in latencies for count in one["buckets"].values()) == 20
    assert 3 * SECOND < latencies[1]["max"] == latencies[1]["sum"] < 5 * SECOND  # of the one that timed out
    assert {one["topic"] for one in rows} == {"t"}  # not itself
    assert not any(one.get("channel", "").endswith("#ephemeral") for one in rows)
    stats = node.client.get("/stats?format=json&topic=t").json()["topics"][0]
    as_in_nsq = {"count": 0, "percentiles": None}  # where none are configured
    assert stats["e2e_processing_latency"] == as_in_nsq
    assert node.client.get("/topic/config?topic=_stats").json()["retention"] == "24h0m0s"


def test_producers_and_events() -> None:
    node = start("-statistics-events", "full")
    for arguments in ("&producer=ann&sequence=1", "&producer=ben&sequence=1", ""):
        publish(node, arguments)
    with Conversation(node, b"  V2SUB t c\nRDY 50\n") as client:
        assert client.frame() == OK
        ids = [client.message().id for _ in range(30)]
        client.send(b"".join(b"FIN %s\n" % one for one in ids))
        node.advance(2 * SECOND)
    rows = published(node)
    assert sums(rows, "c")["finished"] == 30
    by_producer = Counter[str]()
    for one in rows:
        if one.get("channel") == "c" and "at" in one:
            by_producer[one["producer"]] += one["finished"]
    assert by_producer == {"ann": 10, "ben": 10, "": 10}
    events = [one for one in rows if "event" in one]
    assert sorted(one["id"].encode() for one in events) == sorted(ids)
    assert Counter(one["producer"] for one in events) == by_producer
    fields = ("node", "event", "topic", "channel", "attempts")
    assert {tuple(one[name] for name in fields) for one in events} == {(7, "finished", "t", "c", 1)}
    assert all(0 <= one["latency_ns"] < SECOND for one in events)
    assert all(START <= one["at_ns"] < START + SECOND for one in events)
