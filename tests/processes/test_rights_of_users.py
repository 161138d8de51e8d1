"""Real daemons with one auth file for all: what users of nsqadmin may do reaches nsqd, and nothing else does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests import forkserver
from tests.admin.asking import PASSWORD, auth_file, bearer, entry, token
from tests.admin.conftest import nsqadmin
from tests.daemons import ROOT, Daemon, eventually, nsqd, status_of
from tests.forkserver import LAUNCH

pytestmark = pytest.mark.process

ROLES = ("viewer", "operator", "admin", "orders")
TEXT = """
[[role]]
name = "orders"
rules = [{ verbs = ["stats", "act"], topics = ["orders.*"] }]
"""


@dataclass
class Daemons:
    """A set with one auth file."""

    file: Path
    lookupd: Daemon
    node: Daemon
    admin: Daemon

    def ask(self, method: str, path: str, name: str, body: object = None) -> int:
        url = f"http://{self.admin.http}{path}"
        return httpx.request(method, url, json=body, headers=bearer(name), timeout=30).status_code

    def topics(self) -> dict[str, bool]:
        """The topics of the node, and whether they are paused."""
        stats = httpx.get(f"http://{self.node.http}/stats?format=json", headers=bearer("admin")).json()
        return {one["topic_name"]: one["paused"] for one in stats["topics"]}

    def create(self, *topics: str) -> None:
        for topic in topics:
            httpx.post(
                f"http://{self.node.http}/topic/create?topic={topic}", headers=bearer("admin")
            ).raise_for_status()
            at = f"http://{self.lookupd.http}/lookup?topic={topic}"
            eventually(lambda at=at: httpx.get(at, headers=bearer("admin")).json().get("producers"))


def token_file(directory: Path, name: str) -> str:
    path = directory / f"{name}.token"
    path.write_text(token(name))
    path.chmod(0o600)
    return str(path)


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemons]:
    directory = tmp_path_factory.mktemp("one")
    text = TEXT + entry("node", ["node"], kind="token") + entry("nsqadmin", ["admin"], kind="token")
    text += entry("ann", ["admin"], proof="password") + entry("vic", ["viewer"], proof="password")
    file = auth_file(directory, text, **{role: [role] for role in ROLES})
    flag = "-auth-file", file
    with ExitStack() as stack:
        lookupd = stack.enter_context(Daemon("nsqlookupd", *flag))
        own = "-auth-token-file", token_file(directory, "node")
        at = "-lookupd-tcp-address", lookupd.tcp
        node = stack.enter_context(nsqd(directory / "data", *flag, *own, *at, "-broadcast-address", "127.0.0.1"))
        own = "-auth-token-file", token_file(directory, "nsqadmin")
        more = "-auth-token-for", node.http, "-lookupd-http-address", lookupd.http
        admin = stack.enter_context(nsqadmin(*flag, *own, *more))
        yield Daemons(Path(file), lookupd, node, admin)
        for daemon in (lookupd, node, admin):
            assert "pst_" not in daemon.stderr
            assert PASSWORD not in daemon.stderr


@pytest.mark.parametrize(
    ("method", "path", "body", "allowed"),
    [
        ("GET", "/api/topics/orders.eu", None, ROLES),
        ("GET", "/api/topics/other", None, ("viewer", "operator", "admin")),
        ("POST", "/api/topics/orders.eu", {"action": "pause"}, ("operator", "admin", "orders")),
        ("POST", "/api/topics/other", {"action": "pause"}, ("operator", "admin")),
        ("POST", "/api/topics", {"topic": "new"}, ("operator", "admin")),
        ("DELETE", "/api/topics/orders.eu", None, ("admin",)),
        ("GET", "/audit", None, ("admin",)),
    ],
)
def test_each_does_what_its_role_allows_and_nsqd_does_it(
    daemons: Daemons, method: str, path: str, body: object, allowed: tuple[str, ...]
) -> None:
    topic = path.rpartition("/")[2]
    for role in ROLES:
        daemons.create("orders.eu", "other")
        for each in ("orders.eu", "other"):
            assert daemons.ask("POST", f"/api/topics/{each}", "admin", {"action": "unpause"}) == 200
        before = daemons.topics()
        status = daemons.ask(method, path, role, body)
        assert status == (200 if role in allowed else 403), role
        after = daemons.topics()
        if status == 403 or (body is None and method == "GET"):
            assert after == before, role
        elif method == "DELETE":
            assert topic not in after, role
        elif topic in before:
            assert after == before | {topic: True}, role


def test_a_user_who_is_removed_is_refused_everywhere_and_the_session_is_over(daemons: Daemons) -> None:
    file = daemons.file
    before = file.read_text()
    file.write_text(before + entry("eve", ["viewer"], proof="password") + entry("mallory", ["viewer"]))
    with httpx.Client(base_url=f"http://{daemons.admin.http}", headers={"User-Agent": "tests"}, timeout=30) as client:

        def found() -> list[int]:
            url, headers = f"http://{daemons.node.http}/stats", bearer("mallory")
            api = status_of(lambda: client.get("/api/topics", headers=headers))
            return [status_of(lambda: client.get("/nodes")), api, status_of(lambda: httpx.get(url, headers=headers))]

        own_site = {"Origin": f"http://{daemons.admin.http}"}
        eventually(lambda: found()[1:] == [200, 200])  # both have read the file
        assert client.post("/login", data={"user": "eve", "password": PASSWORD}, headers=own_site).is_redirect
        assert found() == [200, 200, 200]
        for name in ("eve", "mallory"):
            command = [*LAUNCH, "penstock", "users", "remove", str(file), name]
            forkserver.run(command, check=True, cwd=ROOT, timeout=60)
        eventually(lambda: found() == [303, 401, 401])
    assert file.read_text().rstrip() == before.rstrip()
