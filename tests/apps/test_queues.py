"""`penstock queues`: the line of a queue, and that all pages are listed."""

import argparse
from typing import Any

import httpx
import pytest

from apps import queues
from apps.commands import CommandError
from tests.cases import each


def queue(name: str, **others: object) -> dict[str, Any]:
    counts = dict.fromkeys([f"{one}_count" for one in ("ready", "reserved", "delayed", "buried", "waiting")], 0)
    return {"tube_name": name, **counts, "pause_left": 0, "queue_paused": "none", **others}


@each("others, line", [
    ({}, "0 ready, 0 out, 0 delayed, 0 buried"),
    (
        {"waiting_count": 6, "disque_waiting_count": 3, "node_waiting_count": 1},
        "0 ready, 0 out, 0 delayed, 0 buried; 3 clients of Disque wait; 2 clients of beanstalkd wait; 1 nodes wait",
    ),
    ({"pause_left": 7}, "0 ready, 0 out, 0 delayed, 0 buried; paused for 7 s"),
    ({"pause_left": 7, "queue_paused": "all"}, "0 ready, 0 out, 0 delayed, 0 buried; paused all"),
])  # fmt: skip
def test_the_line_of_a_queue(others: dict[str, object], line: str) -> None:
    assert queues._described(queue("q", **others)) == line


def test_all_pages_are_listed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(queues, "PAGE", 2)
    names = ["a", "b", "c"]

    def answer(request: httpx.Request) -> httpx.Response:
        after, limit = request.url.params.get("after", ""), int(request.url.params["limit"])
        return httpx.Response(200, json={"tubes": [queue(name) for name in names if name > after][:limit]})

    asked = argparse.Namespace(queues=[], pause=None, json=False)
    with httpx.Client(base_url="http://node", transport=httpx.MockTransport(answer)) as client:
        queues._queues(client, asked)
        assert [line[0] for line in capsys.readouterr().out.splitlines()] == names
        asked.queues = ["b", "d"]
        with pytest.raises(CommandError, match="queue d was not found"):
            queues._queues(client, asked)
        assert [line[0] for line in capsys.readouterr().out.splitlines()] == ["b"]
