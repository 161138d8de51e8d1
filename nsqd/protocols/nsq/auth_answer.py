"""Parse the answer of an authorization server into an Authorization, or raise the reason for its refusal.

The server may lie, so its answer is bounded in bytes, in patterns and in the cost of the patterns.

See docs/design/nsq-protocol.md#auth.
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
MOST_INSTRUCTIONS = 50_000  # in all patterns of an answer: 15 ms to compile them; "^topic$" has 4, ".{64}" has 600
MOST_SECONDS = 100 * 366 * 86_400  # a longer ttl is cut to this one, so that nothing overflows
_LONGEST_QUOTE = 100  # bytes of the server's words that a reason repeats


def parse_authorization(body: bytes, now: int) -> Authorization:
    """Parse the answer of an authorization server, received at `now` (monotonic ns). Raises AuthRefused.

    Types and the case of keys are taken as Go's decoder takes them; unlike the original, the key `expires` is ignored.
    """
    if len(body) > MAX_BODY:
        raise AuthRefused(f"answer of more than {MAX_BODY} bytes")
    try:
        decoded = json.loads(
            body.decode("utf-8", "surrogateescape"), object_pairs_hook=_AnswerPairs, parse_constant=_refuse
        )
    except (ValueError, RecursionError):
        raise AuthRefused("answer is not JSON") from None
    fields = _fields(decoded, "answer")
    rules = tuple(_rule(item) for item in _list(fields, "authorizations"))
    _check_patterns(rules)
    ttl = _ttl(fields)
    return Authorization(_text(fields, "identity"), _text(fields, "identity_url"), now + ttl * SECOND, rules)


# Values out of JSON: Go leaves a field unchanged for null.


class _AnswerPairs(list[tuple[str, Any]]):
    """A JSON object as a list of pairs in the order written, because Go assigns fields in that order, whatever their case."""


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def _fields(value: object, what: str) -> dict[str, Any]:
    """Return an object's fields by lower-case name, the last one of each name, without null values except over lists.

    `what` names the object in the reason of AuthRefused.
    """
    if value is None:
        return {}
    if not isinstance(value, _AnswerPairs):
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
    if not isinstance(value, list) or isinstance(value, _AnswerPairs):
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
    """Raise AuthRefused if a pattern does not compile, or if all of them cost too much."""
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
    """Quote the server's words for one line of a log, and cut them after _LONGEST_QUOTE bytes."""
    return quote(text.encode()[:_LONGEST_QUOTE])
