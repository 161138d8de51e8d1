"""What nsqadmin shows to the servers that it asks: its certificate, or else its token where the operator has named them.

A server that is shown the token also learns by which user nsqadmin is caused to ask, signed for the very request.
"""

import asyncio
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from admin.main import shows_token_to
from admin.nodes.answer_budget import AnswerBudget
from admin.nodes.upstreams import MOST_NAME, ON_BEHALF_OF, Times, Upstreams
from admin.options import AdminOptions
from shared.auth.on_behalf import SIGNATURE, USER, is_signed
from shared.auth.own_token import show_to, use_token_of
from tests.admin.asking import auth_file, bearer, entry, log_in, token, visiting
from tests.admin.conftest import a_node
from tests.async_tests import on_asyncio

Requests = list[tuple[str, str, str]]  # method, path with query, and the name; "(wrong)" with a wrong signature


@pytest.fixture(autouse=True)
def own(tmp_path: Path) -> Iterator[None]:
    (tmp_path / "token").write_text(token("nsqadmin"))
    (tmp_path / "token").chmod(0o600)
    use_token_of(str(tmp_path / "token"))
    yield
    use_token_of("")
    show_to(())


@contextmanager
def node() -> Iterator[tuple[str, Requests]]:
    """A node that gets the token, and its requests."""
    requests: Requests = []

    def on_request(asked: httpx.Request) -> None:
        name, path = asked.headers.get(USER, ""), asked.url.raw_path.decode()
        signed = (asked.headers.get(SIGNATURE, ""), token("nsqadmin"), name, asked.method, path)
        requests.append((asked.method, path, name if not name or is_signed(*signed) else "(wrong)"))

    topics = {"topics": [{"topic_name": name, "channels": []} for name in ("t#ephemeral", "t")], "requeued": 1}
    with a_node(lambda path: None if path.startswith("/info") else topics, on_request=on_request) as address:
        show_to((address,))
        yield address, requests


def names(requests: Requests) -> set[str]:
    return {name for _, _, name in requests}


async def until(done: Callable[[], object]) -> None:
    while not done():
        await asyncio.sleep(0.01)


@on_asyncio
async def test_each_user_by_name_and_each_request_as_it_is_sent(tmp_path: Path) -> None:
    with node() as (address, requests):
        file = auth_file(tmp_path, entry("ann", ["admin"], proof="password"), robot=["operator"])
        client = visiting(address, auth_file=file)
        key = "a b&c=%\N{LATIN SMALL LETTER E WITH ACUTE}+/?"
        form = {"action": "publish", "node": address, "body": "x", "key": key}
        assert (await client.post("/topics/t%23ephemeral", data=form, headers=bearer("robot"))).status_code == 303
        assert names(requests) == {"robot"}
        (published,) = [path for method, path, _ in requests if method == "POST"]
        assert published.startswith("/pub?topic=t%23ephemeral&")
        assert "key=a+b%26c%3D%25%C3%A9%2B%2F%3F" in published
        requests.clear()
        await log_in(client, "ann")
        assert (await client.get("/api/topics/t")).status_code == 200
        assert names(requests) == {"ann"}
        requests.clear()
        api = await client.post("/api/topics/t", json={"action": "pause"}, headers=bearer("robot"))
        assert (api.status_code, names(requests)) == (200, {"robot"})
        requests.clear()
        show_to(())  # a node that is not shown the token does not learn the name
        assert (await client.get("/api/nodes", headers=bearer("robot"))).status_code == 200
        assert names(requests) == {""}


@on_asyncio
async def test_work_in_the_background_has_the_name_of_its_user(tmp_path: Path) -> None:
    with node() as (address, requests):
        file = auth_file(tmp_path, robot=["operator"], other=["operator"])
        client = visiting(address, auth_file=file, audit_topic="audit")
        form = {"action": "requeue", "node": address, "state": "in_flight", "count": "5", "per_second": "50000"}
        begun = await client.post("/messages/t/c", data=form, headers=bearer("robot"))
        assert "/tasks/" in begun.headers["location"]
        await client.get("/api/topics/t", headers=bearer("other"))
        await until(lambda: sum("/requeue" in path for _, path, _ in requests) == 5)
        assert {name for _, path, name in requests if "/requeue" in path} == {"robot"}
        await client.post("/topics/t", data={"action": "pause"}, headers=bearer("other"))
        await until(lambda: sum(path.startswith("/pub?topic=audit") for _, path, _ in requests) == 3)
        assert {name for _, path, name in requests if path.startswith("/pub")} == {""}
        assert {name for _, path, name in requests if path.startswith("/topic/pause")} == {"other"}


@on_asyncio
async def test_names_that_a_proxy_says_fit_into_a_header(tmp_path: Path) -> None:
    for name, sent in (
        ("J\N{LATIN SMALL LETTER O WITH DIAERESIS}rg", "J%C3%B6rg"), ("CN=ann, O=x", "CN=ann, O=x"), ("50%", "50%25"),
        ("a" * 400, "a" * MOST_NAME), ("", ""),
    ):  # fmt: skip
        with node() as (address, requests):
            options = {"acl_trusted_cidr": ("127.0.0.0/8",), "anonymous_role": "viewer"}
            client = visiting(address, auth_file=auth_file(tmp_path), **options)
            headers = httpx.Headers({"X-Forwarded-User": name.encode("latin-1")} if name else {})
            assert (await client.get("/api/nodes", headers=headers)).status_code == 200
            assert names(requests) == {sent}


OPTIONS = AdminOptions(lookupd_http_address=("https://l.test:4162", "http://l.test:4161"), auth_token_file="token")
BY_CERTIFICATE = replace(OPTIONS, http_client_tls_cert="c", http_client_tls_key="k")
SECURE, LOOKUPD, PLAIN = "https://n.test:4152/pub", "https://l.test:4162/nodes", "http://l.test:4161/nodes"


def shown(options: AdminOptions, url: str) -> dict[str, str]:
    """Return the headers of a request that ann causes."""
    show_to(shows_token_to(options))
    context, budget = ssl.create_default_context(), AnswerBudget(65536)
    upstreams = Upstreams(Times(1, 1), context, budget, None, bool(options.http_client_tls_cert))
    was = ON_BEHALF_OF.set("ann")
    try:
        return upstreams._shown("GET", httpx.URL(url))
    finally:
        ON_BEHALF_OF.reset(was)


ALL = {"Authorization", USER, SIGNATURE}


def test_with_a_certificate_no_server_gets_a_token_over_https() -> None:
    """A server that is broken could show it to the others, and be nsqadmin there."""
    assert shown(BY_CERTIFICATE, SECURE) == shown(BY_CERTIFICATE, LOOKUPD) == {USER: "ann"}
    assert set(shown(BY_CERTIFICATE, PLAIN)) == ALL, "a server in clear that was named gets it"
    named = replace(BY_CERTIFICATE, lookupd_http_address=("https://l.test:4162",))
    assert shown(named, "http://n.test:4151/pub") == {}, "it cannot know who asks"
    insists = replace(BY_CERTIFICATE, auth_token_for=("n.test:*",))
    assert set(shown(insists, SECURE)) == set(shown(insists, LOOKUPD)) == ALL
    assert any("can use the token elsewhere" in line for line in insists.oddities())
    assert not any("elsewhere" in line for line in BY_CERTIFICATE.oddities())


def test_without_a_certificate_the_token_is_shown_where_it_was() -> None:
    assert set(shown(OPTIONS, LOOKUPD)) == ALL
    assert shown(OPTIONS, SECURE) == {}
