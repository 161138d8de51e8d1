"""nsqd's HTTP API on a real process, byte for byte: every route, its errors and their order.

See docs/design/nsq-http.md.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.daemons import OK, Conversation, Daemon, eventually, nsqd, several, sized

pytestmark = pytest.mark.process

V1 = "nsq; version=1.0"
JSON, TEXT = "application/json; charset=utf-8", "text/plain; charset=utf-8"
ANSWER_TIME = 9.0  # s; answers take a millisecond, and after 10 who says nothing is closed
MAX_MSG, MAX_BODY = 2000, 5000  # bytes: small limits, so that what is beyond them fits in one send
METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS")
GET_ROUTES = ("/ping", "/info", "/stats", "/metrics", "/livez", "/readyz")
POST_ROUTES = (
    "/pub", "/mpub", "/topic/create", "/topic/delete", "/topic/empty", "/topic/pause", "/topic/unpause",
    "/channel/create", "/channel/delete", "/channel/empty", "/channel/pause", "/channel/unpause",
)  # fmt: skip
METHOD_OF = dict.fromkeys(GET_ROUTES, "GET") | dict.fromkeys(POST_ROUTES, "POST")


@dataclass(frozen=True)
class Answer:
    """One response; names of headers in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


class Shared:
    """The node the tests share: a new one if a test has brought it down, so that no other test fails for it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._node: Daemon | None = None

    def node(self) -> Daemon:
        if self._node is not None and self._node.process.poll() is None:
            return self._node
        flags = ("-max-msg-size", str(MAX_MSG), "-max-body-size", str(MAX_BODY), "-node-id", "7")
        self._node = nsqd(self._directory, *flags, "-broadcast-address", "node.example")
        return self._node.__enter__()

    def close(self) -> None:
        if self._node is not None and self._node.process.poll() is None:
            self._node.__exit__(None, None, None)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    with closing(Shared(tmp_path_factory.mktemp("node"))) as found:
        yield found


@pytest.fixture
def node(shared: Shared) -> Iterator[Daemon]:
    node = shared.node()
    yield node
    try:
        assert is_ok(ask(node, "GET", "/livez"))
    except (AssertionError, OSError):
        node.kill()
        pytest.fail(f"the test has brought the daemon down\n{node.stderr}", pytrace=False)


def exchange(node: Daemon, data: bytes) -> bytes:
    """All that comes back until the daemon closes."""
    with node.connect("HTTP") as sock:
        sock.settimeout(ANSWER_TIME)
        sock.sendall(data)
        return b"".join(iter(lambda: sock.recv(65536), b""))


def parse(data: bytes) -> Answer:
    head, _, body = data.partition(b"\r\n\r\n")
    status, *lines = head.decode("latin-1").split("\r\n")
    pairs = (line.partition(": ") for line in lines)
    return Answer(int(status.split(" ")[1]), {name.lower(): value for name, _, value in pairs}, body)


def ask(node: Daemon, method: str, target: str, body: bytes = b"", *headers: str) -> Answer:
    """One request on a connection of its own."""
    lines = [f"{method} {target} HTTP/1.1", "Connection: close", f"Content-Length: {len(body)}", *headers]
    if not any(header.startswith("Host:") for header in headers):
        lines.append("Host: localhost")
    return parse(exchange(node, "\r\n".join([*lines, "", ""]).encode("latin-1") + body))


def is_ok(answer: Answer) -> bool:
    return (answer.status, answer.body, answer.headers["content-type"]) == (200, b"OK", TEXT)


def is_empty(answer: Answer) -> bool:
    """200 with nothing in it, not even a type."""
    assert "content-type" not in answer.headers
    return (answer.status, answer.body, answer.headers["content-length"]) == (200, b"", "0")


def is_error(answer: Answer, status: int, text: str) -> bool:
    assert (answer.status, answer.body) == (status, b'{"message":"%s"}' % text.encode())
    assert answer.headers["content-type"] == JSON
    return answer.headers["x-nsq-content-type"] == V1


def stats(node: Daemon, query: str = "") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(ask(node, "GET", f"/stats?format=json&{query}").body)
    return found


def channel_of(node: Daemon, topic: str) -> dict[str, Any]:
    found: dict[str, Any] = stats(node, f"topic={topic}")["topics"][0]["channels"][0]
    return found


def consume(node: Daemon, topic: str, count: int) -> list[bytes]:
    """The bodies of the next messages, which are finished."""
    with Conversation(node, b"  V2SUB %s c\nRDY 100\n" % topic.encode()) as consumer:
        assert consumer.frame() == OK
        messages = [consumer.message() for _ in range(count)]
        consumer.send(b"".join(b"FIN %s\n" % message.id for message in messages) + b"CLS\n")
        assert consumer.frame() == (0, b"CLOSE_WAIT")
    return [message.body for message in messages]


# routes and methods


@pytest.mark.parametrize("path", METHOD_OF)
def test_every_other_method_is_refused(node: Daemon, path: str) -> None:
    right = METHOD_OF[path]
    allow = ", ".join(sorted([right, "OPTIONS"]))
    for method in METHODS:
        if method == right:
            continue
        answer = ask(node, method, path)
        assert answer.headers["allow"] == allow
        if method == "OPTIONS":
            assert (answer.status, answer.body) == (200, b"")
        elif method == "HEAD":
            assert (answer.status, answer.body) == (405, b"")
        else:
            assert is_error(answer, 405, "METHOD_NOT_ALLOWED")


@pytest.mark.parametrize(
    "path", ["/", "/nope", "/config", "/config/a/b", "/topic", "/ping/x", "/debug/pprof/", "/%2e%2e"]
)
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "OPTIONS"])
def test_unknown_paths(node: Daemon, path: str, method: str) -> None:
    assert is_error(ask(node, method, path), 404, "NOT_FOUND")


@pytest.mark.parametrize("path", METHOD_OF)
def test_nearly_right_paths_lead_to_the_right_one(node: Daemon, path: str) -> None:
    status = 301 if METHOD_OF[path] == "GET" else 307
    for near in (path + "/", path.upper(), "//" + path[1:], "/./x/.." + path):
        answer = ask(node, METHOD_OF[path], near + "?topic=a%20b&x=1")
        assert (answer.status, answer.headers["location"]) == (status, path + "?topic=a%20b&x=1"), near
    assert ask(node, METHOD_OF[path], path + "/").headers["location"] == path


def test_a_path_of_any_letters_ends_nobody(node: Daemon) -> None:
    for written in ("%E4%B8%AD", "%ff", "a%0d%0aX-Evil:%201", "%3Cscript%3E", "%00"):
        answer = ask(node, "GET", f"/CONFIG/{written}")
        assert answer.status == 301
        assert answer.headers["location"].isascii()
        assert "x-evil" not in answer.headers
    assert ask(node, "GET", "/ping").status == 200


def test_nearly_right_config_paths_do_too(node: Daemon) -> None:
    for near in ("/config/log_level/", "/CONFIG/log_level"):
        assert (ask(node, "GET", near).status, ask(node, "GET", near).headers["location"]) == (301, "/config/log_level")
        assert ask(node, "PUT", near).status == 307


@pytest.mark.parametrize(
    ("method", "near"), [("POST", "/ping/"), ("GET", "/PUB"), ("PUT", "/topic/create/"), ("HEAD", "/PING")]
)
def test_a_redirect_wants_the_right_method(node: Daemon, method: str, near: str) -> None:
    # httprouter redirects within the routes of the method; what is in no tree is unknown
    assert ask(node, method, near).status == 404


BAD_QUERIES = ("topic=%zz", "topic=t%", "topic=t&x=%1", "topic=t;channel=c", "a;b", "%=1&topic=t")


@pytest.mark.parametrize("path", [*POST_ROUTES, "/stats"])
def test_bad_query_encoding(node: Daemon, path: str) -> None:
    for query in BAD_QUERIES:
        assert is_error(ask(node, METHOD_OF[path], f"{path}?{query}", b"body"), 400, "INVALID_REQUEST")


def test_queries_are_read_as_go_does(node: Daemon) -> None:
    assert is_empty(ask(node, "POST", "/topic/create?&&x&topic=first&topic=second&=y"))
    assert is_empty(ask(node, "POST", "/topic/create?topic=%65ncoded"))
    assert is_error(ask(node, "POST", "/topic/create?TOPIC=t"), 400, "MISSING_ARG_TOPIC")
    assert is_error(ask(node, "POST", "/topic/create?topic=a+b"), 400, "INVALID_TOPIC")
    form = ask(node, "POST", "/topic/create", b"topic=t", "Content-Type: application/x-www-form-urlencoded")
    assert is_error(form, 400, "MISSING_ARG_TOPIC")
    names = [topic["topic_name"] for topic in stats(node)["topics"]]
    assert "first" in names
    assert "second" not in names
    assert "encoded" in names


# what is not HTTP, and what is not from here


@pytest.mark.parametrize(
    "data",
    [
        b"  V2IDENTIFY\n\x00\x00\x00\x02{}",
        b"PUB t\n\x00\x00\x00\x01x",
        b"\x00\x01\x02\x03\x04\x05",
        b"GET\r\n\r\n",
        b"GET /ping\r\nHost: localhost\r\n\r\n",
        b"GET /ping HTTP/1.1\r\nHost: localhost\r\nX : a\r\n\r\n",
        b"GET /ping HTTP/1.1\r\nHost: localhost\r\nX: a\x00b\r\n\r\n",
        b"GET /p\x00ing HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /pub?topic=t HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhelloo",
        b"POST /pub?topic=t HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /pub?topic=t HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /pub?topic=t HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        b"POST /pub?topic=t HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nx\r\n",
        b"GET /ping HTTP/1.1\r\n\r\n",  # no Host
        b"GET /ping HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
        b"GET /ping HTTP/1.1\r\nHost: evil.example\r\nHost: localhost\r\n\r\n",
    ],
)
def test_what_is_not_http_gets_400_and_is_closed(node: Daemon, data: bytes) -> None:
    assert exchange(node, data).startswith(b"HTTP/1.1 400 Bad Request\r\n")


def test_words_for_what_is_not_http_match_the_original(node: Daemon) -> None:
    assert exchange(node, b"  V2IDENTIFY\n\x00\x00\x00\x02{}").endswith(b"\r\n\r\n400 Bad Request")


def test_four_bytes_alone_get_no_answer(node: Daemon) -> None:
    with node.connect("HTTP") as sock:
        sock.sendall(b"  V2")
        sock.settimeout(0.2)
        with pytest.raises(TimeoutError):
            sock.recv(1)


@pytest.mark.parametrize(
    "header",
    ["Host: evil.example", "Host: evil.example:4151", "Host: 127.0.0.1.evil.example", "Host: a..b"],
)
@pytest.mark.parametrize("path", ["/ping", "/pub?topic=foreign", "/nope"])
def test_a_foreign_host_is_refused(node: Daemon, header: str, path: str) -> None:
    assert ask(node, "POST", path, b"x", header).status == 403
    assert "foreign" not in [topic["topic_name"] for topic in stats(node)["topics"]]


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "null", "http://localhost:1", "http://[", "http://[::1", "\xff", "file://", "http://x:y"],
)
def test_a_foreign_origin_is_refused(node: Daemon, origin: str) -> None:
    assert ask(node, "POST", "/pub?topic=foreign", b"x", f"Origin: {origin}").status == 403
    assert ask(node, "OPTIONS", "/pub", b"", f"Origin: {origin}").status == 403
    assert "foreign" not in [topic["topic_name"] for topic in stats(node)["topics"]]


def test_our_own_host_and_origin_pass(node: Daemon) -> None:
    for host in ("localhost", node.http, "[::1]:4151", "LOCALHOST:1", "node.example", socket.gethostname(), "box"):
        assert is_ok(ask(node, "GET", "/ping", b"", f"Host: {host}")), host
    assert is_ok(ask(node, "GET", "/ping", b"", f"Host: {node.http}", f"Origin: http://{node.http}"))


# the plain answers


def test_ping_livez_and_readyz(node: Daemon) -> None:
    for path in ("/ping", "/livez", "/readyz"):
        answer = ask(node, "GET", path)
        assert is_ok(answer)
        assert "x-nsq-content-type" not in answer.headers
    assert is_ok(ask(node, "GET", "/ping?a=%zz"))


def test_info(node: Daemon) -> None:
    answer = ask(node, "GET", "/info")
    assert (answer.headers["content-type"], answer.headers["x-nsq-content-type"]) == (JSON, V1)
    tcp, http = (address.rpartition(":")[2] for address in (node.tcp, node.http))
    start_time = json.loads(answer.body)["start_time"]
    assert answer.body.decode() == (
        f'{{"version":"1.3.0","broadcast_address":"node.example","hostname":"{socket.gethostname()}",'
        f'"http_port":{http},"tcp_port":{tcp},"start_time":{start_time},"max_heartbeat_interval":60000000000,'
        '"max_output_buffer_size":65536,"max_output_buffer_timeout":30000000000,"max_deflate_level":6}'
    )


def test_metrics(node: Daemon) -> None:
    text = ask(node, "GET", "/metrics").body.decode()
    for name in (
        "nsqd_topics",
        "nsqd_queue_scan_workers",
        "nsqd_queue_scan_passes_total",
        "nsqd_queue_scan_dirty_ratio",
    ):
        assert re.search(rf"^{name} \d", text, re.MULTILINE), name


def test_requests_share_a_connection(node: Daemon) -> None:
    one = b"POST /pub?topic=kept HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx"
    last = b"GET /nope HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    answers = exchange(node, one * 3 + last)
    assert answers.count(b"HTTP/1.1 200 OK\r\n") == 3
    assert answers.endswith(b'{"message":"NOT_FOUND"}')
    assert stats(node, "topic=kept")["topics"][0]["message_count"] == 3


# /pub


def test_pub(node: Daemon) -> None:
    answer = ask(node, "POST", "/pub?topic=pub", b"hello \x00\xff\n")
    assert is_ok(answer)
    assert answer.headers["x-nsq-content-type"] == V1
    assert is_ok(ask(node, "POST", "/pub?topic=pub", b"x" * MAX_MSG))
    chunked = (
        "POST /pub?topic=pub HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    assert is_ok(parse(exchange(node, chunked.encode() + b"3\r\nchu\r\n3\r\nnks\r\n0\r\n\r\n")))
    assert consume(node, "pub", 3) == [b"hello \x00\xff\n", b"x" * MAX_MSG, b"chunks"]


@pytest.mark.parametrize(
    ("query", "body", "status", "text"),
    [
        ("", b"x" * (MAX_MSG + 1), 413, "MSG_TOO_BIG"),  # in the order of checking: the size first
        ("%zz", b"", 400, "MSG_EMPTY"),
        ("topic=%zz", b"x", 400, "INVALID_REQUEST"),
        ("", b"x", 400, "MISSING_ARG_TOPIC"),
        ("topic=", b"x", 400, "INVALID_TOPIC"),
        ("topic=a%2Fb", b"x", 400, "INVALID_TOPIC"),
        ("topic=.", b"x", 400, "INVALID_TOPIC"),
        ("topic=" + "x" * 65, b"x", 400, "INVALID_TOPIC"),
        ("topic=a/b&defer=x", b"x", 400, "INVALID_TOPIC"),
        ("topic=never&defer=", b"x", 400, "INVALID_DEFER"),
        ("topic=never&defer=x", b"x", 400, "INVALID_DEFER"),
        ("topic=never&defer=-1", b"x", 400, "INVALID_DEFER"),
        ("topic=never&defer=1.5", b"x", 400, "INVALID_DEFER"),
        ("topic=never&defer=3600001", b"x", 400, "INVALID_DEFER"),
        ("topic=never&defer=99999999999999999999", b"x", 400, "INVALID_DEFER"),
        ("topic=never&defer=" + "9" * 5000, b"x", 400, "INVALID_DEFER"),
        ("topic=never&defer=%D9%A1", b"x", 400, "INVALID_DEFER"),  # an Arabic digit
    ],
)
def test_pub_errors(node: Daemon, query: str, body: bytes, status: int, text: str) -> None:
    assert is_error(ask(node, "POST", f"/pub?{query}", body), status, text)


def test_a_bad_defer_has_made_the_topic_but_no_message(node: Daemon) -> None:
    assert ask(node, "POST", "/pub?topic=made&defer=x", b"x").status == 400
    assert stats(node, "topic=made")["topics"][0]["message_count"] == 0


def test_pub_with_defer(node: Daemon) -> None:
    assert is_ok(ask(node, "POST", "/pub?topic=defer&defer=300", b"later"))
    assert is_ok(ask(node, "POST", "/pub?topic=defer&defer=0", b"now"))
    assert is_ok(ask(node, "POST", "/pub?topic=defer&defer=%2B1", b"soon"))
    assert consume(node, "defer", 3) == [b"now", b"soon", b"later"]


@pytest.mark.parametrize("path", ["/pub?topic=big", "/mpub?topic=big", "/mpub?topic=big&binary=true", "/mpub"])
def test_a_body_beyond_the_limit_is_refused_before_it_comes(node: Daemon, path: str) -> None:
    limit, text = (MAX_MSG, "MSG_TOO_BIG") if path.startswith("/pub") else (MAX_BODY, "BODY_TOO_BIG")
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\n"
    for declared in (limit + 1, 10**12):
        assert is_error(parse(exchange(node, f"{head}Content-Length: {declared}\r\n\r\n".encode())), 413, text)
    chunks = b"%x\r\n%s\r\n" % (limit + 1, b"x" * (limit + 1))  # and no end
    assert is_error(parse(exchange(node, f"{head}Transfer-Encoding: chunked\r\n\r\n".encode() + chunks)), 413, text)


@pytest.mark.parametrize("path", ["/pub?topic=zeros", "/mpub?topic=zeros", "/config/log_level"])
@pytest.mark.parametrize("length", ["0" * 5000 + "4", "9" * 5000, "\xb2", "+4", " 4 ", "4, 4", "0x4", "4_0"])
def test_odd_content_lengths_do_no_harm(node: Daemon, path: str, length: str) -> None:
    method = "PUT" if path.startswith("/config") else "POST"
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
    assert re.match(rb"HTTP/1.1 (200|400|413) ", exchange(node, head.encode("latin-1") + b"info"))
    assert is_ok(ask(node, "GET", "/livez"))


# /mpub


def test_mpub_of_lines(node: Daemon) -> None:
    for body in (b"", b"\n", b"a\nb\n\n\nc", b"d\n", b"\ne\r\n", b"x" * MAX_MSG + b"\n"):
        assert is_ok(ask(node, "POST", "/mpub?topic=lines", body))
    for value in ("0", "false"):
        assert is_ok(ask(node, "POST", f"/mpub?topic=lines&binary={value}", b"text"))
    expected = [b"a", b"b", b"c", b"d", b"e\r", b"x" * MAX_MSG, b"text", b"text"]
    assert consume(node, "lines", 8) == expected
    assert stats(node, "topic=lines")["topics"][0]["message_count"] == 8


def test_binary_mpub(node: Daemon) -> None:
    body = several(b"one", b"\n\x00", b"x" * MAX_MSG)[4:]  # without the outer length of TCP
    for value in ("true", "1", "", "TRUE", "no"):
        assert is_ok(ask(node, "POST", f"/mpub?topic=binary&binary={value}", body)), value
    assert is_ok(ask(node, "POST", "/mpub?topic=binary&binary", body + b"what follows is not looked at"))
    assert consume(node, "binary", 18) == [b"one", b"\n\x00", b"x" * MAX_MSG] * 6


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "BAD_BODY"),
        (b"\x00\x00\x00", "BAD_BODY"),
        (b"\x00\x00\x00\x00", "BAD_BODY"),
        (b"\xff\xff\xff\xff" + sized(b"a"), "BAD_BODY"),
        (b"\x7f\xff\xff\xff" + sized(b"a"), "BAD_BODY"),
        (b"\x00\x00\x00\x01", "BAD_MESSAGE"),
        (b"\x00\x00\x00\x02" + sized(b"a"), "BAD_MESSAGE"),
        (b"\x00\x00\x00\x02" + sized(b"a") + b"\x00\x00\x00\x05ab", "BAD_MESSAGE"),
        (b"\x00\x00\x00\x01" + sized(b""), "BAD_MESSAGE"),
        (b"\x00\x00\x00\x01\xff\xff\xff\xffa", "BAD_MESSAGE"),
        (b"\x00\x00\x00\x01" + sized(b"x" * (MAX_MSG + 1)), "BAD_MESSAGE"),
    ],
)
def test_malformed_binary_mpub_publishes_nothing(node: Daemon, body: bytes, text: str) -> None:
    assert is_error(ask(node, "POST", "/mpub?topic=malformed&binary=true", body), 413, text)
    assert stats(node, "topic=malformed")["topics"][0]["message_count"] == 0


@pytest.mark.parametrize(
    ("query", "body", "status", "text"),
    [
        ("%zz", b"x" * (MAX_BODY + 1), 413, "BODY_TOO_BIG"),
        ("%zz", b"", 400, "INVALID_REQUEST"),
        ("", b"", 400, "MISSING_ARG_TOPIC"),
        ("topic=a/b", b"x" * (MAX_MSG + 1), 400, "INVALID_TOPIC"),
        ("topic=some", b"fine\n" + b"x" * (MAX_MSG + 1), 413, "MSG_TOO_BIG"),
    ],
)
def test_mpub_errors(node: Daemon, query: str, body: bytes, status: int, text: str) -> None:
    assert is_error(ask(node, "POST", f"/mpub?{query}", body), status, text)
    if query == "topic=some":
        assert stats(node, query)["topics"][0]["message_count"] == 0


# /topic/* and /channel/*


@pytest.mark.parametrize("action", ["create", "delete", "empty", "pause", "unpause"])
def test_topic_errors(node: Daemon, action: str) -> None:
    def answer(query: str) -> Answer:
        return ask(node, "POST", f"/topic/{action}?{query}")

    assert is_error(answer(""), 400, "MISSING_ARG_TOPIC")
    for name in ("", "a%2Fb", "a+b", "x" * 65, "%FF", "t%00", "t%0A", "%23ephemeral", ".", ".."):
        if action in ("create", "empty"):
            assert is_error(answer(f"topic={name}"), 400, "INVALID_TOPIC")
        else:
            assert is_error(answer(f"topic={name}"), 404, "TOPIC_NOT_FOUND")  # these look at no name
    if action != "create":
        assert is_error(answer("topic=nobody"), 404, "TOPIC_NOT_FOUND")


@pytest.mark.parametrize("action", ["create", "delete", "empty", "pause", "unpause"])
def test_channel_errors(node: Daemon, action: str) -> None:
    def answer(query: str) -> Answer:
        return ask(node, "POST", f"/channel/{action}?{query}")

    assert is_empty(ask(node, "POST", "/topic/create?topic=there"))
    assert is_error(answer("channel=c"), 400, "MISSING_ARG_TOPIC")
    for name in ("", "a%2Fb", "x" * 65, "%23ephemeral", ".."):
        assert is_error(answer(f"topic={name}"), 400, "INVALID_ARG_TOPIC")
        assert is_error(answer(f"topic=nobody&channel={name}"), 400, "INVALID_ARG_CHANNEL")
    assert is_error(answer("topic=nobody"), 400, "MISSING_ARG_CHANNEL")
    assert is_error(answer("topic=nobody&channel=c"), 404, "TOPIC_NOT_FOUND")
    if action != "create":
        assert is_error(answer("topic=there&channel=nobody"), 404, "CHANNEL_NOT_FOUND")


def test_the_life_of_a_topic(node: Daemon) -> None:
    for _ in range(2):  # all are idempotent
        assert is_empty(ask(node, "POST", "/topic/create?topic=life"))
    for _ in range(2):
        assert is_empty(ask(node, "POST", "/channel/create?topic=life&channel=c"))
    for paused in (True, False, True):
        assert is_empty(ask(node, "POST", f"/topic/{'pause' if paused else 'unpause'}?topic=life"))
        assert stats(node, "topic=life")["topics"][0]["paused"] is paused
    assert is_ok(ask(node, "POST", "/pub?topic=life", b"x"))
    (topic,) = stats(node, "topic=life")["topics"]
    assert (topic["depth"], topic["channels"][0]["depth"]) == (1, 0)
    assert is_empty(ask(node, "POST", "/topic/empty?topic=life"))
    (topic,) = stats(node, "topic=life")["topics"]
    assert (topic["depth"], topic["message_count"]) == (0, 1)
    assert is_empty(ask(node, "POST", "/topic/delete?topic=life"))
    assert stats(node, "topic=life")["topics"] is None


def test_the_life_of_a_channel(node: Daemon) -> None:
    assert is_empty(ask(node, "POST", "/topic/create?topic=flow"))
    assert is_empty(ask(node, "POST", "/channel/create?topic=flow&channel=c"))
    assert is_empty(ask(node, "POST", "/channel/pause?topic=flow&channel=c"))
    with Conversation(node, b"  V2SUB flow c\nRDY 1\n") as consumer:
        assert consumer.frame() == OK
        assert is_ok(ask(node, "POST", "/mpub?topic=flow", b"one\ntwo\nthree"))
        assert (channel_of(node, "flow")["paused"], channel_of(node, "flow")["depth"]) == (True, 3)
        assert is_empty(ask(node, "POST", "/channel/unpause?topic=flow&channel=c"))
        message = consumer.message()
        assert (channel_of(node, "flow")["in_flight_count"], channel_of(node, "flow")["depth"]) == (1, 2)
        assert is_empty(ask(node, "POST", "/channel/empty?topic=flow&channel=c"))
        found = channel_of(node, "flow")
        assert (found["in_flight_count"], found["depth"], found["message_count"]) == (0, 0, 3)
        assert found["clients"][0]["in_flight_count"] == 0
        consumer.send(b"FIN %s\n" % message.id)
        assert consumer.frame() == (1, b"E_FIN_FAILED FIN %s failed ID not in flight" % message.id)
        assert is_empty(ask(node, "POST", "/channel/delete?topic=flow&channel=c"))
        assert consumer.frame() is None
    assert stats(node, "topic=flow")["topics"][0]["channels"] == []


# /stats


CLIENT = [
    "client_id", "hostname", "version", "remote_address", "state", "ready_count", "in_flight_count", "message_count",
    "finish_count", "requeue_count", "connect_ts", "sample_rate", "deflate", "snappy", "user_agent",
]  # fmt: skip
TLS = ["tls", "tls_cipher_suite", "tls_version", "tls_negotiated_protocol", "tls_negotiated_protocol_is_mutual"]
CHANNEL = [
    "channel_name", "depth", "backend_depth", "in_flight_count", "deferred_count", "message_count", "requeue_count",
    "timeout_count", "client_count", "clients", "paused", "e2e_processing_latency",
]  # fmt: skip
TOPIC = [
    "topic_name", "channels", "depth", "backend_depth", "message_count", "message_bytes", "paused",
    "e2e_processing_latency",
]  # fmt: skip
MEMORY = [
    "heap_objects", "heap_idle_bytes", "heap_in_use_bytes", "heap_released_bytes", "gc_pause_usec_100",
    "gc_pause_usec_99", "gc_pause_usec_95", "next_gc_bytes", "gc_total_runs",
]  # fmt: skip


@pytest.fixture
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A node with two topics, two channels, a client that consumes and publishes, and one that only publishes."""
    hello = b"  V2IDENTIFY\n" + sized(b'{"client_id":"<me>","hostname":"h&1","user_agent":"ua/1"}')
    commands = b"SUB beta a\nRDY 5\nPUB beta\n" + sized(b"hello") + b"DPUB beta 60000\n" + sized(b"later")
    with nsqd(tmp_path_factory.mktemp("busy")) as daemon:
        for target in (
            "/topic/create?topic=beta", "/topic/create?topic=alpha", "/topic/pause?topic=alpha",
            "/channel/create?topic=beta&channel=z", "/channel/create?topic=beta&channel=a",
            "/channel/pause?topic=beta&channel=z",
        ):  # fmt: skip
            assert is_empty(ask(daemon, "POST", target))
        with (
            Conversation(daemon, hello + commands) as both,
            Conversation(daemon, b"  V2PUB alpha\n" + sized(b"x")) as producer,
        ):
            assert sorted([both.frame() or (9, b"") for _ in range(5)])[:4] == [OK] * 4
            assert producer.frame() == OK
            yield daemon


def test_stats_as_json(busy: Daemon) -> None:
    answer = ask(busy, "GET", "/stats?format=json")
    assert (answer.status, answer.headers["content-type"]) == (200, JSON)
    assert b", " not in answer.body
    assert b'"client_id":"\\u003cme\\u003e","hostname":"h\\u00261"' in answer.body
    root = json.loads(answer.body)
    assert list(root) == ["version", "health", "start_time", "topics", "memory", "producers"]
    assert (root["version"], root["health"], list(root["memory"])) == ("1.3.0", "OK", MEMORY)
    alpha, beta = root["topics"]
    assert (list(alpha), list(beta)) == (TOPIC, TOPIC)
    assert [alpha[key] for key in TOPIC] == ["alpha", [], 1, 0, 1, 1, True, {"count": 0, "percentiles": None}]
    assert [beta[key] for key in TOPIC[2:7]] == [0, 0, 2, 10, False]
    a, z = beta["channels"]
    assert (list(a), list(z)) == (CHANNEL, CHANNEL)
    assert [a[key] for key in CHANNEL[:9]] == ["a", 0, 0, 1, 1, 2, 0, 0, 1]
    assert [z[key] for key in CHANNEL[:11]] == ["z", 1, 0, 0, 1, 2, 0, 0, 0, [], True]
    (client,) = a["clients"]
    assert [client[key] for key in CLIENT[4:10]] == [3, 5, 1, 1, 0, 0]
    assert re.fullmatch(r"127\.0\.0\.1:\d+", client["remote_address"])
    publishing = {list(p)[-1]: p for p in root["producers"]}
    assert len(publishing) == 1
    assert [p["pub_counts"] for p in root["producers"]] == [
        [{"topic": "beta", "count": 2}],
        [{"topic": "alpha", "count": 1}],
    ]
    for producer in root["producers"]:
        assert list(producer) == [*CLIENT, "pub_counts", *TLS]
    assert (root["producers"][1]["client_id"], root["producers"][1]["hostname"]) == ("127.0.0.1", "127.0.0.1")


def test_a_consumer_that_publishes_shows_it_in_both_places(busy: Daemon) -> None:
    (client,) = stats(busy, "topic=beta&channel=a")["topics"][0]["channels"][0]["clients"]
    assert list(client) == [*CLIENT, "pub_counts", *TLS]
    assert client["pub_counts"] == [{"topic": "beta", "count": 2}]


def test_stats_filters_and_what_is_null(busy: Daemon) -> None:
    assert stats(busy, "topic=unknown")["topics"] is None
    assert stats(busy, "channel=unknown")["topics"] == []
    assert stats(busy, "topic=beta&channel=unknown")["topics"] == []
    assert [topic["topic_name"] for topic in stats(busy, "channel=z")["topics"]] == ["beta"]
    assert [c["channel_name"] for c in stats(busy, "channel=z")["topics"][0]["channels"]] == ["z"]
    assert len(stats(busy, "topic=&channel=")["topics"]) == 2
    for no in ("false", "0"):
        root = stats(busy, f"include_clients={no}&include_mem={no}&topic=beta")
        assert list(root) == ["version", "health", "start_time", "topics", "producers"]
        assert root["producers"] is None
        assert [c["clients"] for c in root["topics"][0]["channels"]] == [None, None]
    for yes in ("true", "1", "", "no", "False"):
        root = stats(busy, f"include_clients={yes}&include_mem={yes}&topic=beta")
        assert "memory" in root
        assert root["topics"][0]["channels"][0]["clients"]


def test_all_producers_are_told_whatever_the_topic(busy: Daemon) -> None:
    producers = stats(busy, "topic=alpha")["producers"]
    assert [producer.get("pub_counts") for producer in producers] == [None, [{"topic": "alpha", "count": 1}]]


def test_stats_of_an_empty_node(tmp_path_factory: pytest.TempPathFactory) -> None:
    with nsqd(tmp_path_factory.mktemp("empty")) as daemon:
        root = stats(daemon, "include_mem=false")
        assert (root["topics"], root["producers"]) == ([], None)
        text = ask(daemon, "GET", "/stats?include_mem=false").body.decode()
        assert text.endswith("\n\nHealth: OK\n\nTopics: None\n\nProducers: None\n")


def test_stats_as_text(busy: Daemon) -> None:
    answer = ask(busy, "GET", "/stats?format=text&include_mem=0")
    assert (answer.status, answer.headers["content-type"]) == (200, TEXT)
    head, _, rest = answer.body.decode().partition("\n\n")
    version, start_time, uptime = head.split("\n")
    assert re.fullmatch(r"nsqd v1\.3\.0 \(built w/python[0-9.]+\) penstock [0-9.]+", version)
    assert re.fullmatch(r"start_time \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(Z|[+-]\d\d:\d\d)", start_time)
    assert re.fullmatch(r"uptime [\d.]+(ms|s)", uptime)
    rest = re.sub(r"connected: \d+s", "connected: D", rest)
    lines = rest.split("\n")
    assert lines[:6] == [
        "Health: OK",
        "",
        "Topics:",
        "*P [alpha          ] depth: 1     be-depth: 0     msgs: 1        e2e%: ",
        "",
        "   [beta           ] depth: 0     be-depth: 0     msgs: 2        e2e%: ",
    ]
    assert lines[6] == (
        "      [a                        ] depth: 0     be-depth: 0     inflt: 1    def: 1    re-q: 0     timeout: 0     "
        "msgs: 2        e2e%: "
    )
    assert re.match(r"        \[V2 h&1:\d+ ua/1 +\] ", lines[7])
    assert lines[8] == (
        "   *P [z                        ] depth: 1     be-depth: 0     inflt: 0    def: 1    re-q: 0     timeout: 0     "
        "msgs: 2        e2e%: "
    )
    assert lines[9:11] == ["", "Producers:"]
    assert re.fullmatch(r"   \[V2 h&1:\d+ ua/1 +\] msgs: 2        topics: beta=2 connected: D", lines[11])
    assert re.fullmatch(r"   \[V2 127\.0\.0\.1:\d+ +\] msgs: 1        topics: alpha=1 connected: D", lines[12])
    assert lines[13:] == [""]


def test_a_consumer_in_stats_as_text(tmp_path_factory: pytest.TempPathFactory) -> None:
    with nsqd(tmp_path_factory.mktemp("text")) as daemon, Conversation(daemon, b"  V2SUB t c\nRDY 7\n") as consumer:
        assert consumer.frame() == OK
        eventually(lambda: channel_of(daemon, "t")["clients"][0]["ready_count"] == 7)
        text = ask(daemon, "GET", "/stats").body.decode()
        assert re.search(
            r"\n\nMemory:\n   heap_objects             \t\d+\n(   \S+ +\t\d+\n){8}\nTopics:\n   \[t  ", text
        )
        numbers = "state: 3 inflt: 0    rdy: 7    fin: 0        re-q: 0        msgs: 0        "
        form = rf"\[V2 127\.0\.0\.1:\d+ +\] {numbers}connected: \d+s\n"
        assert re.search("\n        " + form, text)


def test_what_a_client_calls_itself_does_no_harm(tmp_path_factory: pytest.TempPathFactory) -> None:
    odd = rb'{"client_id":"\ud800","hostname":"\u0000\n\r\u2028</script>","user_agent":"' + b"\xff" + rb'\udfff"}'
    with nsqd(tmp_path_factory.mktemp("odd")) as daemon:
        with Conversation(daemon, b"  V2IDENTIFY\n" + sized(odd) + b"PUB t\n" + sized(b"x") + b"SUB t c\n") as client:
            assert [client.frame() for _ in range(3)] == [OK] * 3
            for target in ("/stats?format=json", "/stats"):
                assert ask(daemon, "GET", target).status == 200
        assert is_ok(ask(daemon, "GET", "/livez"))


# /config


@pytest.mark.parametrize(
    ("option", "body", "kind"),
    [
        ("log_level", b"2", JSON),
        ("id", b"7", JSON),
        ("msg_timeout", b"60000000000", JSON),
        ("max_msg_size", b"%d" % MAX_MSG, JSON),
        ("max_req_timeout", b"3600000000000", JSON),
        ("mem_queue_size", b"10000", JSON),
        ("broadcast_address", b"node.example", TEXT),
        ("tcp_address", b"127.0.0.1:0", TEXT),
        ("log_prefix", b"[nsqd] ", TEXT),
        ("nsqlookupd_tcp_addresses", b"[]", JSON),
    ],
)
def test_reading_an_option(node: Daemon, option: str, body: bytes, kind: str) -> None:
    answer = ask(node, "GET", f"/config/{option}")
    assert (answer.status, answer.body, answer.headers["content-type"]) == (200, body, kind)
    assert answer.headers["x-nsq-content-type"] == V1


@pytest.mark.parametrize(
    "option", ["nope", "node_id", "lookupd_tcp_address", "config", "version", "verbose", "__class__"]
)
def test_what_is_no_option(node: Daemon, option: str) -> None:
    assert is_error(ask(node, "GET", f"/config/{option}"), 400, "INVALID_OPTION")
    assert is_error(ask(node, "PUT", f"/config/{option}", b"1"), 400, "INVALID_OPTION")


def test_the_real_broadcast_ports_are_told(node: Daemon) -> None:
    tcp, http = (address.rpartition(":")[2].encode() for address in (node.tcp, node.http))
    assert ask(node, "GET", "/config/broadcast_tcp_port").body == tcp
    assert ask(node, "GET", "/config/broadcast_http_port").body == http


def test_changing_the_log_level(node: Daemon) -> None:
    for text, number in (("debug", b"1"), ("WARN", b"3"), ("Error", b"4"), ("fatal", b"5"), ("info", b"2")):
        answer = ask(node, "PUT", "/config/log_level", text.encode())
        assert (answer.status, answer.body) == (200, number)
        assert ask(node, "GET", "/config/log_level").body == number


def test_changing_the_lookupd_addresses(tmp_path_factory: pytest.TempPathFactory) -> None:
    with nsqd(tmp_path_factory.mktemp("changing")) as daemon:
        for body in (b'["127.0.0.1:1"]', b'["127.0.0.1:1","127.0.0.1:2"]', b"[]"):
            answer = ask(daemon, "PUT", "/config/nsqlookupd_tcp_addresses", body)
            assert (answer.status, answer.body) == (200, body)


def test_more_lookupds_than_anybody_has_are_refused(tmp_path_factory: pytest.TempPathFactory) -> None:
    many = json.dumps([f"127.0.0.1:{port}" for port in range(1, 102)]).encode()
    with nsqd(tmp_path_factory.mktemp("many")) as daemon:
        answer = ask(daemon, "PUT", "/config/nsqlookupd_tcp_addresses", many)
        assert (answer.status, answer.body) == (400, b'{"message":"INVALID_VALUE"}')
        assert ask(daemon, "GET", "/config/nsqlookupd_tcp_addresses").body == b"[]"


@pytest.mark.parametrize(
    "address", ["", "nonsense", "127.0.0.1", "127.0.0.1:99999", "127.0.0.1:-1", "\\ud800", "\\u0000:1"]
)
def test_odd_lookupd_addresses_do_no_harm(address: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    with nsqd(tmp_path_factory.mktemp("odd")) as daemon:
        put = ask(daemon, "PUT", "/config/nsqlookupd_tcp_addresses", b'["%s"]' % address.encode())
        assert put.status in (200, 400)  # the original takes anything; refusing is as good
        for _ in range(20):  # what is dialled fails a moment later
            assert is_ok(ask(daemon, "POST", "/pub?topic=t", b"x"))


@pytest.mark.parametrize(
    ("option", "body", "status", "text"),
    [
        ("log_level", b"", 413, "INVALID_VALUE"),
        ("nope", b"", 413, "INVALID_VALUE"),
        ("log_level", b"x" * (MAX_MSG + 1), 413, "INVALID_VALUE"),
        ("log_level", b"warning", 400, "INVALID_VALUE"),
        ("log_level", b'"info"', 400, "INVALID_VALUE"),
        ("log_level", b"info\n", 400, "INVALID_VALUE"),
        ("log_level", b"\xff", 400, "INVALID_VALUE"),
        ("nsqlookupd_tcp_addresses", b"[", 400, "INVALID_VALUE"),
        ("nsqlookupd_tcp_addresses", b"{}", 400, "INVALID_VALUE"),
        ("nsqlookupd_tcp_addresses", b"[1]", 400, "INVALID_VALUE"),
        ("nsqlookupd_tcp_addresses", b"[]x", 400, "INVALID_VALUE"),
        ("nsqlookupd_tcp_addresses", b"[" * 1900, 400, "INVALID_VALUE"),
        ("msg_timeout", b"1s", 400, "INVALID_OPTION"),
    ],
)
def test_config_errors(node: Daemon, option: str, body: bytes, status: int, text: str) -> None:
    assert is_error(ask(node, "PUT", f"/config/{option}", body), status, text)
