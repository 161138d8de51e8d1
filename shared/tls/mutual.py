"""TLS between programs of one kind: both sides show a certificate, and both verify it against one authority of their own.

TLS 1.3 only. The system's authorities are not trusted, and host names are not checked: the caller identifies the peer by
`TlsInfo.uris`. A connection keeps the certificates that it began with.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from shared.tls.certificates import (
    Certificates,
    TlsError,
    TlsFiles,
    TlsObject,
    client_context,
    describe,
    describe_failure,
)

VERSION = "tls1.3"


@dataclass(frozen=True, slots=True)
class MutualTlsFiles:
    """The paths of the PEM files. All three are given."""

    cert: str
    key: str
    ca: str  # the authority that signs the certificates of both sides


class MutualCertificates:
    """The certificate in use, for connections that are accepted and for those that are made."""

    def __init__(self, files: MutualTlsFiles, check: Callable[[tuple[str, ...]], str] | None = None) -> None:
        """Load and check the files. Raises TlsError.

        `check` returns an error in the URIs of the own certificate, or "". If it is given, the program must also accept its own
        certificate: of the authority, and valid now.
        """
        self._files = files
        self._check = check
        self.reload()

    def reload(self) -> None:
        """Read the files again, for later connections. Raises TlsError, and then keeps the old ones."""
        server, client = _load(self._files)
        if self._check is not None:
            _check_own(server, client, self._files, self._check)
        self._server, self._client = server, client

    def accept(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO) -> TlsObject:
        """Return the server's side of a new connection. Its handshake fails unless the client shows a certificate."""
        return self._server.wrap(incoming, outgoing)

    def dial(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO) -> TlsObject:
        """Return the client's side of a new connection. `outgoing` holds the first message of its handshake."""
        return _dial(self._client, incoming, outgoing)

    def accept_socket(self, sock: socket.socket) -> tuple[socket.socket, tuple[str, ...]]:
        """Return an accepted connection after the handshake, and the URIs of the client's certificate. Raises OSError."""
        return _over(self._server.stream_context(), sock, is_server=True)

    def dial_socket(self, sock: socket.socket) -> tuple[socket.socket, tuple[str, ...]]:
        """Return a connection that was made, after the handshake, and the URIs of the server's certificate. Raises OSError."""
        return _over(self._client, sock, is_server=False)


def _over(context: ssl.SSLContext, sock: socket.socket, is_server: bool) -> tuple[socket.socket, tuple[str, ...]]:
    secure = context.wrap_socket(sock, server_side=is_server)
    return secure, describe(cast(TlsObject, secure)).uris


def _dial(context: ssl.SSLContext, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO) -> TlsObject:
    connection = context.wrap_bio(incoming, outgoing)
    with contextlib.suppress(ssl.SSLWantReadError):  # the server has not answered yet
        connection.do_handshake()
    return connection


def _check_own(
    server: Certificates, client: ssl.SSLContext, files: MutualTlsFiles, check: Callable[[tuple[str, ...]], str]
) -> None:
    """Connect the program to itself, in memory: what it refuses there, others refuse. Raises TlsError."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    dialing = _dial(client, back, there)
    accepting = server.wrap(there, back)
    try:
        for side in (accepting, dialing, accepting):
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
        problem = check(describe(accepting).uris)
    except ssl.SSLError as error:
        problem = f"with {files.ca}: {describe_failure(error)}"
    if problem:
        raise TlsError(f"other nodes would refuse the certificate in {files.cert} - {problem}")


def _load(files: MutualTlsFiles) -> tuple[Certificates, ssl.SSLContext]:
    """Return the certificates for accepted connections, and the context that makes connections. Raises TlsError."""
    try:
        server = Certificates(TlsFiles(files.cert, files.key, "require-verify", files.ca, VERSION))
        client = client_context(files.ca, VERSION)
        client.check_hostname = False
        client.load_cert_chain(files.cert, files.key)
    except (TlsError, OSError, ValueError) as error:
        raise TlsError(f"cannot use the files {files.cert}, {files.key} and {files.ca} - {error}") from None
    return server, client
