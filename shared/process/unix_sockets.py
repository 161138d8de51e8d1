"""Unix sockets: the path, mode and owner that an address asks for, and the user at the other end of a connection.

    unix:/run/nsqd/tcp.sock
    unix:/run/nsqd/tcp.sock?mode=660&group=sidecars

This file uses no event loop. An invalid address is a ValueError with a reason.
"""

from __future__ import annotations

import os
import re
import socket
import stat
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

PREFIX = "unix:"
BY_UMASK = -1  # the mode that the umask of the process leaves, as for every file
NOBODY = -1  # the user of a connection whose user the system does not report; no user has this number
MOST_ID = 2**32 - 2  # the greatest number of a user or a group
_KEYS = ("mode", "user", "group")
_MODE = re.compile(r"0?[0-7]{3}")
_ID = re.compile(r"[0-9]{1,10}")
_CREDENTIALS = struct.Struct("iII")  # Linux: process, user, group


@dataclass(frozen=True, slots=True)
class UnixAddress:
    """A unix socket to listen on."""

    path: str
    mode: int = BY_UMASK
    user: int = -1  # the owner; -1: the user that runs the daemon
    group: int = -1  # -1: the group of that user


def is_unix_address(text: str) -> bool:
    """Return whether an address is written with `unix:`. A host may have that name: then only a number follows."""
    return text.startswith(PREFIX) and not text.removeprefix(PREFIX).isdecimal()


def parse_unix_address(text: str) -> UnixAddress:
    """Parse an address that begins with `unix:`, and look up the user and the group that it names. Raises ValueError."""
    path, _, query = text.removeprefix(PREFIX).partition("?")
    if "/" not in path or path.endswith("/"):
        raise ValueError("expected unix:/path")
    values: dict[str, str] = {}
    for pair in query.split("&") if query else ():
        key, _, value = pair.partition("=")
        if key not in _KEYS:
            raise ValueError(f"unknown key {key!r}: expected {', '.join(_KEYS)}")
        if key in values:
            raise ValueError(f"{key} is given twice")
        values[key] = value
    return UnixAddress(
        path,
        _mode(values["mode"]) if "mode" in values else BY_UMASK,
        user_number(values["user"]) if "user" in values else -1,
        _group_number(values["group"]) if "group" in values else -1,
    )


def _mode(text: str) -> int:
    if not _MODE.fullmatch(text):
        raise ValueError(f"mode {text!r}: expected three octal digits, such as 660")
    return int(text, 8)


def user_number(name: str) -> int:
    """Return the number of a user by name or number. Raises ValueError if this machine does not know the name."""
    from pwd import getpwnam

    return _number("user", name, lambda: getpwnam(name).pw_uid)


def _group_number(name: str) -> int:
    from grp import getgrnam

    return _number("group", name, lambda: getgrnam(name).gr_gid)


def _number(what: str, name: str, look_up: Callable[[], int]) -> int:
    if _ID.fullmatch(name):
        if int(name) > MOST_ID:
            raise ValueError(f"invalid {what} {name}")
        return int(name)
    try:
        return look_up()
    except (KeyError, ValueError):  # ValueError: a NUL in the name, or characters that have no bytes
        raise ValueError(f"unknown {what} {name!r}") from None


def bind_unix(address: UnixAddress) -> socket.socket:
    """Return a non-blocking socket, bound to the path with the mode and the owner. It does not listen yet.

    A socket file that a killed daemon has left is removed. Raises OSError, and then leaves no file.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_stale(address.path)
        sock.setblocking(False)
        if address.mode == BY_UMASK:
            sock.bind(address.path)
        else:
            _bind_with_mode(sock, address)
        if (address.user, address.group) != (-1, -1):
            _set_owner(address)
    except BaseException:
        sock.close()
        raise
    return sock


def _bind_with_mode(sock: socket.socket, address: UnixAddress) -> None:
    """Bind under the mask that makes the file with its mode: chmod might change another file of this name."""
    before = os.umask(0o777 & ~address.mode)
    try:
        sock.bind(address.path)
    finally:
        os.umask(before)


def _set_owner(address: UnixAddress) -> None:
    try:
        os.chown(address.path, address.user, address.group, follow_symlinks=False)
    except OSError:
        os.unlink(address.path)
        raise


def _remove_stale(path: str) -> None:
    """Remove a socket file without a listener, whose daemon was killed. Any other file stays, and bind fails."""
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            return
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)  # s; connecting to a live one takes microseconds, unless its backlog is full
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
        except OSError:
            return  # a full backlog, or no permission: there may be a listener, and bind will fail


class HasOptions(Protocol):
    """A socket of any library."""

    def getsockopt(self, level: int, option: int, size: int, /) -> bytes: ...


def peer_user(sock: HasOptions) -> int:
    """Return the number of the user at the other end of a unix socket; NOBODY if the system does not report it."""
    option = getattr(socket, "SO_PEERCRED", None)  # only Linux has it
    if option is None:
        return NOBODY
    try:
        found = sock.getsockopt(socket.SOL_SOCKET, option, _CREDENTIALS.size)
    except OSError:  # the connection is closed
        return NOBODY
    user: int = _CREDENTIALS.unpack(found)[1]
    return user if user <= MOST_ID else NOBODY
