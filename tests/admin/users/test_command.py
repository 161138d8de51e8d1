"""`penstock users`: what it writes into an auth file, and which mistakes it reports."""

import io
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from admin.users.command import main
from shared.auth.keyring import Keyring
from shared.auth.passwords import is_password
from tests.cases import each


def command(*arguments: object, typed: str = "") -> tuple[int, str, str]:
    """Return exit code, standard output and standard error of `penstock users`."""
    out, error = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(error):
        patch.setattr(sys, "stdin", io.StringIO(typed))
        patch.setattr(sys, "argv", ["penstock users", *map(str, arguments)])
        try:
            code: object = main()
        except SystemExit as end:  # of argparse
            code = end.code
    assert isinstance(code, int)
    return int(code), out.getvalue(), error.getvalue()


def changed(*arguments: object, typed: str = "") -> str:
    """The output of a command, which must succeed."""
    code, out, error = command(*arguments, typed=typed)
    assert code == 0, error
    return out.strip()


AUTH = """# who may do what
[[role]]
name = "orders"   # ours
rules = [{ verbs = ["act"], topics = ["orders.*"] }]

# the robot of billing
[[token]]
name = "billing"
sha256 = "%s"
roles = ["viewer"]
""" % ("0" * 64)


def test_the_command_edits_an_auth_file_and_leaves_all_else_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "auth.toml"
    path.write_text(AUTH)
    path.chmod(0o664)
    assert command("set", path, "ann", "--role", "orders", "--role", "viewer", typed="long enough\n") == (0, "", "")
    assert path.stat().st_mode & 0o777 == 0o640
    token = changed("set", path, "robot", "--role", "operator", "--topics", "orders.*,x", "--token")
    changed("set", path, "carl", "--proxy")
    assert path.read_text().startswith(AUTH)
    path.write_text(path.read_text() + "\n# the end\n")
    keyring = Keyring(str(path), lambda: 0.0)
    found, password = keyring.user("ann") or pytest.fail("ann is not there")
    assert found.roles == ("orders", "viewer")
    assert is_password(password, "long enough")
    assert keyring.with_token(token.encode()) == (keyring.user("robot") or "")[0]
    assert keyring.claimed("carl") is not None
    rows = ["ann\torders,viewer\t*\tpassword", "robot\toperator\torders.*,x\ttoken", "carl\tviewer\t*\tby proxy"]
    assert changed("list", path).splitlines() == rows
    changed("set", path, "robot", "--role", "viewer", "--topics", "*", "--keep")
    changed("set", path, "carl", typed="another one\n")
    assert changed("list", path).splitlines()[1:] == ["robot\tviewer\t*\ttoken", "carl\tviewer\t*\tpassword"]
    for name in ("ann", "robot", "carl"):
        changed("remove", path, name)
    assert path.read_text() == AUTH + "\n# the end\n"


@each("arguments, typed, code, words", [
    (("set", "FILE", "ann"), "short\n", 1, "at least 8 characters"),
    (("set", "FILE", "a b"), "long enough\n", 1, "is not a valid user name"),
    (("set", "FILE", "ann", "--keep"), "", 1, "--keep needs an existing user"),
    (("set", "FILE", "ann", "--topics", "re:("), "", 1, "not an expression"),
    (("remove", "FILE", "ann"), "", 1, "No such file"), (("list", "FILE"), "", 1, "No such file"),
    (("set", "FILE", "ann", "--role", "king"), "", 1, "the role 'king' is not known"), ((), "", 2, "COMMAND"),
])  # fmt: skip
def test_the_commands_mistakes(tmp_path: Path, arguments: tuple[str, ...], typed: str, code: int, words: str) -> None:
    found, _, error = command(*[one.replace("FILE", str(tmp_path / "users")) for one in arguments], typed=typed)
    assert (found, words in error, "Traceback" in error) == (code, True, False)
    assert list(tmp_path.iterdir()) == []
