"""Define the question to an authorization server about a client, and its answer: what the client may do.

Patterns are RE2's, as in the original: matching a name takes linear time at most, whatever a server says. An authorization
keeps only their text, because every connection may have one; the patterns compiled most recently are cached for all.

See docs/design/nsq-protocol.md#auth.
"""

import functools
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote_plus

import re2

from shared.text import go_json, without_surrogates

# patterns in one answer, of topics and channels together: 70 ms to compile them, 10 ms to match them all
MOST_PATTERNS = 2000
PUBLISH, SUBSCRIBE = "publish", "subscribe"

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False
_OPTIONS.never_capture = True  # extracting groups is the only slow operation
_OPTIONS.max_mem = 1024 * 1024  # bytes a pattern, for its program and its automaton


class AuthRefused(Exception):
    """There is no authorization: the server's answer is not a valid one, or no answer came.

    The text is for the log, never for the client.
    """


@dataclass(frozen=True, slots=True)
class Question:
    """The question to an authorization server about a connection."""

    remote_ip: str  # "" for a unix socket
    tls: bool
    common_name: str  # from the client's certificate; "" if it has shown none
    secret: bytes = field(repr=False)  # the secret that AUTH brought; never logged

    def query(self) -> str:
        """Return the question as the query of a URL, byte for byte as the original writes it."""
        return "&".join(f"{name}={quote_plus(value)}" for name, value in self._values())

    def body(self) -> bytes:
        """Return the question as the body of a POST, in JSON."""
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
        """Return True if permission, topic and channel all match.

        Publishing has the channel "", so a pattern that needs a name forbids it, as in the original.
        """
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
