"""Which heads are answered in the turn: those that every server reads alike, and no other."""

from nsqd.protocols.http.head import MAX_HEAD, Request, may_become, read_head
from tests.cases import each

PUB = b"POST /pub?topic=t HTTP/1.1\r\n"
HOST = b"Host: localhost:4151\r\n"
LENGTH = b"Content-Length: 5\r\n"


def is_own_host(host: bytes) -> bool:
    return host != b"evil.com"


def read(head: bytes) -> Request | None:
    return read_head(head, is_own_host)


@each("head", [
    PUB + LENGTH + b"\r\n",  # no host
    PUB + b"Host: evil.com\r\n" + LENGTH + b"\r\n",
    PUB + HOST + HOST + LENGTH + b"\r\n",
    PUB + b"Host:\r\n" + LENGTH + b"\r\n",
    PUB + HOST + b"\r\n",  # no length
    PUB + HOST + LENGTH + LENGTH + b"\r\n",
    PUB + HOST + b"Content-Length: 5, 5\r\n\r\n",
    PUB + HOST + b"Content-Length: +5\r\n\r\n",
    PUB + HOST + b"Content-Length: -5\r\n\r\n",
    PUB + HOST + b"Content-Length: 0x5\r\n\r\n",
    PUB + HOST + b"Content-Length: 5 5\r\n\r\n",
    PUB + HOST + b"Content-Length: 5 \r\n\r\n",
    PUB + b"Host: localhost \r\n" + LENGTH + b"\r\n",
    PUB + HOST + b"Content-Length: 1234567890\r\n\r\n",
    PUB + HOST + b"Content-Length : 5\r\n\r\n",
    PUB + HOST + LENGTH + b"Transfer-Encoding: chunked\r\n\r\n",
    PUB + HOST + LENGTH + b"Expect: 100-continue\r\n\r\n",
    PUB + HOST + LENGTH + b"Connection: close\r\n\r\n",
    PUB + HOST + LENGTH + b"Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
    PUB + HOST + LENGTH + b"Origin: http://evil.com\r\n\r\n",
    PUB + HOST + LENGTH + b"Sec-Fetch-Site: cross-site\r\n\r\n",
    PUB + HOST + LENGTH + b"X-Nsq-Header-Key: value\r\n\r\n",
    PUB + HOST + LENGTH + b"Authorization: Basic eA==\r\n\r\n",
    PUB + HOST + LENGTH + b"Accept: a\r\n folded\r\n\r\n",
    PUB + HOST + LENGTH + b"Accept: a\rb\r\n\r\n",
    PUB + HOST + LENGTH + b"Accept: a\nb\r\n\r\n",
    PUB + HOST + LENGTH + b"Accept: a\0b\r\n\r\n",
    PUB + HOST + LENGTH + b"Accept: \xc3\xa4\r\n\r\n",
    PUB + HOST + LENGTH + b"\r\nGET",  # more than a head
    PUB.replace(b"1.1", b"1.0") + HOST + LENGTH + b"\r\n",
    PUB.replace(b"\r\n", b"\n") + HOST + LENGTH + b"\r\n",
    PUB.replace(b" /", b"  /") + HOST + LENGTH + b"\r\n",
    PUB.replace(b"POST", b"PUT") + HOST + LENGTH + b"\r\n",
    b"POST http://x/pub?topic=t HTTP/1.1\r\n" + HOST + LENGTH + b"\r\n",
    b"POST /pub?topic=t&defer=1 HTTP/1.1\r\n" + HOST + LENGTH + b"\r\n",
    b"POST /pub?topic=t%20 HTTP/1.1\r\n" + HOST + LENGTH + b"\r\n",
    b"POST /pub?topic= HTTP/1.1\r\n" + HOST + LENGTH + b"\r\n",
    b"POST /pub?topic=" + b"x" * 65 + b" HTTP/1.1\r\n" + HOST + LENGTH + b"\r\n",
    b"POST /mpub?topic=t&binary=1 HTTP/1.1\r\n" + HOST + LENGTH + b"\r\n",
    b"POST /pub?topic=t&binary=true HTTP/1.1\r\n" + HOST + LENGTH + b"\r\n",
    b"GET /ping?x HTTP/1.1\r\n" + HOST + b"\r\n",
    b"GET /ping HTTP/1.1\r\n" + HOST + LENGTH + b"\r\n",
    b"HEAD /ping HTTP/1.1\r\n" + HOST + b"\r\n",
    b"GET /livez/ HTTP/1.1\r\n" + HOST + b"\r\n",
    b"GET /stats?topic=t HTTP/1.1\r\n" + HOST + b"\r\n",
    b"GET /stats?format=json HTTP/1.1\r\n" + HOST + b"\r\n",
    b"GET /stats?format=json&topic=t&topic=u HTTP/1.1\r\n" + HOST + b"\r\n",
    b"GET /stats?format=json&topic=t&channel= HTTP/1.1\r\n" + HOST + b"\r\n",
    b"GET /stats?format=json&topic=t&include_clients=0 HTTP/1.1\r\n" + HOST + b"\r\n",
    b"GET /stats?format=json&topic=t&include_mem=true&include_mem=false HTTP/1.1\r\n" + HOST + b"\r\n",
    b"GET /stats?format=json&topic=t HTTP/1.1\r\n" + HOST + LENGTH + b"\r\n",
    b"GET /stats HTTP/1.1\r\n" + HOST + b"\r\n",
    b"\r\n\r\n",
])  # fmt: skip
def test_every_other_head_is_left_to_the_exact_reader(head: bytes) -> None:
    assert read(head) is None


def test_the_beginning_of_a_usual_head_may_become_one_and_nothing_else() -> None:
    head = PUB + HOST + LENGTH + b"\r\n"
    assert all(may_become(head[:size]) for size in range(len(head)))
    assert len(head) < MAX_HEAD
    for data in (
        b"  V2", b"GET /stats ", b"GET /stats?topic=t", b"PUT", b"\r\n", b"POST /pub?top1",
        b"POST /pub?topic=t HTTP/9.9\r\n", PUB[:-2] + b"\nHost: a\n\n",
    ):  # fmt: skip
        assert not may_become(data)
