"""TLS of a daemon as a client of other daemons: the authorities it trusts, its certificate, and advice for failures."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable

from shared.tls.certificates import FollowingContext, client_context, describe_failure
from shared.tls.info import TlsError
from shared.tls.strength import SECURITY_LEVEL, pair_problem

_NO_FAILURE = (ssl.SSLWantReadError, ssl.SSLWantWriteError, ssl.SSLZeroReturnError, ssl.SSLEOFError)
_CLEAR_TEXT = ("wrong version number", "packet length too long", "record layer failure")  # of a server without TLS


class ClientCertificates:
    """The context in use. A connection keeps what it began with; `reload` affects later ones."""

    def __init__(self, load: Callable[[], ssl.SSLContext], is_lazy: bool = False) -> None:
        """`load` reads the files and raises TlsError, OSError, which this does, too.

        `is_lazy`: `load` cannot fail, and is called for the first connection: reading the system's authorities takes 50 ms.
        """
        self._load = load
        self._context = None if is_lazy else load()

    @property
    def context(self) -> ssl.SSLContext:
        """Return the context with the files loaded last."""
        if self._context is None:
            self._context = self._load()
        return self._context

    def reload(self) -> None:
        """Read the files again, for later connections. Raises TlsError, and then keeps the old ones."""
        try:
            self._context = self._load()
        except OSError as error:
            raise TlsError(str(error)) from None

    def following_context(self) -> ssl.SSLContext:
        """Return a context that always uses the files loaded last, for clients that keep one context, such as httpx."""
        return FollowingContext.of(lambda: self.context, ssl.PROTOCOL_TLS_CLIENT)


def load_client(
    root_ca: str, cert: str = "", key: str = "", flag: str = "", level: int = SECURITY_LEVEL, level_flag: str = ""
) -> ssl.SSLContext:
    """Return the context of a client that trusts the authorities in a file, and shows a certificate if it has one.

    Hosts must have the names by which they are addressed. `flag`: the beginning of the flags' names, for errors.
    `level` is OpenSSL's security level, and `level_flag` the flag that sets it ("": none does). Raises TlsError.
    """
    context = client_context(root_ca, "tls1.2", level)
    if cert:
        try:
            context.load_cert_chain(cert, key, password=lambda: "")  # otherwise OpenSSL asks the terminal
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise TlsError(f"{flag}cert {cert}: {pair_problem(error, level_flag, level)}") from None
    return context


def why_failed(error: BaseException, level_flag: str = "") -> str:
    """Return the reason of a failed request over HTTP, in one line: clients of HTTP hide the error of TLS among the causes.

    `level_flag` sets OpenSSL's security level of this client; "": nothing does.
    """
    found: BaseException | None = error
    while found is not None and (not isinstance(found, ssl.SSLError) or isinstance(found, _NO_FAILURE)):
        found = found.__cause__ or found.__context__
    return f"TLS: {describe_failure(found, level_flag)}" if found is not None else _reason(error)


def _reason(error: BaseException) -> str:
    """Return the error of the system that caused another one, such as connection refused, or else the text of that one."""
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, OSError) and not isinstance(found, ssl.SSLError) and (found.errno or 0) > 0:
            return os.strerror(found.errno or 0).lower()
        found = found.exceptions[0] if isinstance(found, BaseExceptionGroup) else found.__cause__ or found.__context__
    return str(error) or type(error).__name__


def advised(reason: str, authority: str, certificate: str) -> str:
    """Return the reason of a failed connection with advice for the operator, if there is any.

    `authority` and `certificate` are the flags that name the trusted authority and the own certificate.
    """
    what = _advice(reason.lower().replace("_", " "), authority, certificate)
    return f"{reason.rstrip('.')}; {what}" if what else reason


def _advice(text: str, authority: str, certificate: str) -> str:
    if "mismatch" in text and "verify failed" in text:
        return "its certificate has other names: address it by one of them, or make a certificate with this one"
    if "has expired" in text:
        return "renew its certificate, and send it SIGHUP"
    if "verify failed" in text:
        return f"{authority} must name the authority that signed its certificate"
    if "alert" in text and "expired" in text:
        return f"renew the certificate of {certificate}, and send this daemon SIGHUP"
    if "alert" in text and any(part in text for part in ("certificate", "unknown ca", "handshake failure")):
        return f"{certificate} must name a certificate of an authority that it trusts"
    if any(part in text for part in _CLEAR_TEXT):
        return "it does not speak TLS there: give it -tls-cert and -tls-key"
    return ""
