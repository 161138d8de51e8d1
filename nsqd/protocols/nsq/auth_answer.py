"""The answer of an authorization server: an Authorization, or the reason why it is none (specs/nsq.md a11).

The server may lie: its answer is bounded in bytes, in patterns and in what the patterns cost.
"""

import json
from collections.abc import Iterator
from typing import Any

import re2

from nsqd.protocols.nsq.authorization import (
    MOST_PATTERNS,
    PUBLISH,
    SUBSCRIBE,
    Authorization,
    AuthRefused,
    Rule,
    compiled,
)
from nsqd.protocols.nsq.errors import quote
from nsqd.protocols.nsq.settings import SECOND
from shared.text import without_surrogates

MAX_BODY = 256 * 1024  # bytes of an answer: reading the worst such JSON takes 25 ms of the turn
MOST_INSTRUCTIONS = 50_000  # of all its patterns: 15 ms to compile them; "^topic$" has 4, ".{64}" has 600
MOST_SECONDS = 100 * 366 * 86_400  # a ttl beyond is as good as this one, and overflows nothing
_LONGEST_QUOTE = 100  # bytes of the server's words that a reason repeats


def parse_authorization(body: bytes, now: int) -> Authorization:
    """The answer of an authorization server, received at `now` (monotonic ns). Raises AuthRefused.

    Types and case of keys as Go's decoder takes them; unlike there, the key `expires` is not looked at.
    """
    if len(body) > MAX_BODY:
        raise AuthRefused(f"answer of more than {MAX_BODY} bytes")
    try:
        decoded = json.loads(body.decode("utf-8", "surrogateescape"), object_pairs_hook=_Pairs, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise AuthRefused("answer is not JSON") from None
    fields = _fields(decoded, "answer")
    rules = tuple(_rule(item) for item in _list(fields, "authorizations"))
    _check_patterns(rules)
    ttl = _ttl(fields)
    return Authorization(_text(fields, "identity"), _text(fields, "identity_url"), now + ttl * SECOND, rules)


# values out of JSON: Go leaves a field as it is for null


class _Pairs(list[tuple[str, Any]]):
    """A JSON object as it was written: Go assigns fields in that order, whatever their case."""


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def _fields(value: object, what: str) -> dict[str, Any]:
    """An object's fields by name in lower case, the last one of a name; without those that are null but for lists."""
    if value is None:
        return {}
    if not isinstance(value, _Pairs):
        raise AuthRefused(f"{what} is not an object")
    fields: dict[str, Any] = {}
    for name, item in value:
        name = name.lower()
        if item is not None or isinstance(fields.get(name), list):
            fields[name] = item
    return fields


def _ttl(fields: dict[str, Any]) -> int:
    ttl = fields.get("ttl", 0)
    if type(ttl) is not int or not -(2**63) <= ttl < 2**63:
        raise AuthRefused("ttl is not a whole number")
    if ttl <= 0:
        raise AuthRefused(f"invalid TTL {ttl} (must be >0)")
    return min(ttl, MOST_SECONDS)


def _text(fields: dict[str, Any], name: str) -> str:
    return _string(fields.get(name), name)


def _string(value: object, what: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise AuthRefused(f"{what} is not text")
    return without_surrogates(value)


def _list(fields: dict[str, Any], name: str) -> list[object]:
    value = fields.get(name)
    if value is None:
        return []
    if not isinstance(value, list) or isinstance(value, _Pairs):
        raise AuthRefused(f"{name} is not a list")
    return value


# authorizations


def _rule(value: object) -> Rule:
    fields = _fields(value, "authorization")
    permissions = frozenset(_string(item, "permission") for item in _list(fields, "permissions"))
    for unknown in permissions - {PUBLISH, SUBSCRIBE}:
        raise AuthRefused(f"unknown permission {_quoted(unknown)}")
    channels = tuple(_string(item, "channel") for item in _list(fields, "channels"))
    return Rule(_text(fields, "topic"), channels, permissions)


def _patterns(rules: tuple[Rule, ...]) -> Iterator[str]:
    for rule in rules:
        yield rule.topic
        yield from rule.channels


def _check_patterns(rules: tuple[Rule, ...]) -> None:
    """Raise AuthRefused if one does not compile, or all of them cost too much."""
    if sum(1 + len(rule.channels) for rule in rules) > MOST_PATTERNS:
        raise AuthRefused(f"more than {MOST_PATTERNS} patterns")
    cost = 0
    for pattern in _patterns(rules):
        try:
            cost += compiled(pattern).programsize
        except re2.error:
            raise AuthRefused(f"unable to compile {_quoted(pattern)}") from None
        if cost > MOST_INSTRUCTIONS:
            raise AuthRefused("patterns too complex")


def _quoted(text: str) -> str:
    """Somebody else's words for one line of a log."""
    return quote(text.encode()[:_LONGEST_QUOTE])
