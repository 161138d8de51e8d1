"""Who a client is by the proof that it has shown, and what it may do. The same for all protocols.

See docs/design/security.md#who-may-do-what.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from nsqd.protocols.transport import Transport
from shared.auth.verbs import Verb

if TYPE_CHECKING:  # a node without an auth file does not load what reads one
    from shared.auth.auth_file import Identity


class Proofs(Protocol):
    """The auth file, as ports need it (shared/auth/keyring.py)."""

    def with_token(self, secret: bytes) -> Identity | None:
        """Return who has this token; None: nobody, or not any more."""

    def with_certificate(self, subject: str, names: list[str]) -> Identity | None:
        """Return who has this certificate, which was verified. `names`: its URIs and DNS names."""

    def with_uid(self, number: int) -> Identity | None:
        """Return who connects by a unix socket as the machine's user of that number."""

    def is_blocked(self, address: str) -> bool:
        """Return whether no token from this address ("": a unix socket) is looked at for now: too many were wrong."""

    def note_failure(self, address: str) -> None:
        """Count a wrong token from an address."""


def credential_of(proofs: Proofs | None, transport: Transport, remote_ip: str) -> Credential | None:
    """Return the credential of a new client; None: there is no auth file. One on a unix socket is known by its user."""
    if proofs is None:
        return None
    credential = Credential(proofs, remote_ip)
    if not remote_ip:
        credential.show_user(transport.peer_user())
    return credential


class Credential:
    """The proof that one client has shown last, and who it is by that."""

    __slots__ = ("_address", "_find", "_proofs", "identity")

    def __init__(self, proofs: Proofs, address: str) -> None:
        """Begin with nobody. `address`: the client's, "" for a unix socket."""
        self._proofs = proofs
        self._address = address
        self._find: Callable[[], Identity | None] = _nobody
        self.identity: Identity | None = None  # None: nobody

    def show_token(self, secret: bytes, *, is_final: bool = True) -> bool:
        """Take a token. Returns False if nobody has it: the client stays who it was.

        After too many wrong ones from the client's address, this one is not looked at. `is_final`: nobody else is asked about
        the secret, so it counts as wrong if it is no token.
        """
        if not is_final:
            return self._show(partial(self._proofs.with_token, secret))
        if self._proofs.is_blocked(self._address):
            return False
        is_known = self._show(partial(self._proofs.with_token, secret))
        if not is_known:
            self._proofs.note_failure(self._address)
        return is_known

    def show_certificate(self, subject: str, names: list[str]) -> bool:
        """Take a certificate that was verified; "": there is none."""
        return bool(subject or names) and self._show(partial(self._proofs.with_certificate, subject, names))

    def show_user(self, number: int) -> None:
        """Take the number of the machine's user who has connected by a unix socket. Who that is may change with the file."""
        self._find = partial(self._proofs.with_uid, number)
        self.identity = self._find()

    def _show(self, find: Callable[[], Identity | None]) -> bool:
        identity = find()
        if identity is None:
            return False
        self._find, self.identity = find, identity
        return True

    def renew(self) -> bool:
        """Look again who this is: the auth file has changed. Returns False if it was somebody, and is nobody now."""
        before, self.identity = self.identity, self._find()
        return before is None or self.identity is not None

    def may(self, verb: Verb, topic: str = "", channel: str = "") -> bool:
        """Return whether the client may do this; `topic` "": on all topics, or on the node."""
        return self.identity is not None and self.identity.rights.may(verb, topic, channel)

    def __repr__(self) -> str:
        return f"<Credential of {self.identity!r}>"


def _nobody() -> None:
    return None
