"""The declaration of an argument in a query: its parsing, its errors, the reference and the tests of bad values follow from it.

An argument without a default is required: 400 MISSING_ARG_NAME. A bad value is answered with 400 INVALID_ARG_NAME, unless the
declaration has another text.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from keyword import iskeyword
from typing import Any, TypeVar

from penstock.protocol.names import is_valid_name
from shared.http.errors import HttpError
from shared.values import format_duration, parse_duration, whole_number

T = TypeVar("T")
REQUIRED: Any = object()  # in place of a default
MOST_DIGITS = 19  # of a number without a bound of its own
_LONGEST = (1 << 63) - 1  # ns: Go's longest duration


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a route: its name, its reader, and its default."""

    name: str
    read: Callable[[str], Any]  # returns the value that a text means, and raises ValueError for a bad one
    default: Any = REQUIRED
    expected: str = ""  # the values that are allowed, as the reference shows them; "": any text
    invalid: str = ""  # the error for a bad value; "": INVALID_ARG_NAME

    @property
    def keyword(self) -> str:
        """Return the name of the handler's parameter: `from_` and `min_`, because `from` and `min` mean something in Python."""
        return f"{self.name}_" if iskeyword(self.name) or hasattr(builtins, self.name) else self.name

    def value_in(self, query: Mapping[str, str]) -> Any:
        """Return the value in a query. Raises HttpError 400."""
        text = query.get(self.name)
        if text is None:
            if self.default is REQUIRED:
                raise HttpError(400, f"MISSING_ARG_{self.name.upper()}")
            return self.default
        try:
            return self.read(text)
        except ValueError:
            raise HttpError(400, self.invalid or f"INVALID_ARG_{self.name.upper()}") from None


def values_in(query: Mapping[str, str], declared: Iterable[Argument]) -> dict[str, Any]:
    """Return the values of arguments by the names of the handler's parameters. Raises HttpError 400 for the first bad one."""
    return {one.keyword: one.value_in(query) for one in declared}


def any_text(name: str, default: Any = REQUIRED) -> Argument:
    """Declare a text that the handler looks at, or that names something that may exist or not."""
    return Argument(name, str, default)


def short_text(name: str, most: int, default: Any = REQUIRED, is_printable: bool = False) -> Argument:
    """Declare a text of at most `most` characters, all of them printable if it must be."""

    def read(text: str) -> str:
        return _checked(text, len(text) <= most and (text.isprintable() or not is_printable))

    return Argument(name, read, default, f"up to {most} {'printable ' if is_printable else ''}characters")


def legal_name(name: str, default: Any = REQUIRED, invalid: str = "") -> Argument:
    """Declare the name of a topic, a channel or a cursor, which must be legal."""
    return Argument(name, lambda text: _checked(text, is_valid_name(text)), default, "a name", invalid)


def bounded(name: str, most: int, default: Any = REQUIRED, least: int = 0, invalid: str = "") -> Argument:
    """Declare a number from `least` to `most`."""
    return Argument(name, lambda text: whole_number(text, least, most), default, f"{least} to {most}", invalid)


def choice(name: str, values: Mapping[str, Any], default: Any = REQUIRED) -> Argument:
    """Declare one of several words; `values` has what each means."""

    def read(text: str) -> Any:
        return _checked(values.get(text), text in values)

    *words, last = values
    return Argument(name, read, default, f"{', '.join(words)} or {last}" if words else last)


def flag(name: str, true: tuple[str, ...]) -> Argument:
    """Declare a switch that these words turn on; any other text is off, as in NSQ."""
    return Argument(name, true.__contains__, False)


def listed(name: str, read: Callable[[str], Any], most: int, each: str, invalid: str = "") -> Argument:
    """Declare at most `most` values, separated by commas, without repetitions; [] without the argument."""

    def read_all(text: str) -> list[Any]:
        words = text.split(",")
        return list(dict.fromkeys(map(read, _checked(words, len(words) <= most))))

    return Argument(name, read_all, [], f"up to {most} {each}, separated by commas", invalid)


def number(text: str) -> int:
    """Return a whole number of at most MOST_DIGITS digits. Raises ValueError."""
    return whole_number(text, 0, 10**MOST_DIGITS - 1)


def duration(name: str, default: Any = REQUIRED, least: int = 0, most: int = _LONGEST) -> Argument:
    """Declare a duration in Go's syntax, from `least` to `most` ns."""

    def read(text: str) -> int:
        value = parse_duration(text)
        return _checked(value, least <= value <= most)

    bound = "" if most == _LONGEST else f" up to {format_duration(most)}"
    return Argument(name, read, default, f"a duration{bound}")


def _checked(value: T, is_valid: bool) -> T:
    if not is_valid:
        raise ValueError("not a value of the argument")
    return value
