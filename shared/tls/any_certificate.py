"""TLS with clients that must show a certificate, no matter who signed it (Go's RequireAnyClientCert).

The ssl module cannot do that: it either asks for no certificate or verifies it. pyOpenSSL can; here it looks like the
parts of `ssl.SSLContext` and `ssl.SSLObject` that are used, including errors. As in every handshake, the client must
prove that it owns the certificate's key.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509 import InvalidVersion, load_pem_x509_certificates
from cryptography.x509.oid import NameOID
from OpenSSL import SSL

from shared.tls.info import TlsError
from shared.tls.strength import CIPHERS, LEVEL_FLAG, at_level, pair_problem

T = TypeVar("T")

_CHUNK = 65536  # bytes read from OpenSSL at a time
_VERSIONS = {"tls1.3": SSL.TLS1_3_VERSION}  # by tls-min-version; all other values mean 1.2, the minimum


class AnyCertificateContext:
    """A context with a certificate and its key, which makes connections by `wrap_bio`."""

    def __init__(self, cert: str, key: str, min_version: str, security_level: int) -> None:
        """`cert` and `key` are paths of files. Raises TlsError."""
        context = SSL.Context(SSL.TLS_SERVER_METHOD)
        context.set_min_proto_version(_VERSIONS.get(min_version, SSL.TLS1_2_VERSION))
        context.set_cipher_list(at_level(CIPHERS, security_level).encode())
        context.set_options(SSL.OP_NO_COMPRESSION | SSL.OP_NO_RENEGOTIATION)
        context.set_session_id(b"penstock")  # without an id OpenSSL does not resume sessions that have certificates
        context.set_verify(SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT, lambda *_: True)
        _load(context, cert, key, security_level)
        self._context = context

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *_: Any, **__: Any) -> AnyCertificateObject:
        """Return a server's connection, like SSLContext.wrap_bio."""
        return AnyCertificateObject(self._context, incoming, outgoing)


class AnyCertificateObject:
    """One connection. Each step moves bytes between the caller's BIOs and pyOpenSSL's own."""

    __slots__ = ("_connection", "_ended", "_incoming", "_outgoing")

    def __init__(self, context: SSL.Context, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO) -> None:
        self._incoming = incoming
        self._outgoing = outgoing
        self._ended = False  # OpenSSL knows that no more input comes
        self._connection = SSL.Connection(context, None)
        self._connection.set_accept_state()

    def do_handshake(self) -> None:
        self._step(self._connection.do_handshake)

    def read(self, len: int = 1024, buffer: Any = None, /) -> Any:
        """Return bytes, or the number of bytes written to `buffer`, like SSLObject.read; nothing after close_notify."""
        try:
            data = self._step(lambda: self._connection.recv(len))
        except ssl.SSLZeroReturnError:
            data = b""
        if buffer is None:
            return data
        size = data.__len__()
        buffer[:size] = data
        return size

    def write(self, data: bytes, /) -> int:
        """Write all of `data`, since the BIO takes any amount, like SSLObject.write."""
        view = memoryview(data).cast("B")
        sent = 0
        while sent < len(view):
            sent += self._step(lambda: self._connection.send(view[sent:]))  # noqa: B023  # called before the next iteration
        return sent

    def unwrap(self) -> None:
        """Send close_notify, like SSLObject.unwrap. Raises SSLWantReadError until the peer has sent it, too."""
        if not self._step(self._connection.shutdown):
            raise _error(ssl.SSLWantReadError, ssl.SSL_ERROR_WANT_READ, "the peer has not said goodbye")

    def pending(self) -> int:
        return self._connection.pending()

    def getpeercert(self) -> Any:
        """Return the subject of the peer's certificate, verified or not, in the form of SSLObject.getpeercert."""
        try:
            certificate = self._connection.get_peer_certificate(as_cryptography=True)
            if certificate is None:
                return None
            names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        except (ValueError, TypeError, KeyError, InvalidVersion):  # a stranger may have put anything into it
            return {}
        return {"subject": tuple((("commonName", name.value),) for name in names if isinstance(name.value, str))}

    def cipher(self) -> tuple[str, str, int] | None:
        name, version = self._connection.get_cipher_name(), self._connection.get_cipher_version()
        return (name, version or "", self._connection.get_cipher_bits() or 0) if name else None

    def compression(self) -> None:
        """Return None: TLS compression is off."""

    def version(self) -> str:
        """Return the version as SSLObject.version does, such as TLSv1.3."""
        return self._connection.get_protocol_version_name()

    def selected_alpn_protocol(self) -> None:
        """Return None: no protocol is offered."""

    def _step(self, function: Callable[[], T]) -> T:
        """Call pyOpenSSL: feed it the pending input before, and fetch its output afterwards."""
        self._feed()
        try:
            return function()
        except SSL.Error as error:
            raise _translate(error) from None
        finally:
            self._fetch()

    def _feed(self) -> None:
        if data := self._incoming.read():
            self._connection.bio_write(data)
        if self._incoming.eof and not self._ended:
            self._ended = True
            self._connection.bio_shutdown()

    def _fetch(self) -> None:
        size = _CHUNK
        try:
            while size == _CHUNK:
                size = self._outgoing.write(self._connection.bio_read(_CHUNK))
        except SSL.WantReadError:  # it has no more output
            pass


def _load(context: SSL.Context, cert: str, key: str, level: int) -> None:
    """Load the chain, with our own certificate first, and its key. Raises TlsError."""
    try:
        chain = load_pem_x509_certificates(Path(cert).read_bytes())
        context.use_privatekey(cast(Any, load_pem_private_key(Path(key).read_bytes(), None)))
        context.use_certificate(chain[0])
        for issuer in chain[1:]:
            context.add_extra_chain_cert(issuer)
        context.check_privatekey()
    except SSL.Error as error:
        raise TlsError(pair_problem(_translate(error), LEVEL_FLAG, level)) from None
    except (OSError, TypeError, ValueError, UnsupportedAlgorithm) as error:  # TypeError: the key is encrypted
        raise TlsError(pair_problem(error, LEVEL_FLAG, level)) from None


def _translate(error: SSL.Error) -> ssl.SSLError:
    """Translate an error of pyOpenSSL to one of the ssl module."""
    if isinstance(error, SSL.WantReadError):
        return _error(ssl.SSLWantReadError, ssl.SSL_ERROR_WANT_READ, "more is needed")
    if isinstance(error, SSL.ZeroReturnError):
        return _error(ssl.SSLZeroReturnError, ssl.SSL_ERROR_ZERO_RETURN, "the peer said goodbye")
    if isinstance(error, SSL.SysCallError):
        return _error(ssl.SSLEOFError, ssl.SSL_ERROR_EOF, "the peer hung up")
    reasons = error.args[0] if error.args and isinstance(error.args[0], list) else []
    reason = next((text for *_, text in reasons if text), "unknown error")
    return _error(ssl.SSLError, ssl.SSL_ERROR_SSL, reason)


def _error(kind: type[ssl.SSLError], number: int, text: str) -> ssl.SSLError:
    error = kind(number, text)
    error.library, error.reason = "SSL", text.upper().replace(" ", "_")
    return error
