"""Error pages, also of unknown pages, have links to other pages; programs get JSON."""

from tests.admin.asking import NOWHERE, OURS, visiting
from tests.admin.conftest import a_node
from tests.async_tests import on_asyncio


@on_asyncio
async def test_an_unknown_page_is_html_for_browsers_and_json_for_programs() -> None:
    client = visiting()
    page = await client.get("/nosuch", headers={"Accept": "text/html,*/*"})
    assert (page.status_code, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert '<li><a href="/">Topics</a></li>' in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]
    for path, accept in (("/nosuch", "*/*"), ("/nosuch", "application/json"), ("/api/nosuch", "text/html")):
        found = await client.get(path, headers={"Accept": accept})
        assert (found.status_code, found.json()) == (404, {"message": "NOT_FOUND"})
    wrong = await client.post("/nodes", headers={"Accept": "text/html"} | OURS)
    assert (wrong.status_code, "does not accept" in wrong.text) == (405, True)


@on_asyncio
async def test_each_error_page_leads_on() -> None:
    client = visiting()
    for path in ("/topics/t", "/topics/t/c", "/nodes/n:1", "/tasks/7", "/messages/t/c?node=n:1", "/body/t/c"):
        found = await client.get(path)
        assert found.status_code >= 400, path
        assert '<li><a href="/">Topics</a></li>' in found.text, path
        assert 'aria-current="page"' not in found.text, path
    for path, key in (("/", "t"), ("/nodes", "n")):
        assert f'<a href="{path}" data-key="{key}" aria-current="page">' in (await client.get(path)).text
    nodes = await client.get("/nodes")
    assert (nodes.status_code, "No nsqd answered" in nodes.text) == (502, True)
    assert (await client.get("/api/nodes")).status_code == 502


@on_asyncio
async def test_the_page_of_nsqlookupd_says_which_of_them_are_down() -> None:
    async def page(*lookupds: str) -> str:
        found = await visiting(nsqd_http_address=(), lookupd_http_address=lookupds).get("/lookup")
        assert found.status_code == 200
        assert found.text.count('<span class="bad">down</span> 127.0.0.1:1: ') == 1
        return found.text

    assert "Unknown: no nsqlookupd answered." in await page(NOWHERE)
    with a_node(lambda path: {"version": "1.3.0", "topics": [], "producers": []}) as one:
        text = await page(one, NOWHERE)
    assert '<td data-label="State">up</td><td data-label="Version" class="">NSQ 1.3.0</td>' in text
    assert "No inactive topics." in text


@on_asyncio
async def test_a_tube_whose_name_is_no_topic_is_linked_as_a_tube() -> None:
    topics = [{"topic": "we+ird;t", "live_bytes": 1}, {"topic": "orders", "live_bytes": 1}]
    with a_node(lambda path: None if path.startswith("/info") else {"topics": topics}) as node:
        page = (await visiting(node).get(f"/storage?node={node}")).text
    assert f'<a href="/tube?name=we%2Bird%3Bt&amp;node={node.replace(":", "%3A")}">we+ird;t</a>' in page
    assert '<a href="/topics/orders">orders</a>' in page
