"""TLS of a daemon's listeners: certificates, which clients must show one, and how a connection is described.

This file uses no sockets: connections are encrypted between two `ssl.MemoryBIO`, so the NSQ protocol's reactor and
asyncio share all of it. A connection keeps the certificates that it began with; `reload` affects later ones.

TLS 1.2 is the minimum, whatever an option asks for. Session keys live as long as the loaded files, so a client cannot
resume a session that began under an authority that is no longer trusted.
"""

from __future__ import annotations

import functools
import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

from shared.log import log
from shared.tls.info import TlsError as TlsError  # re-exported
from shared.tls.info import TlsInfo
from shared.tls.strength import (
    CIPHERS,
    CLIENT_CIPHERS,
    LEVEL_FLAG,
    SECURITY_LEVEL,
    at_level,
    pair_problem,
    weakness_advice,
)

if TYPE_CHECKING:
    from shared.tls.any_certificate import AnyCertificateContext

LEAST = "tls1.2"
VERSIONS = {  # by the names that tls-min-version uses
    "tls1.0": ssl.TLSVersion.TLSv1,
    "tls1.1": ssl.TLSVersion.TLSv1_1,
    "tls1.2": ssl.TLSVersion.TLSv1_2,
    "tls1.3": ssl.TLSVersion.TLSv1_3,
}

# The original's stats print a name for the suites that its table knows (client_v2.go, GetCipherSuite), else a number.
_SUITES = {
    0xC02F: "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    0xC02B: "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
}


class TlsObject(Protocol):
    """The part of an `ssl.SSLObject` that is used. Errors are those of the ssl module: SSLWantReadError, SSLError."""

    def do_handshake(self) -> None: ...
    def read(self, len: int = 1024, buffer: Any = None, /) -> Any: ...
    def write(self, data: bytes, /) -> int: ...
    def unwrap(self) -> None: ...
    def pending(self) -> int: ...
    def getpeercert(self) -> Any: ...
    def cipher(self) -> tuple[str, str, int] | None: ...
    def compression(self) -> str | None: ...
    def version(self) -> str | None: ...
    def selected_alpn_protocol(self) -> str | None: ...


_VERIFYING = {"require-verify": ssl.CERT_REQUIRED, "verify-if-given": ssl.CERT_OPTIONAL}  # by client_auth_policy


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The files and policies that the options name."""

    cert: str
    key: str
    # "require": any certificate; "require-verify": one of our authorities; "verify-if-given": the same, or none; else none
    client_auth_policy: str = ""
    root_ca: str = ""  # file of the authorities that sign clients' certificates; "": the system's
    min_version: str = LEAST  # a key of VERSIONS
    security_level: int = SECURITY_LEVEL  # 0 to 2, for our certificate and for those of clients


class Certificates:
    """The certificate in use, and what is required of clients."""

    def __init__(self, files: TlsFiles) -> None:
        """Load and check the files. Raises TlsError."""
        self._files = files
        if VERSIONS[files.min_version] < VERSIONS[LEAST]:
            log.warning("tls-min-version %s is not supported: the minimum is %s", files.min_version, LEAST)
        if files.security_level < SECURITY_LEVEL:
            log.warning("tls-security-level %d accepts certificates that can be forged", files.security_level)
        self._context = _server_context(files)

    def reload(self) -> None:
        """Read the files again, for later connections. Raises TlsError, and then keeps the old ones."""
        self._context = _server_context(self._files)

    def wrap(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO) -> TlsObject:
        """Return the server's side of a new connection: `incoming` holds bytes from the peer, `outgoing` bytes for it."""
        return self._context.wrap_bio(incoming, outgoing, server_side=True)

    def stream_context(self) -> ssl.SSLContext:
        """Return the current context for sockets. Not for the policy `require`, whose context is pyOpenSSL's."""
        assert isinstance(self._context, ssl.SSLContext)
        return self._context

    def following_context(self) -> ssl.SSLContext:
        """Return a context that always uses the files loaded last, for servers that keep one context, such as asyncio."""
        return FollowingContext.of(lambda: self._context, ssl.PROTOCOL_TLS_SERVER)


class FollowingContext(ssl.SSLContext):
    """Stands for the current context. asyncio and httpx use only its method `wrap_bio` for a connection."""

    _current: Callable[[], ssl.SSLContext | AnyCertificateContext]

    @classmethod
    def of(cls, current: Callable[[], ssl.SSLContext | AnyCertificateContext], protocol: int) -> ssl.SSLContext:
        """Return a context for one side of TLS, `protocol`, that stands for what `current` returns."""
        context = cls(protocol)
        context._current = current
        return context

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *more: Any, **named: Any) -> ssl.SSLObject:
        return cast(ssl.SSLObject, self._current().wrap_bio(incoming, outgoing, *more, **named))


def describe(connection: TlsObject) -> TlsInfo:
    """Describe a connection whose handshake is done."""
    cipher = connection.cipher()
    suite = _suite_numbers().get(cipher[0], 0) if cipher else 0
    certificate = _certificate(connection)
    verified = certificate if _is_verified(connection) else {}
    return TlsInfo(
        version=(connection.version() or "").replace("TLSv", "TLS"),
        cipher_suite=_SUITES.get(suite) or f"Unknown {suite}",
        negotiated_protocol=connection.selected_alpn_protocol() or "",
        negotiated_protocol_is_mutual=True,
        common_name=_common_name(certificate),
        uris=_alternative_names(verified, "URI"),
        dns_names=_alternative_names(verified, "DNS"),
        subject=_subject(verified),
    )


def _is_verified(connection: TlsObject) -> bool:
    """Return whether the peer's certificate was checked by an authority: any certificate will do for some policies."""
    context = getattr(connection, "context", None)
    return isinstance(context, ssl.SSLContext) and context.verify_mode != ssl.CERT_NONE


def client_context(root_ca: str, min_version: str, security_level: int = SECURITY_LEVEL) -> ssl.SSLContext:
    """Return the context of a client that trusts `root_ca` (a file; "": the system's authorities). Raises TlsError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_ciphers(at_level(CLIENT_CIPHERS, security_level))
    context.hostname_checks_common_name = False  # as in Go: the name must be among the alternative names
    context.minimum_version = max(VERSIONS[min_version], VERSIONS[LEAST])
    try:
        _trust(context, root_ca, ssl.Purpose.SERVER_AUTH)
    except TlsError as error:
        raise TlsError(f"failed to build client TLS config - {error}") from None
    return context


def describe_failure(error: BaseException, flag: str = LEVEL_FLAG) -> str:
    """Return the reason of a failed handshake or connection, in one line; for a weak certificate, also how `flag` admits it.

    Examples: "certificate verify failed: self-signed certificate", or "peer did not return a certificate".
    """
    why = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error) or type(error).__name__
    text = str(why).lower().replace("_", " ")
    if isinstance(error, ssl.SSLCertVerificationError) and error.verify_message:
        text += f": {error.verify_message}"
    return text + weakness_advice(text, flag)


# Building contexts


def _server_context(files: TlsFiles) -> ssl.SSLContext | AnyCertificateContext:
    try:
        _check_pair(files.cert, files.key)
        if files.root_ca and files.client_auth_policy not in _VERIFYING:  # checked as in the original, but not used
            _trust(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), files.root_ca, ssl.Purpose.CLIENT_AUTH)
        if files.client_auth_policy != "require":
            return _stdlib_context(files)
        from shared.tls.any_certificate import AnyCertificateContext  # only this case needs pyOpenSSL

        return AnyCertificateContext(files.cert, files.key, files.min_version, files.security_level)
    except TlsError as error:
        raise TlsError(f"failed to build TLS config - {error}") from None


def _stdlib_context(files: TlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = max(VERSIONS[files.min_version], VERSIONS[LEAST])
    context.set_ciphers(at_level(CIPHERS, files.security_level))
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    try:
        context.load_cert_chain(files.cert, files.key, password=lambda: "")  # otherwise OpenSSL asks the terminal
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise TlsError(pair_problem(error, LEVEL_FLAG, files.security_level)) from None
    if files.client_auth_policy in _VERIFYING:
        context.verify_mode = _VERIFYING[files.client_auth_policy]
        _trust(context, files.root_ca, ssl.Purpose.CLIENT_AUTH)
    return context


def _trust(context: ssl.SSLContext, root_ca: str, purpose: ssl.Purpose) -> None:
    # As in Go: a certificate in the file is trusted, self-signed or not.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if not root_ca:
        context.load_default_certs(purpose)
        return
    _read(root_ca)
    try:
        context.load_verify_locations(root_ca)
    except (OSError, ValueError):
        raise TlsError("failed to append certificate to pool") from None


def _check_pair(cert: str, key: str) -> None:
    """Check that both files contain PEM data. Raises TlsError in Go's words, which are clearer than OpenSSL's."""
    if b"-----BEGIN CERTIFICATE" not in _read(cert):
        raise TlsError("tls: failed to find any PEM data in certificate input")
    text = _read(key)
    if b" PRIVATE KEY-----" not in text:
        raise TlsError("tls: failed to find any PEM data in key input")
    if b"ENCRYPTED" in text:
        raise TlsError("tls: failed to parse private key: it is encrypted")


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        verb = "read" if isinstance(error, IsADirectoryError) else "open"
        raise TlsError(f"{verb} {path}: {str(getattr(error, 'strerror', None) or error).lower()}") from None


# Describing connections


@functools.cache
def _suite_numbers() -> dict[str, int]:
    """Return the number on the wire of each cipher suite, by OpenSSL's name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers(CIPHERS)
    return {cipher["name"]: cipher["id"] & 0xFFFF for cipher in context.get_ciphers()}


def _certificate(connection: TlsObject) -> dict[str, Any]:
    """Return the peer's certificate as SSLObject.getpeercert does; an empty one if there is none that can be read."""
    try:
        return connection.getpeercert() or {}
    except (ssl.SSLError, ValueError):  # names that are not text, although an authority signed them
        return {}


def _alternative_names(certificate: dict[str, Any], wanted: str) -> tuple[str, ...]:
    return tuple(value for kind, value in certificate.get("subjectAltName", ()) if kind == wanted)


_ESCAPED, _BEHIND_BACKSLASH = re.compile(r"([\\,+=\n])"), r"\\\1"
_SHORT = {
    "commonName": "CN", "organizationName": "O", "organizationalUnitName": "OU", "countryName": "C", "localityName": "L"
}  # fmt: skip


def _subject(certificate: dict[str, Any]) -> str:
    """Return the subject with the most specific part first, and with backslashes before commas, as RFC 4514 has it."""
    parts = [(_SHORT.get(name, name), value) for part in certificate.get("subject", ()) for name, value in part]
    return ",".join(f"{name}={_ESCAPED.sub(_BEHIND_BACKSLASH, value)}" for name, value in reversed(parts))


def _common_name(certificate: dict[str, Any]) -> str:
    """Return the last common name of the certificate's subject, as Go does, or ""."""
    names = [value for part in certificate.get("subject", ()) for name, value in part if name == "commonName"]
    return names[-1] if names else ""
