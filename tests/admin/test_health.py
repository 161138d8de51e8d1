"""What monitoring and operators see of nsqadmin itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.admin.asking import NOWHERE, auth_file, bearer, browser, make
from tests.admin.conftest import told, upstream

pytestmark = pytest.mark.process


def asked(work: Callable[[httpx.AsyncClient], Awaitable[None]], **options: Any) -> None:
    """Run `work` with a client of an nsqadmin with these options."""

    async def run() -> None:
        async with browser(make(**options)) as client:
            await work(client)

    asyncio.run(run())


def test_it_is_alive_and_ready_while_a_node_answers(tmp_path: Path) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        for path in ("/ping", "/livez", "/readyz"):
            found = await client.get(path)
            assert (found.status_code, found.text) == (200, "OK"), path
        info = (await client.get("/info")).json()
        assert (info["version"], info["start_time"] > 1_700_000_000) == ("1.3.0", True)
        page = (await client.get("/health")).text
        assert '<td data-label="State">answers</td>' in page
        assert '<td data-label="State">writable</td>' in page
        assert f'<th scope="row" data-label="Node">{node}</th>' in page
        assert "failed</span>" not in page
        rows = (await client.get("/health?format=json")).json()
        assert [(one["server"], one["failures"], one["answers"] > 0) for one in rows] == [(node, 0, True)]

    port = 0
    with upstream(lambda path: told({"broadcast_address": "127.0.0.1", "http_port": port, "topics": []})) as node:
        port = int(node.rpartition(":")[2])
        asked(work, nsqd_http_address=(node,), audit_file=str(tmp_path / "audit"))


def test_without_a_node_it_is_alive_and_not_ready_and_says_why() -> None:
    async def work(client: httpx.AsyncClient) -> None:
        assert (await client.get("/livez")).status_code == 200
        ready = await client.get("/readyz")
        assert ready.status_code == 503
        assert ready.text.startswith("NOK - No nsqd answered. 127.0.0.1:1: ")
        page = await client.get("/health")
        assert page.status_code == 200
        assert '<span class="bad">failed</span> No nsqd answered.' in page.text
        assert '<span class="bad">no answer</span>' in page.text

    asked(work, nsqd_http_address=(NOWHERE,))


def test_files_that_fail_are_named(tmp_path: Path) -> None:
    file = auth_file(tmp_path, ann=["admin"])
    (tmp_path / "sealed").write_text("")

    async def work(client: httpx.AsyncClient) -> None:
        page = (await client.get("/health", headers=bearer("ann"))).text
        assert '<td data-label="State">valid</td>' in page
        Path(file).write_text("nonsense")
        await client.get("/topics")  # the file is looked after
        page = (await client.get("/health", headers=bearer("ann"))).text
        assert page.count('<span class="bad">failed</span>') == 3  # the cluster, the audit file, and the users
        assert (await client.get("/health")).status_code == 303  # to the login page
        assert (await client.get("/readyz")).status_code == 503

    # a file cannot be a directory: this fails for root, too
    asked(work, auth_file=file, audit_file=str(tmp_path / "sealed" / "audit"))
