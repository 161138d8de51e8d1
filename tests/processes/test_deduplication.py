"""De-duplicated publishing over kill -9 and stops: by HTTP and by TCP."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import httpx
import pytest

from tests.daemons import OK, Conversation, Daemon, nsqd, several, sized

pytestmark = pytest.mark.process

FEATURE = json.dumps({"feature_negotiation": True, "deduplication": True}).encode()


def pub(node: Daemon, topic: str, body: bytes, **arguments: object) -> int:
    """How many messages of the request were repeated."""
    path = "mpub" if b"\n" in body else "pub"
    params = {"topic": topic} | {name: str(value) for name, value in arguments.items()}
    answer = httpx.post(f"http://{node.http}/{path}", params=params, content=body)
    assert (answer.status_code, answer.text) == (200, "OK")
    return int(answer.headers.get("x-nsq-duplicates", 0))


def bodies(node: Daemon, topic: str) -> list[str]:
    """Return the sorted bodies, once there are eight."""
    params = {"topic": topic, "wait_ms": "10000", "min": "8"}
    answer = httpx.get(f"http://{node.http}/topic/read", params=params, timeout=30).raise_for_status()
    return sorted(json.loads(line)["body"] for line in answer.text.splitlines())


def producer(node: Daemon) -> Conversation:
    client = Conversation(node, b"  V2IDENTIFY\n" + sized(FEATURE))
    frame = client.frame()
    assert frame is not None
    assert json.loads(frame[1])["deduplication"] is True
    return client


def test_a_kill_and_a_stop_between_publish_and_retry_give_one_message(tmp_path: Path) -> None:
    for life in range(3):  # in the third, replay begins with the checkpoint of the second's stop
        with nsqd(tmp_path, "-retention", "1h") as node:
            assert pub(node, "t", b"one", key="k1") == min(life, 1)
            assert pub(node, "t", b"two\nthree", producer="p", sequence=0) == 2 * min(life, 1)
            assert pub(node, "t", b"three\nfour", producer="p", sequence=1) == (1 if life == 0 else 2)
            assert pub(node, "t", b"later", key="k2", defer="600000") == min(life, 1)
            with producer(node) as client:
                client.send(b"PUB t k1\n" + sized(b"one") + b"PUB t k3\n" + sized(b"five"))
                client.send(b"MPUB t q 7\n" + several(b"six", b"seven"))
                assert [client.frame() for _ in range(3)] == [OK] * 3
            assert bodies(node, "t") == sorted(["one", "two", "three", "four", "later", "five", "six", "seven"])
            metrics = httpx.get(f"http://{node.http}/metrics").text
            assert f"nsqd_duplicates_total {[2, 10][life > 0]}.0" in metrics
            if life == 1:
                fill(node)
            node.stop([signal.SIGKILL, signal.SIGTERM][life == 1])


def fill(node: Daemon) -> None:
    """With so much behind the last checkpoint a stop leaves one."""
    for _ in range(10):
        pub(node, "u", b"x" * 100_000)
