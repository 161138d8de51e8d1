"""Pauses in nsqd.dat, and a real nsqd that ends one."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.daemons import Daemon, nsqd, post

pytestmark = pytest.mark.process


def pauses(node: Daemon) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(f"http://{node.http}/pauses").raise_for_status().json()
    return found


def test_pauses_of_a_file_that_somebody_wrote(tmp_path: Path) -> None:
    """Nobody knows by whom."""
    topics = [
        {"name": "t", "paused": True, "channels": [{"name": "c", "paused": True}, {"name": "d", "paused": False}]}
    ]
    (tmp_path / "nsqd.dat").write_text(json.dumps({"topics": topics, "version": "1.3.0"}))
    with nsqd(tmp_path) as node:
        unknown = {"by": "", "at": 0, "until": 0}
        channel = {"topic": "t", "channel": "c"} | unknown
        assert pauses(node) == {"pauses": [{"topic": "t", "channel": ""} | unknown, channel], "count": 2}
        assert not any("WARNING" in line for line in node.lines)
        post(node, "/topic/pause", topic="t", until=str(int(time.time()) + 2))
        node.wait_for_line("PAUSE: unpaused t: its pause has expired")
        assert pauses(node) == {"pauses": [channel], "count": 1}
