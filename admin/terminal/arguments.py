"""The arguments that the commands about all nodes share."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from penstock.protocol.names import is_valid_name
from shared.terminal.commands import Commands, WrongArguments, make_command
from shared.terminal.context import CREDENTIALS, NODES, add_context
from shared.values import parse_duration

NAMES = "names have 1 to 64 of . a-z A-Z 0-9 _ - and may end in #ephemeral"
Run = Callable[[Any, argparse.Namespace], Awaitable[int]]  # with the Session


def add_command(
    commands: Commands, name: str, run: Run, what: str, examples: str = "", settings: Sequence[str] = ()
) -> argparse.ArgumentParser:
    """Add a command about all nodes, with the options of the context, --timeout and --json.

    `examples`: one on a line. `settings`: further ones of the context that the command uses.
    """
    command = make_command(commands, name, lambda arguments: 0, what, examples=examples)
    command.set_defaults(run=run)
    command.add_argument("--json", action="store_true", help="print a JSON object for each row, on a line")
    command.add_argument(
        "--timeout", type=duration, default="5s", metavar="DURATION", help="for each node (default: 5s)"
    )
    add_context(command, (*NODES, *settings, *CREDENTIALS))
    return command


def duration(text: str) -> int:
    """Return a duration in ns, above 0. Raises ArgumentTypeError."""
    try:
        found = parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if found <= 0:
        raise argparse.ArgumentTypeError("expected a duration above 0, such as 5s")
    return found


def name_of(text: str) -> str:
    """Return a name of a topic or channel, or "", the default where it may be missing. Raises ArgumentTypeError."""
    if text and not is_valid_name(text):
        raise argparse.ArgumentTypeError(f"{text[:200]!a} is not a name: {NAMES}")
    return text


def add_names(command: argparse.ArgumentParser) -> None:
    """Add the argument that names a topic, or a channel of it."""
    command.add_argument(
        "name", metavar="TOPIC[/CHANNEL]", help="name of a topic, or of a topic and one of its channels"
    )


def names_of(text: str) -> tuple[str, str]:
    """Return the topic and the channel ("": none) in TOPIC[/CHANNEL]. Raises WrongArguments."""
    topic, slash, channel = text.partition("/")
    if not is_valid_name(topic) or (slash and not is_valid_name(channel)):
        raise WrongArguments(f"{text[:200]!a} is not TOPIC or TOPIC/CHANNEL: {NAMES}")
    return topic, channel
