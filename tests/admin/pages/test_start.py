"""The subject of a page, by its address, and the banners above it."""

import re
from types import SimpleNamespace
from typing import Any, cast

from starlette.requests import Request

from admin.alarms.subject import Place
from admin.options import AdminOptions
from admin.output.layout import _environment
from admin.pages.start import Pages
from tests.cases import each


@each("base", ["/", "/queues/"])
@each("path, asked, named, place", [
    ("", "", (), Place()), ("topics", "", (), Place("topics")), ("topics/t", "", ("t",), Place(topic="t")),
    ("topics/t/c", "", ("t", "c"), Place(topic="t", channel="c")),
    ("messages/t/c", "node=n:1", ("t", "c"), Place(topic="t", channel="c")), ("nodes", "", (), Place("nodes")),
    ("nodes/n:1", "", (), Place("nodes", node="n:1")),
    ("storage", "node=n%3A1", (), Place("storage", node="n:1")),
    ("tube", "name=t&node=n%3A1", (), Place("tube", "t", node="n:1")), ("tubes", "", (), Place("tubes")),
    ("lookup", "", (), Place("lookup")), ("cluster", "", (), Place("cluster")),
])  # fmt: skip
def test_what_a_page_is_about(base: str, path: str, asked: str, named: tuple[str, ...], place: Place) -> None:
    scope = {"type": "http", "path": base + path, "query_string": asked.encode(), "headers": [], "state": {}}
    request = Request(scope)
    request.state.place = named
    site = SimpleNamespace(options=AdminOptions(base_path=base))
    pages = Pages(*cast(Any, (site, None, None, None, None)))
    assert pages._place(request) == place


_LISTS = ("down", "stale", "errors", "alarm_groups", "alarms_here", "paused", "paused_tubes")


def banners(**fields: Any) -> str:
    """The banners above every page, with these fields of Pages.banners, as text."""
    empty: dict[str, Any] = dict.fromkeys(_LISTS, ())
    given = empty | {
        "base": "", "here": "", "content": "again_live.html", "more_down": 0, "alarm_counts": {}, "page_of": "nodes",
        "alarm_count": 0, "now": 0,
    }  # fmt: skip
    html = _environment().get_template("live.html").render(**given | fields)
    return " ".join(re.sub("<[^>]*>", "", html).split())


def test_an_nsqlookupd_that_is_down_makes_no_data_old() -> None:
    stale = {"address": "l:1", "seconds": 45.0, "data_age": 47.0, "is_node": False, "is_lookupd": True}
    text = banners(stale=[stale])
    assert text.startswith(
        "Stale: no answer from nsqlookupd l:1 for 45 s. The values of nodes that answer are current."
    )
    assert "47" not in text
    text = banners(stale=[stale | {"is_node": True, "is_lookupd": False}])
    assert text.startswith("Stale: no answer from node l:1 for 45 s. Its values are up to 47 s old.")
