"""Asking authorization servers in every mood there is: real sockets on loopback.

See docs/contributing/design/nsq-protocol.md#auth.
"""

import gc
import gzip
import json
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress
from typing import Any

import pytest
import trio
import trustme

from nsqd.auth import servers as module
from nsqd.auth.servers import MAX_SECRET, MOST_REQUESTS, AuthServers
from nsqd.protocols.nsq.authorization import MAX_BODY, AuthRefused, AuthRequest
from tests.auth_server import AuthServer, Mood, Visit, allowing, hangs, never_ends, response, says, says_raw

pytestmark = pytest.mark.process

BOMB = gzip.compress(b" " * 20_000_000)
QUESTION = AuthRequest("127.0.0.1", False, "", b"sesame")
GOOD = says(200, allowing())
JSON = json.dumps(allowing()).encode()


@asynccontextmanager
async def asking(*addresses: str, **options: Any) -> AsyncIterator[AuthServers]:
    given: dict[str, Any] = {"method": "get", "connect_timeout": 60.0, "request_timeout": 60.0, "choose": lambda n: 0}
    tls = options.pop("tls", None) or ssl.create_default_context()
    servers = AuthServers(addresses, tls=tls, **{**given, **options})
    try:
        yield servers
    finally:
        await servers.close()


async def asked(mood: Mood, *requests: AuthRequest, url: str = "{}", **options: Any) -> AuthServer:
    """ServerRequest a server in this mood, and return it."""
    with AuthServer(mood) as server:
        async with asking(url.format(server.address), **options) as servers:
            for request in requests or (QUESTION,):
                assert (await servers.ask(request)).identity == "ann"
    return server


async def refused(mood: Mood, url: str = "{}", **options: Any) -> tuple[str, AuthServer]:
    """The reason of AuthRefused for a server in this mood, and the server."""
    with AuthServer(mood) as server:
        async with asking(url.format(server.address), **options) as servers:
            with pytest.raises(AuthRefused) as error:
                await servers.ask(QUESTION)
    text = str(error.value)
    assert "sesame" not in text
    assert text.startswith("failed to auth against ")
    return text.removeprefix(f"failed to auth against {server.address} - "), server


async def test_a_request_is_a_get_with_a_sorted_query() -> None:
    server = await asked(GOOD, AuthRequest("10.0.0.1", True, "c n", b"a&b=%20+~-_.\xff/\xc3\xa9"))
    request = server.requests[0]
    expected = "/auth?common_name=c+n&remote_ip=10.0.0.1&secret=a%26b%3D%2520%2B~-_.%FF%2F%C3%A9&tls=true"
    assert (request.method, request.target, request.body) == ("GET", expected, b"")
    assert request.headers["accept"] == "application/vnd.nsq; version=1.0"
    assert request.headers["accept-encoding"] == "identity"
    assert "content-type" not in request.headers


async def test_post_sends_json() -> None:
    server = await asked(GOOD, AuthRequest("::1", False, "", b"<\xff\xe2\x82>"), method="post")
    request = server.requests[0]
    assert (request.method, request.target) == ("POST", "/auth")
    assert request.headers["content-type"] == "application/json"
    assert request.body == (
        b'{"common_name":[""],"remote_ip":["::1"],'
        b'"secret":["\\u003c\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\\u003e"],"tls":["false"]}'
    )


QUERY = "common_name=&remote_ip=127.0.0.1&secret=sesame&tls=false"
URLS = [
    ("http://{}/who/may", f"/who/may?{QUERY}"), ("http://{}", f"/?{QUERY}"),
    ("http://{}/who?tenant=a%20b", f"/who?tenant=a%20b&{QUERY}"), ("{}/below", f"/below/auth?{QUERY}"),
]  # fmt: skip


@pytest.mark.parametrize(("url", "target"), URLS)
async def test_an_address_may_be_a_url(url: str, target: str) -> None:
    server = await asked(GOOD, url=url)
    assert server.requests[0].target == target


async def test_a_url_with_user_and_password_authenticates_and_shows_neither() -> None:
    text, server = await refused(says(500), "http://nsqd:hush@{}/auth?key=hush")
    assert server.requests[0].headers["authorization"] == "Basic bnNxZDpodXNo"
    assert text == f"failed to auth against {server.address}/auth - got response 500"


async def test_no_proxy_is_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with AuthServer(GOOD) as server, AuthServer(says(500)) as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://{proxy.address}")
        async with asking(server.address) as servers:
            await servers.ask(QUESTION)
    assert not proxy.requests


async def test_consecutive_requests_share_a_connection_and_no_cookies() -> None:
    server = await asked(says(200, allowing(), Set_Cookie="session=ann; Path=/"), *[QUESTION] * 5)
    assert {request.connection for request in server.requests} == {0}
    assert not any("cookie" in request.headers for request in server.requests)


async def test_a_secret_that_no_server_would_take_is_not_asked_about() -> None:
    with AuthServer(GOOD) as server:
        async with asking(server.address) as servers:
            assert await servers.ask(AuthRequest("", False, "", b"\xff" * MAX_SECRET))
            with pytest.raises(AuthRefused, match="secret of more than"):
                await servers.ask(AuthRequest("", False, "", b"x" * (MAX_SECRET + 1)))
    assert len(server.requests) == 1


# moods

REFUSED: list[tuple[str, Mood, str]] = [
    ("500", says(500, {"message": "sesame"}), "got response 500"),
    ("404", says(404), "got response 404"),
    ("201", says(201, allowing()), "got response 201"),
    ("401", says(401, b"", WWW_Authenticate="Basic"), "got response 401"),
    ("redirect without a location", says(302), "got response 302"),
    ("304", says(304, b"", Location="/x"), "got response 304"),
    ("403 of no JSON", says(403, b"<p>"), "got response 403"),
    ("403 of an NSQ API", says(403, {"message": "TLS_REQUIRED"}), "got response 403"),
    ("403 with a list", says(403, []), "got response 403"),
    ("403 with a port of text", says(403, {"https_port": "443"}), "got response 403 with a bad https_port"),
    ("403 with a port too high", says(403, {"https_port": 65536}), "got response 403 with a bad https_port"),
    ("403, nested deeply", says(403, b"[" * 200_000), "got response 403"),
    ("redirects indefinitely", says(302, b"", Location="/auth?sesame"), "stopped after 10 redirects"),
    ("redirect to no URL", says(302, b"", Location="http://a:sesame/"), "InvalidURL"),
    ("redirect to a file", says(302, b"", Location="file:///etc/sesame"), "UnsupportedProtocol"),
    ("redirect to a closed port", says(302, b"", Location="http://127.0.0.1:1/sesame"), "ConnectError [Errno 111]"),
    ("bad pattern", says(200, allowing({"topic": "["})), 'unable to compile "["'),
    ("too long", says(200, b" " * (MAX_BODY + 1)), f"answered more than {MAX_BODY} bytes"),
    ("too long, and refused", says(500, b" " * (MAX_BODY + 1)), f"answered more than {MAX_BODY} bytes"),
    (
        "endless",
        never_ends(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1000\r\n" + b" " * 4096 + b"\r\n"),
        f"answered more than {MAX_BODY} bytes",
    ),
    ("endless head", never_ends(b"HTTP/1.1 200 OK\r\n", b"X: " + b"y" * 4096 + b"\r\n"), "RemoteProtocolError"),
    (
        "a bomb", says(200, BOMB, Content_Encoding="gzip"), "answered with a Content-Encoding that was not requested",
    ),
    (
        "a redirect with a bomb leads on at once",
        says(302, BOMB, Content_Encoding="gzip", Location="http://127.0.0.1:1/"),
        "ConnectError",
    ),
    ("no HTTP", says_raw(b"SSH-2.0-sesame\r\n"), "RemoteProtocolError"),
    ("hangs up", says_raw(b""), "RemoteProtocolError"),
    ("hangs up in the head", says_raw(b"HTTP/1.1 200 OK\r\nContent-"), "RemoteProtocolError"),
    ("hangs up in the body", says_raw(response(200, JSON)[:-1]), "RemoteProtocolError"),
    ("a length of letters", says_raw(b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"), "RemoteProtocolError"),
    ("a bad chunk", says_raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"), "RemoteProtocolError"),
]  # fmt: skip


@pytest.mark.parametrize(("mood", "reason"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
async def test_a_server_in_a_bad_mood_authorizes_no_client(mood: Mood, reason: str) -> None:
    text, _ = await refused(mood)
    assert text == reason or text.startswith(reason + " ")


SLOW = [
    ("at once", hangs()),
    ("in the head", hangs(b"HTTP/1.1 200 OK\r\n")),
    ("in the body", hangs(response(200, JSON)[:-1])),
    ("after a redirect", hangs(b"HTTP/1.1 302 Found\r\nLocation: /")),
    ("with news indefinitely", never_ends(b"", b"HTTP/1.1 100 Continue\r\n\r\n")),
]


@pytest.mark.parametrize("mood", [row[1] for row in SLOW], ids=[row[0] for row in SLOW])
async def test_a_slow_server_is_not_waited_for_longer_than_the_timeout(mood: Mood) -> None:
    assert (await refused(mood, request_timeout=0.3))[0] == "no answer within 0.3 s"


async def test_a_server_that_does_not_accept_is_given_up_on() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, closing(socket.socket()) as filling:
        filling.setblocking(False)
        filling.connect_ex(full.getsockname())
        async with asking(f"127.0.0.1:{full.getsockname()[1]}", connect_timeout=0.2, request_timeout=0.4) as servers:
            with pytest.raises(AuthRefused, match=r"ConnectTimeout|no answer within 0.4 s"):
                await servers.ask(QUESTION)


ADDRESSES = [
    "127.0.0.1:1", "", ":80", "a b", "http://", "http://[", "ftp://127.0.0.1/", "127.0.0.1:x", "127.0.0.1:99999",
    "a..b:80", "x" * 300 + ".invalid:80", "\x00:80", "é..é:1", "http://127.0.0.1:1/\n", "unix:///run/auth", "-1:-1",
]  # fmt: skip


@pytest.mark.parametrize("address", ADDRESSES)
async def test_an_invalid_address_is_refused(address: str) -> None:
    async with asking(address) as servers:
        with pytest.raises(AuthRefused, match=r"^failed to auth against "):
            await servers.ask(QUESTION)


async def test_redirects_are_followed_without_the_query() -> None:
    """The query does not go along: where a redirect leads is the server's to say."""

    def mood(visit: Visit) -> None:
        visit.send(response(302, b"", Location="/else") if "secret" in visit.request.query else response(200, JSON))

    server = await asked(mood)
    assert [request.target for request in server.requests] == [f"/auth?{QUERY}", "/else"]


@pytest.mark.parametrize(("status", "method"), [(301, "GET"), (302, "GET"), (303, "GET"), (307, "POST"), (308, "POST")])
async def test_a_post_stays_one_after_some_redirects(status: int, method: str) -> None:
    def mood(visit: Visit) -> None:
        here = visit.request.target == "/auth"
        visit.send(response(status, b"", Location="/else") if here else response(200, JSON))

    server = await asked(mood, method="post")
    assert [request.method for request in server.requests] == ["POST", method]
    assert bool(server.requests[1].body) is (method == "POST")
    assert ("content-type" in server.requests[1].headers) is (method == "POST")


async def test_the_next_server_is_asked_when_one_fails() -> None:
    with AuthServer(says(500)) as broken, AuthServer(GOOD) as good, AuthServer(GOOD) as spare:
        async with asking("127.0.0.1:1", broken.address, good.address, spare.address) as servers:
            assert (await servers.ask(QUESTION)).identity == "ann"
    assert (len(broken.requests), len(good.requests), len(spare.requests)) == (1, 1, 0)


async def test_the_first_one_is_chosen_at_random_and_the_last_is_followed_by_the_first() -> None:
    with AuthServer(says(500)) as one, AuthServer(says(500)) as two:
        async with asking(one.address, two.address, choose=lambda n: n - 1) as servers:
            with pytest.raises(AuthRefused) as refused:
                await servers.ask(QUESTION)
    assert str(refused.value) == (
        f"failed to auth against {two.address} - got response 500; failed to auth against {one.address} - got response 500"
    )


@asynccontextmanager
async def hanging(count: int) -> AsyncIterator[tuple[AuthServer, AuthServers]]:
    """A server that does not answer, of which this number of requests is made."""
    with AuthServer(hangs()) as server:
        async with asking(server.address) as servers, trio.open_nursery() as nursery:
            for _ in range(count):
                nursery.start_soon(_ask_in_vain, servers)
            await trio.testing.wait_all_tasks_blocked()
            yield server, servers
            nursery.cancel_scope.cancel()


async def test_the_number_of_requests_in_progress_is_limited() -> None:
    async with hanging(3 * MOST_REQUESTS) as (server, _):
        while len(server.requests) < MOST_REQUESTS:
            await trio.sleep(0.01)
        await trio.testing.wait_all_tasks_blocked()
        assert server.connections == MOST_REQUESTS


@pytest.mark.parametrize(("limit", "value", "count", "why"), [
    ("PATIENCE", 0.1, 1, "too many requests in progress"), ("MOST_WAITING", 1, 2, "more than 1 requests wait"),
])  # fmt: skip
async def test_a_request_that_has_to_wait_too_long_or_behind_too_many_fails(
    monkeypatch: pytest.MonkeyPatch, limit: str, value: float, count: int, why: str
) -> None:
    monkeypatch.setattr(module, "MOST_REQUESTS", 1)
    monkeypatch.setattr(module, limit, value)
    async with hanging(count) as (_, servers):
        with pytest.raises(AuthRefused, match=why):
            await servers.ask(QUESTION)


async def _ask_in_vain(servers: AuthServers) -> None:
    with pytest.raises(AuthRefused):
        await servers.ask(QUESTION)


async def test_failures_and_cancelled_requests_leave_no_turn_taken() -> None:
    with AuthServer(says_raw(b"")) as server:
        async with asking(server.address) as servers:
            async with trio.open_nursery() as nursery:
                for _ in range(2 * MOST_REQUESTS):
                    nursery.start_soon(_ask_in_vain, servers)
            server.mood = hangs()
            with trio.move_on_after(0.05):
                await servers.ask(QUESTION)
            server.mood = GOOD
            async with trio.open_nursery() as nursery:
                for _ in range(2 * MOST_REQUESTS):
                    nursery.start_soon(servers.ask, QUESTION)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def context_for(authority: trustme.CA, *names: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(context)
    return context


def trusting(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.configure_trust(context)
    return context


async def test_https_with_an_authority_we_trust(authority: trustme.CA) -> None:
    with AuthServer(GOOD, context_for(authority, "127.0.0.1")) as server:
        async with asking(f"https://{server.address}/auth", tls=trusting(authority)) as servers:
            assert (await servers.ask(QUESTION)).identity == "ann"


async def test_a_certificate_that_proves_nothing_is_refused(authority: trustme.CA) -> None:
    stranger = context_for(trustme.CA(), "127.0.0.1")
    other_name = context_for(authority, "auth.example")
    for context in (stranger, other_name):
        with AuthServer(GOOD, context) as server:
            async with asking(f"https://{server.address}/auth", tls=trusting(authority)) as servers:
                with pytest.raises(AuthRefused, match="CERTIFICATE_VERIFY_FAILED"):
                    await servers.ask(QUESTION)
        assert not server.requests


@pytest.mark.parametrize("method", ["get", "post"])
async def test_403_of_plain_http_leads_to_the_https_port(authority: trustme.CA, method: str) -> None:
    with AuthServer(GOOD, context_for(authority, "127.0.0.1")) as secure, AuthServer(says(500)) as plain:
        plain.mood = says(403, {"message": "TLS_REQUIRED", "https_port": secure.port})
        async with asking(plain.address, tls=trusting(authority), method=method) as servers:
            assert (await servers.ask(QUESTION)).identity == "ann"
    assert secure.requests[0].target == plain.requests[0].target
    assert (secure.requests[0].body, secure.requests[0].method) == (plain.requests[0].body, method.upper())


async def test_403_of_https_is_final(authority: trustme.CA) -> None:
    with AuthServer(says(403, {"https_port": 1}), context_for(authority, "127.0.0.1")) as server:
        async with asking(f"https://{server.address}/", tls=trusting(authority)) as servers:
            with pytest.raises(AuthRefused, match=r"got response 403$"):
                await servers.ask(QUESTION)


LEAKS: list[tuple[str, Callable[[], Mood]]] = [
    ("a good answer", lambda: GOOD), ("500", lambda: says(500)), ("no HTTP", lambda: says_raw(b"x\r\n")),
    ("hangs up", lambda: says_raw(b"")), ("too long", lambda: says(200, b" " * (MAX_BODY + 1))),
    ("hangs", lambda: hangs(b"HTTP/1.1 200 OK\r\n")), ("hangs in the body", lambda: hangs(response(200, JSON)[:-1])),
]  # fmt: skip


@pytest.mark.parametrize("mood", [row[1] for row in LEAKS], ids=[row[0] for row in LEAKS])
async def test_a_request_leaves_no_cycle_behind(mood: Callable[[], Mood]) -> None:
    with AuthServer(mood()) as server:
        async with asking(server.address, request_timeout=0.1) as servers:
            await _try(servers)
            gc.collect()
            gc.disable()
            try:
                for _ in range(5):
                    await _try(servers)
                assert _own_objects_in_garbage() == []
            finally:
                gc.enable()


async def _try(servers: AuthServers) -> None:
    with suppress(AuthRefused):
        await servers.ask(QUESTION)


def _own_objects_in_garbage() -> list[str]:
    """Types of what only the collector could free, without what trio's own timeouts leave."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        return sorted({f"{type(thing).__module__}.{type(thing).__qualname__}" for thing in gc.garbage})
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
