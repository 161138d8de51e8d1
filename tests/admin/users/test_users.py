"""The users file: read, written, read again when it changes; and the command that writes it."""

import os
import subprocess
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from admin.options import AdminOptions
from admin.users.users import User, hashed, open_users, parse, written
from shared.auth.keyring import Keyring
from shared.auth.passwords import is_password
from shared.auth.verbs import Verb
from shared.process.daemon import StartError
from tests import forkserver
from tests.cases import each
from tests.daemons import ROOT
from tests.forkserver import LAUNCH


def command(*arguments: object, typed: str = "") -> subprocess.CompletedProcess[str]:
    line = [*LAUNCH, "penstock", "users", *map(str, arguments)]
    return forkserver.run(line, input=typed, capture_output=True, text=True, cwd=ROOT, timeout=60)


@each("text, wrong", [
    ("ann admin *", "line 1: expected four fields: name, role, topics, secret"),
    ("\n# c\nann king * -", "line 3: ann: the role must be one of viewer, body-viewer, operator, admin"),
    ("ann nobody * -", "line 1: ann: the role must be"),
    ("a/b admin * -", "line 1: 'a/b' is not a valid user name"),
    ("ann admin a..,/ -", "line 1: ann: invalid topics"),
    ("ann admin a.* -", "line 1: ann: an admin must see all topics"),
    ("ann admin * hunter2", "line 1: ann: invalid secret"),
    ("ann admin * -\nann viewer * -", "line 2: ann is defined twice"),
])  # fmt: skip
def test_lines_that_are_none(text: str, wrong: str) -> None:
    with pytest.raises(ValueError, match="line") as found:
        parse(text)
    assert str(found.value).startswith(wrong)
    assert "hunter2" not in str(found.value)


USERS = st.builds(
    User, st.from_regex(r"[a-z0-9._@+-]{1,20}", fullmatch=True), st.sampled_from(["viewer", "body-viewer", "operator"]),
    st.lists(st.from_regex(r"[a-z.*?#]{1,10}", fullmatch=True), min_size=1, max_size=3).map(tuple),
    st.sampled_from(["-", hashed("word"), "$argon2id$x"]),
)  # fmt: skip


@given(st.lists(USERS, unique_by=lambda user: user.name))
def test_what_is_written_is_read(users: list[User]) -> None:
    assert list(parse(written(users)).values()) == users


def lines_of(path: Path) -> Keyring:
    found = open_users(AdminOptions(users_file=str(path)))
    assert found is not None
    return found


def test_a_change_is_seen_and_a_wrong_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "users"
    with pytest.raises(StartError, match=r"--users-file .*users: No such file"):
        lines_of(path)
    path.write_text("nonsense")
    with pytest.raises(StartError, match=r"--users-file .*users: line 1"):
        lines_of(path)
    assert open_users(AdminOptions()) is None
    path.write_text("ann admin * -\n")
    users = lines_of(path)
    assert (found := users.claimed("ann")) is not None
    assert (found.name, found.roles, found.rights.may(Verb.ADMIN)) == ("ann", ("admin",), True)
    path.write_text(f"bob viewer a,b* {hashed('word')}\n")
    assert users.reload_if_changed()
    assert users.user("ann") is None
    bob = users.with_token(b"word")
    assert [topic for topic in ("a", "ab", "b", "bc", "c") if bob.rights.may(Verb.STATS, topic)] == ["a", "b", "bc"]
    assert users.claimed("bob") is None  # the token says who bob is
    assert users.with_token(b"") is None
    for spoil in (lambda: path.write_text("nonsense"), lambda: path.write_bytes(b"\xff\xfe"), path.unlink):
        spoil()
        assert not users.reload_if_changed()
        assert users.user("bob") is not None
    path.write_text("cat viewer * -\n")
    assert users.reload_if_changed()
    assert users.user("cat") is not None


@given(st.from_regex(r"[ab.*?#\[\]!-]{1,8}", fullmatch=True), st.text("ab.#!-[]", max_size=5))
@example("[!a]*", "ba")
@example("[]a]", "]")
@example("[a-b]?[", "ab[")
@example("[b-a]", "b")
@example("[!b-a]", "b")
@example("[]", "[]")
def test_shell_patterns_match_what_they_always_did(pattern: str, topic: str) -> None:
    user = User("ann", "viewer", (pattern,), "-")
    if topic:
        assert user.identity().rights.may(Verb.STATS, topic) == fnmatchcase(topic, pattern)


def test_a_users_file_may_be_an_auth_file(tmp_path: Path) -> None:
    text = '# ours\n[[user]]\nname = "ann"\nroles = ["viewer"]\n'
    for name in ("users", "users.toml"):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o600)
        assert lines_of(tmp_path / name).claimed("ann") is not None
        (tmp_path / name).chmod(0o604)
        with pytest.raises(StartError, match="chmod o="):  # unlike a file of lines, of which it is only a warning
            lines_of(tmp_path / name)
    assert AdminOptions(nsqd_http_address=("x:1",), auth_file="a", users_file="b").problems() == [
        "use --auth-file or --users-file, not both: penstock users convert OLD NEW moves the users into an auth file"
    ]


def changed(*arguments: object, typed: str = "") -> str:
    """The output of a command, which must succeed."""
    done = command(*arguments, typed=typed)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.process
def test_the_command_writes_what_nsqadmin_reads(tmp_path: Path) -> None:
    path = tmp_path / "users"
    done = command("set", path, "ann", "--role", "admin", typed="long enough\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert path.stat().st_mode & 0o777 == 0o600
    done = command("set", path, "robot", "--role", "operator", "--topics", "orders.[ab]*,x", "--token")
    token = done.stdout.strip()
    assert "Save this token now" in done.stderr
    found = lines_of(path).with_token(token.encode())
    assert (found.name, found.roles, found.rights.scope) == ("robot", ("operator",), ("re:orders\\.[ab].*", "x"))
    assert token not in path.read_text()
    assert "long enough" not in path.read_text()
    changed("set", path, "carl", "--proxy")

    new = tmp_path / "auth.toml"
    assert "converted 3 users" in changed("convert", path, new)
    assert new.stat().st_mode & 0o777 == 0o600
    before, after = lines_of(path), Keyring(str(new), lambda: 0.0)
    for name in ("ann", "robot", "carl"):
        same = [(one.roles, one.rights.scope, password) for one, password in (before.user(name), after.user(name))]
        assert same[0] == same[1]
    robot = after.with_token(token.encode())
    assert [robot.rights.may(Verb.ACT, topic) for topic in ("orders.b1", "orders.c", "x")] == [True, False, True]
    assert after.claimed("carl") is not None
    again = command("convert", path, new)
    assert (again.returncode, "user ann exists already" in again.stderr) == (1, True)

    os.chmod(path, 0o640)
    changed("set", path, "robot", "--role", "viewer", "--keep")
    now = lines_of(path).with_token(token.encode())
    assert (now.roles, now.rights.scope) == (("viewer",), ("re:orders\\.[ab].*", "x"))
    assert path.stat().st_mode & 0o777 == 0o640
    rows = ["ann\tadmin\t*\tpassword", "robot\tviewer\torders.[ab]*,x\ttoken", "carl\tviewer\t*\tby proxy"]
    assert changed("list", path).splitlines() == rows
    changed("remove", path, "ann")
    assert lines_of(path).user("ann") is None


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


@pytest.mark.process
def test_the_command_edits_an_auth_file_and_leaves_all_else_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "auth.toml"
    path.write_text(AUTH)
    path.chmod(0o664)
    done = command("set", path, "ann", "--role", "orders", "--role", "viewer", typed="long enough\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
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


@pytest.mark.process
@each("arguments, typed, code, words", [
    *(row for file in ("FILE", "FILE.toml") for row in (
        (("set", file, "ann"), "short\n", 1, "at least 8 characters"),
        (("set", file, "a b"), "long enough\n", 1, "is not a valid user name"),
        (("set", file, "ann", "--keep"), "", 1, "--keep needs an existing user"))),
    (("set", "FILE", "ann", "--topics", "a b"), "", 1, "invalid topics"),
    (("set", "FILE.toml", "ann", "--topics", "re:("), "", 1, "not an expression"),
    (("remove", "FILE", "ann"), "", 1, "No such file"), (("remove", "FILE.toml", "ann"), "", 1, "No such file"),
    (("list", "FILE"), "", 1, "No such file"), (("convert", "FILE", "FILE.toml"), "", 1, "No such file"),
    (("set", "FILE", "ann", "--role", "king"), "", 2, "invalid choice"),
    (("set", "FILE.toml", "ann", "--role", "king"), "", 1, "the role 'king' is not known"), ((), "", 2, "usage"),
])  # fmt: skip
def test_the_commands_mistakes(tmp_path: Path, arguments: tuple[str, ...], typed: str, code: int, words: str) -> None:
    done = command(*[one.replace("FILE", str(tmp_path / "users")) for one in arguments], typed=typed)
    assert done.returncode == code
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []
