"""Pausing with who and until when on a real nsqd, over kills; and /pauses."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.daemons import OK, Conversation, Daemon, eventually, nsqd

pytestmark = pytest.mark.process

SOON = 4  # s
LATE = 10.0  # s a pause may last beyond its time; it is one, but CI machines sleep at times
MONTH = 30 * 24 * 3600  # s


def post(node: Daemon, path: str, body: str = "", **arguments: str | int) -> httpx.Response:
    return httpx.post(f"http://{node.http}{path}", params=arguments, content=body)


def pauses(node: Daemon) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(f"http://{node.http}/pauses").raise_for_status().json()
    return found


def is_paused(node: Daemon, channel: str = "") -> bool:
    topic = httpx.get(f"http://{node.http}/stats?format=json&topic=t").json()["topics"][0]
    found = next(one for one in topic["channels"] if one["channel_name"] == channel) if channel else topic
    return bool(found["paused"])


def make(node: Daemon) -> None:
    post(node, "/topic/create", topic="t").raise_for_status()
    post(node, "/channel/create", topic="t", channel="c").raise_for_status()


def test_a_pause_ends_by_itself_and_delivery_goes_on(tmp_path: Path) -> None:
    with nsqd(tmp_path) as node:
        make(node)
        with Conversation(node, b"  V2SUB t c\nRDY 9\n") as consumer:
            assert consumer.frame() == OK
            began = int(time.time())
            until = began + SOON
            answer = post(node, "/topic/pause", topic="t", by="ann", until=until)
            assert (answer.status_code, answer.content) == (200, b"")
            post(node, "/channel/pause", topic="t", channel="c", until=until, by="z\u00f6lf").raise_for_status()
            post(node, "/pub", "x", topic="t")
            told = pauses(node)
            assert told["count"] == 2
            for one in told["pauses"]:
                assert began <= one.pop("at") <= time.time()
            assert told["pauses"] == [
                {"topic": "t", "channel": "", "by": "ann", "until": until},
                {"topic": "t", "channel": "c", "by": "z\u00f6lf", "until": until},
            ]
            assert consumer.message().body == b"x"
            assert until <= time.time() < until + LATE
        assert pauses(node) == {"pauses": [], "count": 0}
        assert sum("PAUSE:" in line for line in node.lines) == 2
        eventually(lambda: "pauses" not in json.loads((tmp_path / "nsqd.dat").read_bytes())["penstock"])


def test_over_a_kill(tmp_path: Path) -> None:
    """One ends while the node is down, one after it is there again, or is starting, two do not end."""
    with nsqd(tmp_path) as node:
        make(node)
        post(node, "/channel/create", topic="t", channel="later")
        now = int(time.time())
        post(node, "/channel/pause", topic="t", channel="c", by="ann", until=now + SOON).raise_for_status()
        post(node, "/channel/pause", topic="t", channel="later", by="bob", until=now + MONTH).raise_for_status()
        post(node, "/topic/pause", topic="t", by="cid").raise_for_status()
        told = {one["channel"]: one for one in pauses(node)["pauses"]}
        node.kill()  # -9
    eventually(lambda: time.time() > now + SOON)
    with nsqd(tmp_path) as node:
        assert [is_paused(node, channel) for channel in ("", "c", "later")] == [True, False, True]
        assert pauses(node)["pauses"] == [told[""], told["later"]]
        until = int(time.time()) + SOON
        post(node, "/channel/pause", topic="t", channel="later", until=until).raise_for_status()
        node.kill()
    with nsqd(tmp_path) as node:
        eventually(lambda: not is_paused(node, "later"))
        assert time.time() >= until
        assert pauses(node)["pauses"] == [told[""]]
        post(node, "/topic/pause", topic="t").raise_for_status()
        assert [(one["by"], one["until"]) for one in pauses(node)["pauses"]] == [("", 0)]
        node.kill()
    with nsqd(tmp_path) as node:
        assert [(one["by"], one["until"]) for one in pauses(node)["pauses"]] == [("", 0)]
        post(node, "/topic/unpause", topic="t", by="ann", until="never").raise_for_status()
        assert pauses(node) == {"pauses": [], "count": 0}


@pytest.mark.parametrize("path", ["/topic/pause", "/channel/pause"])
def test_errors(path: str, tmp_path: Path) -> None:
    with nsqd(tmp_path) as node:
        make(node)
        now = int(time.time())
        for by in ("x" * 101, "a\nb", "\x00", "\u202e", "\x7f"):
            assert error(post(node, path, topic="t", channel="c", by=by)) == (400, "INVALID_ARG_BY")
        for until in (
            "", "0", "-1", "+5", "soon", "1e10", str(now - 1), str(now + 0.5), str(now + MONTH + 60), "9" * 400, "\u0661" * 10
        ):  # fmt: skip
            assert error(post(node, path, topic="t", channel="c", until=until)) == (400, "INVALID_ARG_UNTIL")
        assert error(post(node, path, channel="c", by="\n")) == (400, "MISSING_ARG_TOPIC")
        assert error(post(node, path, topic="nope", channel="c", by="ann")) == (404, "TOPIC_NOT_FOUND")
        assert pauses(node) == {"pauses": [], "count": 0}
        limits = {"by": "\u00e9" * 100, "until": int(time.time()) + MONTH}
        assert post(node, path, topic="t", channel="c", **limits).status_code == 200
        assert {key: pauses(node)["pauses"][0][key] for key in limits} == limits


def error(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["message"]


def test_five_hundred_are_told_sorted_and_all_are_counted(tmp_path: Path) -> None:
    channels = [{"name": f"{number:03}", "paused": True} for number in reversed(range(510))]
    content = {"topics": [{"name": "b", "paused": False, "channels": channels}], "version": "1.3.0"}
    (tmp_path / "nsqd.dat").write_text(json.dumps(content))
    with nsqd(tmp_path) as node:
        post(node, "/topic/create", topic="a#ephemeral")
        post(node, "/topic/pause", topic="a#ephemeral", by="ann").raise_for_status()
        told = pauses(node)
        assert told["count"] == 511
        names = [(one["topic"], one["channel"]) for one in told["pauses"]]
        assert names == [("a#ephemeral", ""), *(("b", f"{number:03}") for number in range(499))]
        post(node, "/topic/delete", topic="b").raise_for_status()
        assert [one["by"] for one in pauses(node)["pauses"]] == ["ann"]


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
