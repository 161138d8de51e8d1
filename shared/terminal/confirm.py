"""The prompt before an action that cannot be undone: --yes, --dry-run, and what the action will do, in numbers."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from shared.log import escape
from shared.terminal.commands import WrongArguments


def add_confirmation(command: argparse.ArgumentParser) -> None:
    """Add the arguments --yes and --dry-run to a command."""
    command.add_argument("--yes", action="store_true", help="do not ask")
    command.add_argument("--dry-run", action="store_true", help="say what would be done, and do nothing")


def is_confirmed(arguments: argparse.Namespace, action: str) -> bool:
    """Return whether to act. `action` says what will be done, such as "delete topic orders: 12 messages on 3 nodes".

    Raises WrongArguments if the user cannot be asked: standard input is no terminal, and --yes is not given.
    """
    action = escape(action)
    if arguments.dry_run:
        print(f"would {action}", file=sys.stderr)
        return False
    if arguments.yes:
        return True
    if not sys.stdin.isatty():
        raise WrongArguments(f"would {action}: give --yes, because standard input is not a terminal")
    with _ended_by_interrupt():
        print(f"{action[:1].upper()}{action[1:]}. Continue? [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() in ("y", "yes"):
            return True
    print("nothing was changed", file=sys.stderr)
    return False


@contextmanager
def _ended_by_interrupt() -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt at once: asyncio's handler cancels the task, which would still wait for the answer."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        print(file=sys.stderr)
        raise
    finally:
        signal.signal(signal.SIGINT, before)
