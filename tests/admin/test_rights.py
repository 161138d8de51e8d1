"""The auth file of all daemons in nsqadmin: its users, tokens and roles, by every proof, and what a change of it does."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from shared.auth.keyring import RightsError
from tests.admin.asking import NOWHERE, OURS, auth_file, bearer, browser, entry, in_loop, log_in, make
from tests.admin.conftest import told, upstream

pytestmark = pytest.mark.process

ORDERS = """
[[role]]
name = "orders"
rules = [{ verbs = ["stats", "browse", "act"], topics = ["orders.*"] }]
"""
Work = Callable[[httpx.AsyncClient], Awaitable[Any]]


def asked(work: Work, file: str, **options: Any) -> Any:
    """What `work` returns, of a browser's client of an nsqadmin with this auth file."""

    async def run() -> Any:
        async with browser(make(auth_file=file, **options), **{"User-Agent": "tests"}) as client:
            return await work(client)

    return in_loop(run)


def test_by_which_proof_one_is_known(tmp_path: Path) -> None:
    text = (
        entry("ann", ["admin"], proof="password")
        + entry("robot", ["admin"])
        + entry("billing", ["admin"], kind="token")
        + entry("carl", ["admin"], proof="proxy")
        + entry("late", ["admin"], more="expires = 2001-01-01T00:00:00Z")
        + entry("lou", ["admin"], proof="password", more="expires = 2001-01-01T00:00:00Z")
    )

    async def work(client: httpx.AsyncClient) -> None:
        async def is_in(**headers: str) -> bool:
            return (await client.get("/audit", headers=headers)).status_code == 200

        for name, is_known in (("robot", True), ("billing", True), ("ann", False), ("carl", False), ("late", False)):
            assert await is_in(**bearer(name)) is is_known, name
        for name in ("ann", "robot", "billing", "carl", "late", "boss"):
            assert await is_in(**{"X-Forwarded-User": name}) is (name == "carl"), name
        for name in ("robot", "billing", "carl", "lou", "nobody"):
            assert (await log_in(client, name)).status_code == 401, name
        assert (await log_in(client, "ann")).status_code == 303
        assert await is_in()
        assert "ann, admin" in (await client.get("/audit")).text

    asked(work, auth_file(tmp_path, text), acl_trusted_cidr=("127.0.0.0/8",))


def test_a_role_of_the_file_may_do_what_its_rules_say_and_nothing_else(tmp_path: Path) -> None:
    def answer(path: str) -> tuple[int, bytes]:
        if path.startswith("/info"):
            return told({"broadcast_address": "127.0.0.1", "http_port": port, "hostname": "h"})
        if path.startswith("/stats"):
            return told({"topics": [{"topic_name": name, "channels": []} for name in ("orders.eu", "secret")]})
        if path.startswith("/topics/figures"):
            return told({"names": ["orders.eu", "secret"], "totals": {}, "paused": []})
        if path.startswith("/tubes"):
            return told({"tubes": [{"tube_name": "orders.jobs"}, {"tube_name": "secret.jobs"}]})
        if path.startswith("/cursors"):
            return told({"cursors": [{"topic": "orders.eu", "name": "n"}, {"topic": "secret", "name": "n"}]})
        return told({"messages": [], "topics": [], "requeued": 1, "finished": 1, "total": 0})

    async def work(client: httpx.AsyncClient) -> None:
        for path in (
            "/",
            "/tubes",
            "/readers",
            "/storage",
            f"/nodes/{node}",
            "/api/topics",
            "/api/nodes",
            "/api/counter",
            "/names",
            "/names?q=s",
        ):
            page = await client.get(path)
            assert (page.status_code, "secret" in page.text) == (200, False), path
        assert (await client.get("/names?q=DERS")).json() == {"topics": ["orders.eu"]}
        assert "orders.eu" in (await client.get("/api/topics")).text
        assert "Counter" not in (await client.get("/")).text
        for path in ("/counter", "/history", "/topics/secret", "/tube?name=secret.jobs", "/audit", "/body/orders.eu/c"):
            assert (await client.get(path)).status_code == 403, path
        page = (await client.get(f"/messages/orders.eu/c?node={node}")).text
        assert "Message bodies are hidden" in page
        form = {"action": "requeue", "node": node, "state": "in_flight", "offset": "1"}
        done = await client.post("/messages/orders.eu/c", data=form)
        assert done.status_code == 303
        assert "Requeued 1" in (await client.get(done.headers["location"])).text
        for path, action in (
            ("/messages/secret/c", "requeue"), ("/topics/orders.eu", "publish"), ("/topics/orders.eu", "empty"),
            ("/topics/orders.eu/c", "delete"), ("/tube", "delete"), (f"/nodes/{node}", "drain"), ("/lookup", "create"),
        ):  # fmt: skip
            refused = await client.post(
                path, data=form | {"action": action, "topic": "orders.x", "name": "orders.x", "state": "ready"}
            )
            assert refused.status_code == 403, (path, action)
        many = await client.post("/messages/orders.eu/c", data=form | {"count": "5", "per_second": "1000"})
        assert many.status_code == 303
        task = many.headers["location"]
        assert (await client.get(task)).status_code == 200
        assert (await client.get(task, headers=bearer("other"))).status_code == 404
        many = await client.post(
            "/messages/orders.eu/c", data=form | {"action": "finish", "count": "5", "per_second": "1", "confirm": "5"}
        )
        assert many.status_code == 403  # messages would be lost
        ticked = {"pick-1": f"{node} 1", "pick-2": f"{node} 2", "ticked": "1", "state": "ready", "action": "finish"}
        assert (await client.post("/messages/orders.eu/c", data=ticked)).status_code == 403
        del ticked["pick-2"]
        assert (await client.post("/messages/orders.eu/c", data=ticked)).status_code == 303

    with upstream(answer) as node:
        port = int(node.rpartition(":")[2])
        other = ORDERS.replace("orders", "other")
        file = auth_file(tmp_path, ORDERS + other, robot=["orders"], other=["other"])

        async def run() -> None:
            app = make(auth_file=file, nsqd_http_address=(node,))
            async with browser(app, **OURS, **bearer("robot")) as client:
                await work(client)

        in_loop(run)


def test_a_page_shows_the_actions_that_its_user_may_do(tmp_path: Path) -> None:
    def answer(path: str) -> tuple[int, bytes]:
        if path.startswith("/info"):
            return told({"broadcast_address": "127.0.0.1", "http_port": port, "hostname": "h"})
        return told({"topics": [{"topic_name": "orders.eu", "channels": []}, {"topic_name": "other", "channels": []}]})

    rules = (
        '{ verbs = ["stats"] }, { verbs = ["act"], topics = ["orders.*"] }, { verbs = ["delete"], topics = ["other"] }'
    )
    text = f'[[role]]\nname = "some"\nrules = [{rules}]\n'

    async def work(client: httpx.AsyncClient) -> None:
        pages = [
            (await client.get(f"/topics/{topic}", headers=bearer("robot"))).text for topic in ("orders.eu", "other")
        ]
        assert [("Pause topic" in page, "Delete topic" in page) for page in pages] == [(True, False), (False, True)]
        assert "Publish" not in "".join(re.findall("<button>.*?</button>", "".join(pages)))

    with upstream(answer) as node:
        port = int(node.rpartition(":")[2])
        asked(work, auth_file(tmp_path, text, robot=["some"]), nsqd_http_address=(node,))


def test_a_change_of_the_file_holds_at_the_next_request(tmp_path: Path) -> None:
    ann = entry("ann", ["admin"], proof="password")

    async def work(client: httpx.AsyncClient) -> None:
        async def found(**headers: str) -> int:
            return (await client.get("/audit", headers=headers)).status_code

        await log_in(client, "ann")
        assert [await found(), await found(**bearer("robot"))] == [200, 200]
        auth_file(tmp_path, ORDERS + ann.replace('"admin"', '"orders"'), robot=["viewer"])
        assert [await found(), await found(**bearer("robot"))] == [403, 403]
        auth_file(tmp_path, ann, robot=["admin"])
        assert await found() == 200  # the session was not ended by another role
        for spoil in (
            lambda: (tmp_path / "auth.toml").write_text("x = ["),
            lambda: os.chmod(auth_file(tmp_path), 0o604),
            (tmp_path / "auth.toml").unlink,
        ):
            spoil()
            assert [await found(), await found(**bearer("robot"))] == [200, 200]
        auth_file(tmp_path, entry("ann", ["admin"], proof="password"))
        assert [await found(), await found(**bearer("robot"))] == [303, 303]

    asked(work, auth_file(tmp_path, ann, robot=["admin"]))


def test_what_runs_ends_when_its_user_is_removed(tmp_path: Path) -> None:

    async def run() -> str:
        app = make(auth_file=auth_file(tmp_path, robot=["admin"]))
        sent: list[bytes] = []

        async def receive() -> dict[str, Any]:
            await asyncio.Event().wait()  # the browser stays
            return {}

        async def send(message: Any) -> None:
            sent.append(message.get("body", b""))
            if len(sent) == 2:
                auth_file(tmp_path)

        headers = [(b"host", b"admin"), *((k.lower().encode(), v.encode()) for k, v in bearer("robot").items())]
        scope = {
            "type": "http", "method": "GET", "path": "/audit", "raw_path": b"/audit", "query_string": b"live=1",
            "headers": headers, "client": ("127.0.0.1", 1), "server": ("admin", 80), "scheme": "http",
        }  # fmt: skip
        await asyncio.wait_for(app(scope, receive, send), 30)
        return b"".join(sent).decode()

    assert "Your session has ended." in in_loop(run)


def test_a_task_ends_when_its_user_may_no_longer_do_all_that_it_needs(tmp_path: Path) -> None:
    def answer(path: str) -> tuple[int, bytes]:
        if path.startswith("/info"):
            return told({"broadcast_address": "127.0.0.1", "http_port": port, "hostname": "h"})
        if path.startswith("/stats"):
            return told({"topics": [{"topic_name": "t", "channels": []}]})
        return told({"finished": 1})

    async def work(client: httpx.AsyncClient) -> None:
        form = {
            "action": "finish",
            "node": node,
            "state": "ready",
            "count": "999",
            "per_second": "20",
            "confirm": "999",
        }
        task = (await client.post("/messages/t/c", data=form, headers=OURS | bearer("robot"))).headers["location"]
        assert "Running" in (await client.get(task, headers=bearer("robot"))).text
        auth_file(tmp_path, robot=["operator"])  # who may finish messages, but not lose many of them
        while "Running" in (page := (await client.get(task, headers=bearer("robot"))).text):
            await asyncio.sleep(0.01)
        assert "robot no longer has permission" in page

    with upstream(answer) as node:
        port = int(node.rpartition(":")[2])
        asked(work, auth_file(tmp_path, robot=["admin"]), nsqd_http_address=(node,))


@pytest.mark.parametrize(
    ("text", "mode", "wrong"),
    [
        ("x = [", 0o600, r"--auth-file .*auth.toml: line 1|end of document"),
        (entry("ann", ["king"]), 0o600, r"the role 'king' is not known"),
        ("", 0o644, r"--auth-file .*auth.toml: everybody on this machine can read it: run chmod o="),
    ],
)
def test_a_file_that_cannot_be_used_stops_the_start(tmp_path: Path, text: str, mode: int, wrong: str) -> None:
    path = Path(auth_file(tmp_path, text))
    path.chmod(mode)
    with pytest.raises(RightsError, match=wrong):
        make(auth_file=str(path), nsqd_http_address=(NOWHERE,))
