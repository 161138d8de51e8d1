"""The users file: read, written, read again when it changes; and the command that writes it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admin.roles import Role
from admin.users import CHECK_EVERY, User, Users, hashed, parse, written
from tests.daemons import ROOT


def command(*arguments: object, told: str = "") -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "penstock.launch", "penstock", "users", *map(str, arguments)]
    return subprocess.run(line, input=told, capture_output=True, text=True, cwd=ROOT, timeout=60)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("ann admin *", "line 1: expected four words: name, role, topics, secret"),
        ("\n# c\nann king * -", "line 3: ann: the role must be one of viewer, body-viewer, operator, admin"),
        ("ann nobody * -", "line 1: ann: the role must be"),
        ("a/b admin * -", "line 1: 'a/b' is not a valid user name"),
        ("ann admin a..,/ -", "line 1: ann: invalid topics"),
        ("ann admin a.* -", "line 1: ann: an admin must see all topics"),
        ("ann admin * hunter2", "line 1: ann: invalid secret"),
        ("ann admin * -\nann viewer * -", "line 2: ann is defined twice"),
    ],
)
def test_lines_that_are_none(text: str, wrong: str) -> None:
    with pytest.raises(ValueError, match="line") as found:
        parse(text)
    assert str(found.value).startswith(wrong)
    assert "hunter2" not in str(found.value)


@given(
    st.lists(
        st.builds(
            User,
            st.from_regex(r"[a-z0-9._@+-]{1,20}", fullmatch=True),
            st.sampled_from([Role.VIEWER, Role.BODY_VIEWER, Role.OPERATOR]),
            st.lists(st.from_regex(r"[a-z.*?#]{1,10}", fullmatch=True), min_size=1, max_size=3).map(tuple),
            st.sampled_from(["-", "sha256:00", "$argon2id$x"]),
        ),
        unique_by=lambda user: user.name,
    )
)
def test_what_is_written_is_read(users: list[User]) -> None:
    assert list(parse(written(users)).values()) == users


def test_a_change_is_seen_and_a_wrong_one_is_not(tmp_path: Path) -> None:
    path, now = tmp_path / "users", [0.0]
    path.write_text("ann admin * -\n")
    users = Users(str(path), lambda: now[0])
    assert users.named("ann") == User("ann", Role.ADMIN, ("*",), "-")
    path.write_text(f"bob viewer a,b* {hashed('word')}\n")
    assert users.named("bob") is None  # looked at a moment ago
    now[0] += CHECK_EVERY
    assert users.named("ann") is None
    assert users.with_token("word") == User("bob", Role.VIEWER, ("a", "b*"), hashed("word"))
    assert users.with_token("") is None
    for spoil in (lambda: path.write_text("nonsense"), lambda: path.write_bytes(b"\xff\xfe"), path.unlink):
        spoil()
        now[0] += CHECK_EVERY
        assert users.named("bob") is not None
    path.write_text("cat viewer * -\n")
    now[0] += CHECK_EVERY
    assert users.named("cat") is not None


def test_the_first_one_must_be_right(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Users(str(tmp_path / "none"))
    (tmp_path / "users").write_text("nonsense")
    with pytest.raises(ValueError, match="line 1"):
        Users(str(tmp_path / "users"))
    assert Users("").named("ann") is None


@pytest.mark.process
def test_the_command_writes_what_nsqadmin_reads(tmp_path: Path) -> None:
    path = tmp_path / "users"
    done = command("set", path, "ann", "--role", "admin", told="long enough\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert path.stat().st_mode & 0o777 == 0o600
    done = command("set", path, "robot", "--role", "operator", "--topics", "orders.*,x", "--token")
    token = done.stdout.strip()
    assert "Save this token now" in done.stderr
    users = Users(str(path))
    found = users.with_token(token)
    assert found is not None
    assert (found.name, found.role, found.topics) == ("robot", Role.OPERATOR, ("orders.*", "x"))
    assert token not in path.read_text()
    assert "long enough" not in path.read_text()
    os.chmod(path, 0o640)
    assert command("set", path, "robot", "--role", "viewer", "--keep").returncode == 0
    changed = Users(str(path)).with_token(token)
    assert changed is not None
    assert (changed.role, changed.topics) == (Role.VIEWER, ("orders.*", "x"))
    assert path.stat().st_mode & 0o777 == 0o640
    assert command("list", path).stdout == "ann\tadmin\t*\tpassword\nrobot\tviewer\torders.*,x\ttoken\n"
    assert command("remove", path, "ann").returncode == 0
    assert Users(str(path)).named("ann") is None


@pytest.mark.process
@pytest.mark.parametrize(
    ("arguments", "told", "code", "words"),
    [
        (("set", "FILE", "ann"), "short\n", 1, "at least 8 characters"),
        (("set", "FILE", "a b"), "long enough\n", 1, "is not a valid user name"),
        (("set", "FILE", "ann", "--topics", "a b"), "", 1, "invalid topics"),
        (("set", "FILE", "ann", "--keep"), "", 1, "--keep needs an existing user"),
        (("remove", "FILE", "ann"), "", 1, "user ann does not exist"),
        (("list", "FILE"), "", 1, "No such file"),
        (("set", "FILE", "ann", "--role", "king"), "", 2, "invalid choice"),
        ((), "", 2, "usage"),
    ],
)
def test_the_commands_mistakes(tmp_path: Path, arguments: tuple[str, ...], told: str, code: int, words: str) -> None:
    done = command(*[str(tmp_path / "users") if one == "FILE" else one for one in arguments], told=told)
    assert done.returncode == code
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []
