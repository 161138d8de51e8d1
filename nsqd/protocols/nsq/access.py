"""Decide the rights of a connection: by the auth file, if the client is known there, else by authorization servers.

The authorization servers answer later. A command that needs their answer raises Waiting before it changes anything, and the
peer handles the same command again after `answered` was called. So the same code runs twice: first to ask, then to use the
response.

See docs/contributing/design/nsq-protocol.md#auth.
"""

from collections.abc import Callable

from nsqd.protocols.credential import Credential
from nsqd.protocols.nsq.authorization import Authorization, AuthRefused, answer, answer_for
from nsqd.protocols.nsq.errors import NotAllowedError, WireError, quote
from nsqd.protocols.transport import NEVER
from shared.auth.verbs import Verb

MOST_ALLOWED = 256  # topics and channels per connection whose permissions are remembered


class Waiting(Exception):
    """The command must wait for another server, and is then parsed again."""


class InDebt(Waiting):
    """The client may not publish now: its account is in debt. The peer continues when AccountClient.pause_ended is called."""

    def __init__(self, start: int) -> None:
        super().__init__(start)
        self.start = start  # where in the buffer the input begins that is not handled; 0: where the command began


class Access:
    """The permissions of one connection.

    `ask` has the authorization servers asked about a secret; their answer comes to `answered`. None: there are none.
    """

    __slots__ = ("_allowed", "_answer", "_ask", "_secret", "authorization", "credential", "until")

    def __init__(self, ask: Callable[[bytes], None] | None, credential: Credential | None = None) -> None:
        """`credential`: by which the auth file knows the client; None: there is no auth file."""
        self._ask = ask
        self.credential = credential
        self._secret = b""
        # the pairs (topic, channel) that `authorization` allows: matching the patterns costs microseconds
        self._allowed: frozenset[tuple[str, str]] = frozenset()  # empty it takes no memory, unlike a set
        self._answer: Authorization | AuthRefused | None = None  # an answer that came and was not used yet
        self.authorization: Authorization | None = None  # from the last good answer; None: there was none
        self.until = NEVER  # monotonic ns from which on the servers must be asked again

    def answered(self, answer: Authorization | AuthRefused) -> None:
        """Take the servers' response to the pending request."""
        self._answer = answer

    @property
    def is_known(self) -> bool:
        """Return True if the client has been identified."""
        return self.authorization is not None or (self.credential is not None and self.credential.identity is not None)

    def auth(self, secret: bytes) -> bytes:
        """Handle AUTH: return the JSON to answer with. Raises WireError, Waiting."""
        credential = self.credential
        if self.authorization is not None:
            raise WireError("E_INVALID", "AUTH already set")
        if credential is not None and credential.show_token(secret, is_final=self._ask is None):
            assert credential.identity is not None
            self._allowed = frozenset()
            return answer_for(credential.identity.name, len(credential.identity.rights.rules))
        self._check_number()
        if self._ask is None:
            raise (
                WireError("E_AUTH_DISABLED", "AUTH disabled")
                if credential is None
                else NotAllowedError("E_AUTH_FAILED", "AUTH failed", "AUTH")
            )
        self._secret = secret
        authorization = self._query()
        if not authorization.permission_count:
            raise NotAllowedError("E_UNAUTHORIZED", "AUTH no authorizations found", "AUTH")
        self._use(authorization)
        return answer(authorization)

    def check(self, command: str, topic: str, channel: str, now: int) -> None:
        """Raise WireError unless the client may use `command` (`channel` "": to publish), or Waiting to ask the servers."""
        if self._ask is None and self.credential is None:
            return
        if self.credential is not None and self.credential.identity is not None:
            if not self.credential.may(Verb.CONSUME if channel else Verb.PUBLISH, topic, channel):
                raise _refused(command, topic, channel)
            if not channel:
                self.check_debt(now)
            return
        if self.authorization is None:
            self._check_number()
            raise NotAllowedError("E_AUTH_FIRST", f"AUTH required before {command}", command, target(topic, channel))
        if now >= self.until:
            self._use(self._query())
        if (topic, channel) in self._allowed:
            return
        if not self._allows(topic, channel):
            raise _refused(command, topic, channel)
        if len(self._allowed) < MOST_ALLOWED:
            self._allowed |= {(topic, channel)}

    def check_debt(self, now: int, start: int = 0) -> None:
        """Raise InDebt if the client may not publish at `now` (ns), because its account has published too much."""
        usage = self.credential.usage if self.credential is not None else None
        if usage is not None and usage.debt(now):
            raise InDebt(start)
        if self.authorization is None:
            self.until = NEVER

    def ask_for_debt(self) -> None:
        """Have the next publish read exactly, and checked by `check`, if the auth file knows the client."""
        if self.authorization is None:
            self.until = 0

    def _check_number(self) -> None:
        """Raise WireError if the client has presented right credentials, whose identity has too many connections."""
        if self.credential is not None and self.credential.is_one_too_many:
            raise WireError("E_AUTH_FAILED", "AUTH too many connections")

    def check_again(self, command: str, topic: str) -> None:
        """Raise WireError if the auth file no longer allows a command that has begun."""
        credential = self.credential
        if credential is not None and self.authorization is None and not credential.may(Verb.PUBLISH, topic):
            raise _refused(command, topic, "")

    def who(self) -> tuple[str, str]:
        """Return the client's name in the auth file or at the authorization servers, and how it was proved."""
        if self.authorization is not None:
            return self.authorization.identity, "authorization server"
        return self.credential.name if self.credential is not None else ("", "")

    def close(self) -> None:
        """Forget the pending request, and leave the account: the connection is gone."""
        if self.credential is not None:
            self.credential.leave()
        if self._ask is not None:
            self._ask = _ignore
        self._answer = None

    def renew(self, topic: str, channel: str) -> bool:
        """Identify the client of a subscription again: the auth file has changed. Returns False if the connection is to end."""
        credential = self.credential
        if credential is None:
            return True
        was_known = credential.identity is not None
        if not credential.renew():
            return False
        return not (was_known and channel) or credential.may(Verb.CONSUME, topic, channel)

    def _allows(self, topic: str, channel: str) -> bool:
        authorization = self.authorization
        if authorization is None:
            return False
        return authorization.allows_subscribe(topic, channel) if channel else authorization.allows_publish(topic)

    def _use(self, authorization: Authorization) -> None:
        self._allowed = frozenset()
        self.authorization = authorization
        self.until = authorization.expires + 1

    def _query(self) -> Authorization:
        """Return the servers' response, or request it and raise Waiting. Raises WireError, without the servers' reason."""
        answer, self._answer = self._answer, None
        if answer is None:
            assert self._ask is not None
            self._ask(self._secret)
            raise Waiting
        if isinstance(answer, AuthRefused):
            raise NotAllowedError("E_AUTH_FAILED", "AUTH failed", "AUTH")
        return answer


def _refused(command: str, topic: str, channel: str) -> WireError:
    names = f"{quote(topic.encode())} {quote(channel.encode())}"
    text = f"AUTH failed for {command} on {names}"
    return NotAllowedError("E_UNAUTHORIZED", text, command, target(topic, channel))


def target(topic: str, channel: str) -> str:
    """Return the target in the audit: topic and channel, "" for none."""
    return f"{topic} {channel}".rstrip()


def _ignore(secret: bytes) -> None:
    pass
