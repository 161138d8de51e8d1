"""Topic and channel names: those that NSQ accepts, except `.` and `..`.

A valid name is safe as a word of the protocol, and is still never used as a file name.

See docs/contributing/design/nsq-protocol.md#names.
"""

import re

MAX_NAME_LENGTH = 64  # bytes, including the suffix
EPHEMERAL_SUFFIX = "#ephemeral"

_NAME = re.compile(r"[.a-zA-Z0-9_-]+(#ephemeral)?")


def is_valid_name(name: str) -> bool:
    """Return True for a legal topic or channel name. `.` and `..` are refused, so that no node can build a path from them."""
    if not 1 <= len(name) <= MAX_NAME_LENGTH or _NAME.fullmatch(name) is None:
        return False
    return name.removesuffix(EPHEMERAL_SUFFIX) not in (".", "..")


def is_ephemeral(name: str) -> bool:
    """Return True if the topic or channel lives in memory only and is removed with its last user."""
    return name.endswith(EPHEMERAL_SUFFIX)
