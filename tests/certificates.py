"""An authority for tests, the files a daemon reads, and clients that trust it. Nothing is stored."""

import ssl
import warnings
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme

NAMES = ("localhost", "127.0.0.1")


class Authority:
    """Signs the server's certificate, whose files it writes, and clients' certificates."""

    def __init__(self, directory: Path, key_type: trustme.KeyType = trustme.KeyType.ECDSA) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._ca = trustme.CA(key_type=key_type)
        self._key_type = key_type
        self.cert, self.key, self.root = (str(directory / name) for name in ("cert.pem", "key.pem", "ca.pem"))
        self.renew()

    def renew(self) -> None:
        """Write the files, with a new certificate of the server."""
        server = self._ca.issue_cert(*NAMES, key_type=self._key_type)
        Path(self.cert).write_bytes(b"".join(blob.bytes() for blob in server.cert_chain_pems))
        server.private_key_pem.write_to_path(self.key)
        self._ca.cert_pem.write_to_path(self.root)

    def issue(self, common_name: str) -> trustme.LeafCert:
        """Issue a certificate for a client."""
        return self._ca.issue_cert("client.test", common_name=common_name)

    def issue_expired(self, common_name: str, *names: str) -> trustme.LeafCert:
        """One that was good until yesterday."""
        today = datetime.now(UTC)
        return self._ca.issue_cert(
            *(names or ("client.test",)),
            common_name=common_name,
            not_before=today - timedelta(days=9),
            not_after=today - timedelta(days=1),
        )

    def client(self, certificate: trustme.LeafCert | None = None) -> ssl.SSLContext:
        """A client that trusts this authority, and shows a certificate if it has one."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._ca.configure_trust(context)
        if certificate is not None:
            certificate.configure_cert(context)
        return context

    def flags(self) -> tuple[str, ...]:
        """The server's certificate as a daemon's flags."""
        return ("-tls-cert", self.cert, "-tls-key", self.key)


def only(context: ssl.SSLContext, version: ssl.TLSVersion) -> ssl.SSLContext:
    """The client, speaking this version and no other, even an obsolete one."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # that is the point
        context.minimum_version = context.maximum_version = version
        if version < ssl.TLSVersion.TLSv1_2:
            context.set_ciphers("ALL:@SECLEVEL=0")
    return context
