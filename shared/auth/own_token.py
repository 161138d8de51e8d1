"""The token that this process shows to the other daemons: nsqd to nsqlookupd and other nodes, nsqadmin to all of them.

A process has one, from its start on, so it is kept here and not passed through every call.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from urllib.parse import urlsplit

from shared.auth.tokens import is_token
from shared.files import public_problem, without_waiting

MOST_BYTES = 1024
_own = [""]  # the token; "": none is shown
_hosts: list[re.Pattern[str]] = []  # host:port to which requests show it whose addresses come from others
_OF_ADDRESSES = re.compile(r"[0-9.*]+")  # patterns of IPv4 addresses


class OwnTokenError(ValueError):
    """The file has no token. The text says why, without quoting it."""


def read_token(path: str) -> str:
    """Return the token in a file; "" if `path` is "". Raises OSError, OwnTokenError."""
    if not path:
        return ""
    token = read_secret(path)
    if not is_token(token):
        raise OwnTokenError("it has no token: penstock auth token create prints one")
    return token.decode()


def read_secret(path: str) -> bytes:
    """Return the start of a file that not all users can read, without spaces around it. Raises OSError, OwnTokenError."""
    with open(path, "rb", opener=without_waiting) as file:
        wrong = public_problem(os.fstat(file.fileno()))
        if wrong:
            raise OwnTokenError(wrong)
        return file.read(MOST_BYTES).strip()


def use_token_of(path: str) -> None:
    """Show the token in this file from now on; "": show none. Raises OSError, OwnTokenError."""
    use_token(read_token(path))


def use_token(token: str) -> None:
    """Show this token from now on; "": show none."""
    _own[0] = token


def own_token() -> str:
    """Return the token; "": there is none."""
    return _own[0]


def show_to(patterns: Iterable[str]) -> None:
    """Let `headers_for` show the token to these hosts: patterns of host:port.

    In a host `*` stands for a part of one label, and in an IP address for one number: 10.0.0.* is no pattern of
    10.0.0.1.example.com. In a port it stands for any digits.
    """
    _hosts[:] = [re.compile(_expression(pattern)) for pattern in patterns]


def headers_for(url: str) -> dict[str, str]:
    """Return the same as `headers` for a URL of one of the hosts of `show_to`; else nothing.

    Any daemon that may register at nsqlookupd announces an address, and would be sent the token.
    """
    place = urlsplit(url).netloc.rpartition("@")[2]
    return headers() if any(pattern.fullmatch(place) is not None for pattern in _hosts) else {}


def _expression(pattern: str) -> str:
    host, colon, port = pattern.rpartition(":")
    part = "[0-9]+" if _OF_ADDRESSES.fullmatch(host) else "[^.:/@]*"
    return re.escape(host).replace(r"\*", part) + re.escape(colon) + re.escape(port).replace(r"\*", "[0-9]*")


def headers() -> dict[str, str]:
    """Return the headers by which a request over HTTP shows the token."""
    return {"Authorization": f"Bearer {_own[0]}"} if _own[0] else {}
