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

from penstock.protocol import nsq
from penstock.protocol.compression import Deflate, Snappy
from penstock.sansio.errors import ConnectionLost
from penstock.sansio.introduction import MAX_ANSWER
from penstock.sansio.layers import Compression
from penstock.sansio.session import Session
from penstock.sansio.settings import Settings
from penstock.sansio.tls import client_context
from tests.cases import each
from tests.certificates import Authority
from tests.penstock.sansio.test_conversations import BEAT, OK, features, frame
from tests.weak_certificates import WeakAuthority


class TlsServer:
    def __init__(self, authority: Authority) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(authority.cert, authority.key)
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_side=True)

    def shake_hands(self, session: Session) -> None:
        """Complete the handshake. Raises ssl.SSLError of either side."""
        for _ in range(3):
            self.incoming.write(session.take_output())
            try:
                self.tls.do_handshake()
                return
            except ssl.SSLWantReadError:
                session.receive(self.outgoing.read())
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


def tls_session(authority: Authority, name: str = "localhost", **options: Any) -> Session:
    settings = Settings(**{"tls_v1": True, "tls_root_ca_file": authority.root, **options})
    session = Session(f"{name}:1", settings, client_context(settings))
    session.take_output()
    return session


# ---- without layers


def test_a_session_introduces_itself_and_answers_heartbeats() -> None:
    session = Session("h:1", Settings(client_id="me"))
    sent = session.take_output()
    assert sent.startswith(b"  V2IDENTIFY\n")
    body = json.loads(sent[17:])
    assert body["client_id"] == "me"
    assert not {"tls_v1", "snappy", "deflate", "deflate_level"} & body.keys()

    assert session.receive(BEAT + features(tls_v1=True, snappy=True) + BEAT + OK) == [nsq.Response(b"OK")]

    assert session.features == {"max_rdy_count": 2500, "tls_v1": True, "snappy": True}
    assert session.take_output() == b"NOP\nNOP\n"
    assert session.take_output() == b""
    session = Session("h:1", Settings(snappy=True))
    session.receive(OK)
    assert session.features == {}


@each("answer, why", [
    (b"", "h:1: the server closed the connection"), (b"HTTP/1.1 400 Bad Request\r\n", "h:1: not an nsqd: it speaks HTTP"),
    (BEAT * 101, "h:1: not an nsqd: heartbeats without an answer"), (frame(b"[]"), "h:1: not an nsqd: IDENTIFY answered"),
    (frame(b"", kind=7), "h:1: not an nsqd: frame type 7"), (features() + frame(b"", 9), "h:1: not an nsqd: frame type 9"),
    *((answer, "h:1: not an nsqd: ") for answer in (
        frame(b"nonsense"), frame(b"\xff"), frame(b"[" * 100_000), pack(">i", MAX_ANSWER + 1), pack(">i", -1),
        pack(">i", 3) + b"abc",
    )),
])  # fmt: skip
def test_a_stranger_is_recognized(answer: bytes, why: str) -> None:
    with pytest.raises(ConnectionLost, match=why):
        Session("h:1", Settings()).receive(answer)


@each("settings, before, error", [
    (Settings(snappy=True, deflate=True), b"", "E_IDENTIFY_FAILED cannot enable both"),
    (Settings(auth_secret="bad"), features(auth_required=True), "E_UNAUTHORIZED AUTH no authorizations found"),
])  # fmt: skip
def test_an_error_is_the_owners(settings: Settings, before: bytes, error: str) -> None:
    session = Session("h:1", settings)
    assert [str(one) for one in session.receive(before + frame(error.encode(), kind=1))] == [error]
    assert session.features is None


# ---- compression


@pytest.mark.parametrize(("name", "codec"), [("snappy", Snappy), ("deflate", Deflate)])
@given(cuts=st.lists(st.integers(1, 60)))
def test_compressed_streams_cut_anywhere(name: str, codec: Callable[[], Snappy | Deflate], cuts: list[int]) -> None:
    session, server = Session("h:1", Settings(**{name: True})), codec()
    body = json.loads(session.take_output()[17:])
    assert body[name] is True
    assert body.get("deflate_level") == (6 if name == "deflate" else None)

    stream = features(**{name: True}) + server.compress(OK) + server.compress(frame(b"behind"))
    frames: list[nsq.Frame] = []
    for cut in [*cuts, len(stream)]:
        if piece := stream[:cut]:
            frames += session.receive(piece)
        stream = stream[cut:]

    assert frames == [nsq.Response(b"behind")]
    assert session.take_output() == b""
    session.send(b"PUB t\n")
    server.feed(session.take_output())
    assert server.read(100) == b"PUB t\n"


def test_a_compression_that_is_not_granted_is_done_without(caplog: pytest.LogCaptureFixture) -> None:
    session = Session("h:1", Settings(snappy=True))
    session.take_output()
    with caplog.at_level(logging.WARNING):
        session.receive(features(snappy=False))
    session.send(b"PUB t\n")
    assert session.take_output() == b"PUB t\n"
    assert "the server does not support snappy" in caplog.text


def test_an_upgrade_must_be_confirmed_and_a_layer_gives_all_it_has() -> None:
    with pytest.raises(ConnectionLost, match="an upgrade was answered b'NO'"):
        Session("h:1", Settings(snappy=True)).receive(features(snappy=True) + Snappy().compress(frame(b"NO")))
    data = bytes(5 << 20)  # several bites
    assert Compression(Deflate()).decode(Deflate().compress(data)) == data


# ---- AUTH


@each("secret, required, sent", [
    ("s\u00e9cret", True, b"AUTH\n\x00\x00\x00\x07s\xc3\xa9cret"), ("", True, b""), ("secret", False, b""),
])  # fmt: skip
def test_auth_if_the_server_wants_it_and_there_is_a_secret(secret: str, required: bool, sent: bytes) -> None:
    session = Session("h:1", Settings(auth_secret=secret))
    session.take_output()
    session.receive(features(auth_required=required))
    assert session.take_output() == sent
    assert (session.features is None) is bool(sent)
    if sent:
        session.receive(frame(b'{"identity":"me","identity_url":"","permission_count":1}'))
        assert session.features is not None


# ---- TLS


@pytest.mark.parametrize("compression", ["", "snappy", "deflate"])
def test_tls_then_compression_then_auth(authority: Authority, compression: str) -> None:
    options = {compression: True} if compression else {}
    session, server = tls_session(authority, auth_secret="secret", **options), TlsServer(authority)
    session.receive(features(tls_v1=True, auth_required=True, **options))
    server.shake_hands(session)
    session.receive(server.say(OK))
    auth, answer = b"AUTH\n\x00\x00\x00\x06secret", frame(b"{}")
    if compression:
        codec = Snappy() if compression == "snappy" else Deflate()
        session.receive(server.say(codec.compress(OK)))
        codec.feed(server.receive(session.take_output()))
        assert codec.read(100) == auth
        answer = codec.compress(answer)
    else:
        assert server.receive(session.take_output()) == auth
    session.receive(server.say(answer))
    assert session.features is not None


def test_tls_however_it_is_cut_and_no_goodbye_in_the_middle_of_a_handshake(authority: Authority) -> None:
    session, server = tls_session(authority), TlsServer(authority)
    session.receive(features(tls_v1=True))
    server.shake_hands(session)
    frames: list[nsq.Frame] = []
    for byte in server.say(OK) + server.say(frame(b"x" * 50_000)):
        frames += session.receive(bytes([byte]))
    assert frames == [nsq.Response(b"x" * 50_000)]

    session = tls_session(authority)
    session.receive(features(tls_v1=True))
    assert session.take_output().startswith(b"\x16\x03")  # a record of the handshake
    session.end()
    assert session.take_output() == b""


def test_without_tls_there_is_no_going_on(authority: Authority) -> None:
    for answer in (features(tls_v1=False), OK):
        session = tls_session(authority, auth_secret="secret")
        with pytest.raises(ConnectionLost, match="the server does not support TLS, and tls_v1 is set") as lost:
            session.receive(answer)
        assert (lost.value.is_final, session.take_output()) == (True, b"")
    session = tls_session(authority)
    with pytest.raises(ConnectionLost):  # bytes in clear before TLS are not accepted
        session.receive(features(tls_v1=True) + OK)
    assert session.features is None


def test_the_server_must_have_the_right_name_and_authority(authority: Authority, tmp_path: Path) -> None:
    stranger = Authority(tmp_path)
    for name, issuer, why in (("example.org", authority, r"example\.org"), ("localhost", stranger, "local issuer")):
        session = tls_session(authority, name)
        session.receive(features(tls_v1=True))
        with pytest.raises(ConnectionLost, match=why) as lost:
            TlsServer(issuer).shake_hands(session)
        assert lost.value.is_final
        assert session.take_output()  # the alert
        assert session.features is None
    session, server = tls_session(authority, "example.org", tls_insecure_skip_verify=True), TlsServer(stranger)
    session.receive(features(tls_v1=True))
    server.shake_hands(session)
    session.receive(server.say(OK))
    assert session.features is not None, "any certificate will do if so told"


def test_the_end_is_sent_and_received(authority: Authority) -> None:
    session, server = tls_session(authority), TlsServer(authority)
    session.receive(features(tls_v1=True))
    server.shake_hands(session)
    session.receive(server.say(OK) + server.say(frame(b"last")))

    session.end()
    assert server.receive(session.take_output()) == b""  # close_notify
    late = server.say(frame(b"even later"))  # one direction is still open
    assert session.receive(late) == [nsq.Response(b"even later")]
    server.tls.unwrap()
    assert session.receive(server.outgoing.read()) == []
    session.end()
    assert session.take_output() == b""


# ---- settings


def test_a_context_only_for_tls_and_the_least_version(authority: Authority, caplog: pytest.LogCaptureFixture) -> None:
    assert client_context(Settings()) is None
    assert not caplog.text
    assert client_context(Settings(tls_root_ca_file=authority.root)) is None
    assert "without tls_v1 connections are not encrypted" in caplog.text
    for version, least in (("", "TLSv1_2"), ("tls1.0", "TLSv1_2"), ("tls1.2", "TLSv1_2"), ("tls1.3", "TLSv1_3")):
        context = client_context(Settings(tls_v1=True, tls_min_version=version))
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
