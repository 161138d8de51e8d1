"""Which connections to nsqlookupd's TCP port speak TLS: both kinds come to one port, and the first byte distinguishes them."""

from __future__ import annotations

import socket
from dataclasses import dataclass

import trio

from shared.tls.certificates import Certificates
from shared.tls.stream import TlsStream

HANDSHAKE = b"\x16"  # with which a client of TLS begins; one of NSQ begins with a space
REFUSAL = b"E_TLS_REQUIRED this nsqlookupd accepts only TLS (nsqd: -lookupd-tls-root-ca-file)"


@dataclass(frozen=True, slots=True)
class Tls:
    """How the TCP port accepts TLS."""

    certificates: Certificates
    is_required: bool  # clear text is refused

    async def accept(self, stream: trio.SocketStream) -> TlsStream | None:
        """Return the encrypted stream; None: the peer speaks clear text, of which nothing was read.

        The caller bounds the time. Raises HandshakeError, trio.BrokenResourceError, OSError.
        """
        if await stream.socket.recv(1, socket.MSG_PEEK) != HANDSHAKE:
            return None
        encrypted = TlsStream(stream, self.certificates.wrap)
        await encrypted.do_handshake()
        return encrypted
