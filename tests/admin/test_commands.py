"""Commands go on where some nodes, or all, do not know what they are about, as in the original; and how it is told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from admin.actions import Notifier, counted_of
from admin.audit import Actor
from tests.admin.asking import OURS, browser, make
from tests.admin.conftest import told, upstream
from tests.daemons import Daemon

pytestmark = pytest.mark.process

MISSING = 404, b'{"message":"CHANNEL_NOT_FOUND"}'
ANN = Actor("ann", "127.0.0.1:1", "curl <1>", "http://admin/x?a=1&b=2")


def asked_of(
    node: Callable[[str], tuple[int, bytes]],
    lookupd: Callable[[str], tuple[int, bytes]],
    *requests: tuple[str, str, Any],
) -> tuple[list[tuple[int, str]], list[str]]:
    """The answers of nsqadmin, and what the nsqd was asked."""
    heard: list[str] = []

    def answer(path: str) -> tuple[int, bytes]:
        heard.append(path)
        if path.startswith("/stats"):
            return told({"topics": [{"topic_name": "t", "channels": [{"channel_name": "c"}]}]})
        return node(path)

    def knows(path: str) -> tuple[int, bytes]:
        if path.startswith(("/lookup", "/nodes")):
            one = {"broadcast_address": "127.0.0.1", "http_port": port, "tcp_port": 1, "hostname": "n", "topics": ["t"]}
            return told({"producers": [one], "channels": []})
        return lookupd(path)

    async def work() -> list[tuple[int, str]]:
        async with browser(make(nsqd_http_address=(), lookupd_http_address=(address,)), **OURS) as client:
            found = []
            for method, path, body in requests:
                more = {"data": body} if isinstance(body, dict) and "confirm" in body else {"json": body}
                answer = await client.request(method, path, **more)
                found.append((answer.status_code, answer.text))
            return found

    with upstream(answer) as nsqd, upstream(knows) as address:
        port = int(nsqd.rpartition(":")[2])
        return asyncio.run(work()), heard


def test_a_channel_that_nsqlookupd_does_not_know_is_deleted_on_nsqd() -> None:
    (answer,), heard = asked_of(lambda path: (200, b""), lambda path: MISSING, ("DELETE", "/api/topics/t/c", None))
    assert answer[0] == 200
    assert json.loads(answer[1])["message"].startswith("WARNING: http://127.0.0.1:")
    assert "/channel/delete?topic=t&channel=c" in heard


@pytest.mark.parametrize("action", ["pause", "unpause", "empty"])
def test_an_action_on_a_channel_that_no_node_has_is_a_warning(action: str) -> None:
    request = "POST", "/api/topics/t/c", {"action": action}
    (answer,), heard = asked_of(lambda path: MISSING, lambda path: MISSING, request)
    assert answer[0] == 200
    assert "CHANNEL_NOT_FOUND" in json.loads(answer[1])["message"]
    assert f"/channel/{action}?topic=t&channel=c" in heard


def test_what_no_nsqlookupd_creates_is_a_warning() -> None:
    request = "POST", "/api/topics", {"topic": "t", "channel": "c"}
    (answer,), heard = asked_of(lambda path: (200, b""), lambda path: (500, b"{}"), request)
    assert answer[0] == 200
    assert answer[1].count("answered 500") == 2
    assert "/channel/create?topic=t&channel=c" in heard


def test_a_page_says_whether_it_was_done_anywhere() -> None:
    form = {"action": "delete", "confirm": "c"}
    answers, _ = asked_of(
        lambda path: (200, b""), lambda path: MISSING, ("POST", "/topics/t/c", form), ("GET", "/audit", None)
    )
    assert answers[0][0] == 502
    assert "Done on some nodes only" in answers[0][1]
    assert "in part: " in answers[1][1]
    answers, _ = asked_of(
        lambda path: MISSING, lambda path: MISSING, ("POST", "/topics/t/c", form), ("GET", "/audit", None)
    )
    assert answers[0][0] == 502
    assert "Done on some nodes only" not in answers[0][1]
    assert "failed: " in answers[1][1]


def test_a_notification_is_written_as_gos_encoder_writes_it() -> None:
    async def work() -> bytes:
        heard: asyncio.Queue[bytes] = asyncio.Queue()

        async def hear(request: httpx.Request) -> httpx.Response:
            heard.put_nowait(request.content)
            return httpx.Response(200)

        notifier = Notifier("http://hook/", lambda: 7.5)
        notifier._client = httpx.AsyncClient(transport=httpx.MockTransport(hear))
        notifier.notify("delete_channel", "t", "c", "", ANN)
        return await heard.get()

    found = asyncio.run(work())
    via = json.loads(found)["via"]
    assert found.decode() == (
        '{"action":"delete_channel","topic":"t","channel":"c","timestamp":7,"user":"ann","remote_ip":"127.0.0.1:1",'
        f'"user_agent":"curl \\u003c1\\u003e","url":"http://admin/x?a=1\\u0026b=2","via":"{via}"}}'
    )


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (
            ("-nsqd-http-address", "no-such-host.invalid:4151"),
            "failed to resolve --nsqd-http-address (no-such-host.invalid:4151)",
        ),
        (("-lookupd-http-address", "no-such-host.invalid:4161"), "failed to resolve --lookupd-http-address"),
        (
            ("-nsqd-http-address", "127.0.0.1:1", "-allow-config-from-cidr", "x"),
            "failed to parse --allow-config-from-cidr (x)",
        ),
    ],
)
def test_what_the_original_does_not_start_with(flags: tuple[str, ...], words: str) -> None:
    daemon = Daemon("nsqadmin", *flags, listens=())
    place = daemon._command.index("-tcp-address")
    del daemon._command[place : place + 2]
    with daemon:
        assert daemon.process.wait(60) == 1
    assert any(words in line for line in daemon.lines)


@pytest.mark.parametrize(
    ("answer", "count"),
    [
        (b'{"kicked":7}', 7), (b'{"kicked":-1}', 0), (b'{"kicked":"7"}', 0), (b'{"kicked":true}', 0), (b"[7]", 0), (b"", 0),
        (b'{"kicked":1000001}', 0), (b'{"kicked":7,"a":[' + b"[]," * 100_000 + b"[]]}", 0),
    ],
    ids=lambda value: str(value)[:20],
)  # fmt: skip
def test_how_many_a_node_says_it_was(answer: bytes, count: int) -> None:
    assert counted_of(answer, "kicked") == count
