"""AUTH of a real nsqd beside a real authorization server.

See docs/contributing/design/nsq-protocol.md#auth.
"""

import json
import ssl
import struct
from pathlib import Path

import pytest

from tests.auth_server import AuthServer, Visit, allowing, hangs, says
from tests.certificates import Authority
from tests.daemons import OK, RESPONSE, Conversation, eventually, nsqd, sized

pytestmark = pytest.mark.process

MAGIC = b"  V2"
ANN = (RESPONSE, b'{"identity":"ann","identity_url":"","permission_count":1}')


def auth(secret: str) -> bytes:
    return b"AUTH\n" + sized(secret.encode())


def pub(topic: str, body: bytes = b"x") -> bytes:
    return b"PUB %s\n" % topic.encode() + sized(body)


def test_a_server_that_hangs_holds_up_its_client_and_nothing_else(tmp_path: Path) -> None:
    def mood(visit: Visit) -> None:
        (hangs() if visit.request.query["secret"] == "hang" else says(200, allowing()))(visit)

    with AuthServer(mood) as server:
        flags = ("-auth-http-address", server.address, "-http-client-request-timeout", "1h", "-log-level", "debug")
        with nsqd(tmp_path, *flags) as node, Conversation(node, MAGIC + auth("hang")):
            eventually(lambda: server.requests)
            with Conversation(node, MAGIC + auth("sesame") + pub("t") + b"SUB t c\nRDY 1\n") as quick:
                assert [quick.frame(), quick.frame(), quick.frame()] == [ANN, OK, OK]
                quick.message()
            assert node.stop() == 0
            assert "sesame" not in node.stderr


def test_servers_are_asked_as_the_flags_say_and_get_the_name_of_a_clients_certificate(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(authority.cert, authority.key)
    context = authority.client(authority.issue("ann & co"))
    with AuthServer(says(200, allowing()), server_side) as server:
        flags = [*authority.flags(), "-https-address", "127.0.0.1:0", "-tls-root-ca-file", authority.root]
        flags += ["-tls-client-auth-policy", "require-verify", "-auth-http-request-method", "post"]
        for address in ("127.0.0.1:1", f"https://{server.address}/who"):
            flags += ["-auth-http-address", address]
        identify = b"IDENTIFY\n" + sized(b'{"feature_negotiation":true,"tls_v1":true}')
        with nsqd(tmp_path / "data", *flags) as node, Conversation(node, MAGIC + identify) as plain:
            assert plain.frame() is not None
            secure = context.wrap_socket(plain.socket, server_hostname="localhost")
            with secure, secure.makefile("rb") as file:
                secure.sendall(auth("s"))
                assert file.read(10) == struct.pack(">ii", 6, RESPONSE) + b"OK"
                assert file.read(8 + len(ANN[1]))[8:] == ANN[1]
    assert (server.requests[0].method, server.requests[0].target) == ("POST", "/who")
    expected = {"common_name": ["ann & co"], "remote_ip": ["127.0.0.1"], "secret": ["s"], "tls": ["true"]}
    assert json.loads(server.requests[0].body) == expected
