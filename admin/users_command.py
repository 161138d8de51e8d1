"""`penstock users`: edits the file of users who may log in to nsqadmin (admin/users.py)."""

from __future__ import annotations

import argparse
import getpass
import os
import secrets
import sys
import tempfile
from pathlib import Path

from argon2 import PasswordHasher

from admin.roles import WORDS, Role
from admin.users import BY_PROXY, PASSWORD, TOKEN_PREFIX, User, hashed, no_user, parse, written

LEAST_PASSWORD = 8  # characters


def main() -> int:
    """Run the command and return the exit code: 0, 1 if the file cannot be used, 2 for wrong arguments."""
    arguments = _parser().parse_args()
    try:
        found: int = arguments.run(arguments)
    except (OSError, ValueError) as error:
        print(f"penstock users: {arguments.file}: {getattr(error, 'strerror', None) or error}", file=sys.stderr)
        return 1
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="penstock users",
        description="Who may log in to nsqadmin: writes the file that its -users-file names. A running nsqadmin sees the change"
        " within a second.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, run, text in (
        ("set", _set, "add a user, or change one; asks for the password, or reads a line from standard input"),
        ("remove", _remove, "remove a user; whoever is logged in as him is out at once"),
        ("list", _list, "list users and their roles"),
    ):
        command = commands.add_parser(name, help=text, description=text)
        command.add_argument("file", type=Path, help="the users file; made if it is not there")
        command.set_defaults(run=run)
        if name != "list":
            command.add_argument("name", help="of the user: letters, digits and . _ @ + -")
        if name == "set":
            roles = [word for word, role in WORDS.items() if role is not Role.NOBODY]
            command.add_argument("--role", choices=roles, help="what he may (default viewer, or what he has)")
            command.add_argument(
                "--topics", help="patterns of the topics that he sees, e.g. 'orders.*,clicks' (default *)"
            )
            kind = command.add_mutually_exclusive_group()
            kind.add_argument(
                "--token", action="store_true", help="make a token for Authorization: Bearer, printed once"
            )
            kind.add_argument("--proxy", action="store_true", help="no password: only a trusted proxy names him")
            kind.add_argument("--keep", action="store_true", help="keep the password or token that he has")
    return parser


def _set(arguments: argparse.Namespace) -> int:
    users = _read(arguments.file)
    known = users.get(arguments.name)
    role = WORDS[arguments.role] if arguments.role else known.role if known else Role.VIEWER
    topics = tuple(arguments.topics.split(",")) if arguments.topics else known.topics if known else ("*",)
    wrong = no_user(User(arguments.name, role, topics, BY_PROXY))
    if wrong:
        raise ValueError(wrong)
    token = TOKEN_PREFIX + secrets.token_urlsafe(32) if arguments.token else ""
    if token:
        secret = hashed(token)
    elif arguments.proxy:
        secret = BY_PROXY
    elif arguments.keep:
        if known is None:
            raise ValueError(f"there is no user {arguments.name} yet: nothing to keep")
        secret = known.secret
    else:
        secret = PasswordHasher().hash(_password())
    users[arguments.name] = User(arguments.name, role, topics, secret)
    _write(arguments.file, users)
    if token:
        print(token)
        print("This is the token; it is told only now.", file=sys.stderr)
    return 0


def _remove(arguments: argparse.Namespace) -> int:
    users = _read(arguments.file)
    if users.pop(arguments.name, None) is None:
        raise ValueError(f"there is no user {arguments.name}")
    _write(arguments.file, users)
    return 0


def _list(arguments: argparse.Namespace) -> int:
    for user in parse(arguments.file.read_text(encoding="utf-8")).values():
        kind = "password" if user.secret.startswith(PASSWORD) else "by proxy" if user.secret == BY_PROXY else "token"
        print(f"{user.name}\t{user.role.word}\t{','.join(user.topics)}\t{kind}")
    return 0


def _password() -> str:
    """Read a password from the terminal, twice, or else a line of standard input. Raises ValueError."""
    if sys.stdin.isatty():
        password = getpass.getpass("Password: ")
        if getpass.getpass("Again: ") != password:
            raise ValueError("the two are not the same: nothing was changed")
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if len(password) < LEAST_PASSWORD:
        raise ValueError(f"a password has at least {LEAST_PASSWORD} characters: nothing was changed")
    return password


def _read(path: Path) -> dict[str, User]:
    try:
        return parse(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}


def _write(path: Path, users: dict[str, User]) -> None:
    """Write the file atomically, for its owner and group only. An existing file keeps its owner."""
    place, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(place, "w", encoding="utf-8") as file:
            file.write(written(users.values()))
            file.flush()
            os.fsync(file.fileno())
            if path.exists():
                before = path.stat()
                os.chown(name, before.st_uid, before.st_gid)
                os.chmod(name, before.st_mode & 0o660)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
