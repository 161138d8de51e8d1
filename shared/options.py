"""Options of a program, each declared once: a dataclass field is flag, TOML key, environment variable and help.

@dataclass(frozen=True, slots=True)
class TailOptions:
    topic: tuple[str, ...] = option((), "NSQ topic (may be given multiple times)")
    max_in_flight: int = option(200, "max number of messages to allow in flight")

options = parse(TailOptions, "nsq_tail", sys.argv[1:], os.environ)  # shared/configuration.py
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_type_hints

from shared.values import parse_text

_COMPARED = 100  # characters of an unknown name that are compared with names


class OptionError(Exception):
    """An error of the user: one line that says what is wrong, and the exit code.

    The code is 2 for flags and environment, and 1 for the config file and for errors that only the combination of all
    options shows, as in NSQ.
    """

    def __init__(self, line: str, code: int = 2) -> None:
        super().__init__(line)
        self.code = code


class InstantiationError(OptionError):
    """An error that only the combination of options shows. NSQ then says that it failed to instantiate the daemon."""

    def __init__(self, line: str) -> None:
        super().__init__(line, code=1)


def option(
    default: Any,
    help: str,
    *,
    flag: str = "",
    key: str = "",
    check: Callable[[Any], str] | None = None,
    read: Callable[[str], Any] | None = None,
    bool_style: bool = False,
    in_file: bool = True,
) -> Any:
    """Return a dataclass field that is an option. `flag` and `key` default to the field's name (with `-` and `_`).

    `check` gets the value that was read and returns what is wrong with it, or "". `read` replaces the reader that the
    type implies: it takes a text, returns the value, and raises ValueError with a reason. `bool_style`: the flag alone
    means true, and a value needs `=`. `in_file`: whether the config file, --print-config and /config know the option.
    """
    about = {"help": help, "flag": flag, "key": key, "check": check, "read": read}
    return field(default=default, metadata=about | {"bool_style": bool_style, "in_file": in_file})


@dataclass(frozen=True, slots=True)
class Spec:
    """The declaration of one option, with its names and defaults resolved."""

    name: str  # the dataclass field
    flag: str  # without dashes
    key: str  # in a TOML file and in /config/<key>
    environment: str
    type: Any
    default: Any
    help: str
    check: Callable[[Any], str] | None
    read: Callable[[str], Any] | None
    bool_style: bool  # the flag alone means true
    in_file: bool

    def from_text(self, text: str) -> Any:
        """Return the checked value of a text. Raises ValueError with a reason."""
        return self.checked(self.read(text) if self.read else parse_text(self.type, text))

    def checked(self, value: Any) -> Any:
        """Return the value if the option's check accepts it. Raises ValueError with a reason."""
        wrong = self.check(value) if self.check else ""
        if wrong:
            raise ValueError(wrong)
        return value


@dataclass(frozen=True, slots=True)
class SourceValues:
    """The result of reading one source: command line, environment or file."""

    values: Mapping[str, Any]  # field name to checked value
    warnings: Sequence[str] = ()
    errors: Sequence[OptionError] = ()


def specs(cls: type, program: str) -> tuple[Spec, ...]:
    """Return the options of a dataclass, in the order of declaration."""
    return _specs(cls, program)


@functools.cache
def _specs(cls: Hashable, program: str) -> tuple[Spec, ...]:
    assert isinstance(cls, type)
    hints = get_type_hints(cls)
    found = []
    for f in dataclasses.fields(cls):
        if "help" not in f.metadata:
            continue
        about = dict(f.metadata)
        flag = about.pop("flag") or f.name.replace("_", "-")
        about["key"] = about["key"] or flag.replace("-", "_")
        about["bool_style"] = about["bool_style"] or hints[f.name] is bool
        environment = f"{program}_{flag}".upper().replace("-", "_")
        found.append(
            Spec(name=f.name, flag=flag, environment=environment, type=hints[f.name], default=f.default, **about)
        )
    return tuple(found)


def nearest(text: str, known: Sequence[Spec]) -> Spec | None:
    """Return the option whose flag or key is closest to the text (any case, `-` or `_`), or None if none is close."""
    import difflib

    names = {spec.flag.replace("-", "_"): spec for spec in known} | {spec.key: spec for spec in known}
    alike = difflib.get_close_matches(text[:_COMPARED].replace("-", "_").lower(), names, n=1)
    return names[alike[0]] if alike else None
