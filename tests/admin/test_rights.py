"""The auth file of all daemons in nsqadmin: its users, tokens and roles, by every proof, and what a change of it does."""

import asyncio
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest

from shared.auth.keyring import open_rights
from shared.process.daemon import StartError
from tests.admin.asking import PASSWORD, auth_file, bearer, entry, log_in, make, token, visiting
from tests.admin.conftest import a_node
from tests.async_tests import on_asyncio
from tests.cases import each

ORDERS = """
[[role]]
name = "orders"
rules = [{ verbs = ["stats", "browse", "act"], topics = ["orders.*"] }]
"""


@on_asyncio
async def test_by_which_proof_one_is_known(tmp_path: Path) -> None:
    text = (
        entry("ann", ["admin"], proof="password")
        + entry("robot", ["admin"])
        + entry("billing", ["admin"], kind="token")
        + entry("carl", ["admin"], proof="proxy")
        + entry("late", ["admin"], more="expires = 2001-01-01T00:00:00Z")
        + entry("lou", ["admin"], proof="password", more="expires = 2001-01-01T00:00:00Z")
    )

    client = visiting(auth_file=auth_file(tmp_path, text), acl_trusted_cidr=("127.0.0.0/8",))

    async def is_in(**headers: str) -> bool:
        return (await client.get("/audit", headers=headers)).status_code == 200

    for name, is_known in (("robot", True), ("billing", True), ("ann", False), ("carl", False), ("late", False)):
        assert await is_in(**bearer(name)) is is_known, name
    for wrong in (f"Basic {token('robot')}", f"Bearer {PASSWORD}", "Bearer "):
        assert not await is_in(Authorization=wrong), wrong
    assert (await log_in(client, "robot", token("robot"))).status_code == 401, "a token is no password"
    for name in ("ann", "robot", "billing", "carl", "late", "boss"):
        assert await is_in(**{"X-Forwarded-User": name}) is (name == "carl"), name
    for name in ("robot", "billing", "carl", "lou", "nobody"):
        assert (await log_in(client, name)).status_code == 401, name
    assert (await log_in(client, "ann")).status_code == 303
    assert await is_in()
    assert "ann, admin" in (await client.get("/audit")).text


ANSWERS = {
    "/stats": {"topics": [{"topic_name": name, "channels": []} for name in ("orders.eu", "secret")]},
    "/topics/figures": {"names": ["orders.eu", "secret"], "totals": {}, "paused": []},
    "/tubes": {"tubes": [{"tube_name": "orders.jobs"}, {"tube_name": "secret.jobs"}]},
    "/cursors": {"cursors": [{"topic": "orders.eu", "name": "n"}, {"topic": "secret", "name": "n"}]},
    "/schedules": {"schedules": [{"topic": "orders.eu", "name": "n"}, {"topic": "secret", "name": "n"}]},
    "/info": None,
}
NOTHING = {"messages": [], "topics": [], "requeued": 1, "finished": 1, "total": 0}


@on_asyncio
async def test_a_role_of_the_file_may_do_what_its_rules_say_and_nothing_else(tmp_path: Path) -> None:
    file = auth_file(tmp_path, ORDERS + ORDERS.replace("orders", "other"), robot=["orders"], other=["other"])
    with a_node(lambda path: ANSWERS.get(path.partition("?")[0], NOTHING)) as node:
        client = visiting(node, auth_file=file)
        client.headers.update(bearer("robot"))
        seen = ("/", "/tubes", "/readers", "/schedules", "/storage", f"/nodes/{node}", "/names", "/names?q=s")
        for path in (*seen, "/api/topics", "/api/nodes", "/api/counter"):
            page = await client.get(path)
            assert (page.status_code, "secret" in page.text) == (200, False), path
        assert (await client.get("/names?q=DERS")).json() == {"topics": ["orders.eu"]}
        assert "orders.eu" in (await client.get("/api/topics")).text
        assert "Counter" not in (await client.get("/")).text
        for path in ("/counter", "/history", "/topics/secret", "/tube?name=secret.jobs", "/audit", "/body/orders.eu/c"):
            assert (await client.get(path)).status_code == 403, path
        page = await client.get(f"/messages/orders.eu/c?node={node}")
        assert "Message bodies are hidden" in page.text
        form = {"action": "requeue", "node": node, "state": "in_flight", "offset": "1"}
        done = await client.post("/messages/orders.eu/c", data=form)
        assert done.status_code == 303
        assert "Requeued 1" in (await client.get(done.headers["location"])).text
        for path, action in (
            ("/messages/secret/c", "requeue"), ("/topics/orders.eu", "publish"), ("/topics/orders.eu", "empty"),
            ("/topics/orders.eu/c", "delete"), ("/tube", "delete"), (f"/nodes/{node}", "drain"), ("/lookup", "create"),
        ):  # fmt: skip
            wrong = form | {"action": action, "topic": "orders.x", "name": "orders.x", "state": "ready"}
            assert (await client.post(path, data=wrong)).status_code == 403, (path, action)
        many = await client.post("/messages/orders.eu/c", data=form | {"count": "5", "per_second": "1000"})
        assert many.status_code == 303
        task = many.headers["location"]
        assert (await client.get(task)).status_code == 200
        assert (await client.get(task, headers=bearer("other"))).status_code == 404
        lost = form | {"action": "finish", "count": "5", "per_second": "1", "confirm": "5"}
        ticked = {"pick-1": f"{node} 1", "ticked": "1", "state": "ready", "action": "finish"}
        for sent, status in ((lost, 403), (ticked | {"pick-2": f"{node} 2"}, 403), (ticked, 303)):  # not more than one
            assert (await client.post("/messages/orders.eu/c", data=sent)).status_code == status


@on_asyncio
async def test_a_page_shows_the_actions_that_its_user_may_do(tmp_path: Path) -> None:
    topics = {"topics": [{"topic_name": name, "channels": []} for name in ("orders.eu", "other")]}
    act, delete = '{ verbs = ["act"], topics = ["orders.*"] }', '{ verbs = ["delete"], topics = ["other"] }'
    text = f'[[role]]\nname = "some"\nrules = [{{ verbs = ["stats"] }}, {act}, {delete}]\n'
    with a_node(lambda path: None if path.startswith("/info") else topics) as node:
        client = visiting(node, auth_file=auth_file(tmp_path, text, robot=["some"]))
        pages = [(await client.get(f"/topics/{one}", headers=bearer("robot"))).text for one in ("orders.eu", "other")]
    assert [("Pause topic" in page, "Delete topic" in page) for page in pages] == [(True, False), (False, True)]
    assert "Publish" not in "".join(re.findall("<button>.*?</button>", "".join(pages)))


@on_asyncio
async def test_a_change_of_the_file_holds_at_the_next_request(tmp_path: Path) -> None:
    ann = entry("ann", ["admin"], proof="password")
    client = visiting(auth_file=auth_file(tmp_path, ann, robot=["admin"]))

    async def found(**headers: str) -> int:
        return (await client.get("/audit", headers=headers)).status_code

    await log_in(client, "ann")
    assert [await found(), await found(**bearer("robot"))] == [200, 200]
    auth_file(tmp_path, ORDERS + ann.replace('"admin"', '"orders"'), robot=["viewer"])
    assert [await found(), await found(**bearer("robot"))] == [403, 403]
    auth_file(tmp_path, ann, robot=["admin"])
    assert await found() == 200  # the session was not ended by another role
    auth_file(
        tmp_path, entry("ann", ["admin"], proof="password"), robot=["admin"]
    )  # the same password has another hash
    assert await found() == 303
    await log_in(client, "ann")
    for spoil in (
        lambda: (tmp_path / "auth.toml").write_text("x = ["),
        lambda: os.chmod(auth_file(tmp_path), 0o604),
        (tmp_path / "auth.toml").unlink,
    ):
        spoil()
        assert [await found(), await found(**bearer("robot"))] == [200, 200]
    auth_file(tmp_path, entry("ann", ["admin"], proof="password"))
    assert [await found(), await found(**bearer("robot"))] == [303, 303]


@on_asyncio
async def test_what_runs_ends_when_its_user_is_removed(tmp_path: Path) -> None:
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
    await app(scope, receive, send)
    assert b"Your session has ended." in b"".join(sent)


@on_asyncio
async def test_a_task_ends_when_its_user_may_no_longer_do_all_that_it_needs(tmp_path: Path) -> None:
    with a_node(lambda path: None if path.startswith(("/info", "/stats")) else {"finished": 1}) as node:
        client = visiting(node, auth_file=auth_file(tmp_path, robot=["admin"]))
        client.headers.update(bearer("robot"))
        form = {"action": "finish", "node": node, "state": "ready"}
        form |= {"count": "999", "confirm": "999", "per_second": "20"}
        task = (await client.post("/messages/t/c", data=form)).headers["location"]
        assert "Running" in (await client.get(task)).text
        auth_file(tmp_path, robot=["operator"])  # which may finish one message, but not many
        while "Running" in (page := (await client.get(task)).text):
            await asyncio.sleep(0.01)
    assert "robot no longer has permission" in page


@each("text, mode, wrong", [
    ("x = [", 0o600, r"--auth-file .*auth.toml: line 1|end of document"),
    (entry("ann", ["king"]), 0o600, r"the role 'king' is not known"),
    ("", 0o644, r"--auth-file .*auth.toml: all users of this machine can read it: run chmod o="),
])  # fmt: skip
def test_a_file_that_cannot_be_used_stops_the_start(tmp_path: Path, text: str, mode: int, wrong: str) -> None:
    path = Path(auth_file(tmp_path, text))
    path.chmod(mode)
    with pytest.raises(StartError, match=wrong):
        open_rights(str(path), "", time.time)
