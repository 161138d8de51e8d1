"""Edits of the text of an auth file: entries are added, changed and removed, comments and all else stay as they are. Pure.

Every edit is read again, and compared with what it should have done: TOML can be written in ways that this does not know.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from shared.auth.auth_file import parse
from shared.auth.rules import PatternError, expression

Value = str | Sequence[str]
_HEAD = re.compile(r"(?m)^[ \t]*\[\[?[^\]\n]*\]\]?[ \t]*(?:#.*)?$")
_REMARKS = re.compile(r"(?m)^(?:[ \t]*#[^\n]*\n|[ \t]*\n)*\Z")  # comments before a table, which belong to it
_VALUE = r"""("[^"\n]*"|'[^'\n]*'|\[[^\]\n]*\])"""


def patterns_of(argument: str) -> list[str]:
    """Return the patterns of a command's argument, such as "orders.*,clicks". Raises PatternError."""
    patterns = argument.split(",")
    for pattern in patterns:
        expression(pattern)
        if '"' in pattern or "\\" in pattern:
            raise PatternError("patterns with quotes or backslashes are written into the file by hand")
    return patterns


def written(value: Value) -> str:
    """Return a value in TOML. Raises ValueError for texts that need escapes."""
    if not isinstance(value, str):
        return f"[{', '.join(map(written, value))}]"
    if "'" in value or not value.isprintable():
        raise ValueError(f"{value[:100]!r} is to be written into the file by hand")
    return f"'{value}'" if '"' in value or "\\" in value else f'"{value}"'


def added(text: str, kind: str, lines: Iterable[str]) -> str:
    """Return the text with another entry at its end. Raises AuthFileError if it is not valid then."""
    new = text + ("\n" if text and not text.endswith("\n\n") else "") + "\n".join((f"[[{kind}]]", *lines)) + "\n"
    parse(new)
    return new


def changed(text: str, kind: str, name: str, values: Mapping[str, Value | None]) -> str:
    """Return the text with these values in the one entry of that name, None removing one, or a new entry. Raises ValueError."""
    wanted, entries = _entries(text, kind, name)
    if not entries:
        twin = parse(text).twin(name) if kind != "role" else None
        if twin is not None and twin.name != name:
            raise ValueError(f"{name} differs from {twin.name}, a {twin.kind}, in case only: choose another name")
        given = {"name": name} | {key: value for key, value in values.items() if value is not None}
        return added(text, kind, [f"{key} = {written(value)}" for key, value in given.items()])
    places = _places(text, kind, name)
    table = text[places[0][0] : places[0][1]] if len(places) == len(entries) == 1 else ""
    for key, value in values.items():
        entries[0].pop(key, None)
        if value is not None:
            entries[0][key] = value if isinstance(value, str) else list(value)
        table = _with_value(table, key, value)
    new = text[: places[0][0]] + table + text[places[0][1] :] if table else text
    return _checked(new, wanted, name)


def removed(text: str, kind: str, name: str, *, but_last: bool = False) -> tuple[str, int]:
    """Return the text without the entries of that name, or all but the last one, and their number. Raises ValueError."""
    wanted, entries = _entries(text, kind, name)
    gone = entries[:-1] if but_last else entries
    if gone:
        wanted[kind] = [entry for entry in wanted[kind] if not any(entry is one for one in gone)]
    places = _places(text, kind, name)
    for start, end in reversed(places[: len(gone)]):
        text = text[:start] + text[end:]
    return _checked(text, wanted, name), len(gone)


def _checked(text: str, wanted: Mapping[str, Any], name: str) -> str:
    """Return the text, which should have this content. Raises ValueError."""
    parse(text)
    found = tomllib.loads(text)
    if any(found.get(key) != wanted.get(key) for key in found.keys() | wanted if found.get(key) or wanted.get(key)):
        raise ValueError(f"the entry of {name} is written in a way that this command does not know: edit the file")
    return text


def _entries(text: str, kind: str, name: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the content of the file, and the entries of that name in it. Raises AuthFileError."""
    parse(text)
    content = tomllib.loads(text)
    return content, [entry for entry in content.get(kind, ()) if entry["name"] == name]


def _places(text: str, kind: str, name: str) -> list[tuple[int, int]]:
    """Return the start and end of the tables with the entries of that name."""
    return [(start, end) for start, end in _tables(text) if _is_entry(text[start:end], kind, name)]


def _tables(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start of each table of the file, and its end after its blank lines."""
    starts = [head.start() for head in _HEAD.finditer(text)]
    for start, following in zip(starts, [*starts[1:], len(text)], strict=False):
        remarks = _REMARKS.search(text, start, following)
        end = remarks.start() if remarks is not None else following
        yield start, end + len(text[end:following]) - len(text[end:following].lstrip("\n"))


def _is_entry(table: str, kind: str, name: str) -> bool:
    try:
        content = tomllib.loads(table)
    except ValueError:
        return False
    return table.lstrip().startswith(f"[[{kind}]]") and content[kind][0].get("name") == name


def _with_value(table: str, key: str, value: Value | None) -> str:
    line = re.compile(rf"(?m)^([ \t]*{key}[ \t]*=[ \t]*){_VALUE}([ \t]*(?:#.*)?)$")
    if value is None:
        return re.sub(line.pattern + r"\n?", "", table)
    new, count = line.subn(lambda found: f"{found[1]}{written(value)}{found[3]}", table)
    if count:
        return new
    return re.sub(
        r"(?m)^([ \t]*)name[ \t]*=.*$", lambda found: f"{found[0]}\n{found[1]}{key} = {written(value)}", table
    )
