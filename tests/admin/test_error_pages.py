"""No error is a dead end: each page leads on, an unknown one too, and programs get JSON."""

from __future__ import annotations

import asyncio

import pytest

from admin.error_pages import Ways, ways_from
from tests.admin.asking import OURS, browser, make

TOPIC: Ways = [(("topics", "t"), "Topic t")]


@pytest.mark.parametrize(
    ("parts", "ways"),
    [
        (["topics", "t"], []),
        (["topics", "t", "c"], TOPIC),
        (["messages", "t", "c"], [(("topics", "t", "c"), "Channel c"), *TOPIC]),
        (["body", "t", "c"], [(("topics", "t", "c"), "Channel c"), *TOPIC]),
        (["nodes", "n:1"], [(("nodes",), "Nodes")]),
        (["nodes"], []),
        (["tube"], [(("tubes",), "Tubes")]),
        (["history", "t"], [(("history",), "History")]),
        ([""], []),
        (["messages"], []),
    ],
)  # fmt: skip
def test_a_page_leads_to_those_above_it(parts: list[str], ways: Ways) -> None:
    assert ways_from(parts) == ways


def test_an_unknown_page_is_html_for_browsers_and_json_for_programs() -> None:
    async def work() -> None:
        async with browser(make()) as client:
            page = await client.get("/nosuch", headers={"Accept": "text/html,*/*"})
            assert (page.status_code, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
            assert '<li><a href="/">Topics</a></li>' in page.text
            assert "default-src 'none'" in page.headers["content-security-policy"]
            for path, accept in (("/nosuch", "*/*"), ("/nosuch", "application/json"), ("/api/nosuch", "text/html")):
                found = await client.get(path, headers={"Accept": accept})
                assert (found.status_code, found.json()) == (404, {"message": "NOT_FOUND"})
            wrong = await client.post("/nodes", headers={"Accept": "text/html"} | OURS)
            assert (wrong.status_code, "does not accept" in wrong.text) == (405, True)

    asyncio.run(work())


@pytest.mark.process  # connects to a port without a listener
def test_each_error_page_leads_on() -> None:
    async def work() -> None:
        async with browser(make(), **OURS) as client:
            for path in ("/topics/t", "/topics/t/c", "/nodes/n:1", "/tasks/7", "/messages/t/c?node=n:1", "/body/t/c"):
                found = await client.get(path)
                assert found.status_code >= 400, path
                assert '<li><a href="/">Topics</a></li>' in found.text, path

    asyncio.run(work())
