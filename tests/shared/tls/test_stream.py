"""TLS over streams of trio in memory: both sides talk, refuse each other, and end."""

import ssl
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import trio
import trio.testing

from shared.tls.certificates import Certificates, TlsFiles
from shared.tls.stream import HandshakeError, TlsStream
from tests.cases import each
from tests.certificates import Authority

Talk = Callable[[TlsStream, TlsStream, trio.abc.Stream, trio.abc.Stream], Coroutine[Any, Any, None]]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


def files(authority: Authority, policy: str = "") -> TlsFiles:
    return TlsFiles(authority.cert, authority.key, policy, authority.root if policy == "require-verify" else "")


def with_both(server: TlsFiles, client: ssl.SSLContext, talk: Talk, name: str = "localhost") -> None:
    """Run `talk` with both ends, and with the streams below them."""

    async def run() -> None:
        below_client, below_server = trio.testing.memory_stream_pair()
        dialing = TlsStream(below_client, lambda i, o: client.wrap_bio(i, o, server_hostname=name))
        await talk(dialing, TlsStream(below_server, Certificates(server).wrap), below_client, below_server)

    trio.run(run)


async def agree(client: TlsStream, server: TlsStream) -> list[str]:
    """Shake hands. Returns why each side failed, "" if it did not, the client first."""
    found = ["", ""]

    async def one(place: int, side: TlsStream) -> None:
        try:
            await side.do_handshake()
        except HandshakeError as error:
            found[place] = str(error)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(one, 0, client)
        nursery.start_soon(one, 1, server)
    return found


@each("policy", ["", "require", "require-verify"])
def test_bytes_come_through_and_a_goodbye_is_the_end(authority: Authority, policy: str) -> None:
    async def talk(client: TlsStream, server: TlsStream, *_: trio.abc.Stream) -> None:
        assert await agree(client, server) == ["", ""]
        long = bytes(range(256)) * 400
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.send_all, long)
            found = b""
            while len(found) < len(long):
                found += await server.receive_some(1000)
        assert found == long
        await server.send_all(b"last words")
        await server.aclose()
        assert [await client.receive_some(), await client.receive_some()] == [b"last words", b""]
        await client.aclose()

    with_both(files(authority, policy), authority.client(authority.issue("ann")), talk)


def test_a_peer_that_closes_without_a_goodbye_is_at_its_end(authority: Authority) -> None:
    async def talk(client: TlsStream, server: TlsStream, below: trio.abc.Stream, *_: trio.abc.Stream) -> None:
        assert await agree(client, server) == ["", ""]
        await below.aclose()
        assert await server.receive_some() == b""

    with_both(files(authority), authority.client(), talk)


def test_both_sides_learn_why_a_client_without_a_certificate_is_refused(authority: Authority) -> None:
    async def talk(client: TlsStream, server: TlsStream, *_: trio.abc.Stream) -> None:
        assert await agree(client, server) == ["", "peer did not return a certificate"]
        with pytest.raises(trio.BrokenResourceError, match="TLS: tlsv13 alert certificate required"):
            await client.receive_some()

    with_both(files(authority, "require-verify"), authority.client(), talk)


def test_what_is_no_tls_and_a_peer_that_hangs_up_fail_the_handshake(authority: Authority) -> None:
    async def talk(_: TlsStream, server: TlsStream, below: trio.abc.Stream, *__: trio.abc.Stream) -> None:
        await below.send_all(b"  V1PING\n")
        with pytest.raises(HandshakeError, match=r"wrong version number|http request|unknown"):
            await server.do_handshake()

    async def hang_up(_: TlsStream, server: TlsStream, below: trio.abc.Stream, *__: trio.abc.Stream) -> None:
        await below.aclose()
        with pytest.raises(HandshakeError, match="the peer hung up"):
            await server.do_handshake()

    with_both(files(authority), authority.client(), talk)
    with_both(files(authority), authority.client(), hang_up)


def test_a_changed_byte_breaks_the_connection(authority: Authority) -> None:
    async def talk(client: TlsStream, server: TlsStream, below: trio.abc.Stream, *_: trio.abc.Stream) -> None:
        assert await agree(client, server) == ["", ""]
        await below.send_all(b"\x17\x03\x03\x00\x20" + b"x" * 32)
        with pytest.raises(trio.BrokenResourceError, match="TLS: "):
            await server.receive_some()
        with pytest.raises(trio.BrokenResourceError, match="TLS: "):
            await server.send_all(b"x")

    with_both(files(authority), authority.client(), talk)
