"""nsqd's connection to an nsqlookupd that is not what it should be."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
import trio

from nsqd.discovery import link
from nsqd.discovery.link import LinkError, LookupdLink
from penstock.protocol.framing import pack_length
from penstock.protocol.lookup import register
from shared.tls.certificates import Certificates, TlsFiles
from shared.tls.client import ClientCertificates, load_client
from shared.tls.stream import HandshakeError, TlsStream
from tests.certificates import Authority

pytestmark = pytest.mark.process

IDENTITY = {"broadcast_address": "127.0.0.1", "tcp_port": 4150, "http_port": 4151, "version": "1.3.0", "hostname": ""}
HELLO = b'{"broadcast_address":"10.0.0.1","http_port":4161}'
Serve = Callable[[trio.SocketStream], Awaitable[None]]


def framed(*replies: bytes) -> bytes:
    return b"".join(pack_length(len(reply)) + reply for reply in replies)


def converse(
    serve: Serve, use: Callable[[LookupdLink], Awaitable[None]], tls: ClientCertificates | None = None
) -> None:
    """`use` a link to a server that treats its only connection so. `tls`: whom the link trusts."""

    async def main() -> None:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")

        async def accept() -> None:
            async with await listener.accept() as stream:
                await serve(stream)
                await trio.sleep_forever()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(accept)
            one = LookupdLink(f"127.0.0.1:{listener.socket.getsockname()[1]}", IDENTITY, tls)
            await use(one)
            await one.close()
            nursery.cancel_scope.cancel()

    trio.run(main)


async def connect(one: LookupdLink) -> None:
    await one.connect(list)


def refusing(why: str) -> Callable[[LookupdLink], Awaitable[None]]:
    """Use a link whose connecting fails for this reason."""

    async def use(one: LookupdLink) -> None:
        with pytest.raises(LinkError, match=why):
            await connect(one)

    return use


@pytest.mark.parametrize(("answer", "why"), [
    (b"\x7f\xff\xff\xff", "length 2147483647 is not in"), (b"\xff\xff\xff\xff", "length -1 is not in"),
    (pack_length(link.MAX_REPLY + 1), "length 16385 is not in"),
    (framed(HELLO, b"OK"), "it sent more than one response"),
    (framed(b"E_INVALID " + b"x" * 9_000), "^E_INVALID x{190}$"), (b"\0\0\0\2O", "timed out"),
])  # fmt: skip
def test_an_answer_that_is_none(answer: bytes, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if why == "timed out":
        monkeypatch.setattr(link, "TIMEOUT", 0.05)
    converse(lambda stream: stream.send_all(answer), refusing(why))


def test_a_dripping_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "TIMEOUT", 0.1)

    async def drip(stream: trio.SocketStream) -> None:
        for byte in framed(b"x" * 10_000):
            await stream.send_all(bytes([byte]))
            await trio.sleep(0.01)

    converse(drip, refusing("timed out"))


@pytest.mark.parametrize(("response", "address"), [
    (HELLO, "10.0.0.1:4161"), (b'{"broadcast_address":"::1","http_port":4161}', "[::1]:4161"),
    (b'{"broadcast_address":"h","http_port":65536}', ""),
    (b'{"broadcast_address":"h","http_port":%s}' % (b"9" * 5000), ""),
    (b'{"broadcast_address":"%s","http_port":1}' % (b"h" * 256), ""), (b"OK", ""), (b"[" * 10_000, ""),
])  # fmt: skip
def test_where_its_http_api_is(response: bytes, address: str) -> None:
    async def use(one: LookupdLink) -> None:
        await connect(one)
        assert one.http_url == (address and f"http://{address}")

    converse(lambda stream: stream.send_all(framed(response)), use)


async def answer_each(stream: trio.SocketStream) -> None:
    """HELLO, then OK for each line, but the third, which is beyond a limit. Never reads while it cannot write."""
    await stream.send_all(framed(HELLO))
    lines = -2  # -1 after the line of IDENTIFY, whose body has no newline; 0 after the first REGISTER
    while data := await stream.receive_some(4096):
        for _ in range(data.count(b"\n")):
            lines += 1
            if lines >= 0:
                await stream.send_all(framed(b"E_REGISTER_FAILED too many" if lines == 2 else b"OK"))


def test_a_refused_name_ends_nothing(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[tuple[str, str | None]] = [(f"t{number}", None) for number in range(3 * link.BATCH + 7)]

    async def use(one: LookupdLink) -> None:
        await one.connect(lambda: names)
        assert one.connected
        await one.send([register("one"), register("more")])

    monkeypatch.setattr(link.log, "propagate", True)
    converse(answer_each, use)
    assert "it rejected 1 topics and channels: b'E_REGISTER_FAILED too many'" in caplog.text


SECURE = b'{"broadcast_address":"localhost","http_port":4161,"https_port":4162}'


def over_tls(
    directory: Path,
    use: Callable[[LookupdLink], Awaitable[None]],
    policy: str = "",
    response: bytes = SECURE,
    trusts: str = "",
) -> None:
    """`use` a link over TLS to a server that asks for certificates by this policy, with this response to IDENTIFY."""
    authority = Authority(directory)
    certificates = Certificates(TlsFiles(authority.cert, authority.key, policy, authority.root if policy else ""))
    tls = ClientCertificates(partial(load_client, trusts or authority.root))

    async def serve(stream: trio.SocketStream) -> None:
        encrypted = TlsStream(stream, certificates.wrap)
        with suppress(HandshakeError):
            await encrypted.do_handshake()
            await encrypted.send_all(framed(response))

    converse(serve, use, tls)


def test_over_tls_it_uses_the_https_api(tmp_path: Path) -> None:
    async def use(one: LookupdLink) -> None:
        await connect(one)
        assert one.http_url == "https://localhost:4162"

    over_tls(tmp_path, use)


def test_without_https_it_is_not_asked_in_clear_text(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def use(one: LookupdLink) -> None:
        await connect(one)
        assert one.http_url == ""

    over_tls(tmp_path, use, response=HELLO)
    assert "it has no HTTPS port, so it is not asked for channels: give it -https-address" in caplog.text


def test_an_nsqlookupd_of_another_authority_is_refused(tmp_path: Path) -> None:
    over_tls(
        tmp_path / "ours",
        refusing(r"TLS: certificate verify failed: .*; -lookupd-tls-root-ca-file must name"),
        trusts=Authority(tmp_path / "other").root,
    )


def test_a_node_without_the_certificate_that_is_wanted_learns_so(tmp_path: Path) -> None:
    over_tls(
        tmp_path, refusing(r"TLS: tlsv13 alert certificate required; -lookupd-tls-cert must name"), "require-verify"
    )


def test_an_nsqlookupd_without_tls_is_recognized(tmp_path: Path) -> None:
    tls = ClientCertificates(partial(load_client, Authority(tmp_path).root))
    converse(
        lambda stream: stream.send_all(framed(b"E_BAD_PROTOCOL")),
        refusing("it does not speak TLS there: give it -tls-cert and -tls-key"),
        tls,
    )
