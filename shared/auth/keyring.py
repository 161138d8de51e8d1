"""The current content of the auth file. A file that has become invalid changes nothing: the last valid one stays in force."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from shared.auth.auth_file import MOST_BYTES, NEVER, AuthFile, AuthFileError, Identity, parse
from shared.auth.failures import FAILURES_WITHIN, MOST_FAILURES, Failures, network_of
from shared.auth.own_token import OwnTokenError, use_token_of
from shared.auth.rules import Rule
from shared.auth.tokens import digest, is_token
from shared.files import public_problem, without_waiting
from shared.log import log
from shared.process.daemon import StartError


def open_rights(auth_file: str, token_file: str, wall: Callable[[], float]) -> Keyring | None:
    """Read the auth file, if there is one, and show the token of the other file from now on. Raises StartError."""
    flag, path = "--auth-token-file", token_file
    try:
        use_token_of(token_file)
        flag, path = "--auth-file", auth_file
        return Keyring(auth_file, wall) if auth_file else None
    except (OSError, AuthFileError, OwnTokenError) as error:
        raise StartError(f"{flag} {path}: {getattr(error, 'strerror', None) or error}") from None


def log_failures(address: str) -> None:
    """Log that an address has shown too many wrong credentials."""
    log.warning(
        "AUTH: %d wrong tokens or passwords from %s within %g s: until that is over, each further one ends its connection",
        MOST_FAILURES, address, FAILURES_WITHIN,
    )  # fmt: skip


class Keyring:
    """Finds identities by their credentials, for any thread; one of them calls `reload_if_changed`."""

    def __init__(
        self,
        path: str,
        wall: Callable[[], float],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Read the file. `wall`: the time in s since the epoch; `clock`: monotonic s. Raises OSError, AuthFileError."""
        self._failures = Failures(clock)  # at the ports whose connections show a proof once, by address
        self._path = Path(path)
        self._wall = wall
        self._state: tuple[int, ...] = ()  # of the file that was read last
        self._complaint = ""  # the error that was logged last
        # called after each change of the file
        self.on_read: Callable[[bool], None] = lambda is_valid: None
        self.epoch = 0  # increases when rights may have changed
        self._file = AuthFile()
        self._looked_at = float("-inf")  # s since the epoch: when `reload_if_changed` was called last
        self._next_end = NEVER  # s since the epoch: when the first of those that are valid expires
        self.reload()

    def with_token(self, secret: bytes) -> Identity | None:
        """Return the identity of this token, or None."""
        return self._valid(self._file.tokens.get(digest(secret))) if is_token(secret) else None

    def with_certificate(self, subject: str, names: list[str]) -> Identity | None:
        """Return the identity of this certificate, which was verified, or None. `names`: its URIs and DNS names."""
        return self._valid(self._file.of_certificate(subject, names))

    def with_uid(self, number: int) -> Identity | None:
        """Return the identity of the machine's user of that number, which connects by a unix socket, or None."""
        return self._valid(self._file.sockets.get(number))

    def user(self, name: str) -> tuple[Identity, str] | None:
        """Return the user of that name, and the hash of the password or ""; None if there is no such user."""
        found = self._file.users.get(name)
        return found if found is not None and self._valid(found[0]) is not None else None

    @property
    def roles(self) -> Mapping[str, tuple[Rule, ...]]:
        """The rules of the roles that the file knows, by name."""
        return self._file.roles

    @property
    def knows_certificates(self) -> bool:
        """Return whether the file has entries with certificates."""
        return bool(self._file.certificates)

    def claimed(self, name: str) -> Identity | None:
        """Return the user of that name if it has no credentials, so that a trusted proxy has to name it, or None."""
        found = self.user(name)
        return found[0] if found is not None and name in self._file.unproven else None

    def named(self, name: str, kind: str) -> Identity | None:
        """Return the identity of that kind and name, or None."""
        found = (one for one in self._file.identities() if one.name == name and one.kind == kind)
        return next((one for one in found if self._valid(one) is not None), None)

    def twin(self, name: str) -> Identity | None:
        """Return an identity of the file whose name is this one, or differs from it in case only."""
        return self._file.twin(name)

    def _valid(self, identity: Identity | None) -> Identity | None:
        return identity if identity is not None and self._wall() < identity.expires else None

    def is_blocked(self, address: str) -> bool:
        """Return whether this address has sent too many wrong credentials recently. Called by one thread."""
        return bool(address) and self._failures.wait(network_of(address)) > 0

    def note_failure(self, address: str) -> None:
        """Count wrong credentials from an address, and log a line when there are too many. Called by one thread."""
        if address and self._failures.note(network_of(address)):
            log_failures(address)

    @property
    def problem(self) -> str:
        """The error of the last attempt to read the file, or ""."""
        return self._complaint

    def reload_if_changed(self) -> bool:
        """Read the file if it has changed, and handle expiry. Returns True if rights may have changed."""
        before = self.epoch
        try:
            if _state_of(self._path.stat()) != self._state:
                self.reload()
                self.on_read(True)
        except (OSError, AuthFileError, RecursionError) as error:
            if str(error) != self._complaint:
                log.error("AUTH: %s: %s; the last valid content stays in force", self._path, error)
                self.on_read(False)
            self._complaint = str(error)
        now = self._wall()
        if now >= self._next_end or now < self._looked_at:  # a clock that was set back makes expired tokens valid again
            self._note_next_end()
            self.epoch += 1
        self._looked_at = now
        return self.epoch != before

    def reload(self) -> None:
        """Read the file. Raises OSError, AuthFileError."""
        with open(self._path, encoding="utf-8", opener=without_waiting) as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise AuthFileError("it is not a regular file")
            if public := public_problem(found):
                raise AuthFileError(public)
            try:
                text = file.read(MOST_BYTES + 1)
            except UnicodeDecodeError:
                raise AuthFileError("it is not UTF-8") from None
            if _state_of(os.fstat(file.fileno())) != _state_of(found):
                raise AuthFileError("it was changed while it was read")
        if len(text) > MOST_BYTES:
            raise AuthFileError(f"it has more than {MOST_BYTES} bytes")
        self._file = parse(text)
        for one, other in self._file.twins():
            log.warning(
                "AUTH: the names %s and %s differ in case only, so readers of an audit confuse them", one, other
            )
        self._state, self._complaint = _state_of(found), ""
        self.epoch += 1
        self._note_next_end()
        log.info("AUTH: read %d identities from %s", len(self._file.identities()), self._path)

    def _note_next_end(self) -> None:
        now = self._wall()
        self._next_end = min((one.expires for one in self._file.identities() if one.expires > now), default=NEVER)


def _state_of(found: os.stat_result) -> tuple[int, ...]:
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino
