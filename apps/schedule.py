"""`penstock schedule`: messages that a node publishes by a cron expression, every so often, or at a time."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from apps.node_client import add_address, open_node
from apps.publishing import message_headers
from shared.terminal.commands import CommandError, Commands, Parser, WrongArguments, make_command
from shared.terminal.output import Column, print_rows, utc

ADVICE = {
    "INVALID_ARG_CRON": "a cron expression has five fields, such as '30 6 * * MON', and must match some day",
    "INVALID_ARG_TIMEZONE": "the node knows no such time zone: give one such as Europe/Berlin, with --cron",
    "INVALID_ARG_EVERY": "--every is a whole number of seconds, such as 90s or 10m, and at most ten years",
    "INVALID_ARG_AT": "--at is a time in the future with an offset, such as 2027-01-01T00:00:00Z",
    **dict.fromkeys(
        ("INVALID_BATCH", "INVALID_UNIQUE", "INVALID_DELIVER_AT"),
        "the message of a schedule cannot have the headers batch, after, unique and deliver-at",
    ),
    "SCHEDULE_NOT_FOUND": "the topic has no such schedule: see `penstock schedule list`",
    "TOO_MANY_SCHEDULES": "the node has -max-schedules schedules, or 64 MiB of them",
}
COLUMNS = tuple(map(Column, ("topic", "name", "when", "next", "missed")))
WHAT = "publish messages again and again, or at a time"
DETAILS = """
The node at the address has the schedule in its log, and publishes. A node that promotes the log takes it over.

examples:
  penstock schedule add jobs week go --cron '0 6 * * MON' --timezone Asia/Tokyo
  penstock schedule add metrics poll poll --every 10m --missed skip
  penstock schedule list
  penstock schedule pause reports monday
"""


def add_command(commands: Commands) -> None:
    """Add the command `schedule`, with its subcommands, to the parser."""
    schedule = commands.add_parser("schedule", help=WHAT, description=WHAT, epilog=DETAILS)
    below = schedule.add_subparsers(required=True, metavar="command")
    add = _command(below, "add", _add, "add a schedule, or replace the topic's one of that name")
    add.add_argument("body", nargs="?", metavar="BODY", help="body of the message")
    add.add_argument("--file", metavar="FILE", help="the file's content is the body")
    when = add.add_mutually_exclusive_group(required=True)
    when.add_argument(
        "--cron", metavar="EXPRESSION", help="minute, hour, day, month and weekday, such as '0 6 * * MON'"
    )
    when.add_argument("--every", metavar="DURATION", help="such as 10m, counted from now")
    when.add_argument("--at", metavar="TIME", help="once, at a time such as 2027-01-01T00:00:00Z")
    add.add_argument("--timezone", metavar="ZONE", help="time zone of --cron (default: UTC)")
    add.add_argument(
        "--missed", choices=("skip", "once", "all"), help="messages for the times that the node missed (default: once)"
    )
    add.add_argument("--header", action="append", default=[], metavar="NAME=VALUE", help="header of the message")
    listed = make_command(below, "list", _list, "list the schedules of a topic, or of all")
    listed.add_argument("topic", nargs="?", metavar="TOPIC")
    listed.add_argument("--json", action="store_true", help="print a JSON object for each schedule")
    add_address(listed)
    _command(below, "show", _show, "print a schedule as a JSON object, with its body in base64")
    for name, what in (("delete", "delete a schedule"), ("pause", "publish nothing by a schedule"),
                       ("unpause", "publish by a schedule again, from its next time on")):  # fmt: skip
        _command(below, name, _change, what).set_defaults(change=name)
    for command in below.choices.values():
        command.epilog = "`penstock schedule --help` has examples."


def _command(below: Commands, name: str, main: Callable[[argparse.Namespace], int], what: str) -> Parser:
    command = make_command(below, name, main, what)
    command.add_argument("topic", metavar="TOPIC")
    command.add_argument("name", metavar="NAME")
    add_address(command)
    return command


def _add(arguments: argparse.Namespace) -> int:
    if (arguments.body is None) == (arguments.file is None):
        raise WrongArguments("give either BODY or --file")
    try:
        body = (
            Path(arguments.file).read_bytes() if arguments.file else arguments.body.encode("utf-8", "surrogateescape")
        )
    except OSError as error:
        raise CommandError(f"{error.filename}: {error.strerror}") from None
    when = {name: getattr(arguments, name) for name in ("cron", "timezone", "every", "at", "missed")}
    headers = message_headers(arguments.header)
    try:
        with open_node(arguments, ADVICE) as node:
            node.request("POST", "/schedule", _named(arguments) | when, content=body, headers=headers)
    except UnicodeError as error:  # of a header that HTTP cannot carry
        raise WrongArguments(str(error)) from None
    return 0


def _change(arguments: argparse.Namespace) -> int:
    with open_node(arguments, ADVICE) as node:
        node.request("POST", f"/schedule/{arguments.change}", _named(arguments))
    return 0


def _show(arguments: argparse.Namespace) -> int:
    with open_node(arguments, ADVICE) as node:
        print(json.dumps(node.request("GET", "/schedule", _named(arguments) | {"body": "true"}).json()))
    return 0


def _list(arguments: argparse.Namespace) -> int:
    with open_node(arguments, ADVICE) as node:
        found = node.list_pages("/schedules", {"topic": arguments.topic})
    rows = found if arguments.json else map(_row, found)
    print_rows(rows, COLUMNS, as_json=arguments.json, nothing="no schedules")
    return 0


def _row(one: dict[str, Any]) -> dict[str, Any]:
    when = one.get("at") or (f"every {one['every']}" if "every" in one else f"{one['cron']} {one['timezone']}")
    return one | {"when": when, "next": "paused" if one["paused"] else utc(one["next"])}


def _named(arguments: argparse.Namespace) -> dict[str, Any]:
    return {"topic": arguments.topic, "name": arguments.name}
