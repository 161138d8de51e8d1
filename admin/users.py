"""The users file: who may log in, with which role and to which topics.

Each user has a line:

    # name   role      topics       secret
    ann      admin     *            $argon2id$v=19$...      a password
    robot    operator  orders.*,x   sha256:4f2a...          a token, for Authorization: Bearer
    carl     viewer    *            -                       a name that only a trusted proxy can say

`penstock users` writes it; manual changes take effect within a second. See admin.roles for the roles.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from admin.roles import EVERYTHING, WORDS, Role
from shared.auth.passwords import MADE_BY
from shared.auth.tokens import digest
from shared.log import log

TOKEN, BY_PROXY = "sha256:", "-"
CHECK_EVERY = 1.0  # s between two checks whether the file has changed
MOST_BYTES = 1024 * 1024
_NAME = re.compile(r"[A-Za-z0-9._@+-]{1,100}")
_TOPICS = re.compile(r"[A-Za-z0-9._#*?\[\]!-]{1,200}(,[A-Za-z0-9._#*?\[\]!-]{1,200}){0,99}")


@dataclass(frozen=True, slots=True)
class User:
    """A user, as one line of the file describes it."""

    name: str
    role: Role
    topics: tuple[str, ...]
    secret: str

    def line(self) -> str:
        """Return the user's line in the file."""
        return f"{self.name} {self.role.word} {','.join(self.topics)} {self.secret}"


def user_problem(user: User) -> str:
    """Return what is wrong with a user, or ""."""
    if _NAME.fullmatch(user.name) is None:
        return f"{user.name[:100]!r} is not a valid user name: use letters, digits and . _ @ + -"
    if user.role is Role.NOBODY:
        return f"{user.name}: the role must be one of {', '.join(word for word, role in WORDS.items() if role)}"
    if _TOPICS.fullmatch(",".join(user.topics)) is None:
        return f"{user.name}: invalid topics: use patterns such as * or orders.*,clicks"
    if user.role is Role.ADMIN and user.topics != EVERYTHING:
        return f"{user.name}: an admin must see all topics (*)"
    if user.secret != BY_PROXY and not user.secret.startswith((MADE_BY, TOKEN)):
        return f"{user.name}: invalid secret: set it with penstock users"
    return ""


def parse(text: str) -> dict[str, User]:
    """Return the users by name. Raises ValueError with the line's number, and without quoting a secret."""
    users: dict[str, User] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 4:
            raise ValueError(f"line {number}: expected four words: name, role, topics, secret")
        user = User(words[0], WORDS.get(words[1], Role.NOBODY), tuple(words[2].split(",")), words[3])
        wrong = user_problem(user) or (f"{user.name} is defined twice" if user.name in users else "")
        if wrong:
            raise ValueError(f"line {number}: {wrong}")
        users[user.name] = user
    return users


def written(users: Iterable[User]) -> str:
    """Return the text of the file."""
    return "# name role topics secret; written by penstock users\n" + "".join(f"{user.line()}\n" for user in users)


def hashed(token: str) -> str:
    """Return a token's hash for the file. Tokens are random, so they cannot be guessed from their hashes."""
    return TOKEN + digest(token.encode())


class Users:
    """The current content of the file. If the file becomes invalid, this is logged, and the last good content stays."""

    def __init__(self, path: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._users: dict[str, User] = {}
        self._tokens: dict[str, User] = {}
        self._state: tuple[int, ...] = ()  # of the file that was read last
        self._complaint = ""  # the complaint logged last
        self._checked_at = 0.0
        if path:
            self._read()

    @property
    def are_kept(self) -> bool:
        """True if there is a users file."""
        return bool(self._path)

    def named(self, name: str) -> User | None:
        """Return the user of that name, or None."""
        self._reload_if_changed()
        return self._users.get(name)

    def with_token(self, token: str) -> User | None:
        """Return the user of that token, or None."""
        self._reload_if_changed()
        return self._tokens.get(hashed(token))

    def _reload_if_changed(self) -> None:
        if not self._path or self._clock() - self._checked_at < CHECK_EVERY:
            return
        try:
            if self._state != self._state_of_file():
                self._read()
        except (OSError, ValueError) as error:
            if str(error) != self._complaint:
                log.error("USERS: cannot read %s: %s; the users that were read last stay in force", self._path, error)
            self._complaint = str(error)
        self._checked_at = self._clock()

    def _state_of_file(self) -> tuple[int, ...]:
        found = os.stat(self._path)
        return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino

    def _read(self) -> None:
        """Read the file if it has changed. Raises OSError, ValueError."""
        self._checked_at = self._clock()
        state = self._state_of_file()
        if state == self._state:
            return
        with open(self._path, encoding="utf-8") as file:
            text = file.read(MOST_BYTES + 1)
        if len(text) > MOST_BYTES:
            raise ValueError(f"the file has more than {MOST_BYTES} bytes")
        users = parse(text)
        if os.stat(self._path).st_mode & 0o007:
            log.warning("USERS: everyone on this machine can read %s: run chmod o= on it", self._path)
        self._users, self._state, self._complaint = users, state, ""
        self._tokens = {user.secret: user for user in users.values() if user.secret.startswith(TOKEN)}
        log.info("USERS: read %d users from %s", len(users), self._path)
