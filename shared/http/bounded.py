"""Bounded reading of other daemons' HTTP answers, which may lie: bytes are limited, and memory before the parsing.

A request carries the header IDENTITY, `read_answer` reads the content, and `parse_json` parses it. All of this works
under asyncio and trio, and every refusal is an AnswerError of one line.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from sys import getsizeof
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import httpx

IDENTITY = {"Accept-Encoding": "identity"}  # headers of a request: a compressed answer of 320 KB once grew to 330 MB
SMALL_PARTS, SMALL = 1000, 256  # this many parts may be smaller than this many bytes; Go sends chunks of 2,048
DEEPEST = 32  # nesting of lists and objects; answers of nsqd have 9 levels
# Bytes that are charged for each: up to twice what tracemalloc finds in CPython 3.11, because parsing also takes time.
PER_LIST = PER_OBJECT = 240
PER_COMMA, PER_COLON = 128, 64
MANY, PER_INT = 1000, 32  # in a list of more than MANY ints, each counts PER_INT bytes
WIDEST = 4  # bytes of a character in a str
SLACK = 4096  # bytes that parsing takes for any content


class AnswerError(Exception):
    """The answer cannot be used. The text is one line that says why, without quoting the peer."""


async def read_answer(response: httpx.Response, most: int, on_part: Callable[[int], None] = lambda size: None) -> bytes:
    """Return the content as it is on the wire. `on_part` gets the size of each part as it arrives, and may raise.

    Raises AnswerError if the content is compressed, has more than `most` bytes, or comes in chunks of a byte each: 10 MB of
    them would keep the event loop busy for minutes.
    """
    encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise AnswerError("answered with a Content-Encoding that was not requested")
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


def read_whole(parts: Iterable[bytes], most: int) -> bytes:
    """Return the content of all parts. Raises AnswerError if it has more than `most` bytes."""
    content = bytearray()
    for part in parts:
        content += part
        if len(content) > most:
            raise AnswerError(f"answered more than {most} bytes")
    return bytes(content)


def https_port(answer: Mapping[str, Any]) -> int:
    """Return the HTTPS port in a refusal where TLS is required, or in /info; 0 if there is no valid one."""
    port = answer.get("https_port")
    return port if type(port) is int and 0 < port < 65536 else 0


def parse_json(content: bytes, most_memory: int) -> Any:
    """Return the value. Raises AnswerError for invalid JSON, or if it may take more than `most_memory` bytes when parsed.

    Invalid UTF-8 becomes U+FFFD, as in Go; NaN and Infinity, which JSON does not have, are refused. While a thread
    parses a large answer, other threads get a turn at each object and each fraction.
    """
    if memory_to_parse(content) > most_memory:
        raise AnswerError(f"answered JSON that may take more than {most_memory} bytes of memory")
    try:
        text = content.decode("utf-8", "replace")
        # Hooks in Python, at which the interpreter may switch threads, unlike within the C parser
        value = json.loads(
            text, parse_constant=_refuse, parse_float=lambda digits: float(digits), object_hook=lambda found: found
        )
    except (ValueError, RecursionError):
        raise AnswerError("answered something that is not JSON") from None
    if content.count(b"[") + content.count(b"{") > DEEPEST and is_deeper(value, DEEPEST):
        raise AnswerError(f"answered JSON that is nested more than {DEEPEST} times")
    return value


def parse_object(content: bytes, most_memory: int) -> dict[str, Any]:
    """Return the object that `parse_json` returns. Also raises AnswerError for any other kind of value."""
    value = parse_json(content, most_memory)
    if not isinstance(value, dict):
        raise AnswerError("answered JSON that is not an object")
    return value


def valid_names(value: object, is_valid: Callable[[str], bool], most: int) -> list[str]:
    """Return the valid names in a list, each once. Raises AnswerError if it is no list, or has more than `most` members."""
    if not isinstance(value, list):
        raise AnswerError("answered without a list of names")
    if len(value) > most:
        raise AnswerError(f"answered more than {most} names")
    return list(dict.fromkeys(name for name in value if isinstance(name, str) and is_valid(name)))


def memory_to_parse(content: bytes) -> int:
    """Return the bytes that parsing takes at most: the text, and the objects that it becomes.

    A list of 3 bytes ("[],") becomes one of 60. Commas and brackets within strings are also counted, which makes the
    estimate higher, never lower.
    """
    is_narrow = content.isascii() and b"\\u" not in content
    text = len(content) * (1 if is_narrow else WIDEST)
    costs = (b"[", PER_LIST), (b"{", PER_OBJECT), (b",", PER_COMMA), (b":", PER_COLON)
    return SLACK + 2 * text + sum(cost * content.count(sign) for sign, cost in costs)


def memory_of(value: Any) -> int:
    """Return roughly how many bytes a parsed value holds. Equal keys are counted once for each object that has them."""
    total, level = getsizeof(value), [value]
    while level:
        held: list[Any] = []
        for container in level:
            members = _members(container)
            kinds = set(map(type, members)) if len(members) > MANY else set()
            if kinds and kinds <= {int, bool}:
                total += PER_INT * len(members)
            elif kinds == {str}:
                total += sum(map(getsizeof, members))
            else:
                held += members
        total += sum(map(getsizeof, held))
        level = [one for one in held if isinstance(one, (list, dict))]
    return total


def is_deeper(value: Any, most: int) -> bool:
    """Return whether lists and objects are nested more than `most` levels deep."""
    level = [value] if isinstance(value, (list, dict)) else []
    for _ in range(most):
        if not level:
            return False
        level = [one for container in level for one in _members(container) if isinstance(one, (list, dict))]
    return bool(level)


def _members(container: Any) -> Any:
    return container.values() if isinstance(container, dict) else container


def _refuse(constant: str) -> None:
    raise ValueError(constant)
