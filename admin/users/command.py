"""`penstock users`: edits the users of an auth file, or of a users file, which is deprecated (admin/users/users.py)."""

from __future__ import annotations

import argparse
import getpass
import secrets
import sys
from pathlib import Path

from argon2 import PasswordHasher

from admin.options import ROLES
from admin.users.users import BY_PROXY, TOKEN, User, hashed, is_auth_file, parse, user_problem, written
from shared.auth.auth_file import NAME
from shared.auth.auth_file import parse as parse_auth_file
from shared.auth.edit import Value, changed, patterns_of, removed
from shared.auth.passwords import MADE_BY
from shared.auth.rules import ANY
from shared.auth.tokens import new_token
from shared.files import replace_text

LEAST_PASSWORD = 8  # characters
_ROLES = ", ".join(ROLES[1:])
_ABOUT_FILE = "the auth file, which set creates if its name is *.toml; or a users file (deprecated)"


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
        description="Manage the users in the auth file, who can log in to nsqadmin, and to nsqd and nsqlookupd over HTTP."
        " Running daemons apply a change within a second. Comments and other entries of the file are kept.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, run, text in (
        ("set", _set, "add or change a user; asks for the password, or reads it from a line of standard input"),
        ("remove", _remove, "remove a user and end the user's sessions"),
        ("list", _list, "list users and their roles"),
        ("convert", _convert, "add the users of a users file to an auth file"),
    ):
        command = commands.add_parser(name, help=text, description=text)
        command.add_argument("file", type=Path, help=_ABOUT_FILE if name != "convert" else "the users file; it stays")
        command.set_defaults(run=run, wrong=command.error)
        if name in ("set", "remove"):
            command.add_argument("name", help="user name: letters, digits and . _ @ + -")
        if name == "convert":
            command.add_argument("new", type=Path, help="the auth file; it is created if it does not exist")
        if name == "set":
            _add_settings(command)
    return parser


def _add_settings(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--role",
        action="append",
        help=f"role of the user: one of the file, or {_ROLES}; may be repeated for an auth file"
        " (default: viewer, or the current roles)",
    )
    command.add_argument(
        "--topics",
        help="patterns of topics to which the user is restricted, for example 'orders.*,clicks'"
        " (default: * or the current ones)",
    )
    kind = command.add_mutually_exclusive_group()
    for flag, text in (
        ("--token", "create a token for Authorization: Bearer, and print it once"),
        ("--proxy", "no password: only a trusted proxy can name this user"),
        ("--keep", "keep the current password or token"),
    ):
        kind.add_argument(flag, action="store_true", help=text)


# An auth file


def _set(arguments: argparse.Namespace) -> int:
    if not is_auth_file(arguments.file):
        return _set_line(arguments)
    text = _text(arguments.file)
    is_known = arguments.name in parse_auth_file(text).users
    if NAME.fullmatch(arguments.name) is None:
        raise ValueError(f"{arguments.name[:100]!r} is not a valid user name: use letters, digits and . _ @ + -")
    values: dict[str, Value | None] = {}
    if arguments.role or not is_known:
        values["roles"] = arguments.role or ["viewer"]
    if arguments.topics:
        topics = patterns_of(arguments.topics)
        values["topics"] = None if "*" in topics else topics
    changed(text, "user", arguments.name, values)  # report errors before asking for a password
    token, secret = _new_secret(arguments, is_known=is_known)
    if secret:
        values["password"] = secret if secret.startswith(MADE_BY) else None
        values["sha256"] = secret.removeprefix(TOKEN) if token else None
    replace_text(arguments.file, changed(text, "user", arguments.name, values))
    return _print(token)


def _new_secret(arguments: argparse.Namespace, *, is_known: bool) -> tuple[str, str]:
    """Return a new token ("": none), and the secret as a users file has it; "" to keep the current one. Raises ValueError."""
    if arguments.keep:
        if not is_known:
            raise ValueError(f"user {arguments.name} does not exist: --keep needs an existing user")
        return "", ""
    if arguments.token:
        token = new_token(secrets.token_urlsafe)
        return token, hashed(token)
    return "", BY_PROXY if arguments.proxy else PasswordHasher().hash(_password())


def _print(token: str) -> int:
    """Print a new token, if there is one, and return the exit code."""
    if token:
        print(token)
        print("Save this token now: it cannot be shown again.", file=sys.stderr)
    return 0


def _remove(arguments: argparse.Namespace) -> int:
    text = arguments.file.read_text(encoding="utf-8")
    if is_auth_file(arguments.file):
        text, count = removed(text, "user", arguments.name)
    else:
        users = parse(text)
        count = 1 if users.pop(arguments.name, None) else 0
        text = written(users.values())
    if not count:
        raise ValueError(f"user {arguments.name} does not exist")
    replace_text(arguments.file, text)
    return 0


def _list(arguments: argparse.Namespace) -> int:
    if not is_auth_file(arguments.file):
        return _list_lines(arguments)
    found = parse_auth_file(arguments.file.read_text(encoding="utf-8"))
    for name, (user, password) in found.users.items():
        is_by_token = any(one is user for one in found.tokens.values())
        kinds = "password" * bool(password), "token" * is_by_token, "by proxy" * (name in found.unproven)
        print(name, ",".join(user.roles), ",".join(user.rights.scope), ", ".join(filter(None, kinds)), sep="\t")
    return 0


def _convert(arguments: argparse.Namespace) -> int:
    users = parse(arguments.file.read_text(encoding="utf-8"))
    text = _text(arguments.new)
    known = parse_auth_file(text).users
    for user in users.values():
        if user.name in known:
            raise ValueError(f"user {user.name} exists already in {arguments.new}; nothing was changed")
        values: dict[str, Value | None] = {"roles": [user.role]}
        if user.patterns() != ANY:
            values["topics"] = user.patterns()
        if user.secret != BY_PROXY:
            key = "password" if user.secret.startswith(MADE_BY) else "sha256"
            values[key] = user.secret.removeprefix(TOKEN)
        text = changed(text, "user", user.name, values)
    replace_text(arguments.new, text)
    print(f"converted {len(users)} users: start nsqadmin with -auth-file {arguments.new}, without -users-file")
    return 0


# A users file


def _set_line(arguments: argparse.Namespace) -> int:
    roles = arguments.role or []
    if len(roles) > 1 or not set(roles) <= set(ROLES[1:]):
        arguments.wrong(f"argument --role: invalid choice: use one of {_ROLES}; an auth file takes others")
    users = parse(_text(arguments.file))
    known = users.get(arguments.name)
    role = roles[0] if roles else known.role if known else "viewer"
    topics = tuple(arguments.topics.split(",")) if arguments.topics else known.topics if known else ANY
    if problem := user_problem(User(arguments.name, role, topics, BY_PROXY)):
        raise ValueError(problem)
    token, secret = _new_secret(arguments, is_known=known is not None)
    users[arguments.name] = User(arguments.name, role, topics, secret or (known.secret if known else ""))
    replace_text(arguments.file, written(users.values()))
    return _print(token)


def _list_lines(arguments: argparse.Namespace) -> int:
    for user in parse(arguments.file.read_text(encoding="utf-8")).values():
        kind = "password" if user.secret.startswith(MADE_BY) else "by proxy" if user.secret == BY_PROXY else "token"
        print(user.name, user.role, ",".join(user.topics), kind, sep="\t")
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


def _text(path: Path) -> str:
    """Return the text of the file, or "" if it does not exist."""
    return path.read_text(encoding="utf-8") if path.exists() else ""
