"""The list of commands, and their help."""

import argparse
from collections.abc import Iterator

import pytest

from admin.terminal.main import NAMES
from apps.penstock import GROUPS
from apps.penstock import parser as penstock_parser
from penstock.launch import _ALL_NODES, _parsers
from shared.auth.own_token import own_token
from tests.admin.terminal.program import Terminal


def test_the_program_lists_each_command_and_finds_it() -> None:
    listed = next(action.choices for action in penstock_parser()._actions if action.choices)
    assert sorted(_ALL_NODES) == sorted(NAMES)
    assert set(NAMES) <= set(listed or ())
    grouped = [name for names in GROUPS.values() for name in names]
    assert sorted(grouped) == sorted(listed or ())
    assert penstock_parser("--help").epilog == penstock_parser().epilog  # that of --help is made without any module


def below(found: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """Yield the commands of a parser, and theirs."""
    for action in found._actions:
        for command in action.choices.values() if isinstance(action, argparse._SubParsersAction) else ():
            yield command
            yield from below(command)


def test_the_help_of_each_command_has_examples_and_fits_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    penstock_parser.cache_clear()
    commands = [one for root in _parsers() for one in below(root) if one.add_help]
    assert len(commands) > len(NAMES) + 30
    for command in (*_parsers()[1:], *commands):
        text = command.format_help()
        assert ("xamples" in text or "COMMAND" in text, command.prog) == (True, command.prog)
        assert [line for line in text.splitlines() if len(line) > 80] == [], command.prog


def test_a_command_that_is_mistyped(terminal: Terminal) -> None:
    assert terminal("toppics") == (2, "", "penstock: unknown command 'toppics': did you mean `penstock topics`?\n")
    assert terminal("\x1b[2J") == (2, "", "penstock: unknown command '\\x1b[2J': see penstock --help\n")


@pytest.mark.process
def test_the_token_of_a_keyring_is_presented(terminal: Terminal) -> None:
    token = f"pst_{'a' * 43}"
    assert terminal("topics", "--auth-token-command", f"echo {token}")[0] == 0
    assert own_token() == token
    assert terminal("topics")[0] == 0
    assert own_token() == ""
