"""Pauses in nsqd.dat, and a real nsqd that ends one."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.daemons import Daemon, eventually, nsqd, post

pytestmark = pytest.mark.process


def pauses(node: Daemon) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(f"http://{node.http}/pauses").raise_for_status().json()
    return found


def test_pauses_of_a_file_that_somebody_wrote(tmp_path: Path) -> None:
    """Of NSQ's, nobody knows by whom; what is no pause keeps nobody from starting."""
    topics = [
        {"name": "t", "paused": True, "channels": [{"name": "c", "paused": True}, {"name": "d", "paused": False}]}
    ]
    ours = [
        {"topic": "t", "channel": "c", "by": "ann", "at": 5, "until": int(time.time()) + 99},
        {"topic": "t", "channel": "d", "by": "eve", "at": 5, "until": 6},
        {"topic": "../x", "channel": "", "by": "eve", "at": 5, "until": 6},
        {"topic": "t", "channel": "", "by": "\n", "at": 5, "until": 6},
    ]
    content = {"topics": topics, "version": "1.3.0", "penstock": {"ids": 1, "pauses": ours}}
    (tmp_path / "nsqd.dat").write_text(json.dumps(content))
    with nsqd(tmp_path) as node:
        assert pauses(node) == {
            "pauses": [{"topic": "t", "channel": "", "by": "", "at": 0, "until": 0}, ours[0]],
            "count": 2,
        }
        assert sum("WARNING" in line for line in node.lines) == 1
        post(node, "/topic/pause", topic="t", until=str(int(time.time()) + 2))
        node.wait_for_line("PAUSE: unpaused t: its pause has expired")
        assert pauses(node) == {"pauses": ours[:1], "count": 1}
        eventually(lambda: "pauses" not in json.loads((tmp_path / "nsqd.dat").read_bytes())["penstock"])
