"""The part that all commands of `penstock` share: their parsers, the error that ends one, and how a command ends.

Exit codes: see ExitCode. A pipe that closes, as after `| head`, ends a command quietly.
"""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import IntEnum
from typing import Any, NoReturn, TypeAlias

from shared.log import escape
from shared.values import SECOND, parse_duration

Commands: TypeAlias = "argparse._SubParsersAction[Parser]"


class ExitCode(IntEnum):
    """The exit codes of all commands that have no table of their own."""

    DONE = 0
    FAILED = 1  # something failed, or nodes gave no answer, so that the output is not complete
    WRONG_ARGUMENTS = 2
    NO_ANSWER = 3  # no node answers
    INTERRUPTED = 130  # by Ctrl-C


EXIT_CODES = {
    ExitCode.DONE: "done",
    ExitCode.FAILED: "a node refused or gave no answer; the answers of the others are printed",
    ExitCode.WRONG_ARGUMENTS: "wrong arguments, or the command needs `--yes`",
    ExitCode.NO_ANSWER: "no node answers",
    ExitCode.INTERRUPTED: "ended by Ctrl-C",
}


class CommandError(Exception):
    """The command failed, or is not possible. The text says why, and what to do."""

    exit_code: int = ExitCode.FAILED


class WrongArguments(CommandError):
    """The arguments contradict each other. The text says how."""

    exit_code = ExitCode.WRONG_ARGUMENTS


class NoAnswer(CommandError):
    """No node answers. The text says why, and what to do."""

    exit_code = ExitCode.NO_ANSWER


class HelpFormatter(argparse.HelpFormatter):
    """Wraps paragraphs, but keeps those with an indented line, such as examples and tables, as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = text.strip("\n").split("\n\n")
        return "\n\n".join(
            one if "\n  " in f"\n{one}" else textwrap.fill(one, width, break_on_hyphens=False) for one in paragraphs
        )


class Parser(argparse.ArgumentParser):
    """A parser of a command line, and of the commands that are added to it."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **{"formatter_class": HelpFormatter} | settings)

    def error(self, message: str) -> NoReturn:
        """Print one line, and exit with 2."""
        self.exit(2, f"{self.prog}: {escape(message)}: see {self.prog} --help\n")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Parse also optional arguments without a name that follow flags, which argparse does not recognize there.

        A command refuses the rest itself, so that the error names it.
        """
        found, left = super().parse_known_args(args, namespace)
        is_flag = any(one.startswith("-") for one in left)
        for action in self._get_positional_actions() if left and not is_flag else ():
            given = getattr(found, action.dest, None)
            if action.nargs == "*":
                setattr(found, action.dest, [*(given or ()), *self._get_values(action, left)])
                left = []
            elif action.nargs == "?" and given == action.default and left:
                setattr(found, action.dest, self._get_values(action, left[:1]))
                left = left[1:]
        if left:
            self.error(f"unrecognized arguments: {' '.join(left)}")
        return found, left

    def print_help(self, file: Any = None) -> None:
        """Print the help. A pipe that has closed, as after `| head`, is no error."""
        try:
            super().print_help(file)
            sys.stdout.flush()
        except BrokenPipeError:
            discard_output()


def make_command(
    commands: Commands, name: str, main: Callable[[argparse.Namespace], int], what: str, details: str = "", examples: str = ""
) -> Parser:  # fmt: skip
    """Add a command and return its parser. `main` returns the exit code, and may raise CommandError or httpx.HTTPError.

    `what` is its line in the list of commands, and the head of its --help; `details` are printed below the options, and then
    the `examples`: one on a line, without "penstock".
    """
    epilog = f"{details}\n{examples_of(examples)}" if examples else details
    command = commands.add_parser(name, help=what, description=what, epilog=epilog)
    command.set_defaults(main=main, program=command.prog)
    return command


def examples_of(lines: str) -> str:
    """Return the part of --help with examples: one on a line, without "penstock"."""
    return "".join(["examples:", *(f"\n  penstock {line}" for line in lines.splitlines()), "\n"])


def run_on_file(parser: argparse.ArgumentParser) -> int:
    """Run the command of sys.argv on its `file`. Returns its exit code, or 1 if the file cannot be used."""
    arguments = parser.parse_args()
    try:
        found: int = arguments.run(arguments)
    except (OSError, ValueError) as error:
        print(f"{parser.prog}: {arguments.file}: {getattr(error, 'strerror', None) or error}", file=sys.stderr)
        return 1
    return found


def run_command_line(
    parser: Callable[[str], argparse.ArgumentParser],
    command_line: Sequence[str] | None,
    main: Callable[[argparse.Namespace], int],
) -> int:
    """Read a command line, by default that of sys.argv, and call `main` with its arguments as `run_command` does.

    `parser` returns the parser that has at least the command with that name; "-": there is none.
    """
    given = sys.argv[1:] if command_line is None else list(command_line)
    program = "penstock"

    def run() -> int:
        nonlocal program
        arguments = parser(given[0] if given else "-").parse_args(given)
        program = arguments.program
        return main(arguments)

    return run_command(run, lambda: program)


def run_command(main: Callable[[], int], program: Callable[[], str]) -> int:
    """Call `main` and return its exit code, or that of its CommandError, which is printed on a line.

    `program` returns the name of the command that was read. Characters that the terminal cannot show are escaped.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            with suppress(OSError):  # a stream for reading and writing that is a pipe: it stays as it is
                stream.reconfigure(errors="backslashreplace")
    try:
        code = main()
        sys.stdout.flush()  # so that a closed pipe is noted here
        return code
    except CommandError as error:
        print(f"{program()}: {escape(str(error))}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        discard_output()
        return ExitCode.DONE
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED


def discard_output() -> None:
    """Send standard output nowhere, after its reader has closed the pipe: bytes in Python's buffer must not raise at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def whole_number(least: int, most: int) -> Callable[[str], int]:
    """Return the reader of an argument that is a whole number from `least` to `most`."""

    def read(text: str) -> int:
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) < 20 and least <= int(text) <= most):
            raise argparse.ArgumentTypeError(f"expected a number from {least} to {most}")
        return int(text)

    return read


def seconds(text: str) -> float:
    """Return an argument that is a duration in Go's syntax, in s. Raises ArgumentTypeError."""
    try:
        return parse_duration(text) / SECOND
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a duration such as 60s, not {text[:200]!a}") from None


def milliseconds(text: str) -> int:
    """Return an argument that is a duration of 0 or more, in ms. Raises ArgumentTypeError."""
    found = round(seconds(text) * 1000)
    if found < 0:
        raise argparse.ArgumentTypeError("expected a duration that is not below 0")
    return found
