"""A sender of nsq_to_http against endpoints that answer well, badly, or not at all."""

import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.http_sending import MAX_BODY, MAX_KEPT, MAX_REQUESTS, Form, Sender, SendError, parse_url, tls_context
from tests.cases import each
from tests.certificates import Authority
from tests.http_endpoint import OK, Answer, Endpoint, Request, always, status

HEADERS = {"user-agent": "me", "content-type": "text/x", "authorization": "secret", "x-a": "1"}


def form(method: str = "POST", timeout: float = 30.0) -> Form:
    return Form(method, HEADERS, 2.0, timeout)


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with Endpoint() as one:
        yield one


@pytest.mark.process
def test_a_connection_that_was_closed_while_idle_is_replaced(endpoint: Endpoint) -> None:
    sender = Sender(form())
    endpoint.answer = always(OK, keep=False)  # without saying so
    for _ in range(3):
        sender.send(endpoint.url, b"a")
    assert endpoint.bodies == [b"a"] * 3
    sender.close_stale()


@pytest.mark.process
@each(
    "method, taken, refused", [("POST", (200, 204, 299), (300, 500, 304, 307, 101)), ("GET", (200,), (201, 204, 404))]
)
def test_the_status_that_says_taken(endpoint: Endpoint, method: str, taken: tuple[int], refused: tuple[int]) -> None:
    for code in taken:
        endpoint.answer = always(status(code))
        Sender(form(method)).send(endpoint.url, b"")
    for code in refused:
        endpoint.answer = always(status(code))
        with pytest.raises(SendError, match=f"got status code {code}"):
            Sender(form(method)).send(endpoint.url, b"")


BROKEN: dict[str, tuple[Answer, str]] = {
    "closes at once": (always(b"", keep=False), "closed"),
    "closes in the status": (always(b"HTTP/1.1 20", keep=False), "BadStatusLine"),
    "closes behind the status": (always(b"HTTP/1.1 200", keep=False), "closed within the headers"),
    "closes in the headers": (always(b"HTTP/1.1 200 OK\r\nContent-Le", keep=False), "closed within the headers"),
    "no HTTP": (always(b"SSH-2.0-x\r\n\r\n", keep=False), "BadStatusLine"),
    "long line": (always(b"HTTP/1.1 200 OK\r\nA: " + b"x" * 70_000 + b"\r\n\r\n", keep=False), "LineTooLong"),
    "many headers": (always(b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200 + b"\r\n", keep=False), "more than 100 headers"),
    "hangs": (always(b""), "no answer in 0.3 s"),
    "hangs in the headers": (always(b"HTTP/1.1 200 OK\r\nA"), "no answer in 0.3 s"),
}


@pytest.mark.process
@each("name", BROKEN)
def test_a_broken_answer_is_no_success(endpoint: Endpoint, name: str) -> None:
    endpoint.answer, text = BROKEN[name]
    with pytest.raises(SendError, match=text):
        Sender(form(timeout=0.3 if name.startswith("hangs") else 30.0)).send(endpoint.url, b"a")


@pytest.mark.process
@pytest.mark.parametrize("line", [b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 100 Continue\r\n\r\n"])
def test_headers_that_come_byte_by_byte_or_without_end_do_not_outlast_the_time(endpoint: Endpoint, line: bytes) -> None:
    over = threading.Event()

    def trickle(request: Request, peer: socket.socket) -> bool:
        while not over.wait(0.02):
            peer.sendall(line if b"100" in line else line[:1] if not over.is_set() else b"")
        return False

    endpoint.answer = trickle
    with pytest.raises(SendError):
        Sender(form(timeout=0.4)).send(endpoint.url, b"a")
    over.set()


@pytest.mark.process
@each("answer", [
    b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n" + b"x" * (MAX_BODY + 100_000),
    b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n",
    b"HTTP/1.1 200 OK\r\n\r\nuntil the end", b"HTTP/1.0 200 OK\r\n\r\n",
])  # fmt: skip
def test_after_a_good_status_a_bad_body_costs_the_connection_only(answer: bytes) -> None:
    with Endpoint() as endpoint:
        endpoint.answer = always(answer, keep=False)
        sender = Sender(form())
        sender.send(endpoint.url, b"a")
        sender.send(endpoint.url, b"b")
        assert endpoint.bodies == [b"a", b"b"]
        assert endpoint.connections == 2


@pytest.mark.process
def test_a_body_without_end_is_left(endpoint: Endpoint) -> None:
    over = threading.Event()

    def pour(request: Request, peer: socket.socket) -> bool:
        peer.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while not over.is_set():
            peer.sendall(b"3e8\r\n" + b"x" * 1000 + b"\r\n")
        return False

    endpoint.answer = pour
    Sender(form()).send(endpoint.url, b"a")
    over.set()


@pytest.mark.process
def test_redirects_keep_the_message_or_fail(endpoint: Endpoint) -> None:
    with Endpoint() as other:
        for code in (307, 308):
            endpoint.answer = always(status(code, f"Location: {other.url}?moved=1"))
            Sender(form()).send(endpoint.url, b"a")
        assert [(one.method, one.target, one.body) for one in other.requests] == [("POST", "/x?moved=1", b"a")] * 2
        endpoint.answer = always(status(303, f"Location: {other.url}"))
        Sender(form()).send(endpoint.url, b"a")
        assert (other.requests[-1].method, other.requests[-1].body) == ("GET", b"")
        assert "content-type" not in other.requests[-1].headers
        count = len(other.requests)
        for code in (301, 302):
            endpoint.answer = always(status(code, f"Location: {other.url}"))
            with pytest.raises(SendError, match=f"status code {code}: the redirect of a POST would lose the message"):
                Sender(form()).send(endpoint.url, b"a")
            Sender(form("GET")).send(endpoint.url, b"")
        assert [one.method for one in other.requests[count:]] == ["GET", "GET"]
        other.answer = always(status(500))
        with pytest.raises(SendError, match="got status code 500"):
            Sender(form("GET")).send(endpoint.url, b"")


@pytest.mark.process
def test_redirects_end_and_go_to_http_only(endpoint: Endpoint) -> None:
    endpoint.answer = always(status(307, "Location: /again"))
    with pytest.raises(SendError, match="stopped after 10 redirects"):
        Sender(form()).send(endpoint.url, b"a")
    assert len(endpoint.requests) == MAX_REQUESTS
    endpoint.answer = always(status(307, "Location: file:///etc/passwd"))
    with pytest.raises(SendError, match="not an http or https URL"):
        Sender(form()).send(endpoint.url, b"a")
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    with pytest.raises(SendError, match="Connection refused"):
        Sender(form()).send(f"http://127.0.0.1:{port}/", b"a")


@pytest.mark.process
def test_secrets_do_not_follow_a_redirect_to_another_host(endpoint: Endpoint) -> None:
    elsewhere = endpoint.url.replace("127.0.0.1", "localhost")
    endpoint.answer = lambda request, peer: always(
        OK if "localhost" in request.headers["host"] else status(307, f"Location: {elsewhere}")
    )(request, peer)
    Sender(form()).send(endpoint.url, b"a")
    first, second = endpoint.requests
    assert first.headers["authorization"] == "secret"
    assert "authorization" not in second.headers
    assert second.headers["x-a"] == "1"


@pytest.mark.process
def test_https_checks_the_certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(authority.cert, authority.key)
    with Endpoint(tls=server) as endpoint:
        tls_context.cache_clear()
        with pytest.raises(SendError, match="certificate verify failed"):
            Sender(form()).send(endpoint.url, b"a")
        monkeypatch.setenv("SSL_CERT_FILE", authority.root)
        tls_context.cache_clear()
        sender = Sender(form())
        sender.send(endpoint.url, b"a" * 100_000)
        sender.send(endpoint.url, b"b")
        assert endpoint.bodies == [b"a" * 100_000, b"b"]
        assert endpoint.connections == 2
        endpoint.answer = always(b"")
        with pytest.raises(SendError, match=r"no answer in 0.3 s"):
            Sender(form(timeout=0.3)).send(endpoint.url, b"a")
    tls_context.cache_clear()


@pytest.mark.process
def test_user_and_password_of_the_url(endpoint: Endpoint) -> None:
    plain = Form("POST", {}, 2.0, 30.0)
    Sender(plain).send(f"http://me:p%40ss@{endpoint.address}/", b"a")
    assert endpoint.requests[0].headers["authorization"] == "Basic bWU6cEBzcw=="
    assert endpoint.requests[0].headers["host"] == endpoint.address


@pytest.mark.process
def test_few_connections_are_kept() -> None:
    ends = [Endpoint().__enter__() for _ in range(MAX_KEPT + 3)]
    sender = Sender(form())
    for end in (*ends, *ends[-MAX_KEPT:]):
        sender.send(end.url, b"a")
    assert [end.connections for end in ends] == [1] * len(ends)
    sender.send(ends[0].url, b"a")
    assert ends[0].connections == 2
    for end in ends:
        end.__exit__()


@each("text, host, port, netloc, target", [
    ("http://h", "h", 80, "h", "/"), ("https://h:8443/a b?c d=é#f", "h", 8443, "h:8443", "/a%20b?c%20d=%C3%A9"),
    ("http://[::1]:8080/%41+?a=%20+%2B", "::1", 8080, "[::1]:8080", "/%41+?a=%20+%2B"),
    ("HTTP://User@H:80/", "h", 80, "H:80", "/"), ("http://h:/x", "h", 80, "h", "/x"),
    ("http://bücher.example/", "xn--bcher-kva.example", 80, "xn--bcher-kva.example", "/"),
])  # fmt: skip
def test_urls(text: str, host: str, port: int, netloc: str, target: str) -> None:
    url = parse_url(text)
    assert (url.host, url.port, url.netloc, url.target) == (host, port, netloc, target)
    for wrong in ("", "h:80/x", "ftp://h/", "http://", "http:///x", "http://h:99999/", "http://a b/"):
        with pytest.raises(ValueError):
            parse_url(wrong)


@given(st.text())
def test_no_url_and_no_location_becomes_a_second_request(text: str) -> None:
    for candidate in (text, "http://" + text, "http://h/" + text, "http://h?" + text):
        try:
            url = parse_url(candidate)
        except ValueError:
            continue
        line = f"{url.target}{url.netloc}{url.authorization}"
        assert all("!" <= one <= "~" for one in url.target)
        assert not any(one in line for one in "\r\n\0")
