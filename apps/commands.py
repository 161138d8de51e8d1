"""The part that all commands of `penstock` share: their parsers, and the error that ends one."""

import argparse
from collections.abc import Callable
from typing import TypeAlias

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


class CommandError(Exception):
    """The command failed, or is not possible. The text says why, and what to do."""

    exit_code = 1


def make_command(
    commands: Commands, name: str, main: Callable[[argparse.Namespace], int], what: str, details: str = ""
) -> argparse.ArgumentParser:
    """Add a command and return its parser. `main` returns the exit code, and may raise CommandError or httpx.HTTPError.

    `what` is its line in the list of commands, and the head of its --help; `details` are printed below the options as they are.
    """
    command = commands.add_parser(
        name, help=what, description=what, epilog=details, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    command.set_defaults(main=main, program=command.prog)
    return command


def whole_number(least: int, most: int) -> Callable[[str], int]:
    """Return the reader of an argument that is a whole number from `least` to `most`."""

    def read(text: str) -> int:
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) < 20 and least <= int(text) <= most):
            raise argparse.ArgumentTypeError(f"expected a number from {least} to {most}")
        return int(text)

    return read
