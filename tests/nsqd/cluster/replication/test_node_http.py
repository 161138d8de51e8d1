"""Nodes ask each other over TLS where there are certificates, show their token nowhere else, and answer only who may ask."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import httpx
import pytest

from apps.certificate_authority import Authority
from nsqd.cluster.replication.early import Early, EarlyReplicas
from nsqd.cluster.replication.node_http import Trust, ask_by, get
from nsqd.cluster.replication.offers import HttpReplicas, ask
from shared.auth.auth_file import AuthFile, Identity, parse
from shared.auth.own_token import use_token_of
from shared.auth.tokens import digest
from shared.tls_client import ClientCertificates, load_client

pytestmark = pytest.mark.process

TOKEN, VIEWER = "pst_" + "n" * 43, "pst_" + "v" * 43
LOG_ID = bytes(16)


class Proofs:
    """An auth file with a node and a viewer."""

    def __init__(self) -> None:
        tokens = (("node", TOKEN), ("viewer", VIEWER))
        entry = '[[token]]\nname = "{0}"\nsha256 = "{1}"\nroles = ["{0}"]\n'
        self.file: AuthFile = parse("".join(entry.format(name, digest(token.encode())) for name, token in tokens))

    def look_after(self) -> bool:
        return False

    def with_token(self, secret: bytes) -> Identity | None:
        return self.file.tokens.get(digest(secret))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certificates") / "files"
    authority = Authority(directory, 10)
    authority.issue_server(())
    authority.issue(1)
    return directory


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    yield
    ask_by(Trust())
    use_token_of("")


def use_token(tmp_path: Path, token: str) -> None:
    path = tmp_path / "token"
    path.write_text(token)
    path.chmod(0o600)
    use_token_of(str(path))


def trust(files: Path, is_tls_required: bool = False) -> Trust:
    names = "ca.pem", "node-1.pem", "node-1-key.pem"
    return Trust(ClientCertificates(partial(load_client, *(str(files / name) for name in names))), is_tls_required)


@contextmanager
def starting(tmp_path: Path, files: Path | None = None, proofs: Proofs | None = None) -> Iterator[str]:
    """A node that starts; with certificates, it requires TLS. Yields its address of plain HTTP."""
    with socket.create_server(("127.0.0.1", 0)) as http, socket.create_server(("127.0.0.1", 0)) as https:
        early = Early(http, keyring=proofs)  # type: ignore[arg-type]
        if files is not None:
            tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            tls.load_cert_chain(files / "server.pem", files / "server-key.pem")
            early = Early(http, https, tls, https.getsockname()[1], True, proofs)  # type: ignore[arg-type]
        with EarlyReplicas(early, tmp_path):
            yield f"127.0.0.1:{http.getsockname()[1]}"


def test_a_node_that_requires_tls_is_asked_over_tls(tmp_path: Path, files: Path) -> None:
    use_token(tmp_path, TOKEN)
    with starting(tmp_path, files, Proofs()) as address:
        assert ask(LOG_ID, address, 5.0) is None  # in clear it says only where TLS is
        ask_by(trust(files))
        assert ask(LOG_ID, address, 5.0) == []
        with get(address, "/cluster", 5.0) as answer:
            assert answer.url.scheme == "https"


def test_in_clear_nothing_is_served_where_tls_is_required(tmp_path: Path, files: Path) -> None:
    with starting(tmp_path, files) as address:
        for method in ("GET", "POST"):
            answer = httpx.request(method, f"http://{address}/cluster")
            assert (answer.status_code, answer.json()["message"]) == (403, "TLS_REQUIRED")


def test_a_server_of_another_authority_is_not_asked(tmp_path: Path, files: Path) -> None:
    other = tmp_path / "other"
    authority = Authority(other, 10)
    authority.issue(1)
    with starting(tmp_path, files) as address:
        ask_by(trust(other))
        assert ask(LOG_ID, address, 5.0) is None


def test_renewed_certificates_count_for_the_next_question(tmp_path: Path, files: Path) -> None:
    mine = tmp_path / "mine"
    Authority(mine, 10).issue(1)
    trusted = trust(mine)
    assert trusted.tls is not None
    with starting(tmp_path, files) as address:
        ask_by(trusted)
        assert ask(LOG_ID, address, 5.0) is None
        for path in files.iterdir():
            (mine / path.name).write_bytes(path.read_bytes())
        assert ask(LOG_ID, address, 5.0) is None
        trusted.tls.reload()
        assert ask(LOG_ID, address, 5.0) == []


def test_a_node_without_https_is_asked_in_clear_unless_this_one_requires_tls(tmp_path: Path, files: Path) -> None:
    with starting(tmp_path) as address:
        ask_by(trust(files))
        assert ask(LOG_ID, address, 5.0) == []
        ask_by(trust(files, is_tls_required=True))
        assert ask(LOG_ID, address, 5.0) is None


def test_where_there_are_certificates_no_token_is_shown_in_clear(tmp_path: Path, files: Path) -> None:
    use_token(tmp_path, TOKEN)
    with starting(tmp_path, proofs=Proofs()) as address:
        assert ask(LOG_ID, address, 5.0) == []
        ask_by(trust(files))
        assert ask(LOG_ID, address, 5.0) is None  # it has an auth file, and has seen no token


@pytest.mark.parametrize(("token", "cluster", "replica"), [("", 401, 401), (VIEWER, 200, 401), (TOKEN, 200, 404)])
def test_a_node_that_starts_answers_only_who_may_ask(token: str, cluster: int, replica: int, tmp_path: Path) -> None:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with starting(tmp_path, proofs=Proofs()) as address:
        assert httpx.get(f"http://{address}/cluster", headers=headers).status_code == cluster
        url = f"http://{address}/cluster/replica?log={LOG_ID.hex()}"
        assert httpx.get(url, headers=headers).status_code == replica


def test_a_node_without_a_token_learns_nothing(tmp_path: Path) -> None:
    with starting(tmp_path, proofs=Proofs()) as address:
        assert HttpReplicas({1: address}, 0.0).leases(1) == []
        use_token(tmp_path, TOKEN)
        assert ask(LOG_ID, address, 5.0) == []
