"""Which requests reach a route of nsqd: methods, paths that are nearly right, queries, hosts, and what is not HTTP."""

import socket

from tests.cases import each
from tests.local_node import LocalNode
from tests.nsqd.http.raw import SMALL, ask, exchange, is_empty, is_error, is_ok, stats

FLAGS = SMALL

METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS")
GET_ROUTES = ("/ping", "/info", "/stats", "/metrics", "/livez", "/readyz")
POST_ROUTES = (
    "/pub", "/mpub", "/topic/create", "/topic/delete", "/topic/empty", "/topic/pause", "/topic/unpause",
    "/channel/create", "/channel/delete", "/channel/empty", "/channel/pause", "/channel/unpause",
)  # fmt: skip
METHOD_OF = dict.fromkeys(GET_ROUTES, "GET") | dict.fromkeys(POST_ROUTES, "POST")


@each("path", METHOD_OF)
def test_every_other_method_is_refused(node: LocalNode, path: str) -> None:
    right = METHOD_OF[path]
    for method in METHODS:
        if method == right:
            continue
        answer = ask(node, method, path)
        assert answer.headers["allow"] == ", ".join(sorted([right, "OPTIONS"]))
        if method == "OPTIONS":
            assert (answer.status, answer.body) == (200, b"")
        elif method == "HEAD":
            assert (answer.status, answer.body) == (405, b"")
        else:
            assert is_error(answer, 405, "METHOD_NOT_ALLOWED")


@each("path", ["/", "/nope", "/config", "/config/a/b", "/topic", "/ping/x", "/debug/pprof/", "/%2e%2e"])
def test_unknown_paths(node: LocalNode, path: str) -> None:
    for method in ("GET", "POST", "PUT", "OPTIONS"):
        assert is_error(ask(node, method, path), 404, "NOT_FOUND")


@each("path", METHOD_OF)
def test_nearly_right_paths_lead_to_the_right_one(node: LocalNode, path: str) -> None:
    status = 301 if METHOD_OF[path] == "GET" else 307
    for near in (path + "/", path.upper(), "//" + path[1:], "/./x/.." + path):
        answer = ask(node, METHOD_OF[path], near + "?topic=a%20b&x=1")
        assert (answer.status, answer.headers["location"]) == (status, path + "?topic=a%20b&x=1"), near
    assert ask(node, METHOD_OF[path], path + "/").headers["location"] == path


@each("path", [*POST_ROUTES, "/stats"])
def test_bad_query_encoding(node: LocalNode, path: str) -> None:
    for query in ("topic=%zz", "topic=t%", "topic=t&x=%1", "topic=t;channel=c", "a;b", "%=1&topic=t"):
        assert is_error(ask(node, METHOD_OF[path], f"{path}?{query}", b"body"), 400, "INVALID_REQUEST")


def test_queries_are_read_as_go_does(node: LocalNode) -> None:
    assert is_empty(ask(node, "POST", "/topic/create?&&x&topic=first&topic=second&=y"))
    assert is_empty(ask(node, "POST", "/topic/create?topic=%65ncoded"))
    assert is_error(ask(node, "POST", "/topic/create?TOPIC=t"), 400, "MISSING_ARG_TOPIC")
    assert is_error(ask(node, "POST", "/topic/create?topic=a+b"), 400, "INVALID_TOPIC")
    form = ask(node, "POST", "/topic/create", b"topic=t", "Content-Type: application/x-www-form-urlencoded")
    assert is_error(form, 400, "MISSING_ARG_TOPIC")
    names = {topic["topic_name"] for topic in stats(node)["topics"]}
    assert names & {"first", "second", "encoded"} == {"first", "encoded"}


@each("data", [
    b"  V2IDENTIFY\n\x00\x00\x00\x02{}", b"PUB t\n\x00\x00\x00\x01x", b"\x00\x01\x02\x03\x04\x05", b"GET\r\n\r\n",
    b"GET /p\x00ing HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"POST /pub?topic=t HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhelloo",
    b"POST /pub?topic=t HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"GET /ping HTTP/1.1\r\n\r\n",  # no Host
    b"GET /ping HTTP/1.1\r\nHost: evil.example\r\nHost: localhost\r\n\r\n",
])  # fmt: skip
def test_what_is_not_http_gets_400_and_is_closed(node: LocalNode, data: bytes) -> None:
    assert exchange(node, data).startswith(b"HTTP/1.1 400 Bad Request\r\n")


@each("host", ["evil.example", "evil.example:4151", "127.0.0.1.evil.example", "a..b"])
def test_a_foreign_host_is_refused(node: LocalNode, host: str) -> None:
    for path in ("/ping", "/pub?topic=foreign", "/nope"):
        assert ask(node, "POST", path, b"x", f"Host: {host}").status == 403
    assert "foreign" not in [topic["topic_name"] for topic in stats(node)["topics"]]


@each(
    "origin",
    ["http://evil.example", "null", "http://localhost:1", "http://[", "http://[::1", "\xff", "file://", "http://x:y"],
)
def test_a_foreign_origin_is_refused(node: LocalNode, origin: str) -> None:
    assert ask(node, "POST", "/pub?topic=foreign", b"x", f"Origin: {origin}").status == 403
    assert ask(node, "OPTIONS", "/pub", b"", f"Origin: {origin}").status == 403
    assert "foreign" not in [topic["topic_name"] for topic in stats(node)["topics"]]


def test_our_own_host_and_origin_pass(node: LocalNode) -> None:
    here = "127.0.0.1:4151"
    for host in ("localhost", here, "[::1]:4151", "LOCALHOST:1", "node.example", socket.gethostname(), "box"):
        assert is_ok(ask(node, "GET", "/ping", b"", f"Host: {host}")), host
    assert is_ok(ask(node, "GET", "/ping", b"", f"Host: {here}", f"Origin: http://{here}"))
