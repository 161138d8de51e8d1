"""Passwords are compared with their hashes; what is no hash is compared with nothing."""

import pytest
from argon2 import PasswordHasher

from shared.auth.passwords import MADE_BY, NOBODYS, is_password
from tests.cases import each

HASHED = PasswordHasher(time_cost=1, memory_cost=64).hash("a password")


@pytest.mark.parametrize("password", ["a password", b"a password"])
def test_the_right_password(password: str | bytes) -> None:
    assert HASHED.startswith(MADE_BY)
    assert is_password(HASHED, password)


@each("password", ["another", "", b"a password\0", "a password" * 100])
def test_another_password(password: str | bytes) -> None:
    assert not is_password(HASHED, password)


@pytest.mark.parametrize(
    "hashed", ["", "-", "$argon2", "sha256:0", pytest.param(HASHED[:-1] + "!", id="a hash with a wrong sign")]
)
def test_what_is_no_hash(hashed: str) -> None:
    assert not is_password(hashed, "a password")


def test_nobodys_takes_as_long_as_a_hash_that_is_made_now() -> None:
    parts = NOBODYS.split("$")
    assert parts[:4] == PasswordHasher().hash("any").split("$")[:4]  # kind, version, memory, rounds and lanes
    assert not is_password(NOBODYS, "")
