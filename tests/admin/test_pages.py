"""What a page is about, by its address: it shows the alarms about the same."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from starlette.requests import Request

from admin.alarm_subject import Place
from admin.options import AdminOptions
from admin.pages import Pages


@pytest.mark.parametrize("base", ["/", "/queues/"])
@pytest.mark.parametrize(
    ("path", "asked", "named", "place"),
    [
        ("", "", (), Place()),
        ("topics", "", (), Place("topics")),
        ("topics/t", "", ("t",), Place(topic="t")),
        ("topics/t/c", "", ("t", "c"), Place(topic="t", channel="c")),
        ("messages/t/c", "node=n:1", ("t", "c"), Place(topic="t", channel="c")),
        ("nodes", "", (), Place("nodes")),
        ("nodes/n:1", "", (), Place("nodes", node="n:1")),
        ("storage", "node=n%3A1", (), Place("storage", node="n:1")),
        ("tube", "name=t&node=n%3A1", (), Place("tube", "t", node="n:1")),
        ("tubes", "", (), Place("tubes")),
        ("lookup", "", (), Place("lookup")),
        ("cluster", "", (), Place("cluster")),
    ],
)
def test_what_a_page_is_about(base: str, path: str, asked: str, named: tuple[str, ...], place: Place) -> None:
    scope = {"type": "http", "path": base + path, "query_string": asked.encode(), "headers": [], "state": {}}
    request = Request(scope)
    request.state.place = named
    topics = SimpleNamespace(options=AdminOptions(base_path=base))
    pages = Pages(*cast(Any, (None, None, topics, None, None, None)))
    assert pages._place(request) == place
