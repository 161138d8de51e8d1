"""Hides what is secret in the value of an option: names and passwords in addresses, and the arguments of a URL."""

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
        return _ARGUMENTS.sub(HIDDEN, _LOGIN_OF_URL.sub(f"{HIDDEN}@", value), count=1)
    return _LOGIN.sub(f"{HIDDEN}@", value) if _LOGIN.match(value) else value
