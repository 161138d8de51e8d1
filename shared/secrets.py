"""Hides what is secret in the value of an option: names and passwords in addresses, and the arguments of a URL.

A word of the command line is hidden in the same way, whether it is a value or a flag and its value in one (-flag=value).
"""

import re
from typing import Any

HIDDEN = "***"
_LOGIN_OF_URL = re.compile(r"(?<=://).*@", re.DOTALL)  # up to the last @: an odd password may hold anything
_LOGIN = re.compile(r"[^/].*:.*@", re.DOTALL)  # user:password@host:port; what begins with / is a path
_ARGUMENTS = re.compile(r"(?<=\?).*", re.DOTALL)


def hide(value: Any) -> Any:
    """The value of any option, with HIDDEN in place of secrets. Rather too much is hidden than too little."""
    if isinstance(value, tuple | list):
        return type(value)(map(hide, value))
    if not isinstance(value, str):
        return value
    if "://" in value:
        value = _LOGIN_OF_URL.sub(f"{HIDDEN}@", value)
    elif _LOGIN.match(value):
        value = _LOGIN.sub(f"{HIDDEN}@", value)
    return _ARGUMENTS.sub(HIDDEN, value, count=1)
