"""Nodes that lie, bodies that are none, paths that are odd: shown as what they are, never a blank page, never a fault."""

import asyncio
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from admin.nodes.views import MOST_TEXT, message_view
from admin.users.audit import Actor, Audit
from tests.admin.asking import auth_file, bearer, visiting
from tests.admin.conftest import a_node, json_answer
from tests.admin.near_nodes import near
from tests.async_tests import on_asyncio
from tests.cases import each

HUGE = int("9" * 400)
HALF = "\ud800<script>"
PAGES = (
    "/messages/t/c?state=in_flight", "/messages/t/c?search=x&since=1h", "/republish/t/c?node=NODE&offset=1",
    "/", "/?sort=depth", "/?sort=rate_in", "/topics/t", "/topics/t/c", "/messages/t/c?node=NODE", "/nodes", "/nodes/NODE",
    "/cluster", "/storage?node=NODE", "/readers", "/tubes", "/schedules", "/batches", "/tube?name=t&node=NODE", "/lookup",
    "/audit",
    "/counter", "/series/t/c", "/series/t",
)  # fmt: skip


_NODE = ("address", "http_address", "standing", "connected", "suspected", "restarting", "incarnation", "log_id")
_COPY = ("state", "behind", "written", "durable", "failure", "log_id", "connected", "complete")


def lie(value: Any) -> dict[str, Any]:
    """Everything that a node is asked for, and that value wherever one may stand."""
    channel = {
        "channel_name": "c", "depth": value, "in_flight_count": value, "client_count": value, "paused": True,
        "clients": [{"hostname": value, "connect_ts": value, "tls": value}],
        "e2e_processing_latency": {"count": value, "percentiles": [{"quantile": value, "value": value}]},
    }  # fmt: skip
    topic = channel | {"topic_name": "t", "message_count": value, "backend_depth": value, "channels": [channel, value]}
    tube = {"tube_name": value, **dict.fromkeys(("ready_count", "disque_waiting_count", "queue_paused"), value)}
    row = dict.fromkeys(("depth", "messages", "channels", "oldest", "jobs", "clients"), value) | {"topic_name": "t"}
    one = dict.fromkeys(("id", "offset", "timestamp", "attempts", "body_size", "body", "headers", "age", "ttr"), value)
    one |= {"disque_id": value, "ttl_left": value}
    return {
        "/info": {"broadcast_address": "127.0.0.1", "http_port": 0, "hostname": value, "version": value, "tcp_port": value},
        "/stats": {"topics": [topic, value], "health": value},
        "/topics/figures": {
            "totals": {"depth": value, "channels": value}, "oldest": value, "health": value, "paused": [value, "t", "t/c"],
            "idle": {"count": value, "names": [value]}, "names": ["t", value], "columns": {"depth": [value, value]},
        },
        "/topics/rows": {"topics": [row, value]},
        "/topic/ages": {"topic": value, "channels": {"c": value}, "buried": {"c": value}},
        "/pauses": {"pauses": [{"topic": "t", "channel": value, "by": value, "at": value, "until": value}, value]},
        "/storage": dict.fromkeys(("log_bytes", "live_bytes", "sync_p99_ms", "disk_free", "disk_total", "path"), value)
        | {"files": [{"number": value, "bytes": value}], "topics": [{"topic": value, "live_bytes": value}]},
        "/cursors": {"cursors": [{"topic": value, "name": value, "lag": value, "updated": value}, value]},
        "/schedules": {"schedules": [dict.fromkeys(("topic", "name", "every", "next", "last", "missed"), value), value]},
        "/batches": {"batches": [dict.fromkeys(("batch", "state", "members", "buried", "created", "changed"), value), value]},
        "/topic/cursors": {"cursors": [value, {"name": value, "lag": value}]}, "/tubes": {"tubes": [tube, value]},
        "/tube/jobs": {"total": value, "jobs": [one, value], "pause_left": value, "next": value, "tube": tube},
        "/channel/messages": {
            "messages": [one | {"client": value}, {"body": json.dumps({"a": HALF}), "client": {"hostname": value}}],
            "total": value, "next": value, "counts": {"ready": value}, "scanned": value,
        },
        "/channel/message": one, "/node/drain": {"draining": True, "depth": value, "since": value},
        "/topic/series": {"channel": "c", "hour": value, "day": {"step": value}},
        "/cluster": {
            "name": value if isinstance(value, str) else "c", "node": 1,
            "nodes": [value, {"node": value}, *(dict.fromkeys(_NODE, value) | {"node": number} for number in (1, 2))],
            "copies": {"available": value, "away": [value, 3], "replies_given_up": value},
            "followers": [value, dict.fromkeys(_COPY, value) | {"node": 2}],
            "replicas": [value, dict.fromkeys(_COPY, value) | {"node": 2}],
            "refused": [value, {"node": 2, "address": value, "reason": value}],
            "led": [value, {"log_id": "ab", "node": value, "state": value}, {"log_id": "cd", "node": 1, "state": value}],
            "closed": [value, {"log_id": "ef", "node": value}],
            "elections": {"quorum": value, "logs": [value, {"log_id": "09", "leader": 2, "leader_lost": True} | dict.fromkeys(
                ("epoch", "clean", "state", "reason"), value)]},
        },
    }  # fmt: skip


VALUES = [HALF, HUGE, None, [], {"a": HALF}, "x" * 100_000]
MORE_VALUES = [pytest.param(value, marks=pytest.mark.campaign) for value in (1e308, -1, True, {})]


@contextmanager
def node_with(answers: dict[str, Any]) -> Iterator[str]:
    """A node that answers these paths so, and no others."""
    answer = lambda kind: json_answer(answers[kind]) if kind in answers else (404, b"{}")  # noqa: E731
    with near(lambda path: answer(path.partition("?")[0])) as node:
        answers["/info"]["http_port"] = int(node.rpartition(":")[2])
        yield node


@pytest.mark.long
@pytest.mark.parametrize("value", [*VALUES, *MORE_VALUES], ids=lambda v: str(v)[:12])
@on_asyncio
async def test_whatever_a_node_answers_every_page_is_one(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    faults: list[str] = []
    monkeypatch.setattr("admin.output.error_pages.log.critical", lambda words, *rest, **more: faults.append(str(more)))
    with node_with(lie(value)) as node:
        client = visiting(node)
        for page in (*PAGES, *(f"{page}{'&' if '?' in page else '?'}format=csv" for page in PAGES[:-2])):
            found = await client.get(page.replace("NODE", node))
            assert found.status_code in (200, 400, 404, 413, 502), page
            assert found.text.encode()  # not blank, and no half of a character in it
            assert "html" not in found.headers["content-type"] or "<script>" not in found.text
    assert faults == []


@pytest.mark.long
@on_asyncio
async def test_a_node_that_answers_more_than_was_asked_makes_no_page_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("admin.nodes.fallback.PATIENCE", 30.0)
    many: dict[str, Any] = {
        "/info": {"broadcast_address": "127.0.0.1", "http_port": 0, "capabilities": ["log"]},
        "/stats": {"topics": [{"topic_name": "t", "channels": [
            {"channel_name": "c", "clients": [{"hostname": "client"}] * 3000},
            *({"channel_name": f"c{n}"} for n in range(2500)),
        ]}]},
        "/channel/messages": {"messages": [{"body": "x" * 70_000, "headers": {str(n): "v" for n in range(1500)}}] * 40},
        "/tube/jobs": {"jobs": [{"body": "x"}] * 5000},
        "/tubes": {"tubes": [{"tube_name": f"t{n}"} for n in range(5000)]},
        "/storage": {"files": [{"number": 1}] * 5000, "topics": [{"topic": "t"}] * 5000},
        "/cursors": {"cursors": [{"name": "n", "topic": "t"}] * 5000},
        "/schedules": {"schedules": [{"name": "n", "topic": "t"}] * 5000},
        "/batches": {"batches": [{"batch": "b"}] * 5000, "after": "b"},
        "/topic/cursors": {"cursors": [{"name": "n"}] * 5000},
        "/topics/rows": {"topics": [{"topic_name": f"t{n}"} for n in range(5000)]},
        "/topics/figures": {"names": ["t"], "totals": {}}, "/pauses": {"pauses": [{"topic": f"t{n}"} for n in range(5000)]},
    }  # fmt: skip
    with node_with(many) as node:
        client, messages = visiting(node, max_upstream_response=1 << 26), f"/messages/t/c?node={node}"
        pages = ["/topics/t", "/topics/t/c", messages, f"/tube?name=t&node={node}", "/tubes", f"/storage?node={node}"]
        found = {page: await client.get(page) for page in (*pages, "/readers", "/schedules", "/batches", "/", "/nodes")}
    assert {one.status_code for one in found.values()} == {200}
    assert "501 more channels not shown" in found["/topics/t"].text
    assert "1,000 more clients not shown" in found["/topics/t/c"].text
    assert "this page shows 1,000 of each" in found["/batches"].text
    assert len(found.pop(messages).text) < 3_000_000
    assert max(one.text.count("<tr") + one.text.count("<dt") for one in found.values()) <= 3100


@each("depth", [33, 300, 900, 940, 990, 50_000])
def test_a_body_that_is_nested_deeply_is_shown_as_text(depth: int) -> None:
    """990 brackets were indented to 2 MB, for each message of the page."""
    shown = message_view({"body": "[" * depth + "]" * depth, "body_size": 2 * depth})
    assert (shown["decoded"], shown["shown"]) == (None, min(2 * depth, MOST_TEXT))
    assert message_view({"body": '{"a":[1]}', "body_size": 9})["decoded"].words == "JSON"


@each("path", ["/TOPICS/%E4%B8%AD", "/TOPICS/a%0d%0aX-Evil:%201", "/Topics/%ff", "/NODES/%00"])
@on_asyncio
async def test_other_ways_of_writing_a_path_lead_to_the_page_and_nowhere_else(path: str) -> None:
    answer = await visiting().get(path)
    assert answer.status_code == 301
    where = answer.headers["location"]
    assert where.isascii()
    assert where.isprintable()
    assert unquote(where).lower() == unquote(path).lower()


@on_asyncio
async def test_what_one_may_not_see_is_not_exported_either(tmp_path: Path) -> None:
    one = {"id": "1", "offset": 1, "body": "secret", "headers": {"card": "secret"}, "key": "secret", "body_size": 6}
    listed = {"messages": [one], "jobs": [one], "total": 1, "topics": []}
    file = auth_file(tmp_path, vic=("viewer",), bea=("body-viewer",))
    with a_node(lambda path: None if path.startswith(("/info", "/stats")) else listed) as node:
        client = visiting(node, auth_file=file)
        for page in (f"/messages/t/c?node={node}", f"/tube?name=t&node={node}"):
            for kind in ("", "&format=csv", "&format=json"):
                for name, sees in (("vic", False), ("bea", True)):
                    answer = await client.get(page + kind, headers=bearer(name))
                    assert ("secret" in answer.text) is sees, page + kind
        refused = await client.get(f"/body/t/c?node={node}&offset=1", headers=bearer("vic"))
        assert refused.status_code == 403


@on_asyncio
async def test_a_request_cannot_direct_nsqadmin_to_other_servers() -> None:
    asked: list[str] = []
    elsewhere = {"/info": {"broadcast_address": "127.0.0.1", "http_port": 1}, "/stats": {"topics": []}}
    with a_node(lambda path: elsewhere.get(path.partition("?")[0], {})) as node, a_node(asked.append) as other:
        client = visiting(node)
        form = {"action": "tombstone", "topic": "t", "confirm": "t"}
        assert (await client.post(f"/nodes/{other}", data=form)).status_code == 502
        assert (await client.request("DELETE", f"/api/nodes/{other}", json={"topic": "t"})).status_code == 502
        assert (await client.post(f"/nodes/{other}", data={"action": "drain", "confirm": other})).status_code == 404
        ticked = {"action": "bury", "state": "ready", "ticked": "1", "pick-1": f"{other} 0"}
        assert (await client.post("/messages/t/c", data=ticked)).status_code == 404
        for path in (f"/messages/t/c?node={other}", f"/tube?name=t&node={other}", f"/nodes/{other}"):
            assert (await client.get(path)).status_code == 404
    assert asked == []


@on_asyncio
async def test_what_is_configured_is_in_the_trail() -> None:
    client = visiting()
    for level in ("debug", "info"):
        await client.put("/config/log_level", content=level)
    latest = (await client.get("/audit?format=json")).json()[0]
    assert (latest["action"], latest["target"], latest["detail"]) == ("configure", "log_level", {"value": "info"})


def test_a_record_that_does_not_fit_spoils_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    audit, ann = Audit(str(tmp_path / "audit"), None), Actor("ann", "", "", "")
    audit.note("empty", "first", ann)
    cut = lambda place, line: os.pwrite(place, line[:20], os.fstat(place).st_size)  # noqa: E731
    monkeypatch.setattr("shared.files.os.write", cut)
    audit.note("empty", "cut", ann)
    monkeypatch.undo()
    audit.note("empty", "last", ann)
    assert [one["target"] for one in asyncio.run(audit.search(""))] == ["last", "first"]


def test_who_tries_to_log_in_pushes_nothing_out_of_memory() -> None:
    audit, ann = Audit("", None), Actor("ann", "", "", "")
    audit.note("empty", "t", ann)
    for _ in range(3000):
        audit.note("login", "x", ann, "refused: wrong user or password")
    assert [one["target"] for one in asyncio.run(audit.search("empty"))] == ["t"]
