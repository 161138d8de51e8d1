"""Schedules of a real nsqd: over a stop and a start, no tick is published twice, and none is left out."""

from pathlib import Path

import httpx
import pytest

from tests.daemons import Daemon, eventually, nsqd, post

pytestmark = pytest.mark.process


def keys(node: Daemon) -> list[str]:
    """Return the keys of the messages in the channel."""
    messages = httpx.get(f"http://{node.http}/channel/messages?topic=t&channel=c&state=ready").json()["messages"]
    return [message["key"] for message in messages]


def test_ticks_are_published_once_over_a_restart(tmp_path: Path) -> None:
    with nsqd(tmp_path) as node:
        post(node, "/topic/create", topic="t")
        post(node, "/channel/create", topic="t", channel="c")
        post(node, "/schedule", b"x", topic="t", name="n", every="1s", missed="all")
        eventually(lambda: len(keys(node)) >= 2)
        first = keys(node)
    with nsqd(tmp_path) as node:
        eventually(lambda: len(keys(node)) >= len(first) + 2)
        found = keys(node)
    ticks = [int(key.removeprefix("schedule:n:")) for key in found]
    assert ticks == list(range(ticks[0], ticks[0] + len(ticks)))
