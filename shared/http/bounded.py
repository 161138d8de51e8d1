"""Answers of other daemons over HTTP, which may lie: bounded in bytes while they are read, in memory before they are parsed.

A question carries IDENTITY, `read_answer` reads what came, and `parse_json` makes values of it. All of it works under asyncio
and trio, and every refusal is an AnswerError of one line.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from sys import getsizeof
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import httpx

IDENTITY = {"Accept-Encoding": "identity"}  # headers of a question: a packed answer of 320 KB once unpacked to 330 MB
SMALL_PARTS, SMALL = 1000, 256  # so many parts may be smaller than so many bytes; Go sends chunks of 2,048
DEEPEST = 32  # lists and objects in each other; answers of nsqd have 9
# Bytes that are charged for each: up to twice what tracemalloc finds in CPython 3.11, because parsing takes time, too.
PER_LIST = PER_OBJECT = 240
PER_COMMA, PER_COLON = 128, 64
WIDEST = 4  # bytes of a character of a str
SLACK = 4096  # bytes that parsing anything takes


class AnswerError(Exception):
    """The answer is not one; one line says why, without the peer's words."""


async def read_answer(response: httpx.Response, most: int, on_part: Callable[[int], None] = lambda size: None) -> bytes:
    """The content, as it is on the wire. `on_part` hears the size of each part as it comes, and may raise.

    Raises AnswerError for one that is packed, or has more than `most` bytes: before it is read, where its headers say so; and
    for one in chunks of a byte each, of which 10 MB would keep the event loop busy for minutes.
    """
    encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise AnswerError("answered with a Content-Encoding that nobody asked for")
    stated = response.headers.get("Content-Length", "")
    if stated.isascii() and stated.isdigit() and int(stated[:20]) > most:
        raise AnswerError(f"answered more than {most} bytes")
    content, parts = bytearray(), 0
    async for part in response.aiter_raw():
        on_part(len(part))
        content += part
        parts += 1
        if parts > SMALL_PARTS + len(content) // SMALL:
            raise AnswerError("answered in parts of a few bytes")
        if len(content) > most:
            raise AnswerError(f"answered more than {most} bytes")
    return bytes(content)


def parse_json(content: bytes, most_memory: int) -> Any:
    """The value. Raises AnswerError for what is no JSON, or may take more than `most_memory` bytes once it is parsed.

    Invalid UTF-8 becomes U+FFFD, as in Go; NaN and Infinity, which JSON does not have, are refused. While a large answer is
    parsed in a thread, others get their turn at each object and fraction of it.
    """
    if memory_to_parse(content) > most_memory:
        raise AnswerError(f"answered JSON that may take more than {most_memory} bytes of memory")
    try:
        text = content.decode("utf-8", "replace")
        value = json.loads(text, parse_constant=_refuse, parse_float=_float, object_hook=_same)
    except (ValueError, RecursionError):
        raise AnswerError("answered something that is no JSON") from None
    if content.count(b"[") + content.count(b"{") > DEEPEST and is_deeper(value, DEEPEST):
        raise AnswerError(f"answered JSON that is nested more than {DEEPEST} times")
    return value


def parse_object(content: bytes, most_memory: int) -> dict[str, Any]:
    """The object that `parse_json` returns. Raises AnswerError for any other value, too."""
    value = parse_json(content, most_memory)
    if not isinstance(value, dict):
        raise AnswerError("answered something else than an object")
    return value


def valid_names(value: object, is_valid: Callable[[str], bool], most: int) -> list[str]:
    """The valid names in a list, each once. Raises AnswerError for what is no list, or has more than `most` members."""
    if not isinstance(value, list):
        raise AnswerError("answered no list of names")
    if len(value) > most:
        raise AnswerError(f"answered more than {most} names")
    return list(dict.fromkeys(name for name in value if isinstance(name, str) and is_valid(name)))


def memory_to_parse(content: bytes) -> int:
    """How many bytes parsing it takes at the most: its text, and the objects that come of it.

    A list of 3 bytes ("[],") becomes one of 60. Commas and brackets within strings are counted, too, which makes the estimate
    higher and never lower.
    """
    is_narrow = content.isascii() and b"\\u" not in content
    text = len(content) * (1 if is_narrow else WIDEST)
    return (
        SLACK
        + 2 * text
        + PER_LIST * content.count(b"[")
        + PER_OBJECT * content.count(b"{")
        + PER_COMMA * content.count(b",")
        + PER_COLON * content.count(b":")
    )


def memory_of(value: Any) -> int:
    """How many bytes a parsed value holds, by and large: equal keys are counted once per object that has them."""
    total, level = getsizeof(value), [value]
    while level:
        held = [one for container in level for one in _members(container)]
        total += sum(map(getsizeof, held))
        level = [one for one in held if isinstance(one, (list, dict))]
    return total


def is_deeper(value: Any, most: int) -> bool:
    """Whether more than `most` lists and objects stand in each other."""
    level = [value] if isinstance(value, (list, dict)) else []
    for _ in range(most):
        if not level:
            return False
        level = [one for container in level for one in _members(container) if isinstance(one, (list, dict))]
    return bool(level)


def _members(container: Any) -> Any:
    return container.values() if isinstance(container, dict) else container


def _same(value: dict[str, Any]) -> dict[str, Any]:
    """A hook in Python, at which the interpreter may switch threads: the parser in C alone would hold all of them up."""
    return value


def _float(digits: str) -> float:
    """As _same, at each fraction."""
    return float(digits)


def _refuse(constant: str) -> None:
    raise ValueError(constant)
