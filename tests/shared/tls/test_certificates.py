"""The server's side of TLS, in memory: versions, policies about clients' certificates, reload, and what stats say."""

import gc
import logging
import os
import re
import ssl
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import trustme
from OpenSSL import SSL, crypto

from nsqd.options import NsqdOptions
from shared.configuration import parse
from shared.options import OptionError
from shared.tls.certificates import (
    Certificates,
    TlsError,
    TlsFiles,
    TlsObject,
    client_context,
    describe,
    describe_failure,
)
from shared.tls.info import TlsInfo
from shared.tls.strength import weakness_advice
from tests.cases import each
from tests.certificates import Authority, only
from tests.weak_certificates import WeakAuthority

V1_0, V1_1 = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
V1_2, V1_3 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("stranger"))


@pytest.fixture(scope="module")
def rsa_authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("rsa"), trustme.KeyType.RSA)


def files(authority: Authority, policy: str = "", min_version: str = "tls1.2") -> TlsFiles:
    return TlsFiles(authority.cert, authority.key, policy, authority.root, min_version)


class Pair:
    """A client and the server's side, with the bytes between them in memory."""

    def __init__(
        self, certificates: Certificates, client: ssl.SSLContext, session: ssl.SSLSession | None = None
    ) -> None:
        self.to_server, self.to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.server: TlsObject = certificates.wrap(self.to_server, self.to_client)
        self.client = client.wrap_bio(self.to_client, self.to_server, server_hostname="localhost", session=session)

    def shake_hands(self) -> None:
        """Raises the ssl.SSLError of the side that fails first."""
        for side in (self.client, self.server, self.client, self.server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                pass
        with pytest.raises(ssl.SSLWantReadError):  # TLS 1.3 sends tickets after the handshake
            self.client.read()

    def close(self) -> None:
        with pytest.raises(ssl.SSLWantReadError):
            self.client.unwrap()
        assert self.server.read(1) == b""
        self.server.unwrap()


def connected(certificates: Certificates, client: ssl.SSLContext, session: ssl.SSLSession | None = None) -> Pair:
    pair = Pair(certificates, client, session)
    pair.shake_hands()
    return pair


def refusal(certificates: Certificates, client: ssl.SSLContext) -> str:
    with pytest.raises(ssl.SSLError) as failure:
        Pair(certificates, client).shake_hands()
    return str(failure.value.reason)


# Versions and ciphers


@each("policy", ["", "require"])
def test_what_is_older_than_1_2_is_refused_even_if_asked_for(authority: Authority, policy: str) -> None:
    certificates = Certificates(files(authority, policy, "tls1.0"))
    for version in (V1_0, V1_1):
        assert refusal(certificates, only(authority.client(), version)) == "UNSUPPORTED_PROTOCOL"
    certificates, me = Certificates(files(authority, policy, "tls1.3")), authority.issue("me")
    assert refusal(certificates, only(authority.client(me), V1_2)) == "UNSUPPORTED_PROTOCOL"
    assert describe(connected(certificates, only(authority.client(me), V1_3)).server).version == "TLS1.3"
    pair = Pair(Certificates(files(authority, policy)), only(authority.client(), V1_1))
    with pytest.raises(ssl.SSLError):
        pair.shake_hands()
    with pytest.raises(ssl.SSLError, match="alert"):
        pair.client.do_handshake()


def test_weak_options_are_logged_once(authority: Authority, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "penstock")
    for asked in ("tls1.0", "tls1.1", "tls1.2", "tls1.3"):
        Certificates(files(authority, "", asked)).reload()
    assert [version in one for version, one in zip(("tls1.0", "tls1.1"), caplog.messages, strict=True)] == [True, True]
    Certificates(replace(files(authority), security_level=1))
    assert "tls-security-level 1" in caplog.messages[-1]


@each("policy", ["", "require"])
def test_no_cipher_without_forward_secrecy(authority: Authority, rsa_authority: Authority, policy: str) -> None:
    certificates = Certificates(files(rsa_authority, policy))
    client = only(rsa_authority.client(authority.issue("me")), V1_2)
    client.set_ciphers("AES128-GCM-SHA256")  # the key travels under the certificate's
    assert refusal(certificates, client) == "NO_SHARED_CIPHER"


@each("policy", ["", "require"])
@each("version, ciphers, said", [
    (V1_2, "ECDHE-ECDSA-AES128-GCM-SHA256", ("TLS1.2", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256")),
    (V1_2, "ECDHE-ECDSA-AES256-GCM-SHA384", ("TLS1.2", "Unknown 49196")), (V1_3, "DEFAULT", ("TLS1.3", "Unknown 4866")),
])  # fmt: skip
def test_a_connection_is_described_as_the_original_does(
    authority: Authority, policy: str, version: ssl.TLSVersion, ciphers: str, said: tuple[str, str]
) -> None:
    client = only(authority.client(authority.issue("me")), version)
    client.set_ciphers(ciphers)
    client.set_alpn_protocols(["h2", "http/1.1"])
    info = describe(connected(Certificates(files(authority, policy)), client).server)
    assert (info.version, info.cipher_suite) == said
    assert (info.negotiated_protocol, info.negotiated_protocol_is_mutual) == ("", True)


# Clients' certificates

NOBODY, UNKNOWN = "PEER_DID_NOT_RETURN_A_CERTIFICATE", "CERTIFICATE_VERIFY_FAILED"


@each("version", [V1_2, V1_3])
@each("policy, shown, outcome", [
    ("", "none", ""), ("", "good", ""), ("something else", "none", ""),  # not asked for, so not sent
    ("require", "none", NOBODY), ("require", "good", "good"), ("require", "foreign", "foreign"),
    ("require", "expired", "expired"), ("require-verify", "none", NOBODY), ("require-verify", "good", "good"),
    ("require-verify", "foreign", UNKNOWN), ("require-verify", "expired", UNKNOWN), ("verify-if-given", "none", ""),
    ("verify-if-given", "good", "good"), ("verify-if-given", "foreign", UNKNOWN), ("verify-if-given", "expired", UNKNOWN),
])  # fmt: skip
def test_who_may_come(
    authority: Authority, stranger: Authority, version: ssl.TLSVersion, policy: str, shown: str, outcome: str
) -> None:
    issue = {"good": authority.issue, "foreign": stranger.issue, "expired": authority.issue_expired}
    certificate = issue[shown](shown) if shown != "none" else None
    certificates, client = Certificates(files(authority, policy)), only(authority.client(certificate), version)
    if outcome in (NOBODY, UNKNOWN):
        assert refusal(certificates, client) == outcome
    else:
        assert describe(connected(certificates, client).server).common_name == outcome


@each("policy", ["require", "require-verify"])
@each("name", ["dotted.name", "Zoë 中", "<script>", "a" * 64])
def test_a_common_name_is_text(authority: Authority, policy: str, name: str) -> None:
    pair = connected(Certificates(files(authority, policy)), authority.client(authority.issue(name)))
    assert describe(pair.server).common_name == name


# A conversation: the same over both implementations


@pytest.fixture(params=["", "require"])
def pair(request: pytest.FixtureRequest, authority: Authority) -> Pair:
    certificates = Certificates(files(authority, request.param))
    return connected(certificates, authority.client(authority.issue("me")))


def test_any_amount_is_written_at_once_and_read_in_pieces(pair: Pair) -> None:
    data = os.urandom(300_000)
    assert pair.server.write(data) == len(data)
    received = b""
    while len(received) < len(data):
        received += pair.client.read(65536)
    assert received == data
    pair.client.write(b"hello world")
    assert pair.server.read(5) == b"hello"
    assert pair.server.pending() == 6
    buffer = bytearray(4)
    assert pair.server.read(4, buffer) == 4
    assert (bytes(buffer), pair.server.read(100)) == (b" wor", b"ld")
    with pytest.raises(ssl.SSLWantReadError):
        pair.server.read(1)


def test_a_connection_that_breaks_off_is_no_goodbye(pair: Pair) -> None:
    pair.to_server.write_eof()
    with pytest.raises(ssl.SSLEOFError) as failure:
        pair.server.read(1)
    assert hasattr(failure.value, "reason")


@pytest.mark.parametrize("garbage", [b"\x17\x03\x03\x00\x20" + bytes(32), b"NOP\n" * 10, b"\x16\x03\x01\xff\xff" * 9])
def test_garbage_is_an_error(pair: Pair, garbage: bytes) -> None:
    pair.to_server.write(garbage)
    with pytest.raises(ssl.SSLError) as failure:
        pair.server.read(1)
    assert not isinstance(failure.value, ssl.SSLWantReadError)


@each("policy", ["", "require"])
def test_a_goodbye_or_plain_http_instead_of_a_handshake(authority: Authority, policy: str) -> None:
    for goodbye in (b"\x15\x03\x01\x00\x02\x01\x00", b"\x15\x03\x03\x00\x02\x01\x00"):
        pair = Pair(Certificates(files(authority, policy)), authority.client())
        for side in (pair.client, pair.server):
            with pytest.raises(ssl.SSLWantReadError):
                side.do_handshake()
        pair.to_server.write(goodbye)
        with pytest.raises(ssl.SSLError) as failure:
            pair.server.do_handshake()
        assert hasattr(failure.value, "reason")
    pair = Pair(Certificates(files(authority, policy)), authority.client())
    pair.to_server.write(b"GET / HTTP/1.1\r\n\r\n")
    with pytest.raises(ssl.SSLError) as failure:
        pair.server.do_handshake()
    assert failure.value.reason == "HTTP_REQUEST"


@pytest.mark.parametrize("policy", ["require", "require-verify"])
def test_connections_are_freed_without_the_collector(authority: Authority, stranger: Authority, policy: str) -> None:
    certificates = Certificates(files(authority, policy))
    kinds = (ssl.SSLObject, SSL.Connection)

    def objects() -> int:
        return sum(issubclass(type(thing), kinds) for thing in gc.get_objects())  # type: a lazy object is not made

    def converse() -> None:
        pair = connected(certificates, authority.client(authority.issue("me")))
        pair.client.write(b"hello")
        assert pair.server.read(5) == b"hello"
        assert describe(pair.server).common_name == "me"
        pair.close()
        refused = Pair(certificates, authority.client())
        for side in (refused.client, refused.server, refused.client, refused.server):
            try:
                side.do_handshake()
            except ssl.SSLError:
                pass

    converse()
    gc.collect()
    before = objects()
    gc.disable()
    try:
        for _ in range(3):
            converse()
        assert objects() == before
    finally:
        gc.enable()


# Reload


@each("policy", ["", "require", "require-verify"])
def test_reload_is_for_new_connections_and_one_that_fails_changes_nothing(tmp_path: Path, policy: str) -> None:
    old = Authority(tmp_path)
    certificates = Certificates(files(old, policy))
    context = certificates.following_context()
    before = connected(certificates, old.client(old.issue("me")))
    new = Authority(tmp_path)  # writes over the files
    certificates.reload()
    before.client.write(b"still here")
    assert before.server.read(10) == b"still here"
    me = new.client(new.issue("me"))
    assert connected(certificates, me).client.version() == "TLSv1.3"
    with pytest.raises(ssl.SSLCertVerificationError):
        Pair(certificates, old.client(old.issue("me"))).shake_hands()
    if not policy:
        following = SimpleNamespace(wrap=lambda *ends: context.wrap_bio(*ends, server_side=True))
        assert connected(cast(Certificates, following), me).client.version() == "TLSv1.3"
    Path(new.cert).write_text("nonsense")
    with pytest.raises(TlsError):
        certificates.reload()
    connected(certificates, me)


@each("version", [V1_2, V1_3])
@each("policy", ["require", "require-verify"])
def test_a_session_does_not_outlive_a_reload(authority: Authority, policy: str, version: ssl.TLSVersion) -> None:
    certificates = Certificates(files(authority, policy))
    client = only(authority.client(authority.issue("me")), version)
    first = connected(certificates, client)
    session = first.client.session
    first.close()
    resumed = connected(certificates, client, session)
    assert resumed.client.session_reused
    assert describe(resumed.server).common_name == "me"
    certificates.reload()
    assert not connected(certificates, client, session).client.session_reused


# Files that cannot be used

ENCRYPTED = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n"
BROKEN = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"


@each("policy", ["", "require", "require-verify"])
@each("spoiled, content, said", [
    ("cert", None, "open {path}: no such file or directory"), ("key", None, "open {path}: no such file or directory"),
    ("root", None, "open {path}: no such file or directory"),
    ("cert", "", "tls: failed to find any PEM data in certificate input"),
    ("key", "", "tls: failed to find any PEM data in key input"),
    ("key", ENCRYPTED, "tls: failed to parse private key: it is encrypted"),
    ("cert", BROKEN, "tls: cannot use the certificate or its key: "), ("root", "", "failed to append certificate to pool"),
    ("root", BROKEN, "failed to append certificate to pool"),
])  # fmt: skip
def test_unusable_files(
    authority: Authority, tmp_path: Path, policy: str, spoiled: str, content: str | None, said: str
) -> None:
    path = tmp_path / "spoiled.pem"
    if content is not None:
        path.write_text(content)
    given = {name: getattr(authority, name) for name in ("cert", "key", "root")} | {spoiled: str(path)}
    with pytest.raises(TlsError) as failure:
        Certificates(TlsFiles(given["cert"], given["key"], policy, given["root"]))
    line = str(failure.value)
    assert line.startswith("failed to build TLS config - " + said.format(path=path))
    assert "\n" not in line


@each("policy", ["", "require"])
def test_another_certificates_key_or_none(
    authority: Authority, stranger: Authority, rsa_authority: Authority, policy: str
) -> None:
    for other in (stranger, rsa_authority):
        with pytest.raises(TlsError, match="tls: private key does not match public key"):
            Certificates(TlsFiles(authority.cert, other.key, policy))
    with pytest.raises(TlsError, match=r"failed to build TLS config - open : no such file or directory"):
        Certificates(TlsFiles(authority.cert, "", policy))


# Clients


def test_a_server_we_ask_must_be_known(authority: Authority, stranger: Authority, tmp_path: Path) -> None:
    certificates = Certificates(files(authority))
    connected(certificates, client_context(authority.root, "tls1.0"))
    for root in (stranger.root, ""):
        with pytest.raises(ssl.SSLCertVerificationError):
            Pair(certificates, client_context(root, "tls1.2")).shake_hands()
    with pytest.raises(TlsError, match=r"failed to build client TLS config - open .*: no such file"):
        client_context(str(tmp_path / "nothing"), "tls1.2")


@pytest.mark.filterwarnings("ignore:Passing pyOpenSSL:DeprecationWarning")  # cryptography cannot carry such a one
def test_a_certificate_of_a_version_that_does_not_exist_has_no_name(authority: Authority) -> None:
    """Under `require` a stranger shows whatever he likes: OpenSSL takes it, cryptography does not read it."""
    leaf = authority.issue("odd")
    der = ssl.PEM_cert_to_DER_cert(leaf.cert_chain_pems[0].bytes().decode())
    version_3 = b"\xa0\x03\x02\x01\x02"
    assert der.count(version_3) == 1
    odd = crypto.load_certificate(crypto.FILETYPE_ASN1, der.replace(version_3, b"\xa0\x03\x02\x01\x04"))
    context = SSL.Context(SSL.TLS_CLIENT_METHOD)
    context.use_certificate(odd)
    context.use_privatekey(crypto.load_privatekey(crypto.FILETYPE_PEM, leaf.private_key_pem.bytes()))
    client = SSL.Connection(context, None)
    client.set_connect_state()
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = Certificates(files(authority, "require")).wrap(to_server, to_client)
    for _ in range(3):
        with suppress(SSL.WantReadError):
            client.do_handshake()
        with suppress(SSL.WantReadError):
            to_server.write(client.bio_read(65536))
        with suppress(ssl.SSLWantReadError):
            server.do_handshake()
        if to_client.pending:
            client.bio_write(to_client.read())
    assert describe(server).version == "TLS1.3"
    assert describe(server).common_name == ""


# Certificates below OpenSSL's security level


def advice(bits: int, level: int) -> str:
    """The hint, as a pattern: at each level it names the lower ones that help."""
    below = r"below OpenSSL's security level; -tls-security-level="
    if level == 1 or bits >= 2048:
        return below + "0 admits it"
    return below + "1 admits RSA keys of 1024 bits or more, -tls-security-level=0 smaller ones"


@each("level, hint", [(2, advice(512, 2)), (1, advice(512, 1)), (0, None)])
def test_the_hint_names_only_levels_that_help(level: int, hint: str | None) -> None:
    said = weakness_advice("ee key too small", level=level)
    assert said == "" if hint is None else re.search(hint, said)
    assert level == 2 or f"-tls-security-level={level}" not in said
    assert "-tls" not in weakness_advice("ee key too small", "", level)  # nothing sets the level of this client
    for text in ("-1", "3", "x"):
        with pytest.raises(OptionError, match="tls-security-level"):
            parse(NsqdOptions, "nsqd", [f"-tls-security-level={text}"], {})
    assert parse(NsqdOptions, "nsqd", [], {}).tls_security_level == 2


WEAK = [(1024, False, 1), (2048, True, 0), (1024, True, 0)]


@each("policy", ["", "require"])
@each("bits, sha1, level", WEAK)
def test_our_own_weak_certificate(tmp_path: Path, policy: str, bits: int, sha1: bool, level: int) -> None:
    weak = WeakAuthority(tmp_path, bits, sha1=sha1)
    client = weak.client(with_certificate=True)
    for lower in range(level + 1):
        certificates = Certificates(TlsFiles(weak.cert, weak.key, policy, security_level=lower))
        assert connected(certificates, client).client.version() == "TLSv1.3"
    if policy == "require" and sha1:  # pyOpenSSL's OpenSSL shows such a certificate at every level
        return
    for higher in range(level + 1, 3):
        with pytest.raises(TlsError, match=advice(bits, higher)):
            Certificates(TlsFiles(weak.cert, weak.key, policy, security_level=higher))


@each("bits, sha1, level", WEAK)
def test_a_peers_weak_certificate(authority: Authority, tmp_path: Path, bits: int, sha1: bool, level: int) -> None:
    weak = WeakAuthority(tmp_path, bits, sha1=sha1)
    client = weak.client(with_certificate=True)
    client.load_verify_locations(authority.root)
    server = TlsFiles(authority.cert, authority.key, "require-verify", weak.root)
    assert connected(Certificates(replace(server, security_level=level)), client)
    with pytest.raises(ssl.SSLCertVerificationError) as failure:
        Pair(Certificates(replace(server, security_level=level + 1)), client).shake_hands()
    assert f"-tls-security-level={level} admits" in describe_failure(failure.value)
    if not sha1:  # any certificate may be a weak one
        certificates = Certificates(replace(server, client_auth_policy="require", root_ca="", security_level=1))
        assert describe(connected(certificates, client).server).common_name == "localhost"
    asked = Certificates(TlsFiles(weak.cert, weak.key, security_level=0))
    connected(asked, client_context(weak.root, "tls1.2", level))
    with pytest.raises(ssl.SSLCertVerificationError, match="too weak"):
        connected(asked, client_context(weak.root, "tls1.2", level + 1))


def test_a_certificate_that_no_authority_was_asked_about_proves_nothing() -> None:
    names = (("URI", "spiffe://shop/a"), ("DNS", "a.shop"))
    shown = {"subject": ((("commonName", "billing"),),), "subjectAltName": names}

    def described(**more: ssl.SSLContext) -> TlsInfo:
        answers = {"getpeercert": shown, "cipher": None, "version": "TLSv1.3", "selected_alpn_protocol": None}
        methods = {name: lambda answer=answer: answer for name, answer in answers.items()}
        return describe(cast(TlsObject, SimpleNamespace(**methods, **more)))

    verifying, other = (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) for _ in range(2))
    verifying.verify_mode = ssl.CERT_REQUIRED
    for info in (described(), described(context=other)):
        assert (info.common_name, info.subject, info.uris, info.dns_names) == ("billing", "", (), ())
    info = described(context=verifying)
    assert (info.subject, info.uris, info.dns_names) == ("CN=billing", ("spiffe://shop/a",), ("a.shop",))
