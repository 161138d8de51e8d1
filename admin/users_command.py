"""`penstock users`: edits the file of users who may log in to nsqadmin (admin/users.py)."""

from __future__ import annotations

import argparse
import getpass
import secrets
import sys
from pathlib import Path

from argon2 import PasswordHasher

from admin.roles import WORDS, Role
from admin.users import BY_PROXY, User, hashed, parse, user_problem, written
from shared.auth.passwords import MADE_BY
from shared.auth.tokens import new_token
from shared.files import replace_text

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
        description="Manage the users who may log in to nsqadmin, in the file of its option -users-file."
        " A running nsqadmin applies a change within a second.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, run, text in (
        ("set", _set, "add or change a user; asks for the password, or reads it from a line of standard input"),
        ("remove", _remove, "remove a user and end the user's sessions"),
        ("list", _list, "list users and their roles"),
    ):
        command = commands.add_parser(name, help=text, description=text)
        command.add_argument("file", type=Path, help="the users file; set creates it if it does not exist")
        command.set_defaults(run=run)
        if name != "list":
            command.add_argument("name", help="user name: letters, digits and . _ @ + -")
        if name == "set":
            roles = [word for word, role in WORDS.items() if role is not Role.NOBODY]
            command.add_argument(
                "--role", choices=roles, help="role of the user (default: viewer, or the current role)"
            )
            command.add_argument(
                "--topics",
                help="patterns of topics that the user sees, for example 'orders.*,clicks' (default: * or the current ones)",
            )
            kind = command.add_mutually_exclusive_group()
            kind.add_argument(
                "--token", action="store_true", help="create a token for Authorization: Bearer, and print it once"
            )
            kind.add_argument(
                "--proxy", action="store_true", help="no password: only a trusted proxy can name this user"
            )
            kind.add_argument("--keep", action="store_true", help="keep the current password or token")
    return parser


def _set(arguments: argparse.Namespace) -> int:
    users = _read(arguments.file)
    known = users.get(arguments.name)
    role = WORDS[arguments.role] if arguments.role else known.role if known else Role.VIEWER
    topics = tuple(arguments.topics.split(",")) if arguments.topics else known.topics if known else ("*",)
    wrong = user_problem(User(arguments.name, role, topics, BY_PROXY))
    if wrong:
        raise ValueError(wrong)
    token = new_token(secrets.token_urlsafe) if arguments.token else ""
    if token:
        secret = hashed(token)
    elif arguments.proxy:
        secret = BY_PROXY
    elif arguments.keep:
        if known is None:
            raise ValueError(f"user {arguments.name} does not exist: --keep needs an existing user")
        secret = known.secret
    else:
        secret = PasswordHasher().hash(_password())
    users[arguments.name] = User(arguments.name, role, topics, secret)
    replace_text(arguments.file, written(users.values()))
    if token:
        print(token)
        print("Save this token now: it cannot be shown again.", file=sys.stderr)
    return 0


def _remove(arguments: argparse.Namespace) -> int:
    users = _read(arguments.file)
    if users.pop(arguments.name, None) is None:
        raise ValueError(f"user {arguments.name} does not exist")
    replace_text(arguments.file, written(users.values()))
    return 0


def _list(arguments: argparse.Namespace) -> int:
    for user in parse(arguments.file.read_text(encoding="utf-8")).values():
        kind = "password" if user.secret.startswith(MADE_BY) else "by proxy" if user.secret == BY_PROXY else "token"
        print(f"{user.name}\t{user.role.word}\t{','.join(user.topics)}\t{kind}")
    return 0


def _password() -> str:
    """Read a password from the terminal, twice, or else a line of standard input. Raises ValueError."""
    if sys.stdin.isatty():
        password = getpass.getpass("Password: ")
        if getpass.getpass("Repeat password: ") != password:
            raise ValueError("the passwords do not match; nothing was changed")
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if len(password) < LEAST_PASSWORD:
        raise ValueError(f"a password must have at least {LEAST_PASSWORD} characters; nothing was changed")
    return password


def _read(path: Path) -> dict[str, User]:
    try:
        return parse(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
