"""A daemon as a client: files that are read again, and what the failures of a connection ask an operator to do."""

import errno
import ssl
from functools import partial
from itertools import pairwise
from pathlib import Path

import httpx
import pytest

from shared.tls.client import ClientCertificates, advised, load_client, why_failed
from shared.tls.info import TlsError
from tests.cases import each
from tests.certificates import Authority


def trusted(context: ssl.SSLContext) -> list[str]:
    return [str(one["serialNumber"]) for one in context.get_ca_certs()]


def test_a_reload_affects_later_connections_and_an_error_nothing(tmp_path: Path) -> None:
    one, other = Authority(tmp_path / "one"), Authority(tmp_path / "other")
    loaded = ClientCertificates(partial(load_client, one.root, one.cert, one.key, "lookupd-tls-"))
    following = loaded.following_context()
    before = trusted(loaded.context)
    Path(one.root).write_bytes(Path(other.root).read_bytes())
    loaded.reload()
    after = trusted(loaded.context)
    assert before != after
    made = following.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_hostname="localhost")
    assert trusted(made.context) == after
    Path(one.cert).write_text("nothing")
    with pytest.raises(TlsError, match=r"failed to build client TLS config - open .*: no such file"):
        load_client(str(tmp_path / "none.pem"))
    with pytest.raises(TlsError, match=r"^lookupd-tls-cert .*cert.pem: tls: "):
        loaded.reload()
    assert trusted(loaded.context) == after


@each("reason, what", [
    ("TLS: certificate verify failed: self-signed certificate in certificate chain", "-ca must name the authority"),
    ("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: unable to get local issuer certificate", "-ca must"),
    ("certificate verify failed: Hostname mismatch, certificate is not valid for 'x'", "address it by one of them"),
    ("certificate verify failed: IP address mismatch, certificate is not valid for '::1'", "address it by one of them"),
    ("certificate verify failed: certificate has expired", "renew its certificate"),
    ("TLS: sslv3 alert certificate expired", "renew the certificate of -cert"),
    ("TLS: tlsv13 alert certificate required", "-cert must name a certificate"),
    ("TLS: tlsv1 alert unknown ca", "-cert must name a certificate"),
    ("TLS: wrong version number", "does not speak TLS there"), ("dial: connection refused", ""), ("E_BAD_PROTOCOL", ""),
])  # fmt: skip
def test_a_failure_says_what_to_do(reason: str, what: str) -> None:
    found = advised(reason, "-ca", "-cert")
    assert found.startswith(reason + "; " if what else reason)
    assert what in found
    assert bool(what) is (found != reason)


def test_a_reason_that_ends_with_a_stop_and_what_tls_said_among_the_causes() -> None:
    assert advised("certificate has expired.", "-ca", "-cert").startswith("certificate has expired; renew")
    refused = ssl.SSLError(1, "[SSL] x")
    refused.reason = "TLSV13_ALERT_CERTIFICATE_REQUIRED"
    assert why_failed(chained(OSError(), ValueError("odd"), refused)) == "TLS: tlsv13 alert certificate required"
    assert why_failed(chained(OSError("reset"), ssl.SSLWantReadError(2, "did not complete"))) == "reset"
    assert why_failed(ValueError()) == "ValueError"
    system = OSError(errno.ECONNREFUSED, "[Errno 111]")
    for cause in (system, ExceptionGroup("all addresses", [system, OSError()])):
        hidden = OSError("All connection attempts failed")
        hidden.__cause__ = cause
        assert why_failed(chained(httpx.ConnectError(str(hidden)), hidden)) == "connection refused"


def chained(*errors: Exception) -> Exception:
    """The first error, as it comes when each was raised while the next was handled."""
    for error, cause in pairwise(errors):
        error.__context__ = cause
    return errors[0]
