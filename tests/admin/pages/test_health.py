"""The state of nsqadmin itself, for monitoring and operators."""

from pathlib import Path

from tests.admin.asking import auth_file, bearer, visiting
from tests.admin.conftest import a_node
from tests.async_tests import on_asyncio


@on_asyncio
async def test_it_is_alive_and_ready_while_a_node_answers(tmp_path: Path) -> None:
    with a_node() as node:
        client = visiting(node, audit_file=str(tmp_path / "audit"))
        for path in ("/ping", "/livez", "/readyz"):
            found = await client.get(path)
            assert (found.status_code, found.text) == (200, "OK"), path
        info = (await client.get("/info")).json()
        assert (info["version"], info["start_time"] > 1_700_000_000) == ("1.3.0", True)
        page = (await client.get("/health")).text
        for words in (
            '"State">answers</td>', '"State">writable</td>', f'<th scope="row" data-label="Node">{node}</th>',
        ):  # fmt: skip
            assert words in page
        assert "failed</span>" not in page
        rows = (await client.get("/health?format=json")).json()
        assert [(one["server"], one["failures"], one["answers"] > 0) for one in rows] == [(node, 0, True)]


@on_asyncio
async def test_without_a_node_it_is_alive_and_not_ready_and_says_why() -> None:
    client = visiting()
    assert (await client.get("/livez")).status_code == 200
    ready = await client.get("/readyz")
    assert ready.status_code == 503
    assert ready.text.startswith("NOK - No nsqd answered. 127.0.0.1:1: ")
    page = await client.get("/health")
    assert page.status_code == 200
    assert '<span class="bad">failed</span> No nsqd answered.' in page.text
    assert '<span class="bad">no answer</span>' in page.text


@on_asyncio
async def test_files_that_fail_are_named(tmp_path: Path) -> None:
    file = auth_file(tmp_path, ann=["admin"])
    (tmp_path / "sealed").write_text("")
    # a file cannot be a directory: this fails for root, too
    client = visiting(auth_file=file, audit_file=str(tmp_path / "sealed" / "audit"))
    page = (await client.get("/health", headers=bearer("ann"))).text
    assert '<td data-label="State">valid</td>' in page
    Path(file).write_text("nonsense")
    await client.get("/topics")  # the file is looked after
    page = (await client.get("/health", headers=bearer("ann"))).text
    assert page.count('<span class="bad">failed</span>') == 3  # the cluster, the audit file, and the users
    assert (await client.get("/health")).status_code == 303  # to the login page
    assert (await client.get("/readyz")).status_code == 503
