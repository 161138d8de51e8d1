"""Options as config files: --print-config, which reads back to the same values, each with its source, and an example."""

from __future__ import annotations

from textwrap import fill
from typing import Any

from shared.configuration import Reading
from shared.options import Spec, specs
from shared.secrets import hide
from shared.text import without_surrogates
from shared.values import Duration, format_duration


def as_toml(reading: Reading[Any], program: str) -> str:
    """Return one ASCII line per option, in the order of declaration. Only hidden secrets do not read back to the same value."""
    lines = []
    for spec in specs(type(reading.options), program):
        if spec.in_file:
            value = getattr(reading.options, spec.name)
            note = _escaped(reading.origins[spec.name])
            if hide(value) != value:
                note += "; secrets are hidden"
            lines.append(f"{spec.key} = {_toml(spec, hide(value))}  # {note}\n")
    return "".join(lines)


def example(options: type[Any], program: str) -> str:
    """Return a config file in which every option of a program is a comment, with its meaning and its default."""
    blocks = [f"# Every option of {program}. Remove the # before those to change.\n"]
    for spec in specs(options, program):
        if spec.in_file:
            meaning = fill(spec.help, 118, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)
            blocks.append(f"{meaning}\n#{spec.key} = {_toml(spec, spec.default)}\n")
    return "\n".join(blocks)


def _toml(spec: Spec, value: Any) -> str:
    if spec.type is Duration:
        return _string(format_duration(value))
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, tuple):
        return f"[{', '.join(_string(item) if isinstance(item, str) else repr(item) for item in value)}]"
    return repr(value)


def _string(text: str) -> str:
    return f'"{_escaped(text)}"'


def _escaped(text: str) -> str:
    """Return text as printable ASCII and TOML escapes. Lone surrogates, from invalid bytes in argv, become U+FFFD."""
    return "".join(_ESCAPES.get(c) or (c if " " <= c <= "~" else _numbered(c)) for c in without_surrogates(text))


_ESCAPES = {'"': '\\"', "\\": "\\\\"}


def _numbered(character: str) -> str:
    number = ord(character)
    return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"
