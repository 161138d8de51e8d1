"""The identity of a client by the credentials that it has presented, and its rights. The same for all protocols.

See docs/contributing/design/security.md#who-may-do-what.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Protocol

from nsqd.core.topic import Topic
from nsqd.protocols.account import AccountClient, Accounts, Usage
from nsqd.protocols.transport import Transport
from shared.auth.verbs import Verb

if TYPE_CHECKING:  # a node without an auth file does not load what reads one
    from shared.auth.auth_file import Identity
    from shared.tls.info import TlsInfo


class Proofs(Protocol):
    """The auth file, as ports see it (shared/auth/keyring.py)."""

    def with_token(self, secret: bytes) -> Identity | None:
        """Return the identity with this token, or None."""

    def with_certificate(self, subject: str, names: list[str]) -> Identity | None:
        """Return the identity with this certificate, which was verified. `names`: its URIs and DNS names."""

    def with_uid(self, number: int) -> Identity | None:
        """Return the identity of the machine's user of that number, who connects by a unix socket."""

    def is_blocked(self, address: str) -> bool:
        """Return whether too many tokens from this address were wrong recently ("": a unix socket, never)."""

    def note_failure(self, address: str) -> None:
        """Count a wrong token from an address."""


class Credential:
    """The credentials that one client has presented last, its identity, and the use of the identity's account."""

    __slots__ = (
        "_accounts", "_address", "_client", "_find", "_proofs", "_transport", "identity", "is_guess", "is_one_too_many",
        "usage",
    )  # fmt: skip

    def __init__(
        self, proofs: Proofs, accounts: Accounts | None, client: AccountClient, transport: Transport, address: str
    ) -> None:
        """`accounts`: where the connection is counted; None: nowhere. `address`: the client's, "" for a unix socket."""
        self._proofs = proofs
        self._accounts = accounts
        self._client = client
        self._transport = transport
        self._address = address
        self._find: Callable[[], Identity | None] = _unknown
        self.identity: Identity | None = None  # None: the client is not known
        self.usage: Usage | None = None  # None: the client is not known, or nothing is counted
        self.is_guess = False  # the last token was wrong, after too many wrong ones from the client's address
        # the last token or certificate was right, but its identity has too many connections
        self.is_one_too_many = False

    def show_token(self, secret: bytes, *, is_final: bool = True) -> bool:
        """Identify the client by a token. Returns False if it is wrong, or its identity has too many connections.

        Then the client keeps its identity. `is_final`: no authorization server is asked about the secret, so an unknown one
        counts as wrong, and `is_guess` is True if the connection is to end.
        """
        is_known = self._show(partial(self._proofs.with_token, secret))
        if is_final and not is_known and not self.is_one_too_many:
            self.is_guess = self._proofs.is_blocked(self._address)
            self._proofs.note_failure(self._address)
        return is_known

    def show_certificate(self, tls: TlsInfo) -> bool:
        """Identify the client by its certificate, if it has one that was verified."""
        subject, names = tls.subject, [*tls.uris, *tls.dns_names]
        return bool(subject or names) and self._show(partial(self._proofs.with_certificate, subject, names))

    def show_user(self) -> None:
        """Identify the client by the machine's user, if it connects by a unix socket. The auth file may change that later."""
        if self._address:
            return
        find = partial(self._proofs.with_uid, self._transport.peer_user())
        if not self._show(find) and not self.is_one_too_many:
            self._find = find

    def _show(self, find: Callable[[], Identity | None]) -> bool:
        identity = find()
        self.is_one_too_many = identity is not None and not self._join(identity, is_new=True)
        if identity is None or self.is_one_too_many:
            return False
        self._find, self.identity = find, identity
        return True

    def renew(self) -> bool:
        """Identify the client again: the auth file has changed. Returns False if it was known, and no longer is."""
        before, self.identity = self.identity, self._find()
        if self.identity is not None:
            self._join(self.identity, is_new=False)
        return before is None or self.identity is not None

    def _join(self, identity: Identity, is_new: bool) -> bool:
        """Count the connection for `identity` from now on. Returns False if that one may have no more connections."""
        before, limits = self.usage, identity.limits
        if self._accounts is None:
            return True
        if before is not None and before.account.name == identity.name:
            if before.limits != limits:
                before.limits = limits
                self._limits_changed(before)
            return True
        joined = self._accounts.join(identity.name, limits, self._client, is_new)
        if joined is None:
            return False
        self.leave()
        self.usage = joined
        self._client.joined_account(joined.account)
        if before is not None or limits.given():  # else nothing was metered, and nothing is to be
            self._limits_changed(joined)
        return True

    def _limits_changed(self, usage: Usage) -> None:
        self._transport.meter(usage)
        self._client.limits_changed()

    def leave(self) -> None:
        """Leave the account: the connection is gone, or its client has another identity."""
        if self.usage is not None:
            self.usage.account.leave(self.usage)

    @property
    def name(self) -> tuple[str, str]:
        """Return the name of the client's identity, and how the client has proved it; ("", "") if it is not known."""
        return (self.identity.name, self.identity.kind) if self.identity is not None else ("", "")

    def may(self, verb: Verb, topic: str = "", channel: str = "") -> bool:
        """Return whether the client may do this; `topic` "": on all topics, or on the node."""
        return self.identity is not None and self.identity.rights.may(verb, topic, channel)

    def may_make(self, topic: str) -> bool:
        """Return whether the client may make this topic."""
        return self.identity is not None and self.identity.rights.may_make(topic)

    def make_topic(self, name: str, topics: Mapping[str, Topic], make: Callable[[], object]) -> Topic:
        """Create a topic for the client with `make`, as Account.make_topic does. Raises TooMany."""
        usage = self.usage
        if usage is not None:
            return usage.account.make_topic(usage.limits, name, topics, make)
        make()
        return topics[name]

    def may_job(self, verb: Verb, tube: str | None) -> bool:
        """Return whether the client may do this to a job of that tube.

        `tube` None: this node does not have the job. Then it returns whether the client may ask other nodes, which check
        `dump` when they find the job.
        """
        if tube is not None:
            return self.may(verb, tube)
        return self.identity is not None and self.identity.rights.any_of(verb) and self.dump(verb) is not None

    def dump(self, verb: Verb) -> bytes | None:
        """Return the rights of the client for `verb`, as Rights.dump does."""
        return self.identity.rights.dump(verb) if self.identity is not None else None


def of_another_node(rights: bytes, client: AccountClient, transport: Transport) -> Credential:
    """Return the credential of a client of another node. `rights`: what Rights.dump returns there."""
    credential = Credential(_NoProofs(), None, client, transport, "")
    credential.identity = identity_of_another_node(rights)
    return credential


def identity_of_another_node(rights: bytes) -> Identity:
    """Return an identity with these rights, as Rights.dump returns them on another node; without any if they are invalid."""
    from shared.auth.auth_file import Identity
    from shared.auth.rules import NOTHING, PatternError, load_rights

    try:
        return Identity("", "node", (), load_rights(rights))
    except PatternError:
        return Identity("", "node", (), NOTHING)


class _NoProofs:
    """Implements Proofs for clients that are known to another node."""

    def with_token(self, secret: bytes) -> None:
        return None

    def with_certificate(self, subject: str, names: list[str]) -> None:
        return None

    def with_uid(self, number: int) -> None:
        return None

    def is_blocked(self, address: str) -> bool:
        return False

    def note_failure(self, address: str) -> None:
        raise AssertionError("a command of another node has no token")


def _unknown() -> None:
    return None
