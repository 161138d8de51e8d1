"""Every table of the list pages: the cells of a row have the labels of the heads, in their order, and each head sorts it."""

import re
from html import unescape
from typing import Any
from urllib.parse import urljoin

import pytest

from admin.nodes.sorting import Table
from admin.output import tables
from admin.pages.node_pages import NodePages
from tests.admin.asking import visiting
from tests.admin.conftest import a_node
from tests.async_tests import on_asyncio

CHANNEL: dict[str, Any] = {
    "channel_name": "c",
    "clients": [{"hostname": "h", "client_id": "i", "remote_address": "10.0.0.1:5"}],
}
PUBLISHER = CHANNEL["clients"][0] | {"pub_counts": [{"topic": "t", "count": 1}]}
ONE_TOPIC = {"topics": [{"topic_name": "t", "channels": [CHANNEL]}], "producers": [PUBLISHER]}
STORAGE = {
    "log_bytes": 1, "files": [{"number": 1}], "topics": [{"topic": "t"}], "promoted": [{"log": "ab"}],
}  # fmt: skip
ANSWERS: dict[str, Any] = {
    "/stats": ONE_TOPIC, "/storage": STORAGE, "/tubes": {"tubes": [{"tube_name": "t"}]},
    "/topics/rows": {"topics": [{"topic_name": "t", "channels": 1}]}, "/topics/figures": {"names": ["t"], "totals": {}},
    "/schedules": {"schedules": [{"topic": "t", "name": "n", "every": "10m0s", "next": 1, "last": 1}]},
    "/batches": {"batches": [{"batch": "b", "state": "done", "members": 3, "buried": 1, "created": 1, "changed": 1}]},
    "/cursors": {"cursors": [{"topic": "t", "name": "n"}]}, "/topic/cursors": {"cursors": [{"name": "n"}]},
    "/identities": {"identities": [{"name": "ann", "bytes": 1}]},
    "/cluster": {
        "name": "c", "node": 1, "nodes": [{"node": 1, "log_id": "ab"}, {"node": 2}], "followers": [{"node": 2}],
        "led": [{"log_id": "ab", "node": 1, "state": "serving"}],
    },
}  # fmt: skip
PAGES = [
    "/cluster",
    "/",
    "/topics/t",
    "/topics/t/c",
    "/nodes",
    "/nodes/NODE",
    "/storage?node=NODE",
    "/readers",
    "/schedules",
    "/batches",
    "/tubes",
]


def tables_in(page: str) -> list[tuple[list[str], list[list[str]]]]:
    """Return the tables of a page: the texts of their heads, and the labels of the cells of each row below them."""
    found = []
    for table in re.findall(r"<table.*?</table>", page, re.DOTALL):
        head, _, body = table.partition("</thead>")
        cells = re.findall(r"<th\b.*?</th>", head, re.DOTALL)
        assert not any("Published<" in one and "Since the start of each node" not in one for one in cells), cells
        heads = [re.sub("<[^>]*>", "", one) for one in cells]
        rows = [re.findall(r"<t[dh]\b[^>]*>", row) for row in re.findall(r"<tr.*?</tr>", body, re.DOTALL)]
        found.append((heads, [[_label(cell) for cell in row] for row in rows if "colspan" not in row[0]]))
    return found


def _label(cell: str) -> str:
    label = re.search('data-label="([^"]*)"', cell)
    return label[1] if label else "no label"


def heads(table: Table[Any]) -> set[str]:
    return {column.words for column in table.columns}


async def tables_of(answers: dict[str, Any]) -> list[list[str]]:
    """Check the tables of all pages with a node of these answers, and return the heads of those that have a row."""
    seen: list[list[str]] = []
    with a_node(lambda path: answers.get(path.partition("?")[0])) as node:
        client = visiting(node)
        for page in PAGES:
            path = page.replace("NODE", node)
            text = (await client.get(path)).text
            found = tables_in(text)
            for link in re.findall(r'<a href="(\?[^"]*sort=[^"]*)"', text) if answers else ():
                ordered = await client.get(urljoin(path, unescape(link)))
                assert (ordered.status_code, 'aria-sort="' in ordered.text) == (200, True), link
            assert [(page, row) for labels, rows in found for row in rows if row != labels] == []
            seen += [labels for labels, rows in found if rows]
    return seen


@on_asyncio
async def test_cells_are_below_their_heads_with_rows_and_without(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await tables_of({})
    monkeypatch.setattr(NodePages, "_copies", lambda self, address: "2 of 2")  # which the monitor would know
    seen = [set(labels) for labels in await tables_of(ANSWERS)]
    every = [heads(one) for one in vars(tables).values() if isinstance(one, Table)]
    assert [one for one in every if one not in seen] == []
