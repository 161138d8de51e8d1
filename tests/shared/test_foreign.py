"""Clients at the wrong port, by their first bytes."""

import msgpack

from nsqd.cluster.wire.frames import FrameKind, encode
from shared.foreign import BEGINNINGS, Foreign, describe, recognize, recognize_line
from tests.cases import each

FIRST = {
    Foreign.HTTP: [b"GET / HTTP/1.1\r\n", b"POST /pub?topic=t HTTP/1.0\r\n", b"CONNECT ", b"Host: x\r\n", b"hOsT: x"],
    Foreign.HTTP2: [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"],
    Foreign.TLS: [b"\x16\x03\x01\x02\x00\x01\x00\x01", b"\x16\x03\x03", b"\x15\x03\x03\x00\x02\x02\x46"],
    Foreign.RESP: [b"*1\r\n$4\r\nPING\r\n", b"*12\r"],
    Foreign.PING: [b"PING\r\n", b"PING\n"],
    Foreign.NSQ: [b"  V2", b"  V2SUB t c\n"],
    Foreign.LOOKUPD: [b"  V1IDENTIFY\n"],
    Foreign.JOB: [b"put 0 0 9 1\r\nx\r\n", b"put 4294967295 0 60 65535\r"],
    Foreign.BEANSTALK: [b"stats\r\n", b"use t\r\n", b"watch t\r", b"reserve\r\n", b"reserve-with-timeout 5\r\n"],
    Foreign.CLUSTER: [encode(FrameKind.HELLO, msgpack.packb([1, 1, "penstock", [1] * 8, bytes(32)]))],
}
OTHERS = [
    *(b"", b"G", b"GET", b"GETJOB FROM q", b"get / http", b"HTTPS", b"Hostess", b"PRI", b"PINGS\r\n", b"PING x\r\n"),
    *(
        b"*", b"*3", b"PING", b"stats", b"put 0 0 9 1", b"*x\r\n", b"*1x", b"*-1\r\n", b" V2", b"  v2", b"  V3",
        b"\x16", b"\x16\x03", b"\x16\x02\x01", b"\x17\x03\x03",
    ),
    *(
        b"put", b"put 0 0 9\r\n", b"put a b c d\r\n", b"put 0 0 9 1 \r\n", b"put  0 0 9 1\r\n", b"stats-job 1\r\n",
        b"use \r\n",
    ),
    *(b"\0\0\0\5\2abcd", b"\0\0\4\0\1\x95", b"\0\1\0\0\1\x95", b"\0\0\0\5\1x"),
]  # fmt: skip


@each("kind", Foreign)
def test_each_protocol_is_known_by_what_its_clients_send_first(kind: Foreign) -> None:
    for data in FIRST[kind]:
        assert recognize(data) is kind, data
        assert describe(data) == str(kind)
        line, newline, _ = data.partition(b"\r\n")
        assert not newline or recognize_line(line) is kind
    if kind not in (Foreign.JOB, Foreign.BEANSTALK):
        assert all(data.startswith(BEGINNINGS) for data in FIRST[kind] if data[4:5] != b":"), (
            "the cheap test finds them"
        )
    assert recognize_line(b"stats") is Foreign.BEANSTALK


@each("data", OTHERS)
def test_nothing_else_is(data: bytes) -> None:
    assert recognize(data) is None
    assert describe(data) == "bytes of no known protocol"


def test_lines_and_their_beginnings() -> None:
    assert recognize_line(b"delete /x HTTP/1.1") is Foreign.HTTP
    assert recognize(b"delete /x HTTP/1.1") is None  # more may come of the line
    assert recognize_line(b"delete /x HTTP/1.1 ") is None
    assert recognize_line(b"x HTTP/a.1") is None
    assert recognize_line(b"PRI * HTTP/2.0") is Foreign.HTTP2
    assert describe(b"delete /x HTTP/1.1\r\nX: y\r\n") == str(Foreign.HTTP)

    assert recognize(b"use " + b"t" * 59 + b"\r\n") is Foreign.BEANSTALK
    assert recognize(b"put 0 0 9 1" + b" " * 60 + b"\r\n") is None
    described = describe(b"GET /?token=secret HTTP/1.1\r\n")
    assert described == "an HTTP request: use the port of -http-address"
    assert "secret" not in describe(b"secret\r\n")
