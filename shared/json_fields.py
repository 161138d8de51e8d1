"""Fields of JSON that a node has answered, which may lie: a value of a wrong type counts as absent. Pure."""

from __future__ import annotations

from typing import Any

from shared.text import without_surrogates

JsonObject = dict[str, Any]


def number(value: object) -> int:
    """Return the value, or 0 if it is no integer of 64 bits."""
    return value if type(value) is int and -(1 << 63) <= value < 1 << 64 else 0


def numbers(values: list[Any]) -> list[int]:
    """Return `number` of each value: the list itself if all of them are such integers."""
    if set(map(type, values)) == {int} and min(values) >= -(1 << 63) and max(values) < 1 << 64:
        return values
    return list(map(number, values))


def text(value: object) -> str:
    """Return the value, or "" if it is no text. Lone surrogates, which JSON can hold, become U+FFFD."""
    return without_surrogates(value) if isinstance(value, str) else ""


def all_texts(values: list[Any]) -> list[str]:
    """Return `text` of each value: the list itself if all of them are ASCII, as ten thousand names usually are."""
    try:
        if "".join(values).isascii():
            return values
    except TypeError:
        pass  # one of them is no text
    return list(map(text, values))


def objects(value: object) -> list[JsonObject]:
    """Return the objects in a list; [] if it is no list."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
