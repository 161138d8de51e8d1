"""What a TLS connection is, in the words of the original's /stats. A value: no socket and no OpenSSL is known here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TlsInfo:
    """A connection after its handshake."""

    version: str  # "TLS1.3"
    cipher_suite: str  # "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", or "Unknown 4865"
    negotiated_protocol: str  # always "": no protocol is offered
    negotiated_protocol_is_mutual: bool  # always True, as Go says since 1.16
    common_name: str  # of the client's certificate; "" without one. Verified only under require-verify
