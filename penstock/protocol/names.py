"""Topic and channel names: what NSQ accepts (specs/nsq.md a3), less the names `.` and `..`.

Pure. A name that passes here is safe as a word of the protocol; it is still never used as a file name.
"""

import re

MAX_NAME_LENGTH = 64  # bytes, the suffix included
EPHEMERAL_SUFFIX = "#ephemeral"

_NAME = re.compile(r"[.a-zA-Z0-9_-]+(#ephemeral)?")


def is_valid_name(name: str) -> bool:
    """True for a legal topic or channel name. `.` and `..` are refused: no path on any node may be made of them."""
    if not 1 <= len(name) <= MAX_NAME_LENGTH or _NAME.fullmatch(name) is None:
        return False
    return name.removesuffix(EPHEMERAL_SUFFIX) not in (".", "..")


def is_ephemeral(name: str) -> bool:
    """True if the topic or channel lives in memory only and goes with its last user."""
    return name.endswith(EPHEMERAL_SUFFIX)
