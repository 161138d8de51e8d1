"""The request to an authorization server about a client, and its response: the rights of the client.

Patterns are RE2's, as in the original: matching a name takes linear time at most, whatever a server sends. An authorization
keeps only their text, because every connection may have one; the patterns compiled most recently are cached for all. A server
cannot be trusted, so its response is bounded in bytes, in patterns and in the cost of the patterns.

See docs/contributing/design/nsq-protocol.md#auth.
"""

import functools
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote_plus

import re2

from nsqd.protocols.nsq.errors import quote
from shared.text import go_json, without_surrogates
from shared.values import SECOND

# patterns in one answer, of topics and channels together: 70 ms to compile them, 10 ms to match them all
MOST_PATTERNS = 2000
MAX_BODY = 256 * 1024  # bytes of an answer: reading the worst such JSON takes 25 ms of the turn
MOST_INSTRUCTIONS = 50_000  # in all patterns of an answer: 15 ms to compile them; "^topic$" has 4, ".{64}" has 600
MOST_SECONDS = 100 * 366 * 86_400  # a longer ttl is cut to this one, so that nothing overflows
_LONGEST_QUOTE = 100  # bytes of the server's words that a reason repeats
PUBLISH, SUBSCRIBE = "publish", "subscribe"

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False
_OPTIONS.never_capture = True  # extracting groups is the only slow operation
_OPTIONS.max_mem = 1024 * 1024  # bytes: the program and the automaton of a pattern


class AuthRefused(Exception):
    """There is no authorization: no valid response came. The text is for the log, never for the client."""


@dataclass(frozen=True, slots=True)
class AuthRequest:
    """The request to an authorization server about a connection."""

    remote_ip: str  # "" for a unix socket
    tls: bool
    common_name: str  # from the client's certificate; "" if it has shown none
    secret: bytes = field(repr=False)  # the secret that AUTH brought; never logged

    def query(self) -> str:
        """Return the request as the query of a URL, byte for byte as the original writes it."""
        return "&".join(f"{name}={quote_plus(value)}" for name, value in self._values())

    def body(self) -> bytes:
        """Return the request as the body of a POST, in JSON."""
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
    """One of the authorizations in a server's answer."""

    topic: str  # a pattern
    channels: tuple[str, ...]  # patterns
    permissions: frozenset[str]

    def allows(self, permission: str, topic: str, channel: str) -> bool:
        """Return True if permission, topic and channel match. To publish, the channel is "", which a pattern may forbid."""
        return (
            permission in self.permissions
            and compiled(self.topic).search(topic) is not None
            and any(compiled(pattern).search(channel) is not None for pattern in self.channels)
        )


@dataclass(frozen=True, slots=True)
class Authorization:
    """The identity and the permissions of a client, until a moment."""

    identity: str
    identity_url: str
    expires: int  # monotonic ns; the authorization still holds at this moment
    rules: tuple[Rule, ...]  # empty: the client is refused

    @property
    def permission_count(self) -> int:
        """Return the number of authorizations in the answer."""
        return len(self.rules)

    def allows_publish(self, topic: str) -> bool:
        """Return True if the client may publish to the topic. Costs 2 to 9 us a pattern, so callers remember the answer."""
        return any(rule.allows(PUBLISH, topic, "") for rule in self.rules)

    def allows_subscribe(self, topic: str, channel: str) -> bool:
        """Return True if the client may subscribe to the channel. Costs 2 to 9 us a pattern, too."""
        return any(rule.allows(SUBSCRIBE, topic, channel) for rule in self.rules)


@functools.lru_cache(maxsize=MOST_PATTERNS)
def compiled(pattern: str) -> Any:
    """Return the compiled pattern from a cache; the library's own cache would take 12 us. Raises re2.error."""
    return re2.compile(pattern, _OPTIONS)


def answer(authorization: Authorization) -> bytes:
    """Return the JSON with which AUTH is answered."""
    return answer_for(authorization.identity, authorization.permission_count, authorization.identity_url)


def answer_for(identity: str, permission_count: int, identity_url: str = "") -> bytes:
    """Return the JSON with which AUTH of this identity is answered."""
    fields = {"identity": identity, "identity_url": identity_url, "permission_count": permission_count}
    return go_json(fields).encode()


def parse_authorization(body: bytes, now: int) -> Authorization:
    """Parse the answer of an authorization server, received at `now` (monotonic ns). Raises AuthRefused.

    Types and the case of keys are taken as Go's decoder takes them; unlike the original, the key `expires` is ignored.
    """
    if len(body) > MAX_BODY:
        raise AuthRefused(f"answer of more than {MAX_BODY} bytes")
    try:
        decoded = read_json(body, "surrogateescape")
    except ValueError:
        raise AuthRefused("answer is not JSON") from None
    fields = _fields(decoded, "answer")
    rules = tuple(_rule(item) for item in _list(fields, "authorizations"))
    _check_patterns(rules)
    ttl = _ttl(fields)
    return Authorization(_text(fields, "identity"), _text(fields, "identity_url"), now + ttl * SECOND, rules)


# Values out of JSON: Go leaves a field unchanged for null.


class JsonPairs(list[tuple[str, Any]]):
    """A JSON object as a list of pairs in the order written, because Go assigns fields in that order, whatever their case."""


def read_json(body: bytes, errors: str) -> Any:
    """Read JSON with objects as JsonPairs. `errors`: for bytes that are not UTF-8, as in bytes.decode. Raises ValueError."""

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    try:
        return json.loads(body.decode("utf-8", errors), object_pairs_hook=JsonPairs, parse_constant=refuse)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _fields(value: object, what: str) -> dict[str, Any]:
    """Return an object's fields by lower-case name, the last of each, without null but over lists. `what`: for AuthRefused."""
    if value is None:
        return {}
    if not isinstance(value, JsonPairs):
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
    if not isinstance(value, list) or isinstance(value, JsonPairs):
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
