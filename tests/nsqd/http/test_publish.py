"""/pub and /mpub: what they publish, and their errors in the order in which the original finds them."""

from tests.cases import each
from tests.daemons import several, sized
from tests.local_node import SECOND, LocalNode
from tests.nsqd.http.asking import drained
from tests.nsqd.http.raw import MAX_BODY, MAX_MSG, SMALL, V1, ask, exchange, is_error, is_ok, parse, topic_of

FLAGS = SMALL


def test_pub(node: LocalNode) -> None:
    answer = ask(node, "POST", "/pub?topic=pub", b"hello \x00\xff\n")
    assert is_ok(answer)
    assert answer.headers["x-nsq-content-type"] == V1
    assert is_ok(ask(node, "POST", "/pub?topic=pub", b"x" * MAX_MSG))
    chunked = (
        b"POST /pub?topic=pub HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    assert is_ok(parse(exchange(node, chunked + b"3\r\nchu\r\n3\r\nnks\r\n0\r\n\r\n")))
    assert drained(node, "pub", "c", 3) == [b"hello \x00\xff\n", b"x" * MAX_MSG, b"chunks"]


@each("query, body, status, text", [
    ("", b"x" * (MAX_MSG + 1), 413, "MSG_TOO_BIG"),  # in the order of checking: the size first
    ("%zz", b"", 400, "MSG_EMPTY"), ("topic=%zz", b"x", 400, "INVALID_REQUEST"), ("", b"x", 400, "MISSING_ARG_TOPIC"),
    ("topic=", b"x", 400, "INVALID_TOPIC"), ("topic=a%2Fb", b"x", 400, "INVALID_TOPIC"),
    ("topic=.", b"x", 400, "INVALID_TOPIC"), ("topic=" + "x" * 65, b"x", 400, "INVALID_TOPIC"),
    ("topic=a/b&defer=x", b"x", 400, "INVALID_TOPIC"), ("topic=never&defer=", b"x", 400, "INVALID_DEFER"),
    ("topic=never&defer=x", b"x", 400, "INVALID_DEFER"), ("topic=never&defer=-1", b"x", 400, "INVALID_DEFER"),
    ("topic=never&defer=1.5", b"x", 400, "INVALID_DEFER"), ("topic=never&defer=3600001", b"x", 400, "INVALID_DEFER"),
    ("topic=never&defer=99999999999999999999", b"x", 400, "INVALID_DEFER"),
    ("topic=never&defer=" + "9" * 5000, b"x", 400, "INVALID_DEFER"),
    ("topic=never&defer=%D9%A1", b"x", 400, "INVALID_DEFER"),  # an Arabic digit
])  # fmt: skip
def test_pub_errors(node: LocalNode, query: str, body: bytes, status: int, text: str) -> None:
    assert is_error(ask(node, "POST", f"/pub?{query}", body), status, text)


def test_pub_with_defer(node: LocalNode) -> None:
    assert is_ok(ask(node, "POST", "/pub?topic=defer&defer=20000", b"later"))
    assert is_ok(ask(node, "POST", "/pub?topic=defer&defer=0", b"now"))
    assert is_ok(ask(node, "POST", "/pub?topic=defer&defer=%2B1", b"soon"))
    began = node.clock.now
    assert drained(node, "defer", "c", 3) == [b"now", b"soon", b"later"]
    assert 19 * SECOND < node.clock.now - began < 21 * SECOND


@each("path", ["/pub?topic=big", "/mpub?topic=big", "/mpub?topic=big&binary=true", "/mpub"])
def test_a_body_beyond_the_limit_is_refused_before_it_comes(node: LocalNode, path: str) -> None:
    limit, text = (MAX_MSG, "MSG_TOO_BIG") if path.startswith("/pub") else (MAX_BODY, "BODY_TOO_BIG")
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\n"
    for declared in (limit + 1, 10**12):
        assert is_error(parse(exchange(node, f"{head}Content-Length: {declared}\r\n\r\n".encode())), 413, text)
    chunks = b"%x\r\n%s\r\n" % (limit + 1, b"x" * (limit + 1))  # and no end
    assert is_error(parse(exchange(node, f"{head}Transfer-Encoding: chunked\r\n\r\n".encode() + chunks)), 413, text)


def test_mpub_of_lines(node: LocalNode) -> None:
    for body in (b"", b"\n", b"a\nb\n\n\nc", b"d\n", b"\ne\r\n", b"x" * MAX_MSG + b"\n"):
        assert is_ok(ask(node, "POST", "/mpub?topic=lines", body))
    for value in ("0", "false"):
        assert is_ok(ask(node, "POST", f"/mpub?topic=lines&binary={value}", b"text"))
    expected = [b"a", b"b", b"c", b"d", b"e\r", b"x" * MAX_MSG, b"text", b"text"]
    assert (drained(node, "lines", "c", 8), topic_of(node, "lines")["message_count"]) == (expected, 8)


def test_binary_mpub(node: LocalNode) -> None:
    body = several(b"one", b"\n\x00", b"x" * MAX_MSG)[4:]  # without the outer length of TCP
    for value in ("true", "1", "", "TRUE", "no"):
        assert is_ok(ask(node, "POST", f"/mpub?topic=binary&binary={value}", body)), value
    assert is_ok(ask(node, "POST", "/mpub?topic=binary&binary", body + b"what follows is not looked at"))
    assert drained(node, "binary", "c", 18) == [b"one", b"\n\x00", b"x" * MAX_MSG] * 6


@each("body, text", [
    (b"", "BAD_BODY"), (b"\x00\x00\x00", "BAD_BODY"), (b"\x00\x00\x00\x00", "BAD_BODY"),
    (b"\xff\xff\xff\xff" + sized(b"a"), "BAD_BODY"), (b"\x7f\xff\xff\xff" + sized(b"a"), "BAD_BODY"),
    (b"\x00\x00\x00\x01", "BAD_MESSAGE"), (b"\x00\x00\x00\x02" + sized(b"a"), "BAD_MESSAGE"),
    (b"\x00\x00\x00\x02" + sized(b"a") + b"\x00\x00\x00\x05ab", "BAD_MESSAGE"),
    (b"\x00\x00\x00\x01" + sized(b""), "BAD_MESSAGE"), (b"\x00\x00\x00\x01\xff\xff\xff\xffa", "BAD_MESSAGE"),
    (b"\x00\x00\x00\x01" + sized(b"x" * (MAX_MSG + 1)), "BAD_MESSAGE"),
])  # fmt: skip
def test_malformed_binary_mpub_publishes_nothing(node: LocalNode, body: bytes, text: str) -> None:
    assert is_error(ask(node, "POST", "/mpub?topic=malformed&binary=true", body), 413, text)
    assert topic_of(node, "malformed")["message_count"] == 0


@each("query, body, status, text", [
    ("%zz", b"x" * (MAX_BODY + 1), 413, "BODY_TOO_BIG"), ("%zz", b"", 400, "INVALID_REQUEST"),
    ("", b"", 400, "MISSING_ARG_TOPIC"), ("topic=a/b", b"x" * (MAX_MSG + 1), 400, "INVALID_TOPIC"),
    ("topic=some", b"fine\n" + b"x" * (MAX_MSG + 1), 413, "MSG_TOO_BIG"),
])  # fmt: skip
def test_mpub_errors(node: LocalNode, query: str, body: bytes, status: int, text: str) -> None:
    assert is_error(ask(node, "POST", f"/mpub?{query}", body), status, text)
    if query == "topic=some":
        assert topic_of(node, "some")["message_count"] == 0
