"""Options of a program, each declared once: a dataclass field is flag, TOML key, environment name and help.

    @dataclass(frozen=True, slots=True)
    class TailOptions:
        topic: tuple[str, ...] = option((), "NSQ topic (may be given multiple times)")
        max_in_flight: int = option(200, "max number of messages to allow in flight")

    options = parse(TailOptions, "nsq_tail", sys.argv[1:], os.environ)

Flags follow Go's flag package (specs/nsq.md e1): `-x v`, `-x=v`, `--x`; a bool takes a value only after `=`; parsing stops at
the first word that is no flag. Precedence: flag > environment (`NSQ_TAIL_MAX_IN_FLIGHT`) > default.
A class attribute NOT_YET may name flags that are NSQ's but not there yet: the error says so.
Errors are `OptionError`, one clear line; `-help` is `HelpRequested` with the text. Nothing here prints or exits.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NewType, TypeVar, get_type_hints

Duration = NewType("Duration", int)  # nanoseconds

MILLISECOND, SECOND = 1_000_000, 1_000_000_000  # ns
_UNITS = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": MILLISECOND, "s": SECOND, "m": 60 * SECOND, "h": 3600 * SECOND}
_DURATION_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|ms|s|m|h)")
_TRUE = ("1", "t", "T", "true", "TRUE", "True")
_FALSE = ("0", "f", "F", "false", "FALSE", "False")

T = TypeVar("T")


class OptionError(Exception):
    """The user's fault: one line that says what is wrong. The program exits 2."""


class HelpRequested(Exception):
    """-h or -help was given; the argument is the usage text."""


def option(default: Any, help: str, *, flag: str = "", key: str = "", check: Callable[[Any], str] | None = None) -> Any:
    """A dataclass field that is an option. `flag` and `key` default to the field's name (with `-` and `_`).

    `check` gets the parsed value and returns what is wrong with it, or "".
    """
    return field(default=default, metadata={"help": help, "flag": flag, "key": key, "check": check})


@dataclass(frozen=True, slots=True)
class Spec:
    """One option as everything else sees it."""

    name: str  # the dataclass field
    flag: str  # without dashes
    key: str  # in a TOML file and in /config/<key>
    environment: str
    type: Any
    default: Any
    help: str
    check: Callable[[Any], str] | None


def specs(cls: type, program: str) -> list[Spec]:
    """The options of a dataclass, in the order of declaration."""
    hints = get_type_hints(cls)
    found = []
    for f in dataclasses.fields(cls):
        if "help" not in f.metadata:
            continue
        flag = f.metadata["flag"] or f.name.replace("_", "-")
        key = f.metadata["key"] or flag.replace("-", "_")
        environment = f"{program}_{flag}".upper().replace("-", "_")
        found.append(
            Spec(f.name, flag, key, environment, hints[f.name], f.default, f.metadata["help"], f.metadata["check"])
        )
    return found


def parse(cls: type[T], program: str, argv: Sequence[str], environ: Mapping[str, str]) -> T:
    """Read flags and environment into the dataclass `cls`.

    Raises OptionError for an unknown flag or a bad value, HelpRequested for -h and -help.
    """
    known = specs(cls, program)
    values: dict[str, Any] = {}
    for spec in known:
        if spec.environment in environ and spec.name != "version":  # images set NSQD_VERSION=1.3.0
            values[spec.name] = _value(spec, environ[spec.environment], f"environment variable {spec.environment}")
    lists: dict[str, tuple[str, ...]] = {}
    by_flag = {spec.flag: spec for spec in known}
    for flag, text in _split(argv, by_flag, cls, program):
        spec = by_flag[flag]
        if spec.type == tuple[str, ...]:  # a repeated flag adds; the environment's list is replaced
            values[spec.name] = lists[spec.name] = (*lists.get(spec.name, ()), text)
            _check(spec, lists[spec.name], text, f"flag -{flag}")
        else:
            values[spec.name] = _value(spec, text, f"flag -{flag}")
    return cls(**values)


def _split(argv: Sequence[str], by_flag: Mapping[str, Spec], cls: type, program: str) -> list[tuple[str, str]]:
    """Words into (flag, value) pairs, as Go's flag package reads them."""
    pairs = []
    words = iter(argv)
    for word in words:
        if len(word) < 2 or not word.startswith("-"):
            break  # the rest is silently ignored, as by the original
        if word == "--":
            break
        name, equals, text = word.removeprefix("-").removeprefix("-").partition("=")
        if not name or name.startswith("-"):
            raise OptionError(f"bad flag syntax: {word}")
        if name not in by_flag:
            if name in ("h", "help"):
                raise HelpRequested(usage(cls, program))
            if name in getattr(cls, "NOT_YET", ()):
                raise OptionError(f"flag -{name} is NSQ's, but not in this version yet (see docs/differences.md)")
            raise OptionError(f"flag provided but not defined: -{name} ({program} -help lists the flags)")
        if not equals:
            if by_flag[name].type is bool:
                text = "true"
            else:
                following = next(words, None)
                if following is None:
                    raise OptionError(f"flag needs an argument: -{name}")
                text = following
        pairs.append((name, text))
    return pairs


def _value(spec: Spec, text: str, source: str) -> Any:
    try:
        value = parse_text(spec.type, text)
    except ValueError as error:
        raise OptionError(f'invalid value "{text}" for {source}: {error}') from None
    _check(spec, value, text, source)
    return value


def _check(spec: Spec, value: Any, text: str, source: str) -> None:
    wrong = spec.check(value) if spec.check else ""
    if wrong:
        raise OptionError(f'invalid value "{text}" for {source}: {wrong}')


def parse_text(kind: Any, text: str) -> Any:
    """One value in Go's syntax. Raises ValueError with a reason."""
    if kind is bool:
        if text in _TRUE or text in _FALSE:
            return text in _TRUE
        raise ValueError("want true or false")
    if kind is int:
        return parse_int(text)
    if kind is float:
        try:
            return float(text)
        except ValueError:
            raise ValueError("want a number") from None
    if kind is Duration:
        return parse_duration(text)
    if kind == tuple[str, ...]:
        return tuple(part.strip() for part in text.split(",") if part.strip())
    return text


def parse_int(text: str) -> int:
    """A Go integer literal: decimal, 0x, 0o, 0b, or octal by a leading 0. Within 64 bits."""
    if text != text.strip():
        raise ValueError("want an integer")
    plain = text.lstrip("+-")
    base = 8 if re.fullmatch(r"0[0-7]+", plain) else 0
    try:
        value = int(text, base)
    except ValueError:
        raise ValueError("want an integer") from None
    if not -(2**63) <= value < 2**63:
        raise ValueError("value out of range")
    return value


def parse_duration(text: str) -> Duration:
    """A Go duration ("250ms", "1m30s", "0") in ns."""
    sign = -1 if text.startswith("-") else 1
    rest = text[1:] if text.startswith(("-", "+")) else text
    if rest == "0":
        return Duration(0)
    position, total = 0, 0.0
    while match := _DURATION_PART.match(rest, position):
        number, unit = match[1], match[2]
        total += int(number) * _UNITS[unit] if number.isdigit() else float(number) * _UNITS[unit]
        position = match.end()
    if position == 0 or position != len(rest):
        raise ValueError('want a duration such as "250ms", "1m30s" or "1h"')
    if total >= 2**63:
        raise ValueError("value out of range")
    return Duration(sign * round(total))


def format_duration(ns: int) -> str:
    """A duration as Go prints it: 1h0m0s, 1m30s, 250ms, 1.5s, 0s."""
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


def usage(cls: type, program: str) -> str:
    """The text of -help: every flag with type, meaning, default and environment name."""
    lines = [f"Usage of {program}:"]
    for spec in sorted(specs(cls, program), key=lambda s: s.flag):
        kind = _type_name(spec.type)
        lines.append(f"  -{spec.flag} {kind}".rstrip())
        default = _default_text(spec)
        lines.append(f"    \t{spec.help}{default} [${spec.environment}]")
    return "\n".join(lines) + "\n"


def _type_name(kind: Any) -> str:
    if kind is bool:
        return ""
    if kind == tuple[str, ...]:
        return "value"
    return {int: "int", float: "float", str: "string"}.get(kind, "duration")


def _default_text(spec: Spec) -> str:
    if spec.default in ("", (), False):
        return ""
    if spec.type is Duration:
        return f" (default {format_duration(spec.default)})"
    return f' (default "{spec.default}")' if spec.type is str else f" (default {spec.default})"
