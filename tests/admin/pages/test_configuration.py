"""The page of a topic's configuration: preview, confirmation, what is sent to whom, and the record of it."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx

from admin.pages.configuration import limit_text
from tests.admin.asking import auth_file, bearer, visiting
from tests.admin.conftest import json_answer
from tests.admin.near_nodes import near
from tests.async_tests import on_asyncio
from tests.cases import each


class Node:
    """A Penstock node that keeps the settings of topic t, as /topic/config does."""

    def __init__(self, **own: str) -> None:
        self.own = own
        self.port, self.name = 0, ""
        self.refuses = False

    def answer(self, path: str) -> tuple[int, bytes]:
        url = urlsplit(path)
        asked = {name: values[0] for name, values in parse_qs(url.query).items()}
        if url.path == "/info":
            return json_answer({"broadcast_address": "127.0.0.1", "http_port": self.port, "hostname": self.name})
        if url.path == "/topic/config" and len(asked) > 1:
            if self.refuses:
                return 400, b'{"message":"INVALID_REPLICATE"}'
            for name in asked.keys() - {"topic"}:
                self.own[name] = asked[name]
                if asked[name] == "default":
                    del self.own[name]
            return 200, b""
        if url.path == "/topic/config":
            defaults = {
                "durability": "always", "retention": "1h0m0s", "retention_bytes": 0, "replicate": 1,
                "max_attempts": 0,
            }  # fmt: skip
            own = {name: int(value) if value.isdigit() else value for name, value in self.own.items()}
            return json_answer(defaults | own | {"of_its_own": list(own)})
        if url.path == "/config/max_msg_size":
            return 200, b"1048576"
        if url.path.startswith("/config/"):
            return 403, b'{"message":"FORBIDDEN"}'
        return json_answer({"topics": [{"topic_name": "t", "channels": []}], "buried": {"c": 7}})


@contextmanager
def at(*nodes: Node, **options: Any) -> Iterator[httpx.AsyncClient]:
    with ExitStack() as stack:
        addresses = [stack.enter_context(near(node.answer)) for node in nodes]
        for number, (node, address) in enumerate(zip(nodes, addresses, strict=True)):
            node.port, node.name = int(address.rpartition(":")[2]), f"n{number}"  # pages sort nodes by name
        yield visiting(*addresses, **options)


def hidden(page: str) -> dict[str, str]:
    """Return the hidden fields of the form that confirms a preview."""
    form = page[page.index('<form method="post" action="/configuration/t"') :].partition("</form>")[0]
    pairs = [one.partition('"')[0::2] for one in form.split('<input type="hidden" name="')[1:]]
    return {name: rest.split('value="', 1)[1].partition('"')[0] for name, rest in pairs}


@on_asyncio
async def test_a_change_is_previewed_confirmed_and_recorded(tmp_path: Path) -> None:
    nodes = [Node(), Node(durability="os")]
    audit = tmp_path / "audit"
    with at(*nodes, audit_file=str(audit), admin_user=("ann",)) as client:
        client.headers["X-Forwarded-User"] = "ann"
        page = (await client.get("/configuration/t")).text
        assert "The nodes differ: Durability." in page
        assert "The audit log has no change of these settings." in page
        assert '<td data-label="Message size (bytes)" class="n">1,048,576</td>' in page
        assert '<th scope="row" data-label="Channel"><a href="/topics/t/c">c</a></th>' in page
        page = (await client.get("/configuration/t?durability=interval&replicate=")).text
        assert "Change 1 setting of t on 2 nodes?" in page
        assert "always (default) on 127.0.0.1:" in page
        assert nodes[0].own == {}
        done = await client.post("/configuration/t", data=hidden(page))
        assert (done.status_code, done.headers["location"]) == (303, "/configuration/t"), done.text
        assert [node.own for node in nodes] == [{"durability": "interval"}] * 2
        page = (await client.get("/configuration/t")).text
        assert "Settings changed." in page
        assert "Last changed by ann at " in page
        assert "Durability always (default) or os -&gt; interval (done)." in page

    (record,) = map(json.loads, audit.read_text().splitlines())
    assert [record[name] for name in ("user", "action", "target", "detail", "outcome")] == [
        "ann", "configure", "t", {"durability": "always (default) or os -> interval"}, "done",
    ]  # fmt: skip


@on_asyncio
async def test_removing_messages_needs_the_name(tmp_path: Path) -> None:
    node = Node()
    with at(node) as client:
        page = (await client.get("/configuration/t?retention=5m")).text
        assert "may then remove messages" in page
        form = hidden(page)
        refused = await client.post("/configuration/t", data=form | {"confirm": "T"})
        assert (refused.status_code, node.own) == (400, {})
        assert 'name="confirm" aria-describedby="problem" aria-invalid="true" autofocus value="T"' in refused.text
        assert "Change 1 setting of t on 1 node?" in refused.text
        assert (await client.post("/configuration/t", data=form | {"confirm": "t"})).status_code == 303
        assert node.own == {"retention": "5m0s"}


@on_asyncio
async def test_what_changed_since_the_preview_is_not_overwritten() -> None:
    node = Node()
    with at(node) as client:
        form = hidden((await client.get("/configuration/t?durability=os")).text)
        node.own["replicate"] = "2"
        refused = await client.post("/configuration/t", data=form)
        assert (refused.status_code, "have changed since this preview" in refused.text) == (409, True)
        assert "durability" not in node.own
        assert (await client.post("/configuration/t", data=hidden(refused.text))).status_code == 303
        again = await client.post("/configuration/t", data=form)
        assert (again.status_code, "already have these settings" in again.text) == (409, True)


@on_asyncio
async def test_a_value_that_cannot_be_read_comes_back_beside_its_field() -> None:
    with at(Node()) as client:
        page = await client.get("/configuration/t?retention=2+days&replicate=2")
        assert page.status_code == 400
        assert (
            'name="retention" aria-describedby="problem settings-hint" aria-invalid="true" autofocus value="2 days"'
            in page.text
        )
        assert 'name="replicate" aria-describedby="settings-hint" value="2"' in page.text
        assert "Change 1 setting" not in page.text


@on_asyncio
async def test_what_one_node_refuses_is_said(tmp_path: Path) -> None:
    nodes = [Node(), Node()]
    nodes[1].refuses = True
    with at(*nodes) as client:
        form = hidden((await client.get("/configuration/t?replicate=9")).text)
        partly = await client.post("/configuration/t", data=form)
        assert partly.status_code == 502
        assert "Done on some nodes only. 127.0.0.1:" in partly.text
        assert "cannot keep that many copies (INVALID_REPLICATE)" in partly.text


@on_asyncio
async def test_a_dead_letter_topic_needs_the_right_to_publish_to_it(tmp_path: Path) -> None:
    roles = (
        '[[role]]\nname = "own"\nrules = [{ verbs = ["stats", "configure", "publish"], topics = ["t", "t-dead"] }]\n'
    )
    node = Node()
    with at(node, auth_file=auth_file(tmp_path, roles, robot=["own"])) as client:
        client.headers.update(bearer("robot"))
        for target, status in (("foreign", 403), ("t-dead", 303), ("none", 303), ("default", 303)):
            form = hidden((await client.get(f"/configuration/t?dead_letter={target}")).text)
            assert (await client.post("/configuration/t", data=form)).status_code == status, target


@on_asyncio
async def test_a_user_without_the_right_has_no_form() -> None:
    node = Node()
    with at(node, anonymous_role="operator") as client:
        page = (await client.get("/configuration/t?durability=os")).text
        assert ("Preview" in page, "always" in page) == (False, True)
        form = {"action": "configure", "durability": "os", "state": "x"}
        assert (await client.post("/configuration/t", data=form)).status_code == 403
        assert node.own == {}


@each("name, content, text", [
    ("max_msg_size", b"1048576", "1,048,576"), ("max_req_timeout", b"3600000000000", "1h0m0s"),
    ("max_msg_timeout", b"15m0s", "15m0s"), ("max_msg_timeout", b'"15m0s"', "15m0s"),
])  # fmt: skip
def test_a_limit_as_text(name: str, content: bytes, text: str) -> None:
    assert limit_text(name, content) == text
