"""Login, sessions, tokens and trusted headers; and all requests that are refused."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from argon2 import PasswordHasher

from admin.options import AdminOptions
from admin.pages.login import Login
from admin.users.access import COOKIE, Access
from admin.users.roles import Who, of_role
from admin.users.sessions import FREE_TRIES, Tries
from tests.admin.asking import (
    NOWHERE,
    OURS,
    PASSWORD,
    browser,
    csrf_in,
    entry,
    file_of,
    log_in,
    made_later,
    make,
    users_of,
    with_password,
)  # fmt: skip
from tests.async_tests import on_asyncio
from tests.cases import each

ANN, CARL = with_password("ann", "admin"), entry("carl", ["admin"], proof="proxy")
UNKNOWN = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash("of nobody")


@pytest.fixture(autouse=True)
def fast_logins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare the passwords of unknown users with a hash that is as cheap as the others here; no time passes between tries."""
    monkeypatch.setattr("admin.users.access.Tries", lambda clock: Tries(lambda: 0.0))
    monkeypatch.setattr("admin.pages.login.UNKNOWN_USER_HASH", UNKNOWN)


@pytest.fixture
def client(tmp_path: Path) -> httpx.AsyncClient:
    return at(tmp_path)


def at(directory: Path, *users: str, address: str = "127.0.0.1", **options: Any) -> httpx.AsyncClient:
    file = file_of(directory, *(users or (ANN,)))
    return browser(made_later(lambda: make(auth_file=file, **options)), address, **{"User-Agent": "tests"})


@on_asyncio
async def test_who_is_not_logged_in_is_led_there_and_back(client: httpx.AsyncClient) -> None:
    led = await client.get("/topics/t?x=1")
    assert (led.status_code, led.headers["location"]) == (303, "/login?next=%2Ftopics%2Ft%3Fx%3D1")
    assert (await client.get("/api/topics")).status_code == 401
    assert "Log in" in (await client.get(led.headers["location"])).text
    back = await log_in(client, "ann", following="/topics/t?x=1")
    assert (back.status_code, back.headers["location"]) == (303, "/topics/t?x=1")
    cookie = back.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
    assert "Secure" not in cookie
    assert (await client.get("/topics/t")).status_code == 502  # let in; no node answers
    assert (await client.get("/api/topics")).status_code == 502
    assert "ann, admin" in (await client.get("/audit")).text


@on_asyncio
async def test_wrong_names_and_passwords_are_refused_alike_and_have_to_wait(client: httpx.AsyncClient) -> None:
    texts = set()
    for name in ["ann", "nobody"] * FREE_TRIES:
        answer = await log_in(client, name, "wrong")
        assert answer.status_code == 401
        assert "set-cookie" not in answer.headers
        texts.add(answer.text.replace('value="nobody"', 'value="ann"'))
    assert len(texts) == 1  # they do not show whether there is such a user
    answer = await log_in(client, "ann")
    assert (answer.status_code, "Try again in" in answer.text) == (429, True)


@on_asyncio
async def test_concurrent_tries_are_counted(client: httpx.AsyncClient, tmp_path: Path) -> None:
    answers = await asyncio.gather(*(log_in(client, "ann", f"guess {number}") for number in range(40)))
    found = [answer.status_code for answer in answers]
    assert found.count(401) <= FREE_TRIES
    assert set(found) <= {401, 429, 503}
    app = make(auth_file=file_of(tmp_path, ANN))
    for number in range(FREE_TRIES):  # an address that changes within its network is the same
        assert (await log_in(browser(app, f"2001:db8::{number + 1:x}"), "ann", "wrong")).status_code == 401
    assert (await log_in(browser(app, "2001:db8::ffff"), "ann")).status_code == 429


@on_asyncio
async def test_forms_that_are_none(client: httpx.AsyncClient) -> None:
    for form in (b"", b"user=ann", b"user=ann&password=" + b"x" * 70_000, b"\xff\xfe", b"user=%00&password=%00"):
        assert (await client.post("/login", content=form, headers=OURS)).status_code in (400, 401)


@on_asyncio
async def test_forms_must_come_from_our_pages_and_be_of_the_session(client: httpx.AsyncClient) -> None:
    bare = await client.post("/login", data={"user": "ann", "password": PASSWORD})
    assert bare.status_code == 403  # no browser says where it comes from
    assert (await client.post("/login", data={}, headers={"Origin": "http://evil.example"})).status_code == 403
    await log_in(client, "ann")
    form = {"action": "pause"}
    for headers in ({}, {"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        for path in ("/topics/t", "/lookup", "/nodes/x:1", "/messages/t/c"):
            assert (await client.post(path, data=form, headers=headers)).status_code == 403, path
        assert (await client.post("/api/topics/t", json=form, headers=headers)).status_code == 403
        assert (await client.delete("/api/topics/t", headers=headers)).status_code == 403
    token = csrf_in((await client.get("/audit")).text)
    assert len(token) == 32
    for csrf, status in ({}, 403), ({"csrf": "0" * 32}, 403), ({"csrf": token}, 502):  # 502: let through
        assert (await client.post("/topics/t", data=form | csrf, headers=OURS)).status_code == status


@on_asyncio
async def test_a_session_ends_with_the_logout_and_in_another_browser(client: httpx.AsyncClient) -> None:
    async def is_in() -> bool:
        return (await client.get("/audit")).status_code == 200

    await log_in(client, "ann")
    stolen = client.cookies[COOKIE]
    assert await is_in()
    other = await client.get("/audit", headers={"User-Agent": "another"})
    assert other.status_code == 303
    assert not await is_in()  # in no browser
    await log_in(client, "ann")
    token = csrf_in((await client.get("/audit")).text)
    out = await client.post("/logout", data={"csrf": token}, headers=OURS)
    assert out.headers["location"] == "/login"
    client.cookies.set(COOKIE, stolen)
    assert not await is_in()


@each("address, trusted, is_believed", [
    ("127.0.0.1", (), False),  # any process is there
    ("127.0.0.1", ("127.0.0.0/8",), True), ("10.1.2.3", (), False), ("10.1.2.3", ("10.0.0.0/8",), True),
    ("::ffff:10.1.2.3", ("10.0.0.0/8",), True), ("127.0.0.1", ("10.0.0.0/8",), False), ("nonsense", (), False),
])  # fmt: skip
@on_asyncio
async def test_a_header_is_believed_of_trusted_addresses_only(
    tmp_path: Path, address: str, trusted: tuple[str, ...], is_believed: bool
) -> None:
    client = at(tmp_path, ANN, CARL, address=address, acl_trusted_cidr=trusted, admin_user=("boss",))
    headers = [
        {"X-Forwarded-User": name} for name in ("carl", "boss", "eve", "ann")
    ]  # a user with a password has to log in
    found = [(await client.get("/audit", headers=one)).status_code == 200 for one in headers]
    assert found == [is_believed, is_believed, False, False]


@on_asyncio
async def test_where_it_came_from_by_way_of_a_trusted_proxy(tmp_path: Path) -> None:
    trusting, other = at(tmp_path, acl_trusted_cidr=("127.0.0.0/8",)), at(tmp_path, address="10.0.0.1")
    for client, is_trusted in ((trusting, True), (other, False)):
        headers = OURS | {"X-Forwarded-For": "1.1.1.1, 2.2.2.2", "X-Forwarded-Proto": "https"}
        answer = await client.post("/login", data={"user": "ann", "password": PASSWORD}, headers=headers)
        assert ("Secure" in answer.headers["set-cookie"]) == is_trusted
        client.cookies.set(COOKIE, answer.cookies[COOKIE])
        page = (await client.get("/audit", headers={"X-Forwarded-User": "x"})).text
        assert ("2.2.2.2 by way of 127.0.0.1" in page, "2.2.2.2" in page) == (is_trusted, is_trusted)


def test_what_goes_on_for_long_is_of_who_may_do_it_now(tmp_path: Path) -> None:
    access = Access(options := AdminOptions(auth_file=file_of(tmp_path, ANN)), users_of(options))
    ann = Who(of_role("ann", "admin", kind="user"))
    boss, anonymous = Who(of_role("boss", "admin")), Who(of_role("", "operator"))
    assert access.still_may(ann, "kick", "t", "c")
    file_of(tmp_path, ANN.replace("admin", "operator") + 'topics = ["t*"]\n')
    assert access.still_may(ann, "kick", "t", "c")
    assert not access.still_may(ann, "kick", "other", "c")
    for users in (ANN.replace("admin", "viewer"), ""):
        file_of(tmp_path, users)
        assert not access.still_may(ann, "kick", "t", "c")
    assert access.still_may(boss, "kick", "t", "c")
    assert access.still_may(anonymous, "kick", "t", "c")


@on_asyncio
async def test_a_base_path_and_several_clusters_with_one_login(tmp_path: Path) -> None:
    client = at(tmp_path, base_path="/nsq")
    assert (await client.get("/nsq/topics")).headers["location"] == "/nsq/login?next=%2Fnsq%2Ftopics"
    answer = await client.post(
        "/nsq/login", data={"user": "ann", "password": PASSWORD, "next": "/elsewhere"}, headers=OURS
    )
    assert answer.headers["location"] == "/nsq/"
    assert "Path=/nsq" in answer.headers["set-cookie"]
    assert (await client.get("/nsq/audit")).status_code == 200
    client = at(tmp_path, cluster=(f"east={NOWHERE}",))
    assert (await client.get("/clusters/east/nodes")).headers["location"] == "/login?next=%2Fclusters%2Feast%2Fnodes"
    await log_in(client, "ann")
    page = await client.get("/clusters/east/audit")
    assert page.status_code == 200
    assert 'href="/clusters/east" aria-current="true"' in page.text
    assert 'href="/">main' in page.text
    assert (await client.get("/clusters/west/audit")).status_code == 404


@on_asyncio
async def test_wrong_passwords_from_everywhere_lock_out_no_one_who_has_logged_in_from_there(tmp_path: Path) -> None:
    app = make(auth_file=file_of(tmp_path, ANN))

    async def from_home(password: str = PASSWORD) -> int:
        async with browser(app, "10.1.0.1", **{"User-Agent": "tests"}) as one:
            return (await log_in(one, "ann", password)).status_code

    assert await from_home() == 303
    async with AsyncExitStack() as stack:
        browsers = [browser(app, f"10.2.{number}.1", **{"User-Agent": "tests"}) for number in range(30)]
        strangers = [await stack.enter_async_context(one) for one in browsers]
        tries = [log_in(one, f"user{number}", "wrong") for number, one in enumerate(strangers)]
        refused, home = await asyncio.gather(asyncio.gather(*tries), from_home())
        assert {answer.status_code for answer in refused} <= {401, 503}
        assert home == 303
        again = [log_in(one, "ann", "wrong") for one in strangers]
        _, home = await asyncio.gather(asyncio.gather(*again), from_home())
        assert home == 303
    assert [await from_home("wrong") for _ in range(FREE_TRIES + 3)][-1] == 429  # but guesses have to wait there, too


@each("where, followed", [
    ("/a/topics?n=1", "/a/topics?n=1"), ("/a/", "/a/"), ("/b/", "/a/"), ("//evil.test/a/", "/a/"), ("/a/\\evil", "/a/"),
    ("/a/\r\nSet-Cookie: x", "/a/"), ("https://evil.test", "/a/"), ("javascript:x", "/a/"), ("", "/a/"),
])  # fmt: skip
def test_a_login_leads_to_a_page_of_nsqadmin_only(where: str, followed: str) -> None:
    login = Login(cast(Any, SimpleNamespace(renderer=SimpleNamespace(base="/a"))))
    assert login.local(where) == followed
