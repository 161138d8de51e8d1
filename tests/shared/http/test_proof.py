"""What connections of real sockets prove: a verified certificate, the user of a unix socket, or nothing."""

import os
import socket
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import Response

from shared.http.api import Api
from shared.http.hosts import Hosts
from shared.http.proof import NONE, Proof, proof_in
from shared.http.server import HttpServer
from tests.cases import each
from tests.shared.http.serving import all_of
from tests.shared.http.test_secure import GOOD, LAST, Site, ask


@pytest.mark.process
@each("policy, proof", [
    ("require-verify", Proof("CN=billing,OU=Testing cert,O=trustme", ("client.test",))), ("require", NONE), ("", NONE),
])  # fmt: skip
def test_a_certificate_proves_something_only_if_it_was_verified(tmp_path: Path, policy: str, proof: Proof) -> None:
    site = Site(tmp_path, policy)
    with site.secure(site.authority.client(site.authority.issue("billing"))) as connection:
        for request in (GOOD, LAST):
            ask(connection, request)
    site.close()
    found, again = site.proofs
    assert (found.subject.partition(",")[0], found.names) == (proof.subject.partition(",")[0], proof.names)
    assert again is found  # it is looked for once in a connection


@pytest.mark.process
def test_a_unix_socket_proves_the_user(tmp_path: Path) -> None:
    proofs: list[Proof] = []
    bugs: list[BaseException] = []

    async def note(request: Request) -> Response:
        proofs.append(proof_in(request.scope))
        return Response(b"fine")

    sockets = [socket.socket(socket.AF_UNIX), socket.create_server(("127.0.0.1", 0))]
    sockets[0].bind(str(tmp_path / "a.sock"))
    server = HttpServer(Api({"/good": {"GET": note}}, Hosts([]), bugs.append), sockets, bugs.append)
    server.start()
    for family, address in ((socket.AF_UNIX, str(tmp_path / "a.sock")), (socket.AF_INET, sockets[1].getsockname())):
        with socket.socket(family) as client:
            client.settimeout(10)
            client.connect(address)
            client.sendall(LAST)
            assert all_of(client).endswith(b"fine")
    server.stop()
    assert proofs == [Proof(user=os.geteuid()), NONE]
    assert bugs == []
