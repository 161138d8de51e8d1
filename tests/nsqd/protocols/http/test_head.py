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
    *(PUB + hosts + LENGTH + b"\r\n" for hosts in (
        b"", b"Host: evil.com\r\n", HOST + HOST, b"Host:\r\n", b"Host: localhost \r\n",
    )),
    *(PUB + HOST + b"Content-Length: %s\r\n\r\n" % value for value in (
        b"5, 5", b"+5", b"-5", b"0x5", b"5 5", b"5 ", b"1234567890", b"5\r\nContent-Length: 5",
    )),
    *(PUB + HOST + LENGTH + line + b"\r\n\r\n" for line in (
        b"Transfer-Encoding: chunked", b"Expect: 100-continue", b"Connection: close", b"Connection: Upgrade\r\nUpgrade: h2c",
        b"Origin: http://evil.com", b"Sec-Fetch-Site: cross-site", b"X-Nsq-Header-Key: value", b"Authorization: Basic eA==",
        b"Accept: a\r\n folded", b"Accept: a\rb", b"Accept: a\nb", b"Accept: a\0b", b"Accept: \xc3\xa4",
    )),
    PUB + HOST + b"\r\n",  # no length
    PUB + HOST + b"Content-Length : 5\r\n\r\n",
    PUB + HOST + LENGTH + b"\r\nGET",  # more than a head
    *(PUB.replace(old, new) + HOST + LENGTH + b"\r\n" for old, new in (
        (b"1.1", b"1.0"), (b"\r\n", b"\n"), (b" /", b"  /"), (b"POST", b"PUT"), (b"/pub", b"http://x/pub"), (b"=t", b"=t%20"),
        (b"=t", b"="), (b"=t", b"=" + b"x" * 65), (b"=t", b"=t&defer=1"), (b"=t", b"=t&binary=true"),
        (b"pub?topic=t", b"mpub?topic=t&binary=1"),
    )),
    *(b"GET /%s HTTP/1.1\r\n" % target + HOST + b"\r\n" for target in (
        b"ping?x", b"livez/", b"stats", b"stats?topic=t", b"stats?format=json", b"stats?format=json&topic=t&topic=u",
        b"stats?format=json&topic=t&channel=", b"stats?format=json&topic=t&include_clients=0",
        b"stats?format=json&topic=t&include_mem=true&include_mem=false",
    )),
    b"GET /ping HTTP/1.1\r\n" + HOST + LENGTH + b"\r\n", b"HEAD /ping HTTP/1.1\r\n" + HOST + b"\r\n",
    b"GET /stats?format=json&topic=t HTTP/1.1\r\n" + HOST + LENGTH + b"\r\n", b"\r\n\r\n",
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
