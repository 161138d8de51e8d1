"""The certificates of a small cluster, as `penstock cluster certs` makes them, for tests."""

from pathlib import Path

from apps.certificate_authority import Authority
from shared.tls.mutual import MutualCertificates, MutualTlsFiles

NODES = 3


def make_certificates(directory: Path) -> Path:
    """Make those of the nodes 0, 1 and 2."""
    authority = Authority(directory, 30)
    for number in range(NODES):
        authority.issue(number)
    return directory


def files(directory: Path, number: int, ca: Path | None = None) -> MutualTlsFiles:
    """The files of a node; it trusts the authority in `ca`, or the one that signed them."""
    cert, key = (str(directory / f"node-{number}{suffix}.pem") for suffix in ("", "-key"))
    return MutualTlsFiles(cert, key, str((ca or directory) / "ca.pem"))


def load(directory: Path, number: int, ca: Path | None = None) -> MutualCertificates:
    return MutualCertificates(files(directory, number, ca))
