"""Tokens: random secrets of programs. The file has their hashes only, for which no salt is needed: they cannot be guessed."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable

PREFIX = "pst_"
SIZE = 32  # random bytes
_TOKEN = re.compile(rb"pst_[A-Za-z0-9_-]{43}")
_OF_USERS = re.compile(rb"pst_[A-Za-z0-9_-]{20,100}")  # those that `penstock users` has made
DIGEST = re.compile(r"[0-9a-f]{64}")


def new_token(random_text: Callable[[int], str]) -> str:
    """Return a new token. `random_text`: secrets.token_urlsafe."""
    return PREFIX + random_text(SIZE)


def is_token(secret: bytes) -> bool:
    """Return whether this has the form of a token: anything else needs no look at the file."""
    return _TOKEN.fullmatch(secret) is not None or _OF_USERS.fullmatch(secret) is not None


def digest(token: bytes) -> str:
    """Return the SHA-256 of a token in 64 hex digits, as the file has it."""
    return hashlib.sha256(token).hexdigest()
