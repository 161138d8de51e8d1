"""Hides secrets in the value of an option: user names and passwords in addresses, and the query of a URL.

A word of the command line is handled in the same way, whether it is a value or a flag with a value (-flag=value).

See docs/contributing/design/security.md#names-and-secrets.
"""

import re
from typing import Any

HIDDEN = "***"
_LOGIN = re.compile(r"[^/].*:.*@", re.DOTALL)  # user:password@host:port; a text that begins with / is a path
_ARGUMENTS = re.compile(r"(?<=\?).*", re.DOTALL)
_UNIX = re.compile(
    r"unix:[^?@]*/[^?@]*(?:\?(?:(?:mode|user|group)=[\w.-]*(?:&|$))*)?"
)  # see shared/process/unix_sockets.py


def hide(value: Any) -> Any:
    """Return the value of any option, with HIDDEN in place of secrets. It hides too much rather than too little."""
    if isinstance(value, tuple | list):
        return type(value)(map(hide, value))
    if not isinstance(value, str) or _UNIX.fullmatch(value):
        return value
    scheme, is_url, rest = value.partition("://")
    if is_url:
        login, _, address = rest.rpartition("@")  # the last @, because a password may contain any character
        if "?" in login:  # the @ may be part of a secret argument
            return f"{scheme}://{HIDDEN}"
        value = f"{scheme}://{HIDDEN}@{address}" if login else value
    elif _LOGIN.match(value):
        value = _LOGIN.sub(f"{HIDDEN}@", value)
    return _ARGUMENTS.sub(HIDDEN, value, count=1)
