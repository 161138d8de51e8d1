"""How a command ends: exit codes, a closed pipe, Ctrl-C, and the prompt before a dangerous action."""

import argparse
import io
import os
import sys
from collections.abc import Callable

import pytest

from shared.terminal.commands import (
    CommandError,
    NoAnswer,
    Parser,
    WrongArguments,
    make_command,
    run_command,
    whole_number,
)
from shared.terminal.confirm import is_confirmed
from tests.cases import each


@each("line, expected", [
    ("pub t --json a b", ("t", ["a", "b"])), ("pub t a --json b", ("t", ["a", "b"])), ("pub --json t", ("t", [])),
    ("list --json x", ("x", 1)), ("list x --json 3", ("x", 3)), ("list --json x 3", ("x", 3)),
])  # fmt: skip
def test_arguments_may_follow_flags(line: str, expected: tuple[object, ...]) -> None:
    parser = Parser(prog="penstock")
    commands = parser.add_subparsers()
    pub, listing = commands.add_parser("pub"), commands.add_parser("list")
    pub.add_argument("topic")
    pub.add_argument("bodies", nargs="*", default=[])
    listing.add_argument("text", nargs="?", default="")
    listing.add_argument("count", nargs="?", type=int, default=1)
    for command in (pub, listing):
        command.add_argument("--json", action="store_true")
    found = vars(parser.parse_args(line.split()))
    assert found.pop("json") is True
    assert tuple(found.values()) == expected
    for wrong in (f"{line} --bad", "list --json x 3 y"):
        with pytest.raises(SystemExit):
            parser.parse_args(wrong.split())


def raising(error: BaseException) -> Callable[[], int]:
    def main() -> int:
        raise error

    return main


@each("error, code, text", [
    (CommandError("it is full"), 1, "penstock x: it is full\n"), (WrongArguments("no"), 2, "penstock x: no\n"),
    (NoAnswer("all down"), 3, "penstock x: all down\n"), (KeyboardInterrupt(), 130, ""),
])  # fmt: skip
def test_exit_codes(error: BaseException, code: int, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(raising(error), lambda: "penstock x") == code
    assert capsys.readouterr() == ("", text)


@pytest.mark.process
def test_a_pipe_that_closes_ends_a_command_quietly(capfd: pytest.CaptureFixture[str]) -> None:
    before = os.dup(1)
    reading, writing = os.pipe()
    os.close(reading)
    os.dup2(writing, 1)
    try:
        assert run_command(lambda: os.write(1, b"x"), lambda: "penstock x") == 0
    finally:
        os.dup2(before, 1)
    assert capfd.readouterr().err == ""


def test_what_a_terminal_cannot_show_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.TextIOWrapper(io.BytesIO(), "ascii")
    monkeypatch.setattr(sys, "stdout", out)
    assert run_command(lambda: print("zw\u00f6lf") or 0, lambda: "penstock x") == 0
    assert out.buffer.getvalue() == b"zw\\xf6lf\n"  # type: ignore[attr-defined]


def parser() -> Parser:
    found = Parser(prog="penstock")
    commands = found.add_subparsers(required=True, metavar="COMMAND")
    command = make_command(
        commands,
        "x",
        lambda arguments: 0,
        "do x",
        f"{'A long paragraph of the details. ' * 5}\n\nexamples:\n  penstock x\n  penstock x 2",
    )
    command.add_argument("-n", type=whole_number(1, 9))
    return found


def test_wrong_arguments_are_one_line_that_says_where_to_look(capsys: pytest.CaptureFixture[str]) -> None:
    for words, why in (
        (("x", "-n", "10"), "argument -n: expected a number from 1 to 9"),
        (("x", "\x1b"), "penstock x: unrecognized arguments: \\x1b: see penstock x --help"),
    ):
        with pytest.raises(SystemExit) as end:
            parser().parse_args(words)
        error = capsys.readouterr().err
        assert (end.value.code, error.count("\n"), why in error) == (2, 1, True)
        assert error.startswith("penstock")
        assert "--help\n" in error


def test_help_wraps_paragraphs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    with pytest.raises(SystemExit):
        parser().parse_args(["x", "--help"])
    out = capsys.readouterr().out
    assert out.endswith("\n\nexamples:\n  penstock x\n  penstock x 2\n")
    assert max(map(len, out.splitlines())) <= 60


@pytest.mark.process
def test_help_in_a_closed_pipe(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        with pytest.raises(SystemExit) as end:
            parser().parse_args(["--help"])
    assert (end.value.code, capfd.readouterr().err) == (0, "")


def test_the_prompt(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def asked(**given: bool) -> bool:
        return is_confirmed(
            argparse.Namespace(**{"yes": False, "dry_run": False} | given), "delete topic t: 5 messages"
        )

    class Keyboard(io.StringIO):
        def isatty(self) -> bool:
            return True

    assert not asked(dry_run=True, yes=True)
    assert capsys.readouterr().err == "would delete topic t: 5 messages\n"
    assert asked(yes=True)
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    with pytest.raises(WrongArguments, match="would delete topic t: 5 messages: give --yes"):
        asked()
    for text, is_yes in (("y\n", True), ("YES\n", True), ("\n", False), ("no\n", False), ("", False)):
        monkeypatch.setattr(sys, "stdin", Keyboard(text))
        assert asked() is is_yes
    assert "Delete topic t: 5 messages. Continue? [y/N]" in capsys.readouterr().err
