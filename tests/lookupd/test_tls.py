"""Which connections nsqlookupd takes for TLS: it peeks at their first byte."""

import pytest
import trio

from lookupd.tls import Tls
from shared.tls.certificates import Certificates, TlsFiles
from shared.tls.stream import HandshakeError, TlsStream
from tests.certificates import Authority

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


def tls(authority: Authority) -> Tls:
    return Tls(Certificates(TlsFiles(authority.cert, authority.key)), is_required=False)


Pair = tuple[trio.SocketStream, trio.SocketStream]


@pytest.fixture
def pair() -> Pair:
    server, client = map(trio.SocketStream, trio.socket.socketpair())
    return server, client


async def test_clear_text_is_left_unread(authority: Authority, pair: Pair) -> None:
    server, client = pair
    await client.send_all(b"  V1")
    assert await tls(authority).accept(server) is None
    assert await server.receive_some() == b"  V1"


async def test_a_peer_that_closes_at_once_is_clear_text(authority: Authority, pair: Pair) -> None:
    await pair[1].aclose()
    assert await tls(authority).accept(pair[0]) is None


async def test_a_handshake_begins_with_22(authority: Authority, pair: Pair) -> None:
    server, client = pair
    client = TlsStream(client, lambda i, o: authority.client().wrap_bio(i, o, server_hostname="localhost"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.do_handshake)
        server = await tls(authority).accept(server)
    assert server is not None
    await client.send_all(b"  V1")
    assert await server.receive_some() == b"  V1"


async def test_what_only_begins_like_tls_fails(authority: Authority, pair: Pair) -> None:
    await pair[1].send_all(b"\x16 not at all")
    with pytest.raises(HandshakeError):
        await tls(authority).accept(pair[0])
