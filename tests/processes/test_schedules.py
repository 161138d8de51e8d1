"""Schedules of a real nsqd: over a stop and a start, no tick is published twice, and none is left out."""

import time
from pathlib import Path

import httpx
import pytest

from tests.daemons import nsqd

pytestmark = pytest.mark.process
PATIENCE = 20.0  # s


def keys(node_http: str, least: int) -> list[str]:
    """Return the keys of the messages in the channel, when there are that many."""
    query = {"topic": "t", "channel": "c", "state": "ready"}
    until = time.monotonic() + PATIENCE
    while True:
        messages = httpx.get(f"http://{node_http}/channel/messages", params=query).json()["messages"]
        if len(messages) >= least:
            return [message["key"] for message in messages]
        assert time.monotonic() < until
        time.sleep(0.05)


def test_ticks_are_published_once_over_a_restart(tmp_path: Path) -> None:
    with nsqd(tmp_path) as node:
        for path in ("/topic/create?topic=t", "/channel/create?topic=t&channel=c"):
            httpx.post(f"http://{node.http}{path}").raise_for_status()
        httpx.post(f"http://{node.http}/schedule?topic=t&name=n&every=1s&missed=all", content=b"x").raise_for_status()
        first = keys(node.http, 2)
    with nsqd(tmp_path) as node:
        found = keys(node.http, len(first) + 2)
    ticks = [int(key.removeprefix("schedule:n:")) for key in found]
    assert ticks == list(range(ticks[0], ticks[0] + len(ticks)))
