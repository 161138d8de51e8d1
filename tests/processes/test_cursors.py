"""Named cursors on a real process: where they stand, over restarts; what they hold and no more; whose they are."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.daemons import Daemon, nsqd

pytestmark = pytest.mark.process


def post(node: Daemon, path: str, content: bytes = b"", **arguments: object) -> httpx.Response:
    params = {name: str(value) for name, value in arguments.items()}
    return httpx.post(f"http://{node.http}{path}", params=params, content=content)


def cursor(node: Daemon, topic: str, name: str, **arguments: object) -> Any:
    answer = post(node, "/topic/cursor", topic=topic, name=name, **arguments)
    told = answer.json()
    return told if answer.status_code == 200 else (answer.status_code, told["message"])


def cursors(node: Daemon, topic: str) -> dict[str, Any]:
    answer = httpx.get(f"http://{node.http}/topic/cursors", params={"topic": topic})
    assert answer.status_code == 200, answer.text
    return {one.pop("name"): one for one in answer.json()["cursors"]}


def publish(node: Daemon, topic: str, count: int, size: int = 5) -> None:
    body = b"\n".join([b"x" * size] * count)
    post(node, "/mpub", body, topic=topic).raise_for_status()


def test_a_cursor_stands_where_it_was_put_over_kills_and_restarts(tmp_path: Path) -> None:
    with nsqd(tmp_path) as node:
        post(node, "/topic/create", topic="t", retention="1h").raise_for_status()
        publish(node, "t", 10)
        assert cursor(node, "t", "fresh") | {"updated": 0} == {
            "name": "fresh",
            "offset": 0,
            "lag": 10,
            "gone": 0,
            "owner": "",
            "hold": "0s",
            "hold_bytes": 0,
            "updated": 0,
        }
        cursor(node, "t", "moved", to="latest", owner="spark", hold="24h", hold_bytes=1_000_000)
        cursor(node, "t", "moved", to=4, owner="spark")
        cursor(node, "t", "deleted")
        assert post(node, "/topic/cursor/delete", topic="t", name="deleted").status_code == 200
        before = cursors(node, "t")
        node.stop(signal.SIGKILL)
    assert list(before) == ["fresh", "moved"]
    assert abs(before["moved"].pop("updated") - time.time_ns()) < 60e9
    assert before["moved"] == {
        "offset": 4,
        "lag": 6,
        "gone": 0,
        "owner": "spark",
        "hold": "24h0m0s",
        "hold_bytes": 1_000_000,
    }
    for _ in range(2):  # after a kill, and after a stop
        with nsqd(tmp_path) as node:
            after = cursors(node, "t")
            after["moved"].pop("updated")
            assert after == before
    with nsqd(tmp_path) as node:
        post(node, "/topic/delete", topic="t").raise_for_status()
        post(node, "/topic/create", topic="t", retention="1h").raise_for_status()
        assert cursors(node, "t") == {}


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"name": "own", "to": 1}, (403, "OTHER_OWNER")),
        ({"name": "own", "to": 1, "owner": "you"}, (403, "OTHER_OWNER")),
        ({"name": "new", "to": 11}, (416, "OFFSET_IN_FUTURE")),
        ({"name": "new", "to": "x"}, (400, "INVALID_ARG_TO")),
        ({"name": "new", "hold": "long"}, (400, "INVALID_ARG_HOLD")),
        ({"name": "new", "hold": "-1h"}, (400, "INVALID_ARG_HOLD")),
        ({"name": "new", "hold_bytes": "-1"}, (400, "INVALID_ARG_HOLD_BYTES")),
        ({"name": "new", "owner": "x" * 201}, (400, "INVALID_ARG_OWNER")),
        ({"name": "new", "owner": "a\nb"}, (400, "INVALID_ARG_OWNER")),
        ({"name": "no name"}, (400, "INVALID_ARG_NAME")),
        ({"name": "new", "log": "other"}, (409, "OTHER_LOG")),
        ({"name": "new", "topic": "plain"}, (409, "NOT_RETAINED")),
        ({"name": "new", "topic": "nowhere"}, (404, "TOPIC_NOT_FOUND")),
    ],
)
def test_what_is_refused(shared: Daemon, arguments: dict[str, Any], error: tuple[int, str]) -> None:
    post(shared, "/topic/create", topic="t", retention="1h").raise_for_status()
    post(shared, "/topic/create", topic="plain").raise_for_status()
    if not cursors(shared, "t"):
        publish(shared, "t", 10)
        cursor(shared, "t", "own", owner="me")
    assert cursor(shared, **({"topic": "t"} | arguments)) == error
    assert list(cursors(shared, "t")) == ["own"]
    answer = post(shared, "/topic/cursor/delete", topic="t", name="own", owner="you")
    assert (answer.status_code, answer.json()["message"]) == (403, "OTHER_OWNER")
    answer = post(shared, "/topic/cursor/delete", topic="t", name="unknown")
    assert (answer.status_code, answer.json()["message"]) == (404, "CURSOR_NOT_FOUND")


def test_metrics_tell_how_far_readers_are(tmp_path: Path) -> None:
    with nsqd(tmp_path) as node:
        post(node, "/topic/create", topic="t", retention="1h").raise_for_status()
        assert "nsqd_cursor_lag{" not in httpx.get(f"http://{node.http}/metrics").text
        publish(node, "t", 10)
        cursor(node, "t", "archive", to=4)
        text = httpx.get(f"http://{node.http}/metrics").text
        assert 'nsqd_cursor_lag{cursor="archive",topic="t"} 6.0\n' in text
        assert 'nsqd_cursor_read_total{cursor="archive",topic="t"} 4.0\n' in text


def test_they_are_bounded(shared: Daemon) -> None:
    post(shared, "/topic/create", topic="many", retention="1h").raise_for_status()
    for number in range(100):
        assert isinstance(cursor(shared, "many", f"c{number}"), dict)
    assert cursor(shared, "many", "one-more") == (429, "TOO_MANY_CURSORS")
    assert isinstance(cursor(shared, "many", "c7", to="latest"), dict)
