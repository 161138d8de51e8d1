"""Nodes learn by which user nsqadmin is caused to ask, signed for the very request, where they are shown its token."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from admin.upstreams import MOST_NAME
from shared.auth.on_behalf import SIGNATURE, USER, is_signed
from shared.auth.own_token import show_to, use_token_of
from tests.admin.asking import OURS, auth_file, bearer, browser, entry, in_loop, log_in, make, token
from tests.admin.conftest import told

pytestmark = pytest.mark.process

Heard = list[
    tuple[str, str, str]
]  # method, path and query as they came, and the name; "(wrong)" with a wrong signature


@pytest.fixture(autouse=True)
def own(tmp_path: Path) -> Iterator[None]:
    """The token of this process is that of nsqadmin."""
    (tmp_path / "token").write_text(token("nsqadmin"))
    (tmp_path / "token").chmod(0o600)
    use_token_of(str(tmp_path / "token"))
    yield
    use_token_of("")
    show_to(())


@contextmanager
def node() -> Iterator[tuple[str, Heard]]:
    """A node with one topic, and what it has heard."""
    heard: Heard = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.headers.get(USER, "")
            signed = (self.headers.get(SIGNATURE, ""), token("nsqadmin"), name, self.command, self.path)
            heard.append((self.command, self.path, name if not name or is_signed(*signed) else "(wrong)"))
            status, content = 200, b"OK"
            if self.path.startswith("/info"):
                status, content = told({"broadcast_address": "127.0.0.1", "http_port": port, "hostname": "h"})
            elif self.path.startswith("/stats"):
                status, content = told(
                    {"topics": [{"topic_name": "t#ephemeral", "channels": []}, {"topic_name": "t", "channels": []}]}
                )
            elif "/requeue" in self.path:
                status, content = told({"requeued": 1})
            elif self.command == "GET":
                status, content = told({})
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_GET

        def log_message(self, *anything: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    port = server.server_port
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{port}", heard
    finally:
        server.shutdown()
        server.server_close()


def names(heard: Heard, method: str = "") -> set[str]:
    return {name for one, _, name in heard if method in ("", one)}


async def until(done: Callable[[], object]) -> None:
    while not done():
        await asyncio.sleep(0.01)


def run(work: Callable[[httpx.AsyncClient, str, Heard], Awaitable[None]], file: str, **options: Any) -> None:
    async def all_of_it() -> None:
        with node() as (address, heard):
            show_to((address,))
            app = make(nsqd_http_address=(address,), auth_file=file, **options)
            async with browser(app, **OURS) as client:
                await asyncio.wait_for(work(client, address, heard), 60)

    in_loop(all_of_it)


def test_each_user_by_name_and_each_request_as_it_is_sent(tmp_path: Path) -> None:
    async def work(client: httpx.AsyncClient, address: str, heard: Heard) -> None:
        form = {
            "action": "publish",
            "node": address,
            "body": "x",
            "key": "a b&c=%\N{LATIN SMALL LETTER E WITH ACUTE}+/?",
        }
        assert (await client.post("/topics/t%23ephemeral", data=form, headers=bearer("robot"))).status_code == 303
        assert names(heard) == {"robot"}
        published = [path for method, path, _ in heard if method == "POST"]
        assert len(published) == 1
        assert published[0].startswith("/pub?topic=t%23ephemeral&")
        assert "key=a+b%26c%3D%25%C3%A9%2B%2F%3F" in published[0]
        heard.clear()
        await log_in(client, "ann")
        assert (await client.get("/api/topics/t")).status_code == 200
        assert names(heard) == {"ann"}
        heard.clear()
        api = await client.post("/api/topics/t", json={"action": "pause"}, headers=bearer("robot"))
        assert (api.status_code, names(heard)) == (200, {"robot"})

    run(work, auth_file(tmp_path, entry("ann", ["admin"], proof="password"), robot=["operator"]))


def test_what_goes_on_in_the_background_carries_the_name_of_who_began_it(tmp_path: Path) -> None:
    async def work(client: httpx.AsyncClient, address: str, heard: Heard) -> None:
        form = {"action": "requeue", "node": address, "state": "in_flight", "count": "5", "per_second": "50000"}
        begun = await client.post("/messages/t/c", data=form, headers=bearer("robot"))
        assert "/tasks/" in begun.headers["location"]
        await client.get("/api/topics/t", headers=bearer("other"))
        await until(lambda: sum("/requeue" in path for _, path, _ in heard) == 5)
        assert {name for _, path, name in heard if "/requeue" in path} == {"robot"}

    run(work, auth_file(tmp_path, robot=["operator"], other=["operator"]))


def test_the_audit_topic_is_nsqadmins_own_doing(tmp_path: Path) -> None:
    async def work(client: httpx.AsyncClient, address: str, heard: Heard) -> None:
        for name in ("robot", "other"):
            await client.post("/topics/t", data={"action": "pause"}, headers=bearer(name))
        await until(lambda: sum(path.startswith("/pub?topic=audit") for _, path, _ in heard) == 2)
        assert {name for _, path, name in heard if path.startswith("/pub")} == {""}
        assert {name for _, path, name in heard if path.startswith("/topic/pause")} == {"robot", "other"}

    run(work, auth_file(tmp_path, robot=["operator"], other=["operator"]), audit_topic="audit")


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("J\N{LATIN SMALL LETTER O WITH DIAERESIS}rg", "J%C3%B6rg"),
        ("CN=ann, O=x", "CN=ann, O=x"),
        ("50%", "50%25"),
        ("a" * 400, "a" * MOST_NAME),
        ("", ""),
    ],
)
def test_names_that_a_proxy_says_fit_into_a_header(tmp_path: Path, name: str, sent: str) -> None:
    async def work(client: httpx.AsyncClient, address: str, heard: Heard) -> None:
        headers = {"X-Forwarded-User": name.encode("latin-1")} if name else {}
        assert (await client.get("/api/nodes", headers=headers)).status_code == 200  # type: ignore[arg-type]
        assert names(heard) == {sent}

    run(work, auth_file(tmp_path), acl_trusted_cidr=("127.0.0.0/8",), anonymous_role="viewer")


def test_a_node_that_is_not_shown_the_token_does_not_learn_the_name(tmp_path: Path) -> None:
    async def work(client: httpx.AsyncClient, address: str, heard: Heard) -> None:
        show_to(())
        assert (await client.get("/api/nodes", headers=bearer("robot"))).status_code == 200
        assert names(heard) == {""}

    run(work, auth_file(tmp_path, robot=["operator"]))
