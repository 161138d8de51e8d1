"""The users of nsqadmin: of the auth file (shared/auth/auth_file.py), or of a users file, which is deprecated.

In a users file each user has a line. It is still read, but has only four roles, and other daemons do not read it:

    # name   role      topics       secret
    ann      admin     *            $argon2id$v=19$...      a password
    robot    operator  orders.*,x   sha256:4f2a...          a token, for Authorization: Bearer
    carl     viewer    *            -                       a name that only a trusted proxy can say

`penstock users` writes both; manual changes take effect within a second.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import translate
from pathlib import Path

from admin.options import ROLES, AdminOptions
from admin.users.roles import of_role
from shared.auth.auth_file import NAME, AuthFile, AuthFileError, Identity
from shared.auth.keyring import Keyring
from shared.auth.passwords import MADE_BY
from shared.auth.rules import ANY, EXPRESSION, NO_NAME, PatternError, expression
from shared.auth.tokens import DIGEST, digest
from shared.process.daemon import StartError

TOKEN, BY_PROXY = "sha256:", "-"
_TOPICS = re.compile(r"[A-Za-z0-9._#*?\[\]!-]{1,200}(,[A-Za-z0-9._#*?\[\]!-]{1,200}){0,99}")
_SET = re.compile(r"(\[!?+\]?+[^\]]*\])")  # of characters, in a shell pattern
_TABLE = re.compile(r"(?m)^[ \t]*\[\[")


@dataclass(frozen=True, slots=True)
class User:
    """A user, as one line of a users file describes it."""

    name: str
    role: str
    topics: tuple[str, ...]  # shell patterns
    secret: str

    def patterns(self) -> tuple[str, ...]:
        """Return the topics as patterns of shared/auth/rules.py."""
        return ANY if "*" in self.topics else tuple(map(_pattern, self.topics))

    def identity(self) -> Identity:
        """Return the identity and its rights. Raises PatternError."""
        return of_role(self.name, self.role, self.patterns(), "user")


def user_problem(user: User) -> str:
    """Return the problem with a user, or ""."""
    if NAME.fullmatch(user.name) is None:
        return f"{user.name[:100]!r} is not a valid user name: use letters, digits and . _ @ + -"
    if user.role not in ROLES[1:]:
        return f"{user.name}: the role must be one of {', '.join(ROLES[1:])}"
    if _TOPICS.fullmatch(",".join(user.topics)) is None:
        return f"{user.name}: invalid topics: use patterns such as * or orders.*,clicks"
    if user.role == "admin" and user.topics != ANY:
        return f"{user.name}: an admin must see all topics (*)"
    is_hash = user.secret.startswith(TOKEN) and DIGEST.fullmatch(user.secret.removeprefix(TOKEN))
    if user.secret != BY_PROXY and not user.secret.startswith(MADE_BY) and not is_hash:
        return f"{user.name}: invalid secret: set it with penstock users"
    try:
        user.identity()
    except PatternError as error:
        return f"{user.name}: invalid topics: {error}"
    return ""


def parse(text: str) -> dict[str, User]:
    """Return the users by name. Raises AuthFileError with the line's number, and without quoting a secret."""
    users: dict[str, User] = {}
    for number, line in enumerate(text.splitlines(), 1):
        fields = line.split()
        if not fields or fields[0].startswith("#"):
            continue
        if len(fields) != 4:
            raise AuthFileError(f"line {number}: expected four fields: name, role, topics, secret")
        user = User(fields[0], fields[1], tuple(fields[2].split(",")), fields[3])
        problem = user_problem(user) or (f"{user.name} is defined twice" if user.name in users else "")
        if problem:
            raise AuthFileError(f"line {number}: {problem}")
        users[user.name] = user
    return users


def written(users: Iterable[User]) -> str:
    """Return the text of a users file."""
    lines = (f"{user.name} {user.role} {','.join(user.topics)} {user.secret}\n" for user in users)
    return "# name role topics secret; written by penstock users\n" + "".join(lines)


def hashed(token: str) -> str:
    """Return a token's hash for the file. Tokens are random, so they cannot be guessed from their hashes."""
    return TOKEN + digest(token.encode())


def read_lines(text: str) -> AuthFile:
    """Return the content of a users file in the form of an auth file. Raises AuthFileError."""
    found = AuthFile()
    for user in parse(text).values():
        identity = user.identity()
        found.users[user.name] = identity, user.secret if user.secret.startswith(MADE_BY) else ""
        if user.secret.startswith(TOKEN):
            found.tokens[user.secret.removeprefix(TOKEN)] = identity
        elif user.secret == BY_PROXY:
            found.unproven.add(user.name)
    return found


def is_auth_file(path: Path) -> bool:
    """Return whether this is an auth file, by its name *.toml or its first table, and not a users file. Raises OSError."""
    if path.suffix == ".toml":
        return True
    return path.exists() and _TABLE.search(path.read_text(encoding="utf-8", errors="replace")) is not None


def open_users(options: AdminOptions) -> Keyring | None:
    """Read the file of users; None if the options name none. Raises StartError."""
    flag, path = ("--auth-file", options.auth_file) if options.auth_file else ("--users-file", options.users_file)
    if not path:
        return None
    try:
        if options.auth_file or is_auth_file(Path(path)):
            return Keyring(path, time.time)
        return Keyring(path, time.time, read_lines, is_strict=False)
    except (OSError, AuthFileError) as error:
        raise StartError(f"{flag} {path}: {getattr(error, 'strerror', None) or error}") from None


def _pattern(glob: str) -> str:
    """Return a shell pattern as one of shared/auth/rules.py, which has sets of characters only in expressions."""
    parts = _SET.split(glob)
    if len(parts) == 1:
        return glob
    return EXPRESSION + "".join(
        _set(part) if place % 2 else part and expression(part) for place, part in enumerate(parts)
    )


def _set(text: str) -> str:
    found = translate(text).removeprefix("(?s:").removesuffix(r")\Z")
    return NO_NAME if found == "(?!)" else found
