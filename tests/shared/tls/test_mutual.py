"""Both sides of mutual TLS, in memory: who accepts whom, and what is loaded again."""

import ssl
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from apps.certificate_authority import Authority
from shared.tls.certificates import TlsError, TlsObject, client_context, describe, describe_failure
from shared.tls.mutual import MutualCertificates
from shared.tls.node_certificates import names_problem
from tests.node_certificates import files, load, make_certificates


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("own"))


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("foreign"))


def connect(dialer: MutualCertificates, acceptor: MutualCertificates) -> tuple[TlsObject, TlsObject]:
    """Both sides after the handshake. Raises the ssl.SSLError of the side that fails first."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = dialer.dial(back, there)
    assert there.pending  # the dialing side begins by itself
    server = acceptor.accept(there, back)
    take_turns(server, client, server)
    return client, server


def take_turns(*sides: TlsObject) -> None:
    """Raises the ssl.SSLError of the side that fails first."""
    for side in sides:
        with suppress(ssl.SSLWantReadError):
            side.do_handshake()


def failure(dialer: MutualCertificates, acceptor: MutualCertificates) -> str:
    with pytest.raises(ssl.SSLError) as caught:
        connect(dialer, acceptor)
    return describe_failure(caught.value)


def test_who_is_accepted_and_by_which_name(own: Path, foreign: Path, tmp_path: Path) -> None:
    client, server = connect(load(own, 1), load(own, 0))
    assert describe(client).uris == ("penstock:node:0",)
    assert describe(server).uris == ("penstock:node:1",)
    assert describe(server).version == "TLS1.3"
    client.write(b"hello")
    assert server.read(9) == b"hello"
    assert "certificate verify failed" in failure(load(foreign, 1, own), load(own, 0))
    assert "certificate verify failed" in failure(load(own, 1), load(foreign, 0, own))
    (tmp_path / "ca.pem").write_bytes((own / "ca.pem").read_bytes() + (foreign / "ca.pem").read_bytes())
    for dialer, acceptor in ((own, foreign), (foreign, own), (own, own), (foreign, foreign)):
        connect(load(dialer, 1, tmp_path), load(acceptor, 0, tmp_path))


def test_the_server_wants_a_certificate_and_no_older_tls(own: Path) -> None:
    for version, why in ((ssl.TLSVersion.TLSv1_3, "peer did not return a certificate"), (ssl.TLSVersion.TLSv1_2, "")):
        context = client_context(str(own / "ca.pem"), "tls1.2")
        context.check_hostname = False
        context.maximum_version = version
        there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = context.wrap_bio(back, there)
        server = load(own, 0).accept(there, back)
        with pytest.raises(ssl.SSLError) as caught:
            take_turns(client, server, client, server)
        assert why in describe_failure(caught.value)


def test_files_are_loaded_again_for_later_connections(own: Path, foreign: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    for path in own.iterdir():
        (mine / path.name).write_bytes(path.read_bytes())
    certificates = load(mine, 0)
    connect(load(own, 1), certificates)
    for path in foreign.iterdir():
        (mine / path.name).write_bytes(path.read_bytes())
    connect(certificates, load(own, 1))
    certificates.reload()
    connect(certificates, load(foreign, 1))
    connect(load(foreign, 1), certificates)
    assert "certificate verify failed" in failure(load(own, 1, foreign), certificates)
    (mine / "ca.pem").unlink()
    with pytest.raises(TlsError, match=r"open .*ca\.pem"):
        certificates.reload()
    connect(load(foreign, 1), certificates)  # the loaded ones stay in use


def test_a_file_that_is_missing_or_wrong_is_an_error(own: Path, tmp_path: Path) -> None:
    right = files(own, 0)
    (tmp_path / "empty.pem").write_text("")
    for name in ("cert", "key", "ca"):
        for wrong in ("missing.pem", "empty.pem"):
            with pytest.raises(TlsError):
                MutualCertificates(replace(right, **{name: str(tmp_path / wrong)}))
    with pytest.raises(TlsError, match="private key does not match"):
        MutualCertificates(replace(right, key=files(own, 1).key))


def test_the_own_certificate_must_be_one_that_others_accept(own: Path, foreign: Path, tmp_path: Path) -> None:
    MutualCertificates(files(own, 2), partial(names_problem, 2))
    with pytest.raises(TlsError, match="it is that of node 2, and -node-id is 1: it needs the one URI penstock:node:1"):
        MutualCertificates(files(own, 2), partial(names_problem, 1))
    with pytest.raises(TlsError, match=r"with .*ca\.pem: certificate verify failed: .*issuer"):
        MutualCertificates(files(foreign, 1, own), partial(names_problem, 1))
    Authority(tmp_path, 30, datetime.now(UTC) - timedelta(days=31)).issue(0)
    with pytest.raises(TlsError, match="certificate verify failed: certificate has expired"):
        MutualCertificates(files(tmp_path, 0), partial(names_problem, 0))


def test_what_others_would_refuse_is_not_loaded_again(own: Path, tmp_path: Path) -> None:
    for path in own.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    certificates = MutualCertificates(files(tmp_path, 0), partial(names_problem, 0))
    for suffix in (".pem", "-key.pem"):
        (tmp_path / f"node-0{suffix}").write_bytes((own / f"node-1{suffix}").read_bytes())
    with pytest.raises(TlsError, match="it is that of node 1"):
        certificates.reload()
    client, _ = connect(load(own, 1), certificates)
    assert describe(client).uris == ("penstock:node:0",)
