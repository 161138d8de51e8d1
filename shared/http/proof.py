"""The proof of a client's identity by its connection: a verified certificate, or the user of a unix socket.

See docs/contributing/design/security.md#who-may-do-what.
"""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass

from starlette.types import Scope

from shared.process.unix_sockets import NOBODY, peer_user


@dataclass(frozen=True, slots=True)
class Proof:
    """The identity of a client as its connection proves it."""

    subject: str = ""  # of a certificate that was verified; "": there is none
    names: tuple[str, ...] = ()  # its URIs and DNS names
    user: int = NOBODY  # the number of the machine's user; NOBODY: it is no unix socket


NONE = Proof()


def proof_of(transport: asyncio.BaseTransport) -> Proof:
    """Return the proof of an open transport's connection."""
    sock, tls = transport.get_extra_info("socket"), transport.get_extra_info("ssl_object")
    user = peer_user(sock) if sock is not None and sock.family == socket.AF_UNIX else NOBODY
    if tls is None:
        return Proof(user=user)
    from shared.tls.certificates import describe  # here: a daemon without TLS does not load it

    found = describe(tls)
    return Proof(found.subject, (*found.uris, *found.dns_names), user)


def proof_in(scope: Scope) -> Proof:
    """Return the proof of the connection on which a request came. Without a server, as in tests, there is none."""
    proof: Proof = scope["proof"]() if "proof" in scope else NONE
    return proof
