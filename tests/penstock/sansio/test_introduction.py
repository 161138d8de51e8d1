"""The client's introduction, its layers and its TLS settings: no socket, the server is spelled out or an SSLObject."""

import json
import logging
import ssl
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from struct import pack
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization as form
from hypothesis import given
from hypothesis import strategies as st

from penstock.protocol import ProtocolError, nsq
from penstock.protocol.compression import Deflate, Snappy
from penstock.sansio.introduction import MAX_ANSWER, Introduction, MissingFeature
from penstock.sansio.layers import Compression, Layers, Tls
from penstock.sansio.settings import Settings
from penstock.sansio.tls import client_context
from tests.cases import each
from tests.certificates import Authority
from tests.penstock.sansio.test_conversations import OK, features, frame
from tests.weak_certificates import WeakAuthority


class Client:
    """An introduction and its layers, fed as a connection feeds them."""

    def __init__(self, settings: Settings, make_tls: Callable[[], Tls] | None = None) -> None:
        self.layers = Layers()
        self.introduction = Introduction(settings, self.layers, make_tls or self._no_tls)
        self.sent = self.introduction.begin()
        self.frames: list[nsq.Frame] = []

    def receive(self, data: bytes) -> None:
        frames, output = self.introduction.receive(self.layers.decode(data))
        self.frames += frames
        self.sent += output

    def take_sent(self) -> bytes:
        sent, self.sent = self.sent, b""
        return sent

    @property
    def features(self) -> dict[str, Any] | None:
        """None until the introduction is over."""
        return self.introduction.features

    @staticmethod
    def _no_tls() -> Tls:
        raise AssertionError("TLS is not requested")


class TlsServer:
    def __init__(self, authority: Authority) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(authority.cert, authority.key)
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_side=True)

    def shake_hands(self, client: Client) -> None:
        """Complete the handshake. Raises ssl.SSLError of either side."""
        for _ in range(3):
            self.incoming.write(client.take_sent())
            try:
                self.tls.do_handshake()
                return
            except ssl.SSLWantReadError:
                client.receive(self.outgoing.read())
        raise AssertionError("no end of shaking hands")

    def say(self, data: bytes) -> bytes:
        """Return the pending bytes, and the data encrypted."""
        self.tls.write(data)
        return self.outgoing.read()

    def receive(self, data: bytes) -> bytes:
        self.incoming.write(data)
        return self.tls.read(1 << 20)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def tls_client(authority: Authority, name: str = "localhost", **options: Any) -> Client:
    settings = Settings(**{"tls_v1": True, "tls_root_ca_file": authority.root, **options})
    context = client_context(settings)
    assert context is not None
    client = Client(settings, lambda: Tls(context, name))
    client.take_sent()
    return client


# ---- without layers


def test_plain() -> None:
    client = Client(Settings(client_id="me"))
    assert client.sent.startswith(b"  V2IDENTIFY\n")
    body = json.loads(client.sent[17:])
    assert body["client_id"] == "me"
    assert not {"tls_v1", "snappy", "deflate", "deflate_level"} & body.keys()

    client.receive(features(tls_v1=True, snappy=True) + frame(b"behind"))

    assert client.features == {"max_rdy_count": 2500, "tls_v1": True, "snappy": True}
    assert client.introduction.rest == frame(b"behind")
    client = Client(Settings(snappy=True))
    client.receive(OK)
    assert client.features == {}
    client = Client(Settings())
    client.take_sent()
    client.receive(frame(b"_heartbeat_") + features())
    assert client.take_sent() == b"NOP\n"
    assert client.features


@each("answer", [
    frame(b"[]"), frame(b"nonsense"), frame(b"\xff"), frame(b"[" * 100_000), pack(">i", MAX_ANSWER + 1), pack(">i", -1),
    pack(">i", 3) + b"abc", frame(b"", kind=7), b"HTTP/1.1 400 Bad Request\r\n",
])  # fmt: skip
def test_what_is_no_answer_to_identify(answer: bytes) -> None:
    with pytest.raises(ProtocolError):
        Client(Settings()).receive(answer)


def test_an_error_is_the_owners() -> None:
    refusal = "E_IDENTIFY_FAILED cannot enable both"
    unauthorized = "E_UNAUTHORIZED AUTH no authorizations found"
    for settings, before, error in (
        (Settings(snappy=True, deflate=True), b"", refusal),
        (Settings(auth_secret="bad"), features(auth_required=True), unauthorized),
    ):
        client = Client(settings)
        client.receive(before + frame(error.encode(), kind=1))
        assert [str(one) for one in client.frames] == [error]
        assert client.features is None


# ---- compression


@pytest.mark.parametrize(("name", "codec"), [("snappy", Snappy), ("deflate", Deflate)])
@given(cuts=st.lists(st.integers(0, 60)))
def test_compressed_streams_cut_anywhere(name: str, codec: Callable[[], Snappy | Deflate], cuts: list[int]) -> None:
    client, server = Client(Settings(**{name: True})), codec()
    body = json.loads(client.take_sent()[17:])
    assert body[name] is True
    assert body.get("deflate_level") == (6 if name == "deflate" else None)

    stream = features(**{name: True}) + server.compress(OK) + server.compress(frame(b"behind"))
    for cut in [*cuts, len(stream)]:
        client.receive(stream[:cut])
        stream = stream[cut:]

    assert client.features is not None
    assert client.introduction.rest == frame(b"behind")
    assert client.take_sent() == b""
    server.feed(client.layers.encode(b"PUB t\n"))
    assert server.read(100) == b"PUB t\n"


def test_a_compression_that_is_not_granted_is_done_without(caplog: pytest.LogCaptureFixture) -> None:
    client = Client(Settings(snappy=True))
    with caplog.at_level(logging.WARNING):
        client.receive(features(snappy=False))
    assert client.features is not None
    assert client.layers.encode(b"PUB t\n") == b"PUB t\n"
    assert "the server does not support snappy" in caplog.text


def test_an_upgrade_must_be_confirmed_and_a_layer_gives_all_it_has() -> None:
    client = Client(Settings(snappy=True))
    with pytest.raises(ProtocolError, match="an upgrade was answered b'NO'"):
        client.receive(features(snappy=True) + Snappy().compress(frame(b"NO")))
    data = bytes(5 << 20)  # several bites
    assert Compression(Deflate()).decode(Deflate().compress(data)) == data


# ---- AUTH


@each("secret, required, sent", [
    ("s\u00e9cret", True, b"AUTH\n\x00\x00\x00\x07s\xc3\xa9cret"), ("", True, b""), ("secret", False, b""),
])  # fmt: skip
def test_auth_if_the_server_wants_it_and_there_is_a_secret(secret: str, required: bool, sent: bytes) -> None:
    client = Client(Settings(auth_secret=secret))
    client.take_sent()
    client.receive(features(auth_required=required))
    assert client.take_sent() == sent
    assert (client.features is None) is bool(sent)
    if sent:
        client.receive(frame(b'{"identity":"me","identity_url":"","permission_count":1}'))
        assert client.features is not None


# ---- TLS


@pytest.mark.parametrize("compression", ["", "snappy", "deflate"])
def test_tls_then_compression_then_auth(authority: Authority, compression: str) -> None:
    options = {compression: True} if compression else {}
    client, server = tls_client(authority, auth_secret="secret", **options), TlsServer(authority)
    client.take_sent()

    client.receive(features(tls_v1=True, auth_required=True, **options))
    server.shake_hands(client)
    if compression:
        codec = Snappy() if compression == "snappy" else Deflate()
        client.receive(server.say(OK) + server.say(codec.compress(OK)))
        codec.feed(server.receive(client.take_sent()))
        assert codec.read(100) == b"AUTH\n\x00\x00\x00\x06secret"
        client.receive(server.say(codec.compress(frame(b"{}"))))
    else:
        client.receive(server.say(OK))
        assert server.receive(client.take_sent()) == b"AUTH\n\x00\x00\x00\x06secret"
        client.receive(server.say(frame(b"{}")))

    assert client.features is not None


def test_tls_however_it_is_cut_and_no_goodbye_in_the_middle_of_a_handshake(authority: Authority) -> None:
    client, server = tls_client(authority), TlsServer(authority)
    client.receive(features(tls_v1=True))
    server.shake_hands(client)
    for byte in server.say(OK) + server.say(frame(b"x" * 50_000)):
        client.receive(bytes([byte]))
    assert client.introduction.rest == frame(b"x" * 50_000)

    client = tls_client(authority)
    client.receive(features(tls_v1=True))
    hello = client.take_sent()
    assert hello.startswith(b"\x16\x03")  # a record of the handshake
    assert client.layers.end() == b""


def test_without_tls_there_is_no_going_on(authority: Authority) -> None:
    for answer in (features(tls_v1=False), OK):
        client = tls_client(authority, auth_secret="secret")
        with pytest.raises(MissingFeature, match="the server does not support TLS, and tls_v1 is set"):
            client.receive(answer)
        assert client.take_sent() == b""
    client = tls_client(authority)
    with pytest.raises(ssl.SSLError):  # bytes in clear before TLS are not accepted
        client.receive(features(tls_v1=True) + OK)
    assert client.features is None


def test_the_server_must_have_the_right_name_and_authority(authority: Authority, tmp_path: Path) -> None:
    client = tls_client(authority, name="example.org")
    client.receive(features(tls_v1=True))
    with pytest.raises(ssl.SSLCertVerificationError, match=r"example\.org"):
        TlsServer(authority).shake_hands(client)
    assert client.layers.encode(b"")  # the alert
    assert client.features is None
    client, stranger = tls_client(authority), TlsServer(Authority(tmp_path))
    client.receive(features(tls_v1=True))
    with pytest.raises(ssl.SSLCertVerificationError):
        stranger.shake_hands(client)
    client = tls_client(authority, name="example.org", tls_insecure_skip_verify=True)
    client.receive(features(tls_v1=True))
    stranger = TlsServer(Authority(tmp_path))
    stranger.shake_hands(client)
    client.receive(stranger.say(OK))
    assert client.features is not None, "any certificate will do if so told"


def test_the_end_is_sent_and_received(authority: Authority) -> None:
    client, server = tls_client(authority), TlsServer(authority)
    client.receive(features(tls_v1=True))
    server.shake_hands(client)
    client.receive(server.say(OK) + server.say(frame(b"last")))

    assert server.receive(client.layers.end()) == b""  # close_notify
    assert client.layers.decode(server.say(b"even later")) == b"even later"  # one direction is still open
    server.tls.unwrap()
    assert client.layers.decode(server.outgoing.read()) == b""
    assert client.layers.end() == b""


# ---- settings


def test_a_context_only_for_tls_and_the_least_version(authority: Authority, caplog: pytest.LogCaptureFixture) -> None:
    assert client_context(Settings()) is None
    assert not caplog.text
    assert client_context(Settings(tls_root_ca_file=authority.root)) is None
    assert "without tls_v1 connections are not encrypted" in caplog.text
    for version, least in (("", "TLSv1_2"), ("tls1.0", "TLSv1_2"), ("tls1.2", "TLSv1_2"), ("tls1.3", "TLSv1_3")):
        context = client_context(Settings(tls_v1=True, tls_min_version=version))
        assert context is not None
        assert (context.minimum_version.name, context.verify_mode) == (least, ssl.CERT_REQUIRED)
        assert context.check_hostname


def test_a_weak_certificate_is_of_use_at_its_security_level(tmp_path: Path) -> None:
    weak = WeakAuthority(tmp_path, 1024, sha1=False)
    settings = Settings(tls_v1=True, tls_root_ca_file=weak.root, tls_cert=weak.cert, tls_key=weak.key)
    with pytest.raises(ValueError, match=r"key too small \(a tls_security_level of 1 or 0 accepts weak certificates\)"):
        client_context(settings)
    assert client_context(replace(settings, tls_security_level=1)) is not None
    with pytest.raises(ValueError, match="tls_security_level must be 0 to 2"):
        replace(settings, tls_security_level=3)


def test_files_that_are_of_no_use(authority: Authority, tmp_path: Path) -> None:
    nonsense, locked = tmp_path / "nonsense.pem", tmp_path / "locked.pem"
    nonsense.write_text("nonsense")
    key = form.load_pem_private_key(Path(authority.key).read_bytes(), None)
    pem, scheme = form.Encoding.PEM, form.PrivateFormat.PKCS8
    locked.write_bytes(key.private_bytes(pem, scheme, form.BestAvailableEncryption(b"word")))
    for why, named in (
        (r"tls_root_ca_file .*nonsense\.pem: ", {"tls_root_ca_file": str(nonsense)}),
        ("No such file", {"tls_cert": "/nix", "tls_key": "/nix"}),
        ("must be given together", {"tls_cert": authority.cert}),
        (r"tls_key .*ca\.pem", {"tls_cert": authority.cert, "tls_key": authority.root}),
        ("the key needs a password", {"tls_cert": authority.cert, "tls_key": str(locked)}),
    ):
        with pytest.raises(ValueError, match=why):
            client_context(Settings(tls_v1=True, **named))
    for wrong in ({"deflate_level": 0}, {"deflate_level": 10}, {"tls_min_version": "tls2"}):
        with pytest.raises(ValueError):
            Settings(**wrong)  # type: ignore[arg-type]
