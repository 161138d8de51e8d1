"""The command line in the syntax of Go's flag package, and the text of -help.

The forms are `-x v`, `-x=v` and `--x`; a bool takes a value only after `=`. Parsing stops at the first word that is no
flag, which causes a warning here. If a flag is given twice, the last one counts, but lists are concatenated.

See docs/contributing/design/nsq-programs.md#flags.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shared.options import OptionError, SourceValues, Spec, specs
from shared.secrets import hide
from shared.values import Duration, format_duration

_SHOWN = 100  # characters of a word that is no flag


class HelpRequested(Exception):
    """-h or -help was given. The argument is the usage text."""


def read_flags(cls: type, program: str, argv: Sequence[str]) -> SourceValues:
    """Read the flags. All errors and warnings are in the result. Raises HelpRequested."""
    by_flag = {spec.flag: spec for spec in specs(cls, program)}
    values: dict[str, Any] = {}
    errors = []
    try:
        pairs, rest = _split(argv, by_flag, cls, program)
    except OptionError as error:  # after this error it is unknown which words are flags
        return SourceValues(values, errors=[error])
    for spec, text in pairs:
        try:
            values[spec.name] = _value(spec, text, values.get(spec.name, ()))
        except ValueError as error:
            errors.append(OptionError(f'invalid value "{text}" for flag -{spec.flag}: {error}'))
    warnings = [f"arguments from {hide(rest[0])[:_SHOWN]!r} on are ignored"] if rest else []
    return SourceValues(values, warnings, errors)


def _value(spec: Spec, text: str, before: Any) -> Any:
    """Return the value of the flag after this text. `before` is its value so far. Raises ValueError."""
    if spec.type == tuple[str, ...]:  # commas have no meaning in a flag
        return spec.checked((*before, text))
    if spec.type == tuple[float, ...]:
        return tuple(sorted((*before, *spec.from_text(text)), reverse=True))  # as Go's FloatArray sorts them
    return spec.from_text(text)


def _split(
    argv: Sequence[str], by_flag: Mapping[str, Spec], cls: type, program: str
) -> tuple[list[tuple[Spec, str]], list[str]]:
    """Split arguments into (option, value) pairs, and those from the first non-flag on. Raises OptionError, HelpRequested."""
    pairs: list[tuple[Spec, str]] = []
    arguments = iter(argv)
    for argument in arguments:
        if len(argument) < 2 or not argument.startswith("-"):
            return pairs, [argument, *arguments]  # as the original does, which does not warn
        if argument == "--":
            break
        name, equals, text = argument.removeprefix("-").removeprefix("-").partition("=")
        if not name or name.startswith("-"):
            raise OptionError(f"bad flag syntax: {argument}")
        if name not in by_flag:
            if name in ("h", "help"):
                raise HelpRequested(usage(cls, program))
            raise OptionError(f"flag provided but not defined: -{name} ({program} -help lists the flags)")
        if not equals:
            following = "true" if by_flag[name].bool_style else next(arguments, None)
            if following is None:
                raise OptionError(f"flag needs an argument: -{name}")
            text = following
        pairs.append((by_flag[name], text))
    return pairs, list(arguments)


def usage(cls: type, program: str) -> str:
    """Return the text of -help: every flag with its type, meaning, default and environment variable."""
    lines = [f"Usage of {program}:"]
    for spec in sorted(specs(cls, program), key=lambda s: s.flag):
        kind = _type_name(spec)
        lines.append(f"  -{spec.flag} {kind}".rstrip())
        default = _default_text(spec)
        lines.append(f"    \t{spec.help}{default} [${spec.environment}]")
    return "\n".join(lines) + "\n"


def _type_name(spec: Spec) -> str:
    if spec.bool_style:
        return ""
    names = {int: "int", float: "float", str: "string", Duration: "duration"}
    return names.get(spec.type, "value")


def _default_text(spec: Spec) -> str:
    if spec.default in ("", (), False):
        return ""
    if spec.type is Duration:
        return f" (default {format_duration(spec.default)})"
    is_list = spec.type == tuple[str, ...]
    text = ",".join(spec.default) if is_list else str(spec.default).replace("\n", r"\n")
    return f' (default "{text}")' if is_list or spec.type is str else f" (default {text})"
