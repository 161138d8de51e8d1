"""The values of options as text, in Go's syntax: bool, int, float, duration, and lists of text or floats.

Pure. Every reader raises ValueError with a reason that fits behind "invalid value: ".
"""

from __future__ import annotations

import re
from typing import Any, NewType

Duration = NewType("Duration", int)  # nanoseconds

MILLISECOND, SECOND = 1_000_000, 1_000_000_000  # ns
_UNITS = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": MILLISECOND, "s": SECOND, "m": 60 * SECOND, "h": 3600 * SECOND}
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h)")
_TRUE = ("1", "t", "T", "true", "TRUE", "True")
_FALSE = ("0", "f", "F", "false", "FALSE", "False")


def parse_text(kind: Any, text: str) -> Any:
    """Return one value of the type `kind`; for any type other than those above, the text itself."""
    if kind is bool:
        if text in _TRUE or text in _FALSE:
            return text in _TRUE
        raise ValueError("expected true or false")
    if kind is int:
        return parse_int(text)
    if kind is float:
        try:
            return float(text)
        except ValueError:
            raise ValueError("expected a number") from None
    if kind is Duration:
        return parse_duration(text)
    if kind == tuple[str, ...]:
        return tuple(part.strip() for part in text.split(",") if part.strip())
    if kind == tuple[float, ...]:
        return tuple(parse_text(float, part.strip()) for part in text.split(","))
    return text


def parse_int(text: str) -> int:
    """Read a Go integer literal of 64 bits: decimal, 0x, 0o, 0b, or octal with a leading 0."""
    if text != text.strip():
        raise ValueError("expected an integer")
    plain = text.lstrip("+-")
    base = 8 if re.fullmatch(r"0[0-7]+", plain) else 0
    try:
        value = int(text, base)
    except ValueError:
        raise ValueError("expected an integer") from None
    return in_64_bits(value)


def whole_number(text: str, least: int, most: int) -> int:
    """Return the number from `least` to `most`, neither negative, that decimal digits without a sign mean.

    Raises ValueError. A text longer than the digits of `most` is refused without reading it.
    """
    if text.isascii() and text.isdigit() and len(text) <= len(str(most)) and least <= int(text) <= most:
        return int(text)
    raise ValueError(f"expected a whole number from {least} to {most}")


def in_64_bits(value: int) -> int:
    """Return the value, if Go's int64 holds it. Raises ValueError."""
    if not -(2**63) <= value < 2**63:
        raise ValueError("value out of range")
    return value


def parse_duration(text: str) -> Duration:
    """Read a Go duration ("250ms", "1m30s", "0") as ns. As in Go, fractions of a nanosecond are cut off, part by part."""
    sign = -1 if text.startswith("-") else 1
    rest = text[1:] if text.startswith(("-", "+")) else text
    if rest == "0":
        return Duration(0)
    position, total = 0, 0
    while match := _DURATION_PART.match(rest, position):
        whole, _, part = match[1].partition(".")
        part = part[:18]  # no unit has more than 14 digits
        unit = _UNITS[match[2]]
        total += int(whole.lstrip("0")[:20] or "0") * unit + int(part or "0") * unit // 10 ** len(part)
        position = match.end()
    if position == 0 or position != len(rest):
        raise ValueError('expected a duration such as "250ms", "1m30s" or "1h"')
    return Duration(in_64_bits(sign * total))


def format_duration(ns: int) -> str:
    """Return a duration as Go prints it: 1h0m0s, 1m30s, 250ms, 1.5s, 0s."""
    if ns < 0:
        return "-" + format_duration(-ns)
    if ns == 0:
        return "0s"
    if ns < SECOND:
        unit = next(u for u in ("ms", "µs", "ns") if ns >= _UNITS[u])
        return f"{_trim(ns, _UNITS[unit])}{unit}"
    minutes, rest = divmod(ns, 60 * SECOND)
    hours, minutes = divmod(minutes, 60)
    text = f"{_trim(rest, SECOND)}s"
    if hours or minutes:
        text = f"{minutes}m{text}"
    return f"{hours}h{text}" if hours else text


def _trim(ns: int, unit: int) -> str:
    whole, rest = divmod(ns, unit)
    if not rest:
        return str(whole)
    return f"{whole}." + str(rest).rjust(len(str(unit)) - 1, "0").rstrip("0")
