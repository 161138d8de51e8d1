"""`penstock users`: edits the users of an auth file."""

from __future__ import annotations

import argparse
import getpass
import secrets
import sys
from pathlib import Path

from argon2 import PasswordHasher

from admin.options import ROLES
from shared.auth.auth_file import NAME, parse
from shared.auth.edit import Value, changed, patterns_of, removed
from shared.auth.tokens import digest, new_token
from shared.files import replace_text
from shared.terminal.commands import Parser, examples_of, run_on_file

LEAST_PASSWORD = 8  # characters
_ROLES = ", ".join(ROLES[1:])


def main() -> int:
    """Run the command and return the exit code: 0, 1 if the file cannot be used, 2 for wrong arguments."""
    return run_on_file(parser())


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    found = Parser(
        prog="penstock users",
        description="Manage the users in the auth file, who can log in to nsqadmin, and to nsqd and nsqlookupd over HTTP."
        " Running daemons apply a change within a second. Comments and other entries of the file are kept.",
    )
    commands = found.add_subparsers(required=True, metavar="COMMAND")
    for name, run, text, more in (
        (
            "set",
            _set,
            "add or change a user; asks for the password, or reads it from a line of standard input",
            " --role admin",
        ),
        ("remove", _remove, "remove a user and end the user's sessions", ""),
        ("list", _list, "list users and their roles", ""),
    ):
        example = examples_of(f"users {name} auth.toml" + (" ann" if name != "list" else "") + more)
        command = commands.add_parser(name, help=text, description=text, epilog=example)
        command.add_argument("file", type=Path, help="the auth file, which set creates")
        command.set_defaults(run=run)
        if name in ("set", "remove"):
            command.add_argument("name", help="user name: letters, digits and . _ @ + -")
        if name == "set":
            _add_settings(command)
    return found


def _add_settings(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--role",
        action="append",
        help=f"role of the user: one of the file, or {_ROLES}; may be repeated (default: viewer, or the current roles)",
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


def _set(arguments: argparse.Namespace) -> int:
    text = _text(arguments.file)
    is_known = arguments.name in parse(text).users
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
    replace_text(arguments.file, changed(text, "user", arguments.name, values | secret))
    if token:
        print(token)
        print("Save this token now: it cannot be shown again.", file=sys.stderr)
    return 0


def _new_secret(arguments: argparse.Namespace, *, is_known: bool) -> tuple[str, dict[str, Value | None]]:
    """Return a new token, or "", and the changes of the user's keys: none to keep the current secret. Raises ValueError."""
    if arguments.keep:
        if not is_known:
            raise ValueError(f"user {arguments.name} does not exist: --keep needs an existing user")
        return "", {}
    if arguments.token:
        token = new_token(secrets.token_urlsafe)
        return token, {"password": None, "sha256": digest(token.encode())}
    return "", {"password": None if arguments.proxy else PasswordHasher().hash(_password()), "sha256": None}


def _remove(arguments: argparse.Namespace) -> int:
    text, count = removed(arguments.file.read_text(encoding="utf-8"), "user", arguments.name)
    if not count:
        raise ValueError(f"user {arguments.name} does not exist")
    replace_text(arguments.file, text)
    return 0


def _list(arguments: argparse.Namespace) -> int:
    found = parse(arguments.file.read_text(encoding="utf-8"))
    for name, (user, password) in found.users.items():
        is_by_token = any(one is user for one in found.tokens.values())
        kinds = "password" * bool(password), "token" * is_by_token, "by proxy" * (name in found.unproven)
        print(name, ",".join(user.roles), ",".join(user.rights.scope), ", ".join(filter(None, kinds)), sep="\t")
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
