"""Certificates as old private authorities issue them: RSA keys of 1024 bits, SHA-1. trustme makes only good ones."""

import datetime
import ssl
from functools import cache
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

SHA256_RSA, SHA1_RSA = bytes.fromhex("2a864886f70d01010b"), bytes.fromhex("2a864886f70d010105")  # names of algorithms


class WeakAuthority:
    """Files in a directory: `root`, and `cert` and `key` of localhost, which a server or a client may show."""

    def __init__(self, directory: Path, bits: int, *, sha1: bool) -> None:
        """`bits` of every key; `sha1`: all signatures use it."""
        directory.mkdir(parents=True, exist_ok=True)
        self.cert, self.key, self.root = (str(directory / name) for name in ("cert.pem", "key.pem", "ca.pem"))
        self._signer = _key(bits, "authority")
        self._sha1 = sha1
        key = _key(bits, "localhost")
        Path(self.root).write_bytes(self._signed("authority", self._signer, is_authority=True))
        Path(self.cert).write_bytes(self._signed("localhost", key, is_authority=False))
        Path(self.key).write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))

    def client(self, *, with_certificate: bool = False) -> ssl.SSLContext:
        """A client that takes any strength, trusts this authority, and may show `cert`."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.set_ciphers("DEFAULT:@SECLEVEL=0")
        context.load_verify_locations(self.root)
        if with_certificate:
            context.load_cert_chain(self.cert, self.key)
        return context

    def flags(self) -> tuple[str, ...]:
        """The certificate as a daemon's flags."""
        return ("-tls-cert", self.cert, "-tls-key", self.key)

    def _signed(self, name: str, key: rsa.RSAPrivateKey, *, is_authority: bool) -> bytes:
        today = datetime.datetime.now(datetime.UTC)
        names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))])
        builder = (
            x509.CertificateBuilder()
            .subject_name(_called(name))
            .issuer_name(_called("authority"))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(today - datetime.timedelta(days=1))
            .not_valid_after(today + datetime.timedelta(days=9))
            .add_extension(x509.BasicConstraints(is_authority, None), critical=True)
            .add_extension(names, critical=False)
        )
        certificate = builder.sign(self._signer, hashes.SHA256())
        return self._signed_with_sha1(certificate) if self._sha1 else certificate.public_bytes(Encoding.PEM)

    def _signed_with_sha1(self, certificate: x509.Certificate) -> bytes:
        """The same once more: `cryptography` signs no certificate with SHA-1, but bytes. Lengths stay as they are."""
        content = certificate.tbs_certificate_bytes
        changed = content.replace(SHA256_RSA, SHA1_RSA)
        signature = self._signer.sign(changed, padding.PKCS1v15(), hashes.SHA1())
        der = certificate.public_bytes(Encoding.DER)
        der = der.replace(content, changed).replace(SHA256_RSA, SHA1_RSA).replace(certificate.signature, signature)
        return x509.load_der_x509_certificate(der).public_bytes(Encoding.PEM)


@cache
def _key(bits: int, name: str) -> rsa.RSAPrivateKey:
    """A key that all certificates of this name share: making one takes 40 ms."""
    return rsa.generate_private_key(65537, bits)


def _called(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
