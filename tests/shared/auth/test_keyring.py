"""The auth file while it changes: a valid file applies at once, and a broken one changes nothing."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from shared.auth.auth_file import AuthFileError
from shared.auth.failures import FAILURES_WITHIN, MOST_FAILURES
from shared.auth.keyring import Keyring
from shared.auth.tokens import digest
from shared.process.unix_sockets import NOBODY
from tests.cases import each

TOKEN, OTHER = b"pst_" + b"x" * 43, b"pst_" + b"y" * 43
YEAR_2027 = 1_798_761_600


def entry(name: str, token: bytes, more: str = "") -> str:
    return f'[[token]]\nname = "{name}"\nsha256 = "{digest(token)}"\nroles = ["viewer"]\n{more}\n'


class World:
    def __init__(self, path: Path, text: str) -> None:
        self.path, self.now, self._stamp = path, YEAR_2027 - 100.0, 1
        self.write(text)
        self.keyring = Keyring(str(path), lambda: self.now, clock=lambda: self.now)

    def write(self, text: str, mode: int = 0o600) -> None:
        self.path.write_text(text)
        self.path.chmod(mode)
        self._stamp += 1
        os.utime(self.path, (self._stamp, self._stamp))

    def name(self, token: bytes) -> str | None:
        found = self.keyring.with_token(token)
        return found.name if found is not None else None


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "auth.toml", entry("a", TOKEN, "expires = 2027-01-01T00:00:00Z"))


def test_a_change_counts_at_the_next_look_and_is_reported_once(world: World) -> None:
    calls: list[bool] = []
    world.keyring.on_read, before = calls.append, world.keyring.epoch
    world.write(entry("b", OTHER))
    assert world.name(OTHER) is None
    assert world.keyring.reload_if_changed()
    assert (world.name(TOKEN), world.name(OTHER)) == (None, "b")
    assert world.keyring.epoch == before + 1
    for text in ("x = [", entry("b", OTHER)):
        world.write(text)
        for _ in range(3):
            world.keyring.reload_if_changed()
    world.now = YEAR_2027
    world.keyring.reload_if_changed()
    assert calls == [True, False, True]


def test_what_is_not_valid_changes_nothing_and_an_empty_file_admits_no_client(world: World) -> None:
    for text in (entry("b", OTHER) * 2, '[[token]]\nname = "b"'):
        world.write(text)
        assert not world.keyring.reload_if_changed()
        assert world.name(TOKEN) == "a"
    world.write("")
    assert world.keyring.reload_if_changed()
    assert world.name(TOKEN) is None


@each("make", [Path.mkdir, lambda path: os.mkfifo(path, 0o600), lambda path: path.symlink_to(path), None])
def test_a_file_that_is_gone_or_none_changes_nothing(tmp_path: Path, make: Callable[[Path], None] | None) -> None:
    world = World(tmp_path / "auth.toml", entry("a", TOKEN))
    world.path.unlink()
    if make is not None:
        make(world.path)
    assert not world.keyring.reload_if_changed()
    assert world.name(TOKEN) == "a"


@each("mode", [0o604, 0o602, 0o666])
def test_a_file_that_all_users_can_read_is_refused(world: World, mode: int) -> None:
    world.write(entry("b", OTHER), mode)
    assert not world.keyring.reload_if_changed()
    assert world.name(OTHER) is None
    with pytest.raises(AuthFileError, match="chmod"):
        Keyring(str(world.path), lambda: 0.0)


def test_what_is_no_file_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="directory"):
        Keyring(str(tmp_path), lambda: 0.0)
    (tmp_path / "latin").write_bytes(b"# \xe9")
    (tmp_path / "latin").chmod(0o600)
    with pytest.raises(AuthFileError, match="UTF-8"):
        Keyring(str(tmp_path / "latin"), lambda: 0.0)
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(AuthFileError, match="not a regular file"):  # without waiting for a writer
        Keyring(str(tmp_path / "pipe"), lambda: 0.0)


def test_users_certificates_and_sockets(tmp_path: Path) -> None:
    more = 'roles = ["viewer"]\nexpires = 2027-01-01T00:00:00Z\n'
    world = World(
        tmp_path / "auth.toml",
        f"""
[[user]]\nname = "ann"\npassword = "$argon2id$x"\n{more}
[[certificate]]\nname = "c"\nsubject = "CN=c"\nroles = ["viewer"]
[[socket]]\nname = "s"\nuid = 990\n{more}""",
    )
    keyring = world.keyring
    found = keyring.user("ann")
    assert found[1] == "$argon2id$x"
    assert keyring.user("bob") is None
    assert keyring.with_certificate("CN=c", []) == keyring.named("c", "certificate")
    assert keyring.with_certificate("CN=d", []) is None
    assert keyring.with_uid(990) == keyring.named("s", "socket") is not None
    assert keyring.with_uid(991) is keyring.with_uid(NOBODY) is None
    world.now = YEAR_2027
    assert keyring.with_uid(990) is None
    assert keyring.user("ann") is keyring.named("ann", "user") is None


def test_an_address_that_guesses_is_blocked(world: World, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(MOST_FAILURES):
        assert not world.keyring.is_blocked("192.0.2.1")
        world.keyring.note_failure("192.0.2.1")
        world.keyring.note_failure("")
    world.keyring.note_failure("192.0.2.1")
    assert world.keyring.is_blocked("192.0.2.1")
    assert not world.keyring.is_blocked("192.0.2.2")
    assert not world.keyring.is_blocked("")
    (line,) = [one for one in caplog.messages if "wrong tokens" in one]
    assert line.startswith("AUTH: 20 wrong tokens or passwords from 192.0.2.1 within 10 s: ")
    world.now += FAILURES_WITHIN
    assert not world.keyring.is_blocked("192.0.2.1")


def test_a_token_is_valid_until_it_expires_and_again_if_the_clock_is_set_back(world: World) -> None:
    assert (world.name(OTHER), world.name(b"")) == (None, None)
    for _ in range(2):
        world.now = YEAR_2027 - 0.001
        assert world.name(TOKEN) == "a"
        world.keyring.reload_if_changed()
        assert not world.keyring.reload_if_changed()
        world.now = YEAR_2027
        assert world.name(TOKEN) is None
        assert world.keyring.reload_if_changed()  # connections that it has opened are to end
        assert not world.keyring.reload_if_changed()


def test_a_change_while_the_file_is_read_counts_at_the_next_look(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    real, again = os.fstat, [entry("b", OTHER)]

    def changing(descriptor: int) -> os.stat_result:
        found = real(descriptor)
        if again:
            world.path.write_text(again.pop() + "# more")
        return found

    world.write(entry("b", OTHER))
    monkeypatch.setattr(os, "fstat", changing)
    assert not world.keyring.reload_if_changed()
    assert world.name(TOKEN) == "a"
    assert world.keyring.reload_if_changed()
    assert world.name(OTHER) == "b"


def test_a_user_who_has_no_proof_can_be_named_by_others(tmp_path: Path) -> None:
    users = {
        "carl": "", "ann": 'password = "$argon2id$x"', "robot": f'sha256 = "{"0" * 64}"',
        "late": "expires = 1970-01-01T00:00:01Z",
    }  # fmt: skip
    text = "".join(f'[[user]]\nname = "{name}"\nroles = ["viewer"]\n{more}\n' for name, more in users.items())
    keyring = World(tmp_path / "auth.toml", text).keyring
    assert [name for name in (*users, "nobody") if keyring.claimed(name) is not None] == ["carl"]
