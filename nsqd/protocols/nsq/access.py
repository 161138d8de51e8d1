"""Decide what a connection may do: TLS first where it is required, and AUTH with its authorizations.

The authorization servers answer later. A command that needs their answer raises Waiting before it changes anything, and the
peer handles the same command again after `answered` was called. So the same code runs twice, first to ask and then to use the
answer.

See docs/design/nsq-protocol.md#auth.
"""

from collections.abc import Callable

from nsqd.protocols.nsq.authorization import Authorization, AuthRefused, answer
from nsqd.protocols.nsq.errors import WireError, quote
from nsqd.protocols.transport import NEVER

MOST_ALLOWED = 256  # topics and channels per connection whose permissions are remembered


class Waiting(Exception):
    """The command must wait for another server, and is then read again from its beginning."""


class Access:
    """The permissions of one connection.

    `ask` has the authorization servers asked about a secret; their answer comes to `answered`.
    """

    __slots__ = ("_allowed", "_answer", "_ask", "_required", "_secret", "authorization", "until")

    def __init__(self, required: bool, ask: Callable[[bytes], None]) -> None:
        self._required = required
        self._ask = ask
        self._secret = b""
        # the pairs (topic, channel) found allowed: matching the patterns costs microseconds
        self._allowed: set[tuple[str, str]] = set()
        self._answer: Authorization | AuthRefused | None = None  # an answer that came and was not used yet
        self.authorization: Authorization | None = None  # from the last good answer; None: there was none
        self.until = NEVER  # monotonic ns from which on the servers must be asked again

    def answered(self, answer: Authorization | AuthRefused) -> None:
        """Take the servers' answer to the question that is open."""
        self._answer = answer

    def auth(self, secret: bytes) -> bytes:
        """Handle AUTH: return the JSON to answer with. Raises WireError, Waiting."""
        if self.authorization is not None:
            raise WireError("E_INVALID", "AUTH already set")
        if not self._required:
            raise WireError("E_AUTH_DISABLED", "AUTH disabled")
        self._secret = secret
        authorization = self._query()
        if not authorization.permission_count:
            raise WireError("E_UNAUTHORIZED", "AUTH no authorizations found")
        self._adopt(authorization)
        return answer(authorization)

    def check(self, command: str, topic: str, channel: str, now: int) -> None:
        """Raise WireError unless the client may use `command`; `channel` is "" for publishing.

        Raises Waiting to ask the servers.
        """
        if not self._required:
            return
        if self.authorization is None:
            raise WireError("E_AUTH_FIRST", f"AUTH required before {command}")
        if now >= self.until:
            self._adopt(self._query())
        if (topic, channel) in self._allowed:
            return
        if not self._allows(topic, channel):
            names = f"{quote(topic.encode())} {quote(channel.encode())}"
            raise WireError("E_UNAUTHORIZED", f"AUTH failed for {command} on {names}")
        if len(self._allowed) < MOST_ALLOWED:
            self._allowed.add((topic, channel))

    def close(self) -> None:
        """Forget the question that may be open: the connection is gone."""
        self._ask = _nobody
        self._answer = None

    def _allows(self, topic: str, channel: str) -> bool:
        authorization = self.authorization
        if authorization is None:
            return False
        return authorization.allows_subscribe(topic, channel) if channel else authorization.allows_publish(topic)

    def _adopt(self, authorization: Authorization) -> None:
        self._allowed.clear()
        self.authorization = authorization
        self.until = authorization.expires + 1

    def _query(self) -> Authorization:
        """Return the servers' answer, or ask for it and raise Waiting.

        Raises WireError if the servers refuse; the reason for that is not told to a stranger.
        """
        answer, self._answer = self._answer, None
        if answer is None:
            self._ask(self._secret)
            raise Waiting
        if isinstance(answer, AuthRefused):
            raise WireError("E_AUTH_FAILED", "AUTH failed")
        return answer


def _nobody(secret: bytes) -> None:
    pass
