"""Passwords of users: the files have their hashes by argon2, which take memory and time on purpose."""

from __future__ import annotations

MADE_BY = "$argon2"  # what these hashes begin with
# the hash of a random password, for an unknown user, so that the comparison takes as long
UNKNOWN_USER_HASH = "$argon2id$v=19$m=65536,t=3,p=4$ITewLAkL30DgpIwUjAZLHw$iFygfCWZjma1whEEKR014Ilscrmfuo41bDnZi0QJuMk"


def is_password(hashed: str, password: str | bytes) -> bool:
    """Return whether this is the password of which argon2 has made the hash."""
    from argon2 import PasswordHasher  # here: a daemon without users does not load it
    from argon2.exceptions import InvalidHashError, VerificationError

    try:
        return PasswordHasher().verify(hashed, password)
    except (VerificationError, InvalidHashError):
        return False
