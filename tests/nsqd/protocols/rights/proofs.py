"""An auth file for tests of the protocols: pure, and changed by the test."""

from copy import copy
from functools import cache

from shared.auth.auth_file import AuthFile, Identity, parse
from shared.auth.failures import Failures
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
[[certificate]]
name = "shop"
subject = "CN=shop"
roles = ["orders"]
{socket}
"""
SIDECAR = 990  # the number of the machine's user who is known by a unix socket
SOCKET = f"""
[[socket]]
name = "sidecar"
uid = {SIDECAR}
roles = ["worker"]
"""


def token(name: str) -> bytes:
    """The token of the identity with that name, which is that of its role."""
    return b"pst_" + name.encode().ljust(43, b"_")


@cache
def _parsed(tokens: str, socket: str) -> AuthFile:
    return parse(FILE.format(tokens=tokens, socket=socket))


class Proofs:
    """Implements nsqd.protocols.credential.Proofs."""

    def __init__(self, *roles: str, **limits: int) -> None:
        self.now = 0.0  # s
        self.failures = Failures(lambda: self.now)
        self.looked_at: list[bytes] = []  # the tokens that were
        self.set(*roles, **limits)

    def set(self, *roles: str, has_socket: bool = True, **limits: int) -> None:
        """Let there be a token for each of these roles, and no other one. `has_socket`: SIDECAR is a worker.

        `limits`: of each of the tokens.
        """
        entry = '[[token]]\nname = "{0}"\nsha256 = "{1}"\nroles = ["{0}"]\n'
        if limits:
            entry += "limits = {{ " + ", ".join(f"{name} = {value}" for name, value in limits.items()) + " }}\n"
        texts = "".join(entry.format(role, digest(token(role))) for role in roles), SOCKET if has_socket else ""
        self.file = copy(_parsed(*texts))
        self.file.tokens = dict(self.file.tokens)  # a test may change it

    @staticmethod
    def parsed(entries: str) -> AuthFile:
        """A file with these entries, and with the roles."""
        return parse(FILE.format(tokens=entries, socket=""))

    def with_token(self, secret: bytes) -> Identity | None:
        self.looked_at.append(secret)
        return self.file.tokens.get(digest(secret)) if is_token(secret) else None

    def with_uid(self, number: int) -> Identity | None:
        return self.file.sockets.get(number)

    def with_certificate(self, subject: str, names: list[str]) -> Identity | None:
        return self.file.of_certificate(subject, names)

    def is_blocked(self, address: str) -> bool:
        return self.failures.wait(address) > 0

    def note_failure(self, address: str) -> None:
        self.failures.note(address)
