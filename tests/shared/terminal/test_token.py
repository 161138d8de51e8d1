"""The token of a command comes from a file, or from a command such as that of a keyring."""

import sys
from pathlib import Path

import pytest

from shared.terminal.commands import CommandError
from shared.terminal.token import token_of
from tests.cases import each

TOKEN = f"pst_{'a' * 43}"
PRINTS = f"{sys.executable} -c 'print(\"{TOKEN}\")'"


def test_a_file_comes_first(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.touch(mode=0o600)
    path.write_text(f"{TOKEN}\n")
    assert token_of(str(path), "/nonexistent") == TOKEN
    assert token_of("", "") == ""
    path.chmod(0o644)
    with pytest.raises(CommandError, match="all users of this machine can read it"):
        token_of(str(path), "")
    with pytest.raises(CommandError, match=r"^/nonexistent: No such file or directory$"):
        token_of("/nonexistent", "")


@pytest.mark.process
@each("command, why", [
    ("/nonexistent --all", "No such file or directory"), ("echo 'open", "No closing quotation"), (" ", "index out of range"),
    ("false", "false ended with exit code 1"), ("echo hunter2", "echo printed no token"),
    ("head -c 100000 /dev/zero", "head "),
])  # fmt: skip
def test_a_command_that_prints_no_token(command: str, why: str) -> None:
    with pytest.raises(CommandError, match=f"^--auth-token-command: .*{why}") as error:
        token_of("", command)
    assert "hunter2" not in str(error.value)


@pytest.mark.process
def test_a_command_prints_the_token() -> None:
    assert token_of("", PRINTS) == TOKEN
