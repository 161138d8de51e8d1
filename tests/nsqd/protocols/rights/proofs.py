"""An auth file for tests of the protocols: pure, and changed by the test."""

from __future__ import annotations

from shared.auth.auth_file import AuthFile, Identity, parse
from shared.auth.tokens import digest, is_token

FILE = """
[[role]]
name = "orders"
rules = [{{ verbs = ["publish"], topics = ["orders*"] }}, {{ verbs = ["consume"], topics = ["orders*"], channels = ["api"] }}]
[[role]]
name = "worker"
rules = [{{ verbs = ["publish", "consume"], topics = ["work*"] }}]
{tokens}
[[certificate]]
name = "billing"
subject = "CN=billing*"
roles = ["producer"]
"""


def token(name: str) -> bytes:
    """The token of the identity with that name, which is that of its role."""
    return b"pst_" + name.encode().ljust(43, b"_")


class Proofs:
    """Implements nsqd.protocols.credential.Proofs."""

    def __init__(self, *roles: str, **limits: int) -> None:
        self.set(*roles, **limits)

    def set(self, *roles: str, **limits: int) -> None:
        """Let there be a token for each of these roles, and no other one. `limits`: of each of them."""
        entry = '[[token]]\nname = "{0}"\nsha256 = "{1}"\nroles = ["{0}"]\n'
        if limits:
            entry += "limits = {{ " + ", ".join(f"{name} = {value}" for name, value in limits.items()) + " }}\n"
        self.file: AuthFile = parse(
            FILE.format(tokens="".join(entry.format(role, digest(token(role))) for role in roles))
        )

    @staticmethod
    def parsed(entries: str) -> AuthFile:
        """A file with these entries, and with the roles."""
        return parse(FILE.format(tokens=entries))

    def with_token(self, secret: bytes) -> Identity | None:
        return self.file.tokens.get(digest(secret)) if is_token(secret) else None

    def with_certificate(self, subject: str, names: list[str]) -> Identity | None:
        return self.file.of_certificate(subject, names)
