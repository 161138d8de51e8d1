"""Publishing to one channel of a topic on a real nsqd: the others never see it, not after a kill either."""

from __future__ import annotations

import signal
from pathlib import Path

import httpx
import pytest

from tests import web
from tests.daemons import Daemon, nsqd

pytestmark = pytest.mark.process


def post(node: Daemon, path: str, body: str = "", **arguments: str) -> httpx.Response:
    return web.post(f"http://{node.http}{path}", params=arguments, content=body)


def ready(node: Daemon, channel: str) -> list[str]:
    params = {"topic": "t", "channel": channel, "state": "ready"}
    told = web.get(f"http://{node.http}/channel/messages", params=params).raise_for_status().json()
    return [one["body"] for one in told["messages"]]


def test_over_a_kill(tmp_path: Path) -> None:
    for life in range(2):
        with nsqd(tmp_path, "-retention", "1h") as node:
            if life == 0:
                for channel in ("a", "b"):
                    post(node, "/topic/create", topic="t")
                    post(node, "/channel/create", topic="t", channel=channel).raise_for_status()
                assert post(node, "/pub", "all", topic="t").text == "OK"
                assert post(node, "/pub", "one", topic="t", channel="a").text == "OK"
                assert post(node, "/mpub", "two\nthree", topic="t", channel="a", key="k").text == "OK"
                again = post(node, "/mpub", "two\nthree", topic="t", channel="a", key="k")
                assert (again.text, again.headers["x-nsq-duplicates"]) == ("OK", "2")
            assert ready(node, "a") == ["all", "one", "two", "three"]
            assert ready(node, "b") == ["all"]
            node.stop(signal.SIGKILL)


@pytest.mark.parametrize(
    ("path", "arguments", "status", "message"),
    [
        ("/pub", {"topic": "t", "channel": "nope"}, 404, "CHANNEL_NOT_FOUND"),
        ("/mpub", {"topic": "t", "channel": ""}, 404, "CHANNEL_NOT_FOUND"),
        ("/pub", {"topic": "nope", "channel": "c"}, 404, "TOPIC_NOT_FOUND"),
        ("/pub", {"topic": "t", "channel": "c", "defer": "1000"}, 400, "INVALID_DEFER"),
        ("/pub", {"topic": "paused", "channel": "c"}, 409, "TOPIC_PAUSED"),
    ],
)
def test_what_is_refused_publishes_nothing(
    path: str, arguments: dict[str, str], status: int, message: str, tmp_path: Path
) -> None:
    with nsqd(tmp_path) as node:
        for topic in ("t", "paused"):
            post(node, "/topic/create", topic=topic)
            post(node, "/channel/create", topic=topic, channel="c")
        post(node, "/topic/pause", topic="paused")
        answer = post(node, path, "body", **arguments)
        assert (answer.status_code, answer.json()) == (status, {"message": message})
        topics = web.get(f"http://{node.http}/stats?format=json").json()["topics"]
        assert [(topic["topic_name"], topic["message_count"]) for topic in topics] == [("paused", 0), ("t", 0)]
