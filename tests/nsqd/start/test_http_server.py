"""HTTP that the reactor answers beside HTTP that uvicorn answers: on one node, one answer is as good as the other.

A header that the reactor does not know makes the same request go to uvicorn.
"""

import logging
import re
from types import SimpleNamespace
from typing import cast

import pytest

from nsqd.net.promised import HttpReplies
from nsqd.net.reactor import Reactor
from nsqd.protocols.http.head import read_head
from nsqd.start import http_server
from shared.topic_config import TopicConfig
from tests.daemons import OK, Conversation, sized
from tests.local_node import SECOND, LocalNode, MemorySocket

HOST = b"Host: localhost\r\n"
SLOW = b"X-Slow: 1\r\n"
PING = b"GET /ping HTTP/1.1\r\n" + HOST + b"\r\n"
MAX_MSG = 2000  # bytes


def post(target: bytes, body: bytes, extra: bytes = b"") -> bytes:
    return b"POST %s HTTP/1.1\r\n%sContent-Length: %d\r\n%s\r\n%s" % (target, HOST, len(body), extra, body)


REQUESTS = {
    "pub": post(b"/pub?topic=t", b"hello"),
    "pub, a byte of every value": post(b"/pub?topic=t", bytes(range(256))),
    "mpub": post(b"/mpub?topic=t", b"a\nb\n\nc"),
    "binary": post(b"/mpub?topic=t&binary=true", b"\0\0\0\2\0\0\0\1a\0\0\0\2bc"),
    "binary, malformed": post(b"/mpub?topic=t&binary=true", b"\0\0\0\2\0\0\0\1a"),
    "binary, a message too big": post(b"/mpub?topic=t&binary=true", b"\0\0\0\1\0\0\x0f\0" + b"x" * 3840),
    "ping": PING,
    "no such topic": post(b"/pub?topic=new", b"x"),
    "empty": post(b"/pub?topic=t", b""),
    "too big": post(b"/pub?topic=t", b"x" * (MAX_MSG + 1)),
    "only empty lines": post(b"/mpub?topic=t", b"\n\n"),
    "a line too big": post(b"/mpub?topic=t", b"a\n" + b"x" * (MAX_MSG + 1)),
    "bad topic": post(b"/pub?topic=a.b%20", b"x"),
    "livez": PING.replace(b"ping", b"livez"),
    "readyz": PING.replace(b"ping", b"readyz"),
    "stats": PING.replace(b"ping", b"stats?format=json&topic=t&include_mem=false"),
    "stats without clients": PING.replace(
        b"ping", b"stats?format=json&topic=t&include_clients=false&include_mem=false"
    ),
    "stats of a channel": PING.replace(b"ping", b"stats?format=json&topic=t&channel=c&include_mem=false"),
    "stats of no such channel": PING.replace(b"ping", b"stats?format=json&topic=t&channel=d&include_mem=false"),
    "stats of no such topic": PING.replace(b"ping", b"stats?format=json&topic=none&include_mem=false"),
    "foreign host": PING.replace(b"localhost", b"evil.com"),
}
LEFT = (  # to uvicorn, whether there is a header or not
    "binary, malformed", "binary, a message too big", "empty", "too big", "only empty lines", "a line too big", "bad topic",
    "stats of no such topic", "foreign host",
)  # fmt: skip


@pytest.fixture(scope="module")
def node() -> LocalNode:
    node = LocalNode("-max-msg-size", str(MAX_MSG))
    assert node.client.post("/topic/create?topic=t").status_code == 200
    client = Conversation(node, b"  V2SUB t c\nRDY 1\nPUB t\n" + sized(b"x"))  # it stays
    assert client.frame() == OK
    return node


def answer(sock: MemorySocket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        data += sock.recv(1)
        assert data
    match = re.search(rb"content-length: (\d+)", data)
    size = int(match[1])
    while size:
        part = sock.recv(size)
        assert part
        data += part
        size -= len(part)
    return data


def is_closed(sock: MemorySocket) -> bool:
    sock.settimeout(1)
    try:
        return sock.recv(1) == b""
    except TimeoutError:
        return False


def like(text: bytes) -> tuple[bytes, frozenset[bytes], bytes]:
    head, _, body = text.partition(b"\r\n\r\n")
    first, *headers = head.split(b"\r\n")
    return first, frozenset(one for one in headers if not one.startswith(b"date: ")), body


@pytest.mark.parametrize("name", REQUESTS)
def test_both_answer_and_log_alike(node: LocalNode, name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "penstock")
    request = REQUESTS[name]
    line, _, rest = request.partition(b"\r\n")
    with node.connect("HTTP") as fast, node.connect("HTTP") as slow:
        slow.sendall(line + b"\r\n" + SLOW + rest)
        expected = answer(slow)
        fast.sendall(request)
        answered = answer(fast)
    assert like(answered) == like(expected)
    assert b"\r\ndate: " not in expected  # uvicorn's own loop, which tells it the date, does not run here
    assert (b"\r\ndate: " in answered) is (name not in LEFT)
    lines = [(one.levelname, one.getMessage()[:10]) for one in caplog.records if "127.0.0.1" in one.getMessage()]
    assert (
        lines
        == [("INFO" if name.startswith("stats") else "DEBUG", f"{expected[9:12].decode()} {request[:6].decode()}")] * 2
    )


def test_answers_come_in_order_when_the_connection_changes_hands(node: LocalNode) -> None:
    with node.connect("HTTP") as sock:
        info = b"GET /info HTTP/1.1\r\n" + HOST + b"\r\n"
        publish, bad = REQUESTS["pub"], post(b"/pub?topic=t", b"")
        sock.sendall(publish * 3 + PING + info + bad + publish + PING)
        firsts = [answer(sock).split(b"\r\n", 1)[0][9:12] for _ in range(8)]
        assert firsts == [b"200"] * 5 + [b"400"] + [b"200"] * 2
        sock.sendall(PING)
        assert answer(sock).endswith(b"OK")


def test_the_limit_of_connections_counts_both_kinds_until_they_end() -> None:
    node = LocalNode("-max-connections", "2")
    for _ in range(3):  # who has left is not counted
        with node.connect("HTTP") as fast, node.connect("HTTP") as slow:
            fast.sendall(PING)
            answer(fast)
            slow.sendall(b"GET /info HTTP/1.1\r\n" + HOST + b"\r\n")
            answer(slow)
            with node.connect("HTTP") as third:
                third.sendall(PING)
                answer(third)  # one of the idle connections made room for it
                assert [is_closed(sock) for sock in (fast, slow)].count(True) == 1
        node.advance(SECOND)


@pytest.mark.parametrize(("copies", "status", "seconds"), [([(1 << 40, 1 << 40)], "200", 3), ([], "503", 11)])
def test_the_log_has_the_status_and_the_time_of_a_response_that_waits_for_copies(
    copies: list[tuple[int, int]], status: str, seconds: int, caplog: pytest.LogCaptureFixture
) -> None:
    node = LocalNode()
    caplog.set_level(logging.DEBUG, "penstock")
    node.broker.set_copies(2)
    node.broker.topic("t").apply_config(TopicConfig(replicate=2))
    node.log.store.after_write = lambda is_awaited, needs_sync: None  # as in a cluster
    followers = node.log.store.copies
    followers.patience = 10 * SECOND
    with node.connect("HTTP") as sock:
        sock.sendall(REQUESTS["pub"])
        node.advance(3 * SECOND)
        assert published(caplog) == []
        followers.update(copies)
        node._wake()
        node.advance(8 * SECOND)
        followers.expire(node.clock.now)
        node._wake()
        assert answer(sock)[9:12].decode() == status
    assert published(caplog) == [(status, seconds)]


def test_waiting_lines_are_bounded(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    waiting: list[HttpReplies] = []
    reactor = SimpleNamespace(
        when_sent=lambda marks, *then: waiting.append(HttpReplies(*then)), clock=lambda: (3 * SECOND, 0)
    )
    caplog.set_level(logging.DEBUG, "penstock")
    monkeypatch.setattr(http_server, "MOST_WAITING", 2)
    answers = http_server.AnswerLog(cast(Reactor, reactor))
    request = read_head(
        b"POST /pub?topic=t HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n", lambda host: True
    )
    assert request is not None
    for _ in range(3):
        answers.note(request, "10.0.0.1", "5", SECOND, ())
    assert len(waiting) == 2
    waiting[0].refuse()
    waiting[1].deliver()
    for _ in range(3):
        answers.note(request, "10.0.0.1", "5", SECOND, ())
    assert len(waiting) == 4
    assert published(caplog) == [("200", 2)]


def published(caplog: pytest.LogCaptureFixture) -> list[tuple[str, int]]:
    """Return the status and the seconds of each publish in the log."""
    found = [re.fullmatch(r"(\d+) POST /pub\?topic=t \(.*\) ([\d.]+)s", line) for line in caplog.messages]
    return [(one[1], round(float(one[2]))) for one in found if one is not None]
