"""The commands of `penstock` about all nodes, which penstock/launch.py runs. Only the module of the command is imported.

A module has `add_commands`. Its functions are called with the Session and the arguments, and return the exit code.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from importlib import import_module

from shared.log import escape
from shared.process.partial_import import import_http_client
from shared.terminal.commands import CommandError, ExitCode, Parser, WrongArguments, run_command_line
from shared.terminal.context import resolve
from shared.values import SECOND
from shared.version import version_line

MODULES = {  # of each command
    "listing": ("topics", "channels", "tubes", "queues", "clients", "producers"),
    "health": ("status", "nodes", "alarms"),
    "doctor": ("doctor",),
    "bundle": ("support-bundle",),
    "top": ("top",),
    "messages": ("messages", "show", "peek", "finish", "requeue", "kick", "bury", "move", "redrive"),
    "actions": ("create", "delete", "empty", "pause", "unpause", "config"),
    "node_actions": ("drain", "undrain", "disconnect", "request"),
}
NAMES = tuple(name for names in MODULES.values() for name in names)


def main(command_line: Sequence[str] | None = None) -> int:
    """Run the command, by default that of sys.argv, and return its exit code."""
    return run_command_line(parser, command_line, _run)


def parser(only: str = "") -> argparse.ArgumentParser:
    """Return the parser of all commands, or of the module that has the command `only`."""
    found = Parser(prog="penstock", description="Commands about all nodes.")
    found.add_argument("--version", action="version", version=version_line("penstock"))
    commands = found.add_subparsers(required=True, metavar="command")
    modules = [module for module, names in MODULES.items() if only in names] or list(MODULES)
    import_http_client()
    for module in modules:
        import_module(f"admin.terminal.{module}").add_commands(commands)
    return found


def _run(arguments: argparse.Namespace) -> int:
    """Run a command with the nodes of its context. Prints the nodes that are missing. Raises CommandError."""
    from admin.nodes.cluster import AllFailed
    from admin.terminal.session import Session

    _require_utf8(arguments)
    context = resolve(arguments)

    async def run() -> int:
        session = Session(context, arguments.timeout / SECOND)
        try:
            await session.start()
            code = int(await arguments.run(session, arguments))
        except CommandError:
            report(session.missing)
            raise
        except AllFailed as failed:
            raise session.no_answer(failed) from None
        report(session.missing)
        return code or (ExitCode.FAILED if session.missing else ExitCode.DONE)

    return asyncio.run(run())


def _require_utf8(arguments: argparse.Namespace) -> None:
    """Raise WrongArguments if an argument is not UTF-8, which no request can carry."""
    values = (value if isinstance(value, list) else [value] for value in vars(arguments).values())
    for text in (one for value in values for one in value if isinstance(one, str)):
        if any("\ud800" <= one <= "\udfff" for one in text):
            raise WrongArguments(f"{text[:200]!a} is not UTF-8")


def report(missing: dict[str, str]) -> None:
    """Print the nodes whose answers are missing, on standard error."""
    sys.stdout.flush()
    for why in missing.values():
        print(f"penstock: incomplete: {escape(why)}", file=sys.stderr)
