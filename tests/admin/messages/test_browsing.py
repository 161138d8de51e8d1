"""Requests that a page of messages refuses before it asks a node."""

from pathlib import Path

import httpx

from tests.admin.asking import auth_file, bearer, visiting
from tests.async_tests import on_asyncio
from tests.cases import each

ROLE = """[[role]]
name = "repair"
rules = [{ verbs = ["browse", "act"], topics = ["t"] }, { verbs = ["publish"], topics = ["spare"] }]
"""


async def ask(directory: Path, name: str, path: str, form: dict[str, str] | None = None) -> httpx.Response:
    """Send a request of a user with the role of that name; no node is there."""
    roles = {one: [one] for one in ("viewer", "body-viewer", "repair")}
    client = visiting(auth_file=auth_file(directory, ROLE, **roles))
    method = "GET" if form is None else "POST"
    return await client.request(method, path, data=form, headers=bearer(name))


@each("filters", ["search=x", "header=trace"])
@on_asyncio
async def test_who_may_not_read_does_not_filter_by_contents(tmp_path: Path, filters: str) -> None:
    answer = await ask(tmp_path, "viewer", f"/messages/t/c?{filters}")
    assert (answer.status_code, "requires permission to view message bodies" in answer.text) == (403, True)
    assert (await ask(tmp_path, "viewer", "/messages/t/c?min_attempts=2")).status_code == 502
    assert (await ask(tmp_path, "body-viewer", f"/messages/t/c?{filters}")).status_code == 502
    form = {"action": "bury", "state": "ready", "count": "5", "per_second": "1", **dict([filters.split("=")])}
    assert (await ask(tmp_path, "repair", "/messages/t/c", form)).status_code == 403


@on_asyncio
async def test_messages_are_moved_only_to_where_the_user_may_publish(tmp_path: Path) -> None:
    for to, status in (("spare", 502), ("other", 403), ("t", 400), ("", 400), ("no name!", 400)):
        form = {"action": "move", "state": "ready", "count": "5", "per_second": "1", "to": to}
        assert (await ask(tmp_path, "repair", "/messages/t/c", form)).status_code == status, to
        assert (await ask(tmp_path, "viewer", "/messages/t/c", form)).status_code == 403
    form = {"action": "redrive", "state": "ready", "count": "5", "per_second": "1"}
    assert (await ask(tmp_path, "repair", "/messages/t/c", form)).status_code == 403  # it may not publish to all topics
    for asked in ("state=dead", "state=ready&many=kick", "state=buried&many=requeue"):  # there are no such ones
        assert (await ask(tmp_path, "body-viewer", f"/messages/t/c?{asked}")).status_code == 400
