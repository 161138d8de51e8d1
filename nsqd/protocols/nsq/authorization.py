"""What an authorization server is asked about a client, and what it allows: read as the original does (specs/nsq.md a11).

The server may lie: its answer is bounded in bytes, in patterns and in what the patterns cost. They are RE2's, as the
original's, so no name takes more than linear time. Only their text is kept, for there may be one answer a connection; what
was compiled lately stays in the library's cache.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote_plus

import re2

from nsqd.protocols.nsq.errors import quote
from nsqd.protocols.nsq.settings import SECOND
from shared.text import go_json, without_surrogates

MAX_BODY = 256 * 1024  # bytes of an answer: reading the worst such JSON takes 25 ms of the turn
MOST_PATTERNS = 4096  # topics' and channels' together
MOST_INSTRUCTIONS = 50_000  # of all compiled patterns: 15 ms to compile them; "^topic$" has 4, ".{64}" has 600
MOST_SECONDS = 100 * 366 * 86_400  # a ttl beyond is as good as this one, and overflows nothing
_LONGEST_QUOTE = 100  # bytes of the server's words that a reason repeats

PUBLISH, SUBSCRIBE = "publish", "subscribe"

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False
_OPTIONS.never_capture = True  # taking groups apart is the one thing that is slow
_OPTIONS.max_mem = 1024 * 1024  # bytes a pattern, for its program and its automaton


class AuthRefused(Exception):
    """No authorization: the server's answer is none, or there was no answer. The text is for the log, never for the client."""


@dataclass(frozen=True, slots=True)
class Question:
    """What an authorization server is asked about a connection."""

    remote_ip: str  # "" for a unix socket
    tls: bool
    common_name: str  # of the client's certificate; "" if it has shown none
    secret: bytes = field(repr=False)  # as AUTH brought it; never logged

    def query(self) -> str:
        """As the query of a URL, byte for byte as the original writes it."""
        return "&".join(f"{name}={quote_plus(value)}" for name, value in self._values())

    def body(self) -> bytes:
        """As the body of a POST, in JSON."""
        return go_json({name: [value.decode("utf-8", "surrogateescape")] for name, value in self._values()}).encode()

    def _values(self) -> list[tuple[str, bytes]]:
        return [
            ("common_name", without_surrogates(self.common_name).encode()),
            ("remote_ip", self.remote_ip.encode()),
            ("secret", self.secret),
            ("tls", b"true" if self.tls else b"false"),
        ]


@dataclass(frozen=True, slots=True)
class Rule:
    """One of the answer's authorizations."""

    topic: str  # a pattern
    channels: tuple[str, ...]  # patterns
    permissions: frozenset[str]

    def allows(self, permission: str, topic: str, channel: str) -> bool:
        """True if all three match. Publishing has the channel "": a pattern that needs a name forbids it (as the original)."""
        return (
            permission in self.permissions
            and _matches(self.topic, topic)
            and any(_matches(pattern, channel) for pattern in self.channels)
        )


@dataclass(frozen=True, slots=True)
class Authorization:
    """What a client is and may do, until a moment."""

    identity: str
    identity_url: str
    expires: int  # monotonic ns; at this moment it still holds
    rules: tuple[Rule, ...]  # none: the client is refused

    @property
    def permission_count(self) -> int:
        """The number of authorizations in the answer."""
        return len(self.rules)

    def expired(self, now: int) -> bool:
        """True if the server has to be asked again."""
        return now > self.expires

    def allows_publish(self, topic: str) -> bool:
        """True if the client may publish to the topic. Costs up to 15 ms: remember the answer."""
        return any(rule.allows(PUBLISH, topic, "") for rule in self.rules)

    def allows_subscribe(self, topic: str, channel: str) -> bool:
        """True if the client may subscribe to the channel. Costs the same."""
        return any(rule.allows(SUBSCRIBE, topic, channel) for rule in self.rules)


def answer(authorization: Authorization) -> bytes:
    """What AUTH is answered with."""
    told = {
        "identity": authorization.identity,
        "identity_url": authorization.identity_url,
        "permission_count": authorization.permission_count,
    }
    return go_json(told).encode()


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
            cost += re2.compile(pattern, _OPTIONS).programsize
        except re2.error:
            raise AuthRefused(f"unable to compile {_quoted(pattern)}") from None
        if cost > MOST_INSTRUCTIONS:
            raise AuthRefused("patterns too complex")


def _matches(pattern: str, name: str) -> bool:
    """True if the pattern is found anywhere in the name."""
    return re2.compile(pattern, _OPTIONS).search(name) is not None


def _quoted(text: str) -> str:
    """Somebody else's words for one line of a log."""
    return quote(text.encode()[:_LONGEST_QUOTE])
