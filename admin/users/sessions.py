"""Sessions of logged-in users, and counts of failed logins. Pure: time and randomness come in. All of it is bounded."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from shared.auth.auth_file import Identity

IDLE = 2 * 3600.0  # s without a request that end a session
MOST = 10_000  # sessions
MOST_OF_ONE = 20  # sessions of one user; a further one ends the oldest
FREE_TRIES = 5  # tries with a wrong password that cost no waiting time
LONGEST_WAIT = 300.0  # s
FORGOTTEN = 3600.0  # s after which failed tries are forgotten
MOST_REMEMBERED = 10_000  # keys with failed tries
PAIR, ADDRESS, NAME = "name from address", "address", "name"


@dataclass(slots=True)
class Session:
    """A user's session in one browser."""

    name: str
    secret: str  # the hash of the password by which the user has logged in
    agent: str
    began: float
    used: float
    kind: str = "user"  # of the identity: a user of the file, or of the OIDC provider
    roles: tuple[str, ...] = ()  # that the OIDC provider's claims have given


@dataclass(slots=True)
class Sessions:
    """The sessions, by a digest of the content of the cookie."""

    lifetime: float  # s
    clock: Callable[[], float]  # s
    new_token: Callable[[], str]
    _sessions: OrderedDict[str, Session] = field(default_factory=OrderedDict)  # by digest, the oldest first

    def __len__(self) -> int:
        """Return the number of sessions that were not ended, some of which may have expired."""
        return len(self._sessions)

    def begin(self, name: str, secret: str, agent: str, kind: str = "user", roles: tuple[str, ...] = ()) -> str:
        """Start a session of a user, and return the content of its cookie.

        `secret`: the hash of the password with which the user logged in; "" with the `roles` of a user of the OIDC provider.
        """
        own = [digest for digest, one in self._sessions.items() if one.name == name]
        for digest in own[: max(0, len(own) - MOST_OF_ONE + 1)]:
            del self._sessions[digest]
        if len(self._sessions) >= MOST:
            self._sessions.popitem(last=False)
        cookie, now = self.new_token(), self.clock()
        self._sessions[_digest(cookie)] = Session(name, secret, agent, now, now, kind, roles)
        return cookie

    def find(
        self, cookie: str, agent: str, current: Callable[[Session], tuple[Identity, str] | None], *, is_use: bool = True
    ) -> Identity | None:
        """Return the user of a session, or None if it has ended, or another browser sends its cookie.

        `current` returns the user as it is now, with the hash of the password; the session ends if the user was removed or got
        another password. `is_use`: the user acts, as opposed to a page that was left open; only that counts against IDLE.
        """
        digest = _digest(cookie)
        session = self._sessions.get(digest)
        if session is None:
            return None
        now, user = self.clock(), current(session)
        over = now - session.began >= self.lifetime or now - session.used >= IDLE
        if over or user is None or user[1] != session.secret or agent != session.agent:
            del self._sessions[digest]
            return None
        if is_use:
            session.used = now
        return user[0]

    def end(self, cookie: str) -> None:
        """End the session of a cookie, when its user logs out."""
        self._sessions.pop(_digest(cookie), None)


@dataclass(frozen=True, slots=True)
class Key:
    """The key by which failed tries are counted: a name from an address, an address, or a name from any address."""

    kind: str
    value: str
    free: int = FREE_TRIES  # failed tries that cost no waiting time
    longest: float = LONGEST_WAIT  # s


@dataclass(slots=True)
class Tries:
    """Counts wrong passwords: beyond the free tries, each one in a row doubles the waiting time."""

    clock: Callable[[], float]  # s
    _failed: OrderedDict[Key, tuple[int, float]] = field(
        default_factory=OrderedDict
    )  # number of tries, time of the last

    def wait(self, *keys: Key) -> float:
        """Return the seconds until all of the keys may try again."""
        return max(map(self._wait, keys))

    def _wait(self, key: Key) -> float:
        count, last = self._failed.get(key, (0, 0.0))
        if count < key.free:
            return 0.0
        return max(0.0, last + min(key.longest, 2.0 ** (count - key.free)) - self.clock())

    def failed(self, *keys: Key) -> None:
        """Count a failed try. Call it before the password is compared: a hundred concurrent tries are then counted as such."""
        now = self.clock()
        for key in keys:
            count, last = self._failed.pop(key, (0, now))
            self._failed[key] = (1 if now - last > FORGOTTEN else min(count + 1, 1000), now)
            if len(self._failed) > MOST_REMEMBERED:
                self._failed.popitem(last=False)

    def succeeded(self, *keys: Key) -> None:
        """Take back the count of this try, because the password was right."""
        for key in keys:
            count, last = self._failed.pop(key, (0, 0.0))
            if count > 1 and key.kind != PAIR:
                self._failed[key] = (count - 1, last)


def csrf_of(cookie: str) -> str:
    """Return the token that a session's forms must contain. It cannot be known without the session's cookie."""
    return hashlib.sha256(b"form " + cookie.encode()).hexdigest()[:32]


def _digest(cookie: str) -> str:
    return hashlib.sha256(cookie.encode()).hexdigest()
