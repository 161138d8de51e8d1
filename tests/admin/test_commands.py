"""Commands continue where some nodes, or all, lack the topic, as in the original, and notify."""

import asyncio
import json
from typing import Any

import httpx
import pytest

from admin.messages.actions import Notifier, counted_of
from admin.users.audit import Actor
from tests.admin.asking import visiting
from tests.admin.conftest import a_node, nsqadmin
from tests.async_tests import on_asyncio
from tests.cases import each

Reply = tuple[int, bytes]
DONE, MISSING, BROKEN = (200, b""), (404, b'{"message":"CHANNEL_NOT_FOUND"}'), (500, b"{}")
ANN = Actor("ann", "127.0.0.1:1", "curl <1>", "http://admin/x?a=1&b=2")


async def asked_of(
    node: Reply, lookupd: Reply, *requests: tuple[str, str, Any]
) -> tuple[list[httpx.Response], list[str]]:
    """The answers of nsqadmin where nsqd and nsqlookupd answer commands so, and what the nsqd was asked."""
    paths: list[str] = []

    def answer(path: str) -> Reply | None:
        paths.append(path)
        return None if path.startswith("/stats") else node

    def knows(path: str) -> object:
        if path.startswith(("/lookup", "/nodes")):
            host, _, port = nsqd.rpartition(":")
            one = {"broadcast_address": host, "http_port": int(port), "tcp_port": 1, "hostname": "n", "topics": ["t"]}
            return {"producers": [one], "channels": []}
        return lookupd

    with a_node(answer) as nsqd, a_node(knows) as address:
        client, found = visiting(lookupd_http_address=(address,), nsqd_http_address=()), []
        for method, path, body in requests:
            more = {"data": body} if isinstance(body, dict) and "confirm" in body else {"json": body}
            found.append(await client.request(method, path, **more))
    return found, paths


CREATE = "POST", "/api/topics", {"topic": "t", "channel": "c"}


@each("node, lookupd, request_, words, command", [
    (DONE, MISSING, ("DELETE", "/api/topics/t/c", None), "WARNING: http://127.0.0.1:", "delete"),
    *(
        (MISSING, MISSING, ("POST", "/api/topics/t/c", {"action": one}), "CHANNEL_NOT_FOUND", one)
        for one in ("pause", "unpause", "empty")
    ),
    (DONE, BROKEN, CREATE, "answered 500", "create"),
])  # fmt: skip
@on_asyncio
async def test_what_some_or_all_do_not_know_is_a_warning(
    node: Reply, lookupd: Reply, request_: tuple[str, str, Any], words: str, command: str
) -> None:
    (answer,), paths = await asked_of(node, lookupd, request_)
    assert (answer.status_code, words in answer.json()["message"]) == (200, True)
    assert answer.json()["message"].startswith("WARNING: ")
    assert answer.text.count("answered 500") == (2 if lookupd == BROKEN else 0)
    assert f"/channel/{command}?topic=t&channel=c" in paths


@each("node, outcome", [(DONE, "in part: "), (MISSING, "failed: ")])
@on_asyncio
async def test_a_page_says_whether_it_was_done_anywhere(node: Reply, outcome: str) -> None:
    form = {"action": "delete", "confirm": "c"}
    (answer, trail), _ = await asked_of(node, MISSING, ("POST", "/topics/t/c", form), ("GET", "/audit", None))
    assert (answer.status_code, "Done on some nodes only" in answer.text) == (502, node == DONE)
    assert outcome in trail.text


@on_asyncio
async def test_a_notification_is_written_as_gos_encoder_writes_it() -> None:
    bodies: asyncio.Queue[bytes] = asyncio.Queue()

    async def on_request(request: httpx.Request) -> httpx.Response:
        bodies.put_nowait(request.content)
        return httpx.Response(200)

    notifier = Notifier("http://hook/", lambda: 7.5)
    notifier._client = httpx.AsyncClient(transport=httpx.MockTransport(on_request))
    notifier.notify("delete_channel", "t", "c", "", ANN)
    found = await bodies.get()
    via = json.loads(found)["via"]
    assert found.decode() == (
        '{"action":"delete_channel","topic":"t","channel":"c","timestamp":7,"user":"ann","remote_ip":"127.0.0.1:1",'
        f'"user_agent":"curl \\u003c1\\u003e","url":"http://admin/x?a=1\\u0026b=2","via":"{via}"}}'
    )


@pytest.mark.process
@each("flag, host", [("nsqd", "no-such-host.invalid:4151"), ("lookupd", "no-such-host.invalid:4161")])
def test_what_the_original_does_not_start_with(flag: str, host: str) -> None:
    daemon = nsqadmin(f"-{flag}-http-address", host)
    daemon._listens.clear()
    with daemon:
        assert daemon.process.wait(60) == 1
    assert any(f"failed to resolve --{flag}-http-address ({host})" in line for line in daemon.lines)


@each("answer, count", [
    (b'{"kicked":7}', 7), (b'{"kicked":-1}', 0), (b'{"kicked":"7"}', 0), (b'{"kicked":true}', 0), (b"[7]", 0), (b"", 0),
    (b'{"kicked":1000001}', 0), (b'{"kicked":7,"a":[' + b"[]," * 100_000 + b"[]]}", 0),
])  # fmt: skip
def test_how_many_a_node_says_it_was(answer: bytes, count: int) -> None:
    assert counted_of(answer, "kicked") == count
