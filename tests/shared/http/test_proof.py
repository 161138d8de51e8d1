"""What connections of real sockets prove: a verified certificate, the user of a unix socket, or nothing."""

import os
import socket
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import Response

from shared.http.proof import NONE, Proof, proof_in
from tests.cases import each
from tests.shared.http.serving import Serving, all_of
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

    async def note(request: Request) -> Response:
        proofs.append(proof_in(request.scope))
        return Response(b"fine")

    unix, client = (socket.socket(socket.AF_UNIX) for _ in range(2))
    unix.bind(str(tmp_path / "a.sock"))
    serving = Serving({"/good": {"GET": note}}, unix)
    client.connect(str(tmp_path / "a.sock"))
    for connection in (client, serving.connect()):
        with connection:
            connection.sendall(LAST)
            assert all_of(connection).endswith(b"fine")
    serving.close()
    assert proofs == [Proof(user=os.geteuid()), NONE]
