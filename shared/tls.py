"""TLS of a daemon's listeners: certificates, who must show one, and how a connection is described.

No socket is known here: connections are ciphered between two `ssl.MemoryBIO`, so the NSQ protocol's reactor and asyncio
share all of it. A connection keeps the certificates it began with; `reload` concerns the ones to come.

At least TLS 1.2 is spoken, whatever is asked for. Keys of sessions live as long as the loaded files: nobody resumes a
session that was begun under an authority we trust no more.
"""

from __future__ import annotations

import functools
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

from shared.log import log
from shared.tls_info import TlsError as TlsError  # also for those who import it from here
from shared.tls_info import TlsInfo
from shared.tls_strength import CIPHERS, CLIENT_CIPHERS, SECURITY_LEVEL, at_level, pair_problem, weakness_advice

if TYPE_CHECKING:
    from shared.tls_any_certificate import AnyCertificateContext

LEAST = "tls1.2"
VERSIONS = {  # as tls-min-version spells them
    "tls1.0": ssl.TLSVersion.TLSv1,
    "tls1.1": ssl.TLSVersion.TLSv1_1,
    "tls1.2": ssl.TLSVersion.TLSv1_2,
    "tls1.3": ssl.TLSVersion.TLSv1_3,
}

# As the original's stats print suites: a name for those its table knows (client_v2.go, GetCipherSuite), else a number.
_SUITES = {
    0xC02F: "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    0xC02B: "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
}


class TlsObject(Protocol):
    """What is used of an `ssl.SSLObject`. Errors are the ssl module's: SSLWantReadError, SSLError."""

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


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """What the options say."""

    cert: str
    key: str
    client_auth_policy: str = ""  # "require": any certificate; "require-verify": one of our authorities; else none
    root_ca: str = ""  # who signs clients' certificates; "": the system's authorities
    min_version: str = LEAST  # a key of VERSIONS
    security_level: int = SECURITY_LEVEL  # 0 to 2, for our certificate and for those of clients


class Certificates:
    """The certificate in force, and what is asked of clients."""

    def __init__(self, files: TlsFiles) -> None:
        """Load and check. Raises TlsError."""
        self._files = files
        if VERSIONS[files.min_version] < VERSIONS[LEAST]:
            log.warning("tls-min-version %s: not spoken here, %s is the least", files.min_version, LEAST)
        if files.security_level < SECURITY_LEVEL:
            log.warning("tls-security-level %d: certificates that can be forged are accepted", files.security_level)
        self._context = _server_context(files)

    def reload(self) -> None:
        """Read the files again, for the connections to come. Raises TlsError; then all stays as it was."""
        self._context = _server_context(self._files)

    def wrap(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO) -> TlsObject:
        """The server's side of a new connection: `incoming` holds what the peer sent, `outgoing` what to send it."""
        return self._context.wrap_bio(incoming, outgoing, server_side=True)

    def following_context(self) -> ssl.SSLContext:
        """For a server that wants one context for ever, as asyncio does: it wraps with what is loaded at that moment."""
        context = _Following(ssl.PROTOCOL_TLS_SERVER)
        context.certificates = self
        return context


class _Following(ssl.SSLContext):
    """It stands for the current context: of all its methods only `wrap_bio` is used, by asyncio."""

    certificates: Certificates

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *_: Any, **__: Any) -> ssl.SSLObject:
        return cast(ssl.SSLObject, self.certificates.wrap(incoming, outgoing))


def describe(connection: TlsObject) -> TlsInfo:
    """Of a connection whose handshake is done."""
    cipher = connection.cipher()
    return TlsInfo(
        version=(connection.version() or "").replace("TLSv", "TLS"),
        cipher_suite=_suite_name(cipher[0] if cipher else ""),
        negotiated_protocol=connection.selected_alpn_protocol() or "",
        negotiated_protocol_is_mutual=True,
        common_name=_common_name(connection),
    )


def client_context(root_ca: str, min_version: str, security_level: int = SECURITY_LEVEL) -> ssl.SSLContext:
    """For questions to servers: they must show a certificate of `root_ca` (a file; "": the system's authorities).

    Raises TlsError.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_ciphers(at_level(CLIENT_CIPHERS, security_level))
    context.hostname_checks_common_name = False  # as Go: the name must be among the alternative names
    _set_versions(context, min_version)
    try:
        _trust(context, root_ca, ssl.Purpose.SERVER_AUTH)
    except TlsError as error:
        raise TlsError(f"failed to build client TLS config - {error}") from None
    return context


def describe_failure(error: BaseException) -> str:
    """Why a handshake or connection failed, in one line; of a certificate that is too weak, which flag admits it.

    E.g. "certificate verify failed: self-signed certificate", or "peer did not return a certificate".
    """
    why = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error) or type(error).__name__
    text = str(why).lower().replace("_", " ")
    if isinstance(error, ssl.SSLCertVerificationError) and error.verify_message:
        text += f": {error.verify_message}"
    return text + weakness_advice(text)


# Building


def _server_context(files: TlsFiles) -> ssl.SSLContext | AnyCertificateContext:
    try:
        _check_pair(files.cert, files.key)
        if files.root_ca and files.client_auth_policy != "require-verify":  # checked, as in the original; not used
            _trust(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), files.root_ca, ssl.Purpose.CLIENT_AUTH)
        if files.client_auth_policy != "require":
            return _stdlib_context(files)
        from shared.tls_any_certificate import AnyCertificateContext  # nobody else pays for pyOpenSSL

        return AnyCertificateContext(files.cert, files.key, files.min_version, files.security_level)
    except TlsError as error:
        raise TlsError(f"failed to build TLS config - {error}") from None


def _stdlib_context(files: TlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _set_versions(context, files.min_version)
    context.set_ciphers(at_level(CIPHERS, files.security_level))
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    try:
        context.load_cert_chain(files.cert, files.key, password=lambda: "")  # else OpenSSL asks the terminal
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise TlsError(pair_problem(error)) from None
    if files.client_auth_policy == "require-verify":
        context.verify_mode = ssl.CERT_REQUIRED
        _trust(context, files.root_ca, ssl.Purpose.CLIENT_AUTH)
    return context


def _set_versions(context: ssl.SSLContext, min_version: str) -> None:
    context.minimum_version = max(VERSIONS[min_version], VERSIONS[LEAST])


def _trust(context: ssl.SSLContext, root_ca: str, purpose: ssl.Purpose) -> None:
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as Go: what is in the file is trusted, self-signed or not
    if not root_ca:
        context.load_default_certs(purpose)
        return
    _read(root_ca)
    try:
        context.load_verify_locations(root_ca)
    except (OSError, ValueError):
        raise TlsError("failed to append certificate to pool") from None


def _check_pair(cert: str, key: str) -> None:
    """What OpenSSL says of unusable files helps nobody; Go's words do. Raises TlsError."""
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


# Describing


def _suite_name(openssl: str) -> str:
    number = _suite_numbers().get(openssl, 0)
    return _SUITES.get(number) or f"Unknown {number}"


@functools.cache
def _suite_numbers() -> dict[str, int]:
    """OpenSSL's name of a suite -> its number on the wire."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers(CIPHERS)
    return {cipher["name"]: cipher["id"] & 0xFFFF for cipher in context.get_ciphers()}


def _common_name(connection: TlsObject) -> str:
    """The last one of the subject, as Go has it."""
    try:
        certificate = connection.getpeercert() or {}
    except (ssl.SSLError, ValueError):  # names that are no text: an authority of ours signed nonsense
        return ""
    names = [value for part in certificate.get("subject", ()) for name, value in part if name == "commonName"]
    return names[-1] if names else ""
