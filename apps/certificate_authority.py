"""The certificate authority of a cluster, in a directory: it signs certificates for nodes, servers and clients.

The files are PEM: ca.pem and ca-key.pem, for each node node-<number>.pem and node-<number>-key.pem, for the daemons server.pem
and server-key.pem (or <daemon>.pem and <daemon>-key.pem), and for each client <name>.pem and <name>-key.pem. Keys are EC P-256,
and only their owner may read them. What exists is never written again.

A certificate of a node is one at the cluster's port only, because it alone names a number there. At other ports it is one more
certificate of this authority.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from shared.files import replace_file
from shared.terminal.commands import CommandError
from shared.tls.node_certificates import certified_number, node_uri

AUTHORITY_DAYS = 3650  # how long an authority is valid at least
_SKEW = timedelta(hours=1)  # by which the clock of a node may be slow
_NO_USAGE = dict.fromkeys(
    ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only", "decipher_only"),
    False,
)
_BOTH = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
LOCAL = ("localhost", "127.0.0.1", "::1")  # of which every machine has its own


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A certificate that is to be made, or that is there already."""

    file: str  # name of its file, without .pem
    common_name: str
    usages: list[x509.ObjectIdentifier]
    names: list[x509.GeneralName]  # alternative names
    whose: str  # for errors

    def is_met_by(self, found: x509.Certificate) -> bool:
        """Return whether a certificate is for this, maybe with more names of hosts. Raises ExtensionNotFound, ValueError."""
        if found.subject != _name(self.common_name):
            return False
        if not self.names:
            return True
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        uris = names.get_values_for_type(x509.UniformResourceIdentifier)
        wanted = certified_number(one.value for one in self.names if isinstance(one, x509.UniformResourceIdentifier))
        return certified_number(uris) == wanted and set(self.names) <= set(names)


class Authority:
    """The authority in a directory, which is made if it is not there."""

    def __init__(self, directory: Path, days: int, now: datetime | None = None) -> None:
        """Load the authority, or make one that is valid for `days`, 3650 at least. Raises CommandError and OSError."""
        self.now = now or datetime.now(UTC)
        self._directory = directory
        self._days = days
        self.is_new = not self._exist("ca")
        if self.is_new:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._make()
        else:
            self._load()

    def issue(self, number: int) -> tuple[bool, datetime]:
        """Make the files of a node unless they exist. Raises CommandError and OSError.

        Returns whether they are new, and when the certificate ends, which is not after the authority's end.
        """
        names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(node_uri(number))]
        return self._issue(_Wanted(f"node-{number}", f"penstock node {number}", _BOTH, names, f"node {number}"))

    def issue_server(self, hosts: Iterable[str], name: str = "server") -> tuple[bool, datetime]:
        """Make the files for the daemons of these hosts and of this machine, as `issue` does. They may connect with them, too.

        `hosts`: DNS names and IP addresses. `name`: of the files, and behind "penstock " of the subject.
        """
        given = list(dict.fromkeys((*LOCAL, *hosts)))
        return self._issue(_Wanted(name, f"penstock {name}", _BOTH, list(map(_name_of, given)), ", ".join(given)))

    def issue_client(self, name: str) -> tuple[bool, datetime]:
        """Make the files of a client, as `issue` does. Its name is the common name of its subject."""
        return self._issue(_Wanted(name, name, _BOTH[1:], [], f"client {name}"))

    def _issue(self, wanted: _Wanted) -> tuple[bool, datetime]:
        if self._exist(wanted.file):
            return False, self._checked(wanted).not_valid_after_utc
        key = ec.generate_private_key(ec.SECP256R1())
        ends = min(self.now + timedelta(days=self._days), self._certificate.not_valid_after_utc)
        builder = (
            _builder(wanted.common_name, key.public_key(), self.now, ends)
            .issuer_name(self._certificate.subject)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.KeyUsage(True, key_cert_sign=False, crl_sign=False, **_NO_USAGE), critical=True)
            .add_extension(x509.ExtendedKeyUsage(wanted.usages), False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), False)
        )
        if wanted.names:
            builder = builder.add_extension(x509.SubjectAlternativeName(wanted.names), False)
        signed = builder.sign(self._key, SHA256())
        self._write(wanted.file, key, signed)
        return True, signed.not_valid_after_utc

    def _make(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        ends = self.now + timedelta(days=max(self._days, AUTHORITY_DAYS))
        builder = _builder("penstock cluster authority", self._key.public_key(), self.now, ends)
        self._certificate = (
            builder.issuer_name(_name("penstock cluster authority"))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(x509.KeyUsage(False, key_cert_sign=True, crl_sign=True, **_NO_USAGE), critical=True)
            .sign(self._key, SHA256())
        )
        self._write("ca", self._key, self._certificate)

    def _load(self) -> None:
        cert, key = self._paths("ca")
        try:
            loaded = load_pem_private_key(key.read_bytes(), None)
            self._certificate = x509.load_pem_x509_certificate(cert.read_bytes())
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:  # TypeError: the key is encrypted
            raise CommandError(f"{cert} or {key} cannot be read: {error}; choose another directory") from None
        if not isinstance(loaded, ec.EllipticCurvePrivateKey) or loaded.public_key() != self._certificate.public_key():
            raise CommandError(f"{key} is not the EC key of {cert}; choose another directory")
        self._key = loaded
        if self._certificate.not_valid_after_utc <= self.now:
            raise CommandError(
                f"{cert} expired on {self._certificate.not_valid_after_utc:%Y-%m-%d}; make new certificates for all"
                " nodes in another directory"
            )

    def _checked(self, wanted: _Wanted) -> x509.Certificate:
        """Return the certificate that exists. Raises CommandError unless this authority has signed it for what is wanted."""
        cert, key = self._paths(wanted.file)
        try:
            found = x509.load_pem_x509_certificate(cert.read_bytes())
            found.verify_directly_issued_by(self._certificate)
            if wanted.is_met_by(found):
                return found
        except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
            pass  # reported below
        raise CommandError(
            f"{cert} is not a certificate of this authority for {wanted.whose};"
            f" remove it and {key}, and run the command again"
        )

    def _paths(self, name: str) -> tuple[Path, Path]:
        return self._directory / f"{name}.pem", self._directory / f"{name}-key.pem"

    def _exist(self, name: str) -> bool:
        """Return whether both files are there. Raises CommandError if one is missing."""
        cert, key = self._paths(name)
        if cert.exists() == key.exists():
            return cert.exists()
        found, missing = (cert, key) if cert.exists() else (key, cert)
        raise CommandError(f"{found} exists without {missing}; restore the missing file, or remove {found}")

    def _write(self, name: str, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
        cert_path, key_path = self._paths(name)
        replace_file(key_path, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        replace_file(cert_path, certificate.public_bytes(Encoding.PEM), 0o644)


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _name_of(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(
    common_name: str, key: ec.EllipticCurvePublicKey, now: datetime, ends: datetime
) -> x509.CertificateBuilder:
    """Return a certificate with the fields that every certificate has, except for its issuer."""
    return (
        x509.CertificateBuilder()
        .subject_name(_name(common_name))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(ends)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )
