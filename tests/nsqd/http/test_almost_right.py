"""Requests that are almost right get an answer or a closed connection, and the node serves its other clients."""

import re
import socket

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.daemons import OK, Conversation, several, sized
from tests.effort import tries
from tests.local_node import LocalNode

METHODS = st.sampled_from([b"GET", b"POST", b"PUT"] * 4 + [b"HEAD", b"OPTIONS", b"DELETE", b"get", b"BREW", b""])
PATHS = st.sampled_from(
    [b"/ping", b"/pub", b"/mpub", b"/stats", b"/info", b"/topic/create", b"/topic/delete", b"/channel/create", b"/livez",
     b"/channel/pause", b"/config/log_level", b"/config/x", b"/config/", b"/PING", b"/pub/", b"//pub", b"/../ping", b"/",
     b"", b"*", b"/%zz", b"/%00", b"/\xff", b"/\xc3\xa9", b"http://localhost/ping", b"/pub#x", b"/config/%2e%2e"]
)  # fmt: skip
QUERIES = st.lists(
    st.sampled_from(
        [b"topic=fuzz", b"topic=", b"topic=a%2Fb", b"topic=%FF", b"topic=\xff", b"channel=c", b"channel=%00", b"defer=10",
         b"defer=-1", b"defer=" + b"9" * 4400, b"binary=true", b"binary=0", b"format=json", b"%zz", b";", b"&", b"=", b"a=b=c",
         b"topic=fuzz#ephemeral", b"topic=fuzz%23ephemeral", b"include_clients=x", b"topic=%ed%a0%80"]
    ), max_size=3,
).map(b"&".join)  # fmt: skip
HEADERS = st.lists(
    st.sampled_from(
        [b"Host: localhost", b"Host: evil.example", b"Host: [", b"Host: \xff", b"Host:", b"Origin: http://[", b"Origin: null",
         b"Origin: http://localhost", b"Origin: \xff", b"Content-Length: 5", b"Content-Length: -1", b"Content-Length: \xb2",
         b"Content-Length: " + b"0" * 4400 + b"5", b"Content-Length: 99999999", b"Transfer-Encoding: chunked", b"X" * 9000,
         b"Transfer-Encoding: xchunked", b"Expect: 100-continue", b"Upgrade: websocket", b"Connection: Upgrade", b": x",
         b"X: a\x00b", b" folded", b"Connection: keep-alive", b"X-Forwarded-For: \xff", b"Content-Type: \xff"]
    ), max_size=2,
)  # fmt: skip
WEB_BODIES = st.sampled_from(
    [b"", b"hello", b"5\r\nhello\r\n0\r\n\r\n", b"zz\r\n", several(b"a", b"b")[4:], b"\xff" * 9, b'["\\ud800"]']
)


GOOD_ANSWER = re.compile(rb"HTTP/1\.1 (100|200|301|307|400|403|404|405|413|431|501|505) ")


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    target = draw(PATHS)
    query = draw(QUERIES)
    version = draw(st.sampled_from([b"HTTP/1.1"] * 9 + [b"HTTP/1.0", b"HTTP/2.0", b"HTTP/9", b""]))
    newline = draw(st.sampled_from([b"\r\n"] * 9 + [b"\n"]))
    head = draw(METHODS) + b" " + target + (b"?" + query if query else b"") + b" " + version + newline
    headers = [b"Host: localhost"] * min(1, draw(st.integers(0, 5))) + draw(HEADERS)
    return head + b"".join(header + newline for header in headers) + newline + draw(WEB_BODIES)


@pytest.mark.long
@settings(max_examples=tries(100))
@given(data=requests())
def test_almost_right_requests(node: LocalNode, data: bytes) -> None:
    with node.connect("HTTP") as client:
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: client.recv(65536), b""))
    assert answer == b"" or GOOD_ANSWER.match(answer), answer
    assert b"Traceback" not in answer
    with Conversation(node, b"  V2PUB t\n" + sized(b"x")) as client:
        assert client.frame() == OK
