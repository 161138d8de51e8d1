"""The statistics topic on a real nsqd: what it tells of each second adds up to what was done."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.client import Consumer
from penstock.sansio.message import Message
from tests.daemons import Daemon, eventually, nsqd, run

pytestmark = pytest.mark.process


_COUNTS = ("published", "bytes", "finished", "attempts", "requeued", "timed_out")


def told(node: Daemon, topic: str = "_stats") -> list[dict[str, Any]]:
    answer = httpx.get(f"http://{node.http}/topic/read?topic={topic}&max_bytes=8000000")
    if answer.status_code == 404:
        return []
    return [json.loads(json.loads(line)["body"]) for line in answer.text.splitlines()]


def sums(node: Daemon, channel: str) -> Counter[str]:
    found: Counter[str] = Counter()
    for one in told(node):
        if "at" in one and one["topic"] == "t" and one.get("channel", "") == channel:
            found.update({name: one[name] for name in _COUNTS if name in one})
    return found


def test_seconds_add_up(tmp_path: Path) -> None:
    with nsqd(tmp_path, "-statistics-topic", "_stats", "-msg-timeout", "3s", "-node-id", "7") as node:
        httpx.post(f"http://{node.http}/topic/create?topic=t").raise_for_status()
        httpx.post(f"http://{node.http}/channel/create?topic=t&channel=c").raise_for_status()
        httpx.post(f"http://{node.http}/channel/create?topic=t&channel=c%23ephemeral").raise_for_status()
        began = time.time()
        httpx.post(f"http://{node.http}/mpub?topic=t", content="\n".join(["12345"] * 20)).raise_for_status()
        with Consumer("t", "c", [node.tcp], max_in_flight=20) as consumer:
            messages: list[Message] = []
            while len(messages) < 20:
                messages += consumer.poll(5)
            first, _, *others = messages
            first.requeue(0)
            for message in others:
                message.finish()
            consumer.flush()
            again = 0
            while again < 2:  # the one that was handed back, and the one whose time is over
                for message in consumer.poll(5):
                    message.finish()
                    again += 1
            consumer.flush()
        eventually(lambda: sums(node, "c")["finished"] >= 20)
        assert sums(node, "") == {"published": 20, "bytes": 100}
        assert sums(node, "c") == {"finished": 20, "attempts": 22, "requeued": 1, "timed_out": 1}
        seconds = [one for one in told(node) if one.get("channel") == "c"]
        assert {one["node"] for one in seconds} == {7}
        assert all(began - 2 < one["at"] < time.time() for one in seconds)
        latencies = [one["latency"] for one in seconds]
        assert sum(count for one in latencies for count in one["buckets"].values()) == 20
        assert 3e9 < max(one["max"] for one in latencies) < 60e9  # of the one that timed out
        assert {one["topic"] for one in told(node)} == {"t"}  # not itself
        assert not any(one.get("channel", "").endswith("#ephemeral") for one in told(node))
        stats = httpx.get(f"http://{node.http}/stats?format=json&topic=t").json()["topics"][0]
        assert stats["e2e_processing_latency"] == {
            "count": 0,
            "percentiles": None,
        }  # as NSQ has it where none are configured
        config = httpx.get(f"http://{node.http}/topic/config?topic=_stats").json()
        assert config["retention"] == "24h0m0s"


def test_producers_and_events(tmp_path: Path) -> None:
    with nsqd(tmp_path, "-statistics-topic", "_stats", "-statistics-events", "full") as node:
        httpx.post(f"http://{node.http}/topic/create?topic=t").raise_for_status()
        httpx.post(f"http://{node.http}/channel/create?topic=t&channel=c").raise_for_status()
        lines = "\n".join(["12345"] * 10)
        for producer in ("ann", "ben"):
            url = f"http://{node.http}/mpub?topic=t&producer={producer}&sequence=1"
            httpx.post(url, content=lines).raise_for_status()
        httpx.post(f"http://{node.http}/mpub?topic=t", content=lines).raise_for_status()
        with Consumer("t", "c", [node.tcp], max_in_flight=50) as consumer:
            done = 0
            while done < 30:
                for message in consumer.poll(5):
                    message.finish()
                    done += 1
            consumer.flush()
        eventually(lambda: sums(node, "c")["finished"] == 30)
        rows = told(node)
        seconds = [one for one in rows if one.get("channel") == "c" and "at" in one]
        by_producer: Counter[str] = Counter()
        for one in seconds:
            by_producer[one["producer"]] += one["finished"]
        assert by_producer == {"ann": 10, "ben": 10, "": 10}
        events = [one for one in rows if "event" in one]
        assert len({one["id"] for one in events}) == 30
        assert Counter(one["producer"] for one in events) == by_producer
        assert {(one["event"], one["attempts"]) for one in events} == {("finished", 1)}
        assert all(0 <= one["latency_ns"] < 60e9 for one in events)


def test_an_idle_node_tells_nothing(tmp_path: Path) -> None:
    with nsqd(tmp_path, "-statistics-topic", "_stats") as node:
        time.sleep(1.2)
        assert httpx.get(f"http://{node.http}/stats?format=json").json()["topics"] == []


def test_a_name_that_is_none_is_refused() -> None:
    done = run("nsqd", "-statistics-topic", "a b")
    assert done.returncode == 1
    assert "--statistics-topic 'a b' is not a valid topic name" in done.stderr


def test_events_without_a_topic_are_odd() -> None:
    done = run("nsqd", "-statistics-events", "full", "-check-config")
    assert "--statistics-events 'full' has no effect without --statistics-topic" in done.stdout + done.stderr


@pytest.mark.parametrize("word", ["some", "2", "-1", "nan", ""])
def test_a_share_that_is_none_is_refused(word: str) -> None:
    done = run("nsqd", "-statistics-events", word)
    assert done.returncode == 2
    assert "expected off, full, or a share of the messages such as 0.01" in done.stderr
