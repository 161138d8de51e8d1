"""Passwords are compared with their hashes; other texts match nothing."""

from argon2 import PasswordHasher

from shared.auth.passwords import MADE_BY, UNKNOWN_USER_HASH, is_password

HASHED = PasswordHasher(time_cost=1, memory_cost=64).hash("a password")


def test_a_password_is_compared_with_a_hash_and_with_nothing_else() -> None:
    assert HASHED.startswith(MADE_BY)
    assert is_password(HASHED, "a password")
    assert is_password(HASHED, b"a password")
    for other in ("another", "", b"a password\0", "a password" * 100):
        assert not is_password(HASHED, other)
    for hashed in ("", "-", "$argon2", "sha256:0", HASHED[:-1] + "!"):
        assert not is_password(hashed, "a password")


def test_nobodys_takes_as_long_as_a_hash_that_is_made_now() -> None:
    parts = UNKNOWN_USER_HASH.split("$")
    assert parts[:4] == PasswordHasher().hash("any").split("$")[:4]  # kind, version, memory, rounds and parallelism
    assert not is_password(UNKNOWN_USER_HASH, "")
