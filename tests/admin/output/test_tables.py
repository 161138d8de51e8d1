"""The columns of the pages' tables: each sorts every answer of nodes."""

from typing import Any

from admin.nodes.channel_figures import UNKNOWN_RATES, Rates
from admin.nodes.merge import client_of
from admin.nodes.publishers import publishers_of
from admin.nodes.sorting import Table
from admin.nodes.views import absent_row, reader_rows, top_talkers
from admin.output import tables
from admin.pages.channel_page import NodeRow
from admin.pages.storage import storage_view
from admin.users.roles import Who, of_role
from shared.cluster.state import LogCopy, LogState, MemberState
from tests.cases import each

ANYBODY = Who(of_role("", "admin"))
LIES: dict[str, Any] = {
    "topics": [{}, {"topic": 7, "messages": "x"}], "files": [{}, {"number": None}], "promoted": [{}],
}  # fmt: skip
VIEW = storage_view(LIES, ANYBODY)
MEMBER = MemberState(1, "", "", "", "up", [], 2, [], None, None, None)
NODE: dict[str, Any] = {
    "hostname": "h", "node": "a:1", "depth": 0, "memory_depth": 0, "backend_depth": 0, "message_count": 0, "channels": None,
    "e2e_processing_latency": {"count": 1, "percentiles": [{"quantile": 0.5, "average": 3.0}]},
}  # fmt: skip
MACHINE: dict[str, Any] = {
    "hostname": "h", "node": "a:1", "state": "up", "version": "1", "registered": 1, "topics": 2, "disk_free": 5,
    "figures": {"depth": 1, "in_flight": 2, "buried": 3, "clients": 4}, "started": 7,
}  # fmt: skip
CLIENT = client_of({"hostname": "h", "requeue_count": 1, "finish_count": 3, "tls": True}, "a:1", 0)
CHANNEL = NodeRow("a:1", NODE | {"buried_count": 1}, Rates(1.0, 2.0, 0.0, 0.0), 5, True)
TABLES: list[tuple[str, Table[Any], list[Any]]] = [
    ("topics", tables.TOPICS, [absent_row("b"), absent_row("a")]),
    ("node", tables.NODE_TOPICS, [absent_row("b"), absent_row("a")]),
    ("channels", tables.CHANNELS, [absent_row("b"), absent_row("a")]),
    ("topic on nodes", tables.TOPIC_NODES, [NODE, NODE | {"e2e_processing_latency": None, "hostname": "g"}]),
    ("readers", tables.READERS, reader_rows({"a:1": [{}, {"lag": "x"}]}, "t")),
    (
        "publishers",
        tables.PUBLISHERS,
        publishers_of({"a:1": {"producers": 2 * [{"pub_counts": [{"topic": "t"}]}]}}, "t"),
    ),
    ("tubes", tables.TUBES, [{"tube_name": "a"}, {"node": "n"}]),
    ("storage", tables.STORAGE, [("a:1", VIEW), ("b:1", VIEW)]),
    ("topics of a log", tables.LOG_TOPICS, VIEW["topics"]),
    ("files", tables.LOG_FILES, VIEW["files"]),
    ("promoted", tables.PROMOTED, VIEW["promoted"]),
    ("talkers", tables.TALKERS, top_talkers({"identities": [{}, {"name": "x", "bytes": 3}]})),
    ("members", tables.MEMBERS, [MEMBER, MemberState(2, "", "", "", "up", [1], 2, [], 1, 2, 0)]),
    ("logs", tables.LOGS, [LogState("a", None, None, "closed"), LogState("b", 1, 1, "serving")]),
    ("nodes", tables.NODES, [MACHINE, MACHINE | {"figures": {}, "disk_free": None, "state": "down"}]),
    ("clients", tables.CLIENTS, [CLIENT, CLIENT | {"requeue_count": 0, "finish_count": 0, "hostname": ""}]),
    ("channel on nodes", tables.CHANNEL_NODES, [CHANNEL, NodeRow("", {}, UNKNOWN_RATES, 7, False)]),
    ("copies", tables.COPIES, [LogCopy(1, 2, "a", "away", None, None, None), LogCopy(2, 1, "b", "in sync", 0, 1, 1)]),
]


@each("table, rows", [(table, rows) for _, table, rows in TABLES])
def test_every_column_sorts_both_ways(table: Table[Any], rows: list[Any]) -> None:
    assert len({one.key for one in table.columns}) == len(table.columns)
    prefix = f"{table.name}_" if table.name else ""
    for column in table.columns:
        for order in ("asc", "desc"):
            asked = {f"{prefix}sort": column.key, f"{prefix}order": order}
            assert len(table.sorted(rows, asked)) == len(rows)
            assert [one.words for one in table.heads(asked) if one.aria] == [column.words]
