"""The config file of a daemon: NSQ's, in TOML, with the coercions of NSQ's reader.

Integers may be text; durations are Go text or integer milliseconds; lists are arrays or text with commas. Bools may be
text, and an integer for a bool is inverted (0 is true). A number for text or for a list, and an array of the wrong
things, is an error here: NSQ misreads such values or answers with a stack trace.

See docs/contributing/design/nsq-programs.md#configuration-file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from shared.options import OptionError, SourceValues, Spec, nearest
from shared.values import MILLISECOND, Duration, in_64_bits, parse_text

MAX_SIZE = 1024 * 1024  # bytes: NSQ's own example has 3 KiB
_SHOWN = 100  # characters of a wrong value
_DECIMAL = re.compile(r"[+-]?[0-9]{1,30}")  # the original accepts no 0x here, although flags do


def read_file(path: str, known: Sequence[Spec]) -> SourceValues:
    """Read the options `known` from the file. All errors and warnings are in the result."""
    try:
        table = _load(path)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        return SourceValues({}, errors=[OptionError(f"failed to load config file {path} - {reason}", code=1)])
    by_key = {spec.key: spec for spec in known if spec.in_file}
    values, errors, warnings = {}, [], []
    for key, found in table.items():
        if key not in by_key:
            warnings.append(f"config file {path}: {_unknown(key, found, known)}")
            continue
        spec = by_key[key]
        try:
            values[spec.name] = spec.checked(_coerce(spec, found))
        except ValueError as error:
            line = f"config file {path}: invalid value {_shown(found)} for {key}: {error}"
            errors.append(OptionError(line, code=1))
        if spec.type is bool and type(found) is int:
            meant = str(found == 0).lower()
            warnings.append(f"config file {path}: {key} = {found} means {meant}, as NSQ reads it: write {meant}")
    return SourceValues(values, warnings, errors)


def _load(path: str) -> dict[str, Any]:
    """Return the table in the file. Raises OSError, or ValueError with a reason of one line."""
    with open(path, "rb") as file:
        data = file.read(MAX_SIZE + 1)
    if len(data) > MAX_SIZE:
        raise ValueError(f"larger than {MAX_SIZE} bytes")
    import tomllib

    try:
        return tomllib.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ValueError(f"invalid UTF-8 byte 0x{data[error.start]:02x} (at line {line})") from None
    except RecursionError:
        raise ValueError("nested too deep") from None


def _coerce(spec: Spec, found: object) -> Any:
    """Convert a TOML value to the option's type. Raises ValueError with a reason."""
    if spec.read:
        return spec.read(_go_text(found))
    if spec.type is bool and type(found) is int:
        return found == 0
    if spec.type is int:
        return _integer(found)
    if spec.type is Duration and type(found) is int:
        return Duration(in_64_bits(found * MILLISECOND))
    if spec.type == tuple[str, ...] and isinstance(found, list):
        return _all_of(found, (str,), "expected an array of strings")
    if spec.type == tuple[float, ...] and isinstance(found, list):
        return tuple(map(float, _all_of(found, (float, int), "expected an array of numbers")))
    if type(found) is spec.type:
        return found
    if isinstance(found, str):
        return parse_text(spec.type, found)
    raise ValueError(f"expected {_WANTED[spec.type]}")


_WANTED = {
    bool: "true or false",
    str: "a string",
    float: "a number",
    Duration: 'a duration such as "250ms", or integer milliseconds',
    tuple[str, ...]: "an array of strings",
    tuple[float, ...]: "an array of numbers",
}


def _integer(found: object) -> int:
    if isinstance(found, str) and _DECIMAL.fullmatch(found):
        return in_64_bits(int(found))
    if type(found) is not int:
        raise ValueError("expected an integer")
    return in_64_bits(found)


def _all_of(found: list[Any], kinds: tuple[type, ...], wanted: str) -> tuple[Any, ...]:
    if not all(type(item) in kinds for item in found):
        raise ValueError(wanted)
    return tuple(found)


def _go_text(found: object) -> str:
    """Return a scalar as Go prints it with %v, which is how NSQ reads tls_required, tls_min_version and log_level."""
    if isinstance(found, bool):
        return str(found).lower()
    if isinstance(found, float):
        return f"{found:g}"
    if isinstance(found, str | int):
        return str(found)
    raise ValueError("expected a string")


def _unknown(key: str, found: object, known: Sequence[Spec]) -> str:
    """Return the warning for an unknown key, with the option that was probably meant."""
    if _is_section(found):
        return f"section {_shown(key)} is ignored, with all that is in it: NSQ's file has no sections"
    meant = nearest(key, known)
    if meant is None:
        return f"unknown key {_shown(key)}"
    if key == meant.key:
        return f"{key} is for the command line only"
    return f"unknown key {_shown(key)}: did you mean {meant.key}?"


def _is_section(found: object) -> bool:
    """Return True for a value that comes from a section [x] or [[x]]."""
    return isinstance(found[0] if isinstance(found, list) and found else found, dict)


def _shown(found: object) -> str:
    """Return a value for a message: on one line, and not too long."""
    text = str(found).lower() if isinstance(found, bool) else repr(found)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
