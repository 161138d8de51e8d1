"""Checks of option values. A check takes a value and returns an error, or ""; some functions make a check.

No check opens a connection or asks another process; checks look at the file system only.
"""

import os
import re
import stat
from collections.abc import Callable, Iterable
from typing import Any

from shared.log import LEVELS
from shared.process.listen import ListenError, parse_address
from shared.process.unix_sockets import UnixAddress
from shared.secrets import hide
from shared.values import format_duration

_WANTED = "expected <addr>:<port>"


def at_least(least: int) -> Callable[[int], str]:
    """Return a check that a number is not below `least`."""
    return lambda value: f"expected {least} or more" if value < least else ""


def min_duration(least: int) -> Callable[[int], str]:
    """Return a check that a duration (ns) is not below `least`."""
    wanted = format_duration(least) if least else "0"
    return lambda value: f"expected {wanted} or more" if value < least else ""


def between(least: int, most: int) -> Callable[[int], str]:
    """Return a check that a number is within bounds, both included."""
    return lambda value: "" if least <= value <= most else f"expected {least} to {most}"


def read_word(*known: str) -> Callable[[str], str]:
    """Return a reader (not a check) of one of the known texts, in any case. It returns lower case, and raises ValueError."""

    def read(text: str) -> str:
        if text.lower() not in known:
            raise ValueError(f"expected one of {', '.join(known)}")
        return text.lower()

    return read


read_level = read_word(*LEVELS)


# Checks that run after all options are read: warnings, and reasons not to start


def complaints(flag: str, values: Iterable[Any], check: Callable[[Any], str]) -> list[str]:
    """Return a line for each value that the check complains about, with secrets hidden."""
    return [f"--{flag} {hide(value)!r}: {wrong}" for value in values if (wrong := check(value))]


def obstructed(address: str) -> str:
    """Return an error if nothing can be bound to the address, as far as that shows without trying."""
    try:
        path = parse_address(address).path
    except ListenError as error:
        return error.why
    return missing_directory(os.path.dirname(path)) if path else ""


def accidental_path(address: str) -> str:
    """Return a warning if an address to listen on is a bare word, which becomes a unix socket in the working directory."""
    try:
        path = parse_address(address).path
    except ListenError:  # `obstructed` reports this
        return ""
    return f"used as the path of a unix socket: {_WANTED}" if path and "/" not in path else ""


def require_address(addresses: tuple[str, ...]) -> str:
    """Check that there is an address to listen on."""
    return "" if addresses else "missing address"


def metrics_problems(metrics_auth: bool, auth_file: str) -> list[str]:
    """Return an error if /metrics needs the rights of an auth file, and there is none."""
    return (
        ["--metrics-auth needs --auth-file, which grants the right to see stats"]
        if metrics_auth and not auth_file
        else []
    )


def not_dialable(address: str) -> str:
    """Check an address to connect to: host and port, or the path of a unix socket."""
    if address.startswith(("/", "./", "../")):
        return ""
    try:
        unix = parse_address(address).unix
    except ListenError:  # `no_host_port` reports this
        unix = None
    if unix is None:
        return no_host_port(address)
    return "" if unix == UnixAddress(unix.path) else "mode and owner are for addresses to listen on"


def no_host_port(address: str) -> str:
    """Check an address to connect to over TCP. Without a host it means this machine."""
    try:
        port = parse_address(address).port  # parse_address returns 0 for a path
    except ListenError as error:
        return error.why if hide(address) == address else _WANTED  # the reason may quote half of a password
    return "" if port else _WANTED


def no_url(text: str) -> str:
    """Check the URL of an HTTP server."""
    return (
        ""
        if re.fullmatch(r"https?://(\[[0-9a-f:]+\]|[^/?#\s\[\]]+)(:\d+)?(/[^?#\s]*)?", text)
        else "not as http://host:4318"
    )


def no_port(number: int) -> str:
    """Check a port that is announced to others. 0 means that none is given."""
    return "" if 0 <= number <= 65535 else "not a valid port: clients cannot connect to it"


def no_place_for_file(path: str) -> str:
    """Check that a file can be in the directory that its path names."""
    return missing_directory(os.path.dirname(path))


def missing_directory(path: str) -> str:
    """Check that a directory exists; "" is the working directory."""
    try:
        mode = os.stat(path or ".").st_mode
    except OSError as error:
        return f"must be a directory that exists: {error.strerror or error}".lower()
    except ValueError:  # its own words differ between versions of Python
        return "must be a directory that exists: embedded null byte"
    return "" if stat.S_ISDIR(mode) else "must be a directory that exists: not a directory"
