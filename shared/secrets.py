"""Hides what is secret in the value of an option: names and passwords in addresses, and the arguments of a URL.

A word of the command line is hidden in the same way, whether it is a value or a flag and its value in one (-flag=value).
"""

import re
from typing import Any

HIDDEN = "***"
_LOGIN = re.compile(r"[^/].*:.*@", re.DOTALL)  # user:password@host:port; what begins with / is a path
_ARGUMENTS = re.compile(r"(?<=\?).*", re.DOTALL)


def hide(value: Any) -> Any:
    """The value of any option, with HIDDEN in place of secrets. Rather too much is hidden than too little."""
    if isinstance(value, tuple | list):
        return type(value)(map(hide, value))
    if not isinstance(value, str):
        return value
    scheme, is_url, rest = value.partition("://")
    if is_url:
        login, _, address = rest.rpartition("@")  # the last one: an odd password may hold anything
        if "?" in login:  # the @ may as well stand in a secret argument
            return f"{scheme}://{HIDDEN}"
        value = f"{scheme}://{HIDDEN}@{address}" if login else value
    elif _LOGIN.match(value):
        value = _LOGIN.sub(f"{HIDDEN}@", value)
    return _ARGUMENTS.sub(HIDDEN, value, count=1)
