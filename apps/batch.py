"""`penstock batch`: see and close batches of messages, and wait until they are done."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

from apps.node_client import Node, add_address, open_node
from shared.terminal.commands import CommandError, Commands, Parser, make_command, seconds
from shared.terminal.output import Column, numbers, print_rows, utc

LONGEST_WAIT = 30.0  # s for which a request waits; the client expects an answer within 60
ADVICE = {
    "BATCH_NOT_FOUND": "the node has no such batch, or it was done more than a day ago: see `penstock batch list`",
    "INVALID_BATCH": "the name of a batch has 1 to 64 printable ASCII characters",
    "TOO_MANY_BATCHES": "the node has 10,000 batches that are not done: see `penstock batch list`",
}
COLUMNS = (Column("batch"), Column("state"), *numbers("members", "buried"), Column("changed", text=utc))
WHAT = "see and close batches of messages, and wait until they are done"
DETAILS = """
A message is a member of the batch that its header `batch` names, and one with the header `after` waits for a batch.

examples:
  penstock pub pictures 'resize 7' --header batch=album-7
  penstock pub albums 'album 7 is ready' --header after=album-7
  penstock batch close album-7
  penstock batch wait album-7 --timeout 10m
"""


def add_command(commands: Commands) -> None:
    """Add the command `batch`, with its subcommands, to the parser."""
    batch = commands.add_parser("batch", help=WHAT, description=WHAT, epilog=DETAILS)
    below = batch.add_subparsers(required=True, metavar="command")
    listed = make_command(below, "list", _list, "list the batches of the node")
    listed.add_argument("--json", action="store_true", help="print a JSON object for each batch")
    add_address(listed)
    _command(below, "show", _show, "print a batch as a JSON object, with the states of its members")
    _command(below, "close", _close, "let a batch be done when its members are finished or buried")
    wait = _command(below, "wait", _wait, "wait until a batch is done, and print it as a JSON object")
    wait.add_argument(
        "--timeout", type=seconds, default="1h", metavar="DURATION", help="then exit with 1 (default: 1h)"
    )
    for command in below.choices.values():
        command.epilog = "`penstock batch --help` has examples."


def _command(below: Commands, name: str, main: Callable[[argparse.Namespace], int], what: str) -> Parser:
    command = make_command(below, name, main, what)
    command.add_argument("batch", metavar="BATCH")
    add_address(command)
    return command


def _list(arguments: argparse.Namespace) -> int:
    with open_node(arguments, ADVICE) as node:
        print_rows(node.list_pages("/batches", {}), COLUMNS, as_json=arguments.json, nothing="no batches")
    return 0


def _show(arguments: argparse.Namespace) -> int:
    with open_node(arguments, ADVICE) as node:
        print(json.dumps(_shown(node, arguments.batch, counts="true")))
    return 0


def _close(arguments: argparse.Namespace) -> int:
    with open_node(arguments, ADVICE) as node:
        node.request("POST", "/batch/close", {"batch": arguments.batch})
    return 0


def _wait(arguments: argparse.Namespace) -> int:
    until = time.monotonic() + arguments.timeout
    with open_node(arguments, ADVICE) as node:
        left = arguments.timeout
        while (found := _shown(node, arguments.batch, wait=f"{min(left, LONGEST_WAIT):.3f}s"))["state"] != "done":
            if (left := until - time.monotonic()) <= 0:
                raise CommandError(f"the batch {arguments.batch} is {found['state']}, and not done")
    print(json.dumps(found))
    return 0


def _shown(node: Node, batch: str, **more: str) -> dict[str, Any]:
    found: dict[str, Any] = node.request("GET", "/batch", {"batch": batch, **more}).json()
    return found
