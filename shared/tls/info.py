"""The description of a TLS connection after its handshake, and the error for TLS files. Imports no OpenSSL."""

from __future__ import annotations

from dataclasses import dataclass


class TlsError(Exception):
    """The files cannot be used. The text is one line, in the original's words where it has some."""


@dataclass(frozen=True, slots=True)
class TlsInfo:
    """The facts about a connection after its handshake."""

    version: str  # "TLS1.3"
    cipher_suite: str  # "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", or "Unknown 4865"
    negotiated_protocol: str  # always "": no protocol is offered
    negotiated_protocol_is_mutual: bool  # always True, as Go says since 1.16
    common_name: str  # of the client's certificate, "" without one; only require-verify verifies it
    uris: tuple[str, ...] = ()  # the alternative names of the certificate that are URIs, if it was verified
    dns_names: tuple[str, ...] = ()  # the alternative names that are DNS names, if it was verified
    subject: str = ""  # of a verified certificate: "CN=billing,O=shop", the most specific part first
