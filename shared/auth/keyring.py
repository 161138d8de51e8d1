"""The auth file as it is now. A file that has become invalid changes nothing: what was read last stays in force."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from shared.auth.auth_file import MOST_BYTES, AuthFile, AuthFileError, Identity, parse
from shared.auth.failures import FAILURES_WITHIN, MOST_FAILURES, Failures, network_of
from shared.auth.own_token import OwnTokenError, use_token_of
from shared.auth.rules import Rule
from shared.auth.tokens import digest, is_token
from shared.files import public_problem, without_waiting
from shared.log import log
from shared.process.daemon import StartError


def open_rights(auth_file: str, token_file: str, wall: Callable[[], float]) -> Keyring | None:
    """Read the auth file ("": there is none), and show the token of the other file from now on. Raises StartError."""
    flag, path = "--auth-token-file", token_file
    try:
        use_token_of(token_file)
        flag, path = "--auth-file", auth_file
        return Keyring(auth_file, wall) if auth_file else None
    except (OSError, AuthFileError, OwnTokenError) as error:
        raise StartError(f"{flag} {path}: {getattr(error, 'strerror', None) or error}") from None


def tell_of_failures(address: str) -> None:
    """Tell the log that an address has shown too many wrong proofs."""
    log.warning(
        "AUTH: %d wrong tokens or passwords from %s within %g s: until that is over, each further one ends its connection",
        MOST_FAILURES, address, FAILURES_WITHIN,
    )  # fmt: skip


class Keyring:
    """Finds out who has shown a proof. Threads may ask it; one of them looks after the file."""

    def __init__(
        self,
        path: str,
        wall: Callable[[], float],
        read: Callable[[str], AuthFile] = parse,
        *,
        clock: Callable[[], float] = time.monotonic,
        is_strict: bool = True,
    ) -> None:
        """Read the file by `read`. `wall`: the time in s since the epoch; `clock`: monotonic s. Raises OSError, AuthFileError.

        Not `is_strict`: a token may have any form, and a file that everybody can read is only warned of.
        """
        self._failures = Failures(clock)  # at the ports whose connections show a proof once, by address
        self._path = Path(path)
        self._read = read
        self._is_strict = is_strict
        self._wall = wall
        self._state: tuple[int, ...] = ()  # of the file that was read last
        self._complaint = ""  # what was logged last
        # is told of each change of the file, and whether it is valid
        self.on_read: Callable[[bool], None] = lambda is_valid: None
        self.epoch = 0  # a greater one: somebody's rights may have changed
        self._file = AuthFile()
        self._looked_at = float("-inf")  # s since the epoch: when `look_after` was called last
        self._next_end = float("inf")  # s since the epoch: when the first of those that are valid expires
        self.reload()

    # who

    def with_token(self, secret: bytes) -> Identity | None:
        """Return who has this token; None: nobody, or not any more."""
        return self._valid(self._file.tokens.get(digest(secret))) if is_token(secret) or not self._is_strict else None

    def with_certificate(self, subject: str, names: list[str]) -> Identity | None:
        """Return who has this certificate, which was verified. `names`: its URIs and DNS names."""
        return self._valid(self._file.of_certificate(subject, names))

    def with_uid(self, number: int) -> Identity | None:
        """Return who connects by a unix socket as the machine's user of that number."""
        return self._valid(self._file.sockets.get(number))

    def user(self, name: str) -> tuple[Identity, str] | None:
        """Return the user of that name, and the hash of the password ("": there is none)."""
        found = self._file.users.get(name)
        return found if found is not None and self._valid(found[0]) is not None else None

    @property
    def roles(self) -> Mapping[str, tuple[Rule, ...]]:
        """The rules of the roles that the file knows, by name."""
        return self._file.roles

    @property
    def knows_certificates(self) -> bool:
        """Return whether anybody is known by a certificate."""
        return bool(self._file.certificates)

    def claimed(self, name: str) -> Identity | None:
        """Return the user of that name if there is nothing by which it could prove that: a trusted proxy has to say it."""
        found = self.user(name)
        return found[0] if found is not None and name in self._file.unproven else None

    def named(self, name: str, kind: str) -> Identity | None:
        """Return whoever of that kind has the name; None: nobody, or not any more."""
        found = (one for one in self._file.identities() if one.name == name and one.kind == kind)
        return next((one for one in found if self._valid(one) is not None), None)

    def twin(self, name: str) -> Identity | None:
        """Return somebody of the file whose name is this one, or differs from it in case only."""
        return self._file.twin(name)

    def _valid(self, identity: Identity | None) -> Identity | None:
        return identity if identity is not None and self._wall() < identity.expires else None

    # who guesses: asked by one thread

    def is_blocked(self, address: str) -> bool:
        """Return whether too many proofs from this address were wrong of late. `address` "": a unix socket, which never is."""
        return bool(address) and self._failures.wait(network_of(address)) > 0

    def note_failure(self, address: str) -> None:
        """Count a wrong proof from an address, and tell the log when there are too many."""
        if address and self._failures.note(network_of(address)):
            tell_of_failures(address)

    # the file

    @property
    def problem(self) -> str:
        """Return why the file could not be read the last time, or "" if it was."""
        return self._complaint

    def look_after(self) -> bool:
        """Read the file if it has changed, and note who has expired. Returns True if anybody's rights may have changed."""
        before = self.epoch
        try:
            if _state_of(self._path.stat()) != self._state:
                self.reload()
                self.on_read(True)
        except (OSError, AuthFileError, RecursionError) as error:
            if str(error) != self._complaint:
                log.error("AUTH: %s: %s; what was read last stays in force", self._path, error)
                self.on_read(False)
            self._complaint = str(error)
        now = self._wall()
        if (
            now >= self._next_end or now < self._looked_at
        ):  # set back, the clock has made tokens valid again that had expired
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
            public = public_problem(found)
            if public and self._is_strict:
                raise AuthFileError(public)
            try:
                text = file.read(MOST_BYTES + 1)
            except UnicodeDecodeError:
                raise AuthFileError("it is not UTF-8") from None
            if _state_of(os.fstat(file.fileno())) != _state_of(found):
                raise AuthFileError("it was changed while it was read")
        if len(text) > MOST_BYTES:
            raise AuthFileError(f"it has more than {MOST_BYTES} bytes")
        self._file = self._read(text)
        if public:
            log.warning("AUTH: everybody on this machine can read %s: run chmod o= on it", self._path)
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
        self._next_end = min(
            (one.expires for one in self._file.identities() if one.expires > now), default=float("inf")
        )

    def __repr__(self) -> str:
        return f"<Keyring of {self._path}, epoch {self.epoch}>"


def _state_of(found: os.stat_result) -> tuple[int, ...]:
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino
