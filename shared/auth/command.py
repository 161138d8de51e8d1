"""`penstock auth`: makes and revokes tokens in an auth file, and checks rights."""

from __future__ import annotations

import argparse
import re
import secrets
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from shared.auth.auth_file import NAME, NEVER, AuthFile, parse
from shared.auth.edit import added, patterns_of, removed, written
from shared.auth.rules import ANY
from shared.auth.tokens import digest, new_token
from shared.auth.verbs import BUILT_IN, Verb
from shared.counted import counted
from shared.files import replace_text
from shared.terminal.commands import Parser, examples_of, run_on_file

_DAYS = re.compile(r"([1-9][0-9]{0,4})d")
EXPLANATION = """
The file is given to nsqd, nsqlookupd and nsqadmin as -auth-file. They apply a change within a second, and end the
connections of a token that is revoked. See docs/reference/security.md.
"""


def main() -> int:
    """Run the command and return the exit code: 0, 1 if the file cannot be used or the answer is no, 2 for wrong arguments."""
    return run_on_file(parser())


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    found = Parser(
        prog="penstock auth",
        description="Manage rights on every port of nsqd, nsqlookupd and nsqadmin." + EXPLANATION,
    )
    commands = found.add_subparsers(required=True, metavar="COMMAND")
    tokens = commands.add_parser(
        "token", help="create, list and revoke tokens", epilog=examples_of("auth token list auth.toml")
    ).add_subparsers(required=True, metavar="COMMAND")
    create = tokens.add_parser(
        "create",
        help="add a token to the file, and print it once; with a name that exists: one more",
        epilog=examples_of("auth token create auth.toml billing --role consumer --topics orders"),
    )
    create.add_argument("file", type=Path, help="the auth file; it is made if it does not exist")
    create.add_argument("name", help="whose token it is: letters, digits and . _ @ + -")
    known = ", ".join(BUILT_IN)
    create.add_argument(
        "--role", action="append", required=True, help=f"a role of the file, or one of {known}; may be repeated"
    )
    create.add_argument(
        "--topics", help="patterns of the topics to which the roles are restricted, such as 'orders.*,clicks'"
    )
    create.add_argument("--expires", help="days for which the token is valid, such as 90d (default: no limit)")
    create.set_defaults(run=_create)
    listing = tokens.add_parser(
        "list",
        help="list all identities: name, kind, roles, and when they expire",
        epilog=examples_of("auth token list auth.toml"),
    )
    listing.set_defaults(run=_list)
    revoke = tokens.add_parser(
        "revoke",
        help="remove all tokens of a name, or all but the newest",
        epilog=examples_of("auth token revoke auth.toml billing --older"),
    )
    revoke.set_defaults(run=_revoke)
    for command in (listing, revoke):
        command.add_argument("file", type=Path, help="the auth file")
    revoke.add_argument("name", help="whose tokens")
    revoke.add_argument("--older", action="store_true", help="keep the token that was added last")
    can = commands.add_parser(
        "can",
        help="answer whether a name may do something, and by which rule",
        epilog=examples_of("auth can auth.toml billing consume orders mail"),
    )
    can.add_argument("file", type=Path, help="the auth file")
    can.add_argument("name", help="a token's, user's, certificate's or unix user's name")
    verbs = [str(verb) for verb in Verb]
    can.add_argument("verb", choices=verbs, metavar="VERB", help=", ".join(verbs))
    can.add_argument("topic", nargs="?", default="", help="default: all topics, or the node")
    can.add_argument("channel", nargs="?", default="")
    can.set_defaults(run=_can)
    return found


def _create(arguments: argparse.Namespace) -> int:
    path, now = arguments.file, datetime.now(UTC)
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    token = new_token(secrets.token_urlsafe)
    replace_text(path, added(text, "token", _entry(arguments, token, now)))
    print(token)
    print("Save this token now: it cannot be shown again.", file=sys.stderr)
    return 0


def _entry(arguments: argparse.Namespace, token: str, now: datetime) -> list[str]:
    """Return the lines of a new token. Raises ValueError."""
    if NAME.fullmatch(arguments.name) is None or not all(NAME.fullmatch(role) for role in arguments.role):
        raise ValueError("names have 1 to 100 letters, digits and . _ @ + -")
    lines = [
        f'name = "{arguments.name}"',
        f'sha256 = "{digest(token.encode())}"',
        f"roles = {written(arguments.role)}",
    ]
    if arguments.topics:
        lines.append(f"topics = {written(patterns_of(arguments.topics))}")
    if arguments.expires:
        days = _DAYS.fullmatch(arguments.expires)
        if days is None:
            raise ValueError("--expires is a number of days, such as 90d")
        until = (now + timedelta(days=int(days[1]))).replace(microsecond=0)
        lines.append(f"expires = {until.isoformat().replace('+00:00', 'Z')}")
    return lines


def _list(arguments: argparse.Namespace) -> int:
    for identity in _read(arguments.file).identities():
        until = "" if identity.expires == NEVER else datetime.fromtimestamp(identity.expires, UTC).isoformat()
        over = " (expired)" if identity.expires <= time.time() else ""
        topics = "" if identity.rights.scope == ANY else ",".join(identity.rights.scope)
        print("\t".join((identity.name, identity.kind, ",".join(identity.roles), topics, until + over)).rstrip())
    return 0


def _revoke(arguments: argparse.Namespace) -> int:
    before = arguments.file.read_text(encoding="utf-8")
    text, count = removed(before, "token", arguments.name, but_last=arguments.older)
    if not count:
        raise ValueError(f"{arguments.name} has no {'older ' if arguments.older else ''}token")
    replace_text(arguments.file, text)
    print(f"revoked {counted(count, 'token')} of {arguments.name}")
    return 0


def _can(arguments: argparse.Namespace) -> int:
    found = [one for one in _read(arguments.file).identities() if one.name == arguments.name]
    if not found:
        raise ValueError(f"no entry has the name {arguments.name}")
    valid = [one for one in found if one.expires > time.time()]
    for identity in valid:
        rule = identity.rights.reason(Verb(arguments.verb), arguments.topic, arguments.channel)
        if rule is not None:
            scope = "" if identity.rights.scope == ANY else f", on {', '.join(identity.rights.scope)}"
            print(f"yes: by {rule.source}{scope}")
            return 0
    print("no: no rule allows it" if valid else "no: expired")
    return 1


def _read(path: Path) -> AuthFile:
    return parse(path.read_text(encoding="utf-8"))
