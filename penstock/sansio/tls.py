"""The TLS settings as an SSL context, shared by all connections of a producer or consumer."""

import logging
import ssl

from penstock.sansio.settings import Settings

_CIPHERS = "ECDH+AESGCM:ECDH+CHACHA20:ECDH+AES:DHE+AES:!aNULL:!eNULL:!aDSS:!SHA1:!AESCCM"  # Python's own
_TOO_WEAK = ("too weak", "too small")  # in OpenSSL's errors for a certificate below the security level

log = logging.getLogger("penstock.client")


def client_context(settings: Settings) -> ssl.SSLContext | None:
    """Make the TLS context that the settings ask for; return None without tls_v1.

    It reads the files that the settings name. Raises ValueError, with the name of the setting, for files that cannot be
    used and for tls_cert or tls_key alone.
    """
    if not settings.tls_v1:
        if settings.tls_root_ca_file or settings.tls_cert or settings.tls_min_version:
            log.warning("TLS is configured but not enabled: without tls_v1 connections are not encrypted")
        return None
    return context_of(settings)


def context_of(settings: Settings) -> ssl.SSLContext:
    """Make the TLS context of the settings, whatever tls_v1 says. Raises ValueError as `client_context` does."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # it checks the certificate and the name in it
    context.set_ciphers(f"{_CIPHERS}:@SECLEVEL={settings.tls_security_level}")
    # go-nsq begins at TLS 1.0. Here 1.2 is the minimum, whatever the settings ask for: older versions are not secure.
    is_newest = settings.tls_min_version == "tls1.3"
    context.minimum_version = ssl.TLSVersion.TLSv1_3 if is_newest else ssl.TLSVersion.TLSv1_2
    _load_authorities(context, settings.tls_root_ca_file)
    if settings.tls_insecure_skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if bool(settings.tls_cert) != bool(settings.tls_key):
        raise ValueError("tls_cert and tls_key must be given together")
    if settings.tls_cert:
        _load_certificate(context, settings.tls_cert, settings.tls_key)
    return context


def _load_authorities(context: ssl.SSLContext, path: str) -> None:
    if not path:
        context.load_default_certs()
        return
    try:
        context.load_verify_locations(path)
    except OSError as error:  # SSLError is a subclass
        raise ValueError(f"tls_root_ca_file {path}: {reason(error)}") from None


def _load_certificate(context: ssl.SSLContext, cert: str, key: str) -> None:
    try:
        context.load_cert_chain(cert, key, password=_no_password)
    except OSError as error:
        raise ValueError(f"tls_cert {cert}, tls_key {key}: {reason(error)}") from None


def _no_password() -> str:
    """Raise OSError: OpenSSL would ask the terminal for a password, and a program without one would hang."""
    raise OSError("the key needs a password")


def reason(error: OSError) -> str:
    """Return one line for people that describes the error, without the source lines and capitals of ssl's errors."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _advised(f"the server's certificate: {error.verify_message}")
    if isinstance(error, ssl.SSLError) and error.reason:
        return _advised(f"TLS: {error.reason.replace('_', ' ').lower()}")
    return error.strerror or str(error) or type(error).__name__


def _advised(text: str) -> str:
    """Append the setting that admits a weak certificate, if the text complains about one."""
    is_weak = any(part in text for part in _TOO_WEAK)
    return f"{text} (a tls_security_level of 1 or 0 accepts weak certificates)" if is_weak else text
