"""The auth file while it changes: what is valid now, and that a broken file changes nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shared.auth.auth_file import AuthFileError
from shared.auth.keyring import Keyring
from shared.auth.tokens import digest

TOKEN, OTHER = b"pst_" + b"x" * 43, b"pst_" + b"y" * 43
YEAR_2027 = 1_798_761_600


def entry(name: str, token: bytes, more: str = "") -> str:
    return f'[[token]]\nname = "{name}"\nsha256 = "{digest(token)}"\nroles = ["viewer"]\n{more}\n'


class World:
    def __init__(self, path: Path, text: str) -> None:
        self.path, self.now, self._stamp = path, YEAR_2027 - 100.0, 1
        self.write(text)
        self.keyring = Keyring(str(path), lambda: self.now)

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


def test_a_token_is_valid_until_it_expires(world: World) -> None:
    assert (world.name(TOKEN), world.name(OTHER), world.name(b"")) == ("a", None, None)
    assert not world.keyring.look_after()
    world.now = YEAR_2027 - 0.001
    assert world.name(TOKEN) == "a"
    world.now = YEAR_2027
    assert world.name(TOKEN) is None
    assert world.keyring.look_after()  # connections that it has opened are to end
    assert not world.keyring.look_after()


def test_each_change_of_the_file_is_reported_once(world: World) -> None:
    told: list[bool] = []
    world.keyring.on_read = told.append
    for text in (entry("b", OTHER), "x = [", entry("b", OTHER)):
        world.write(text)
        for _ in range(3):
            world.keyring.look_after()
    assert told == [True, False, True]
    world.now = YEAR_2027
    world.keyring.look_after()
    assert told == [True, False, True]


def test_a_change_counts_at_the_next_look(world: World) -> None:
    before = world.keyring.epoch
    world.write(entry("b", OTHER))
    assert world.name(OTHER) is None
    assert world.keyring.look_after()
    assert (world.name(TOKEN), world.name(OTHER)) == (None, "b")
    assert world.keyring.epoch == before + 1


@pytest.mark.parametrize("text", ["x = [", entry("b", OTHER) * 2, '[[token]]\nname = "b"'])
def test_a_file_that_is_not_valid_changes_nothing(world: World, text: str, caplog: pytest.LogCaptureFixture) -> None:
    world.write(text)
    for _ in range(3):
        assert not world.keyring.look_after()
    assert world.name(TOKEN) == "a"
    world.write(entry("b", OTHER))
    assert world.keyring.look_after()
    assert world.name(OTHER) == "b"


def test_a_file_that_is_gone_changes_nothing(world: World) -> None:
    world.path.unlink()
    assert not world.keyring.look_after()
    assert world.name(TOKEN) == "a"
    world.path.mkdir()
    assert not world.keyring.look_after()


def test_an_empty_file_admits_nobody(world: World) -> None:
    world.write("")
    assert world.keyring.look_after()
    assert world.name(TOKEN) is None


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o666])
def test_a_file_that_everybody_can_read_is_refused(world: World, mode: int) -> None:
    world.write(entry("b", OTHER), mode)
    assert not world.keyring.look_after()
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


def test_users_and_certificates(tmp_path: Path) -> None:
    text = """
[[user]]
name = "ann"
password = "$argon2id$x"
roles = ["viewer"]
expires = 2027-01-01T00:00:00Z
[[certificate]]
name = "c"
subject = "CN=c"
roles = ["viewer"]
"""
    world = World(tmp_path / "auth.toml", text)
    keyring = world.keyring
    found = keyring.user("ann")
    assert found is not None
    assert found[1] == "$argon2id$x"
    assert keyring.user("bob") is None
    assert keyring.with_certificate("CN=c", []) == keyring.named("c", "certificate")
    assert keyring.with_certificate("CN=d", []) is None
    world.now = YEAR_2027
    assert keyring.user("ann") is keyring.named("ann", "user") is None
