"""What an authorization server is asked about a client, and what it allows it (specs/nsq.md a11).

Patterns are RE2's, as the original's: no name takes more than linear time, whatever a server says. An authorization keeps
only their text, for there may be one a connection; what was compiled lately is kept for all.
"""

import functools
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote_plus

import re2

from shared.text import go_json, without_surrogates

MOST_PATTERNS = 2000  # of one answer, topics' and channels' together: 70 ms to compile them, 10 ms to look through
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
            and compiled(self.topic).search(topic) is not None
            and any(compiled(pattern).search(channel) is not None for pattern in self.channels)
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
        """True if the client may publish to the topic. Costs 2 to 9 us a pattern: remember the answer."""
        return any(rule.allows(PUBLISH, topic, "") for rule in self.rules)

    def allows_subscribe(self, topic: str, channel: str) -> bool:
        """True if the client may subscribe to the channel. Costs the same."""
        return any(rule.allows(SUBSCRIBE, topic, channel) for rule in self.rules)


@functools.lru_cache(maxsize=MOST_PATTERNS)
def compiled(pattern: str) -> Any:
    """A pattern of the library, which would take 12 us to find it in its own cache. Raises re2.error."""
    return re2.compile(pattern, _OPTIONS)


def answer(authorization: Authorization) -> bytes:
    """What AUTH is answered with."""
    told = {
        "identity": authorization.identity,
        "identity_url": authorization.identity_url,
        "permission_count": authorization.permission_count,
    }
    return go_json(told).encode()
