"""What may be wrong with the value of an option. Each function is or makes a check: value in, what is wrong with it out, or "".

No check opens or asks anything but the file system.
"""

import os
import stat
from collections.abc import Callable, Iterable
from typing import Any

from shared.listen import ListenError, parse_address
from shared.log import LEVELS
from shared.secrets import hide
from shared.values import format_duration

_WANTED = "want <addr>:<port>"


def at_least(least: int) -> Callable[[int], str]:
    """A number that is not too small."""
    return lambda value: f"want {least} or more" if value < least else ""


def lasts(least: int) -> Callable[[int], str]:
    """A duration that is not too short, in ns."""
    wanted = format_duration(least) if least else "0"
    return lambda value: f"want {wanted} or more" if value < least else ""


def between(least: int, most: int) -> Callable[[int], str]:
    """A number within bounds, both included."""
    return lambda value: "" if least <= value <= most else f"want {least} to {most}"


def read_word(*known: str) -> Callable[[str], str]:
    """A reader (not a check) of one of some words, in any case: the word in lower case, or ValueError."""

    def read(text: str) -> str:
        if text.lower() not in known:
            raise ValueError(f"want one of {', '.join(known)}")
        return text.lower()

    return read


read_level = read_word(*LEVELS)


# What no option is refused for when it is read: what is odd about it, or forbids a start


def complaints(flag: str, values: Iterable[Any], check: Callable[[Any], str]) -> list[str]:
    """A line for each value that the check has something against. Secrets are hidden."""
    return [f"--{flag} {hide(value)!r}: {wrong}" for value in values if (wrong := check(value))]


def obstructed(address: str) -> str:
    """Why nothing can be bound there, as far as it shows without trying."""
    try:
        path = parse_address(address).path
    except ListenError as error:
        return error.why
    return missing_directory(os.path.dirname(path)) if path else ""


def accidental_path(address: str) -> str:
    """Where to listen: a word without a port is a unix socket in the working directory, which is seldom meant."""
    try:
        path = parse_address(address).path
    except ListenError:  # an obstacle
        return ""
    return f"taken for the path of a unix socket: {_WANTED}" if path and "/" not in path else ""


def not_dialable(address: str) -> str:
    """Whom to connect to over TCP, or by the path of a unix socket."""
    return "" if address.startswith(("/", "./", "../")) else no_host_port(address)


def no_host_port(address: str) -> str:
    """Whom to connect to; no host is this one."""
    try:
        port = parse_address(address).port  # 0 for a path
    except ListenError as error:
        return error.why if hide(address) == address else _WANTED  # a reason may quote half a password
    return "" if port else _WANTED


def no_port(number: int) -> str:
    """A port that others are told; 0 is none given."""
    return "" if 0 <= number <= 65535 else "no port: nobody can connect to it"


def missing_directory(path: str) -> str:
    """A directory that must exist; "" is the working directory."""
    try:
        mode = os.stat(path or ".").st_mode
    except (OSError, ValueError) as error:  # ValueError: a NUL
        return f"must be a directory that exists: {getattr(error, 'strerror', None) or error}".lower()
    return "" if stat.S_ISDIR(mode) else "must be a directory that exists: not a directory"
