"""The TLS options of every daemon: its certificate, the authorities it trusts, and which clients must use TLS.

This file imports no OpenSSL before `load_certificates` is called for a daemon that has a certificate.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from shared.checks import between, complaints, obstructed
from shared.daemon_options import DaemonOptions
from shared.options import option
from shared.values import parse_text

if TYPE_CHECKING:
    from shared.tls.certificates import Certificates

# Values of tls_required, and their numbers in /config (Go's constants TLSNotRequired and so on).
NOT_REQUIRED, REQUIRED_EXCEPT_HTTP, REQUIRED = "false", "tcp-https", "true"
TLS_REQUIRED = {NOT_REQUIRED: 0, REQUIRED_EXCEPT_HTTP: 1, REQUIRED: 2}
VERIFY_IF_GIVEN = "verify-if-given"  # Penstock's own policy: clients without a certificate are served, too
KNOWN_POLICIES = ("", "require", "require-verify", VERIFY_IF_GIVEN)  # values of tls_client_auth_policy
TLS_VERSIONS = {"tls1.0": 769, "tls1.1": 770, "tls1.2": 771, "tls1.3": 772}  # the numbers are TLS's own
DEFAULT_TLS_VERSION = "tls1.2"


def read_tls_required(text: str) -> str:
    """Return a key of TLS_REQUIRED from a Go bool or `tcp-https`, in any case. Raises ValueError."""
    text = text.lower()
    if text == REQUIRED_EXCEPT_HTTP:
        return text
    try:
        return REQUIRED if parse_text(bool, text) else NOT_REQUIRED
    except ValueError:
        raise ValueError("expected true, false or tcp-https") from None


def read_tls_version(text: str) -> str:
    """Return a key of TLS_VERSIONS; an empty text is the default, as in the original. Raises ValueError."""
    version = text.lower() or DEFAULT_TLS_VERSION
    if version not in TLS_VERSIONS:
        raise ValueError(f"expected one of {', '.join(TLS_VERSIONS)}")
    return version


@dataclass(frozen=True, slots=True)
class TlsOptions(DaemonOptions):
    """The options of a daemon that listens with TLS, under NSQ's names."""

    https_address: str = option("", "<addr>:<port> to listen on for HTTPS clients, when tls-cert and tls-key are given")
    tls_cert: str = option("", "path to certificate file")
    tls_key: str = option("", "path to key file")
    tls_client_auth_policy: str = option(
        "", "client certificate auth policy: require, require-verify or verify-if-given"
    )
    tls_root_ca_file: str = option("", "path to certificate authority file")
    tls_required: str = option(
        NOT_REQUIRED,
        "require TLS for client connections (true, false, tcp-https)",
        read=read_tls_required,
        bool_style=True,
    )
    tls_min_version: str = option(
        DEFAULT_TLS_VERSION, "minimum TLS version acceptable: tls1.2 or tls1.3", read=read_tls_version
    )
    tls_security_level: int = option(
        2,
        "OpenSSL security level for certificates (0 to 2): 1 accepts RSA keys of 1024 bits, 0 also accepts SHA-1 signatures",
        check=between(0, 2),
    )

    def completed(self) -> Self:
        """Return the options, with TLS required if client certificates are, whatever they say (Go: nsqd.New)."""
        if self.tls_client_auth_policy not in ("", VERIFY_IF_GIVEN) and self.tls_required == NOT_REQUIRED:
            return replace(self, tls_required=REQUIRED)
        return self

    def tls_problems(self) -> list[str]:
        """Return the errors in the combination of the TLS options, in the original's words."""
        wrong = []
        if bool(self.tls_cert) != bool(self.tls_key):
            wrong.append("failed to build TLS config - --tls-cert and --tls-key must be given together")
        elif not self.tls_cert and self.tls_required != NOT_REQUIRED:
            if self.tls_client_auth_policy not in KNOWN_POLICIES:  # this is probably the mistake
                wrong.append(
                    f"--tls-client-auth-policy {self.tls_client_auth_policy!r}: expected require, require-verify"
                    f" or {VERIFY_IF_GIVEN}"
                )
            wrong.append("cannot require TLS client connections without TLS key and cert")
        return wrong

    def tls_obstacles(self) -> list[str]:
        """Return a line if the address for HTTPS cannot be bound."""
        return complaints("https-address", filter(None, [self.tls_cert and self.https_address]), obstructed)

    def tls_oddities(self) -> list[str]:
        """Return a line if the policy is unknown, which the original accepts without one."""
        if self.tls_client_auth_policy in KNOWN_POLICIES or not self.tls_cert:
            return []
        policy = self.tls_client_auth_policy
        return [f"--tls-client-auth-policy {policy!r} is unknown: client certificates are not requested"]


def https_problems(options: TlsOptions) -> list[str]:
    """Return the errors in the address for HTTPS of a daemon that listens there only if it is given, unlike nsqd."""
    if options.https_address and not options.tls_cert:
        return ["--https-address needs --tls-cert and --tls-key"]
    if options.tls_required == REQUIRED and options.tls_cert and not options.https_address:
        return ["--tls-required refuses plain HTTP, so it needs --https-address (or =tcp-https)"]
    return []


def load_certificates(options: TlsOptions) -> Certificates | None:
    """Return the certificates, or None if there is no TLS. Raises TlsError."""
    if not options.tls_cert:
        return None
    from shared.tls.certificates import Certificates, TlsFiles

    return Certificates(
        TlsFiles(
            cert=options.tls_cert,
            key=options.tls_key,
            client_auth_policy=options.tls_client_auth_policy,
            root_ca=options.tls_root_ca_file,
            min_version=options.tls_min_version,
            security_level=options.tls_security_level,
        )
    )


def certificates_problem(options: TlsOptions) -> str:
    """Return an error in the files of TLS, or "", for --check-config."""
    from shared.tls.info import TlsError

    try:
        load_certificates(options)
    except TlsError as error:
        return str(error)
    return ""
