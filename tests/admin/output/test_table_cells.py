"""Every table of the list pages: the cells of a row have the labels of the heads, in their order."""

from html.parser import HTMLParser
from typing import Any

import pytest

from admin.nodes.sorting import Table
from admin.output import tables
from admin.pages.node_pages import NodePages
from tests.admin.asking import visiting
from tests.admin.conftest import a_node
from tests.async_tests import on_asyncio

CHANNEL = {"channel_name": "c", "clients": [{"hostname": "h", "client_id": "i", "remote_address": "10.0.0.1:5"}]}
PUBLISHER = {
    "hostname": "h",
    "client_id": "i",
    "remote_address": "10.0.0.1:6",
    "pub_counts": [{"topic": "t", "count": 1}],
}
ONE_TOPIC = {"topics": [{"topic_name": "t", "channels": [CHANNEL]}], "producers": [PUBLISHER]}
STORAGE = {
    "log_bytes": 1, "files": [{"number": 1}], "topics": [{"topic": "t"}], "promoted": [{"log": "ab"}],
}  # fmt: skip
ANSWERS: dict[str, Any] = {
    "/stats": ONE_TOPIC, "/storage": STORAGE, "/tubes": {"tubes": [{"tube_name": "t"}]},
    "/topics/rows": {"topics": [{"topic_name": "t", "channels": 1}]}, "/topics/figures": {"names": ["t"], "totals": {}},
    "/cursors": {"cursors": [{"topic": "t", "name": "n"}]}, "/topic/cursors": {"cursors": [{"name": "n"}]},
    "/identities": {"identities": [{"name": "ann", "bytes": 1}]},
    "/cluster": {
        "name": "c", "node": 1, "nodes": [{"node": 1, "log_id": "ab"}, {"node": 2}], "followers": [{"node": 2}],
        "led": [{"log_id": "ab", "node": 1, "state": "serving"}],
    },
}  # fmt: skip
PAGES = (
    "/cluster",
    "/",
    "/topics/t",
    "/topics/t/c",
    "/nodes",
    "/nodes/NODE",
    "/storage?node=NODE",
    "/readers",
    "/tubes",
)


class Rows(HTMLParser):
    """The tables of a page: the texts of their heads, and the labels of the cells of each row below them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tables: list[tuple[list[str], list[list[str]]]] = []
        self._is_in_head = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if tag == "thead":
            self.tables.append(([], []))
            self._is_in_head = True
        elif tag == "tr" and self.tables and not self._is_in_head:
            self.tables[-1][1].append([])
        elif tag in ("td", "th") and self.tables and not self._is_in_head:
            span = int(attributes.get("colspan") or 0)
            heads = self.tables[-1][0]
            self.tables[-1][1][-1] += heads if span == len(heads) else [attributes.get("data-label") or "no label"]

    def handle_endtag(self, tag: str) -> None:
        self._is_in_head &= tag != "thead"

    def handle_data(self, data: str) -> None:
        if self._is_in_head:
            self.tables[-1][0].append(data)


def heads(table: Table[Any]) -> set[str]:
    return {column.words for column in table.columns}


async def tables_of(answers: dict[str, Any]) -> list[list[str]]:
    """Check the tables of all pages with a node of these answers, and return the heads of those that have a row."""
    seen: list[list[str]] = []
    with a_node(lambda path: answers.get(path.partition("?")[0])) as node:
        client = visiting(node)
        for page in PAGES:
            found = Rows((await client.get(page.replace("NODE", node))).text)
            assert [(page, row) for labels, rows in found.tables for row in rows if row != labels] == []
            seen += [labels for labels, rows in found.tables if rows]
    return seen


@on_asyncio
async def test_cells_are_below_their_heads_with_rows_and_without(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await tables_of({})
    monkeypatch.setattr(NodePages, "_copies", lambda self, address: "2 of 2")  # which the monitor would know
    seen = [set(labels) for labels in await tables_of(ANSWERS)]
    every = [heads(one) for one in vars(tables).values() if isinstance(one, Table)]
    assert [one for one in every if one not in seen] == []
