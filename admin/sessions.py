"""Who is logged in, and how often somebody has tried in vain. Pure: time and randomness come in. All of it is bounded."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from admin.users import User

IDLE = 2 * 3600.0  # s without a request after which a session is over
MOST = 10_000  # sessions
MOST_OF_ONE = 20  # of a user; the oldest ends
FREE_TRIES = 5  # with a wrong password, before one has to wait
LONGEST_WAIT = 300.0  # s
FORGOTTEN = 3600.0  # s after which tries in vain are forgotten
MOST_REMEMBERED = 10_000  # who tried in vain
PAIR, ADDRESS, NAME = "name from address", "address", "name"


@dataclass(slots=True)
class Session:
    """Of a user, in one browser."""

    user: User
    agent: str
    began: float
    used: float


class Sessions:
    """By what the cookie holds, of which only a digest is kept."""

    def __init__(self, lifetime: float, clock: Callable[[], float], random_word: Callable[[], str]) -> None:
        self._lifetime = lifetime  # s
        self._clock = clock
        self._random_word = random_word
        self._sessions: OrderedDict[str, Session] = OrderedDict()  # by digest, the oldest first

    def begin(self, user: User, agent: str) -> str:
        """What the cookie shall hold."""
        own = [digest for digest, one in self._sessions.items() if one.user.name == user.name]
        for digest in own[: max(0, len(own) - MOST_OF_ONE + 1)]:
            del self._sessions[digest]
        if len(self._sessions) >= MOST:
            self._sessions.popitem(last=False)
        word = self._random_word()
        now = self._clock()
        self._sessions[_digest(word)] = Session(user, agent, now, now)
        return word

    def find(self, word: str, agent: str, current: Callable[[str], User | None], *, is_use: bool = True) -> User | None:
        """Whose session that is, as the users file has him now.

        None if it is over, was begun by another browser, or the user went or has another password since. `is_use`: somebody
        does something, and not only a page that was left open.
        """
        digest = _digest(word)
        session = self._sessions.get(digest)
        if session is None:
            return None
        now, user = self._clock(), current(session.user.name)
        over = now - session.began >= self._lifetime or now - session.used >= IDLE
        if over or user is None or user.secret != session.user.secret or agent != session.agent:
            del self._sessions[digest]
            return None
        if is_use:
            session.used = now
        return user

    def end(self, word: str) -> None:
        """He logs out."""
        self._sessions.pop(_digest(word), None)


@dataclass(frozen=True, slots=True)
class Key:
    """Whose tries are counted together: a name from an address, an address, or a name from wherever."""

    kind: str
    value: str
    free: int = FREE_TRIES  # tries in vain that cost nothing
    longest: float = LONGEST_WAIT  # s


class Tries:
    """Passwords that were wrong: after so many in a row each further one costs twice the time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failed: OrderedDict[Key, tuple[int, float]] = OrderedDict()  # how often, and when last

    def wait(self, *keys: Key) -> float:
        """s until all of them may try again."""
        return max(map(self._wait, keys))

    def _wait(self, key: Key) -> float:
        count, last = self._failed.get(key, (0, 0.0))
        if count < key.free:
            return 0.0
        return max(0.0, last + min(key.longest, 2.0 ** (count - key.free)) - self._clock())

    def failed(self, *keys: Key) -> None:
        """Once more. To be said before the password is compared: a hundred at the same time are a hundred tries."""
        now = self._clock()
        for key in keys:
            count, last = self._failed.pop(key, (0, now))
            self._failed[key] = (1 if now - last > FORGOTTEN else min(count + 1, 1000), now)
            if len(self._failed) > MOST_REMEMBERED:
                self._failed.popitem(last=False)

    def succeeded(self, *keys: Key) -> None:
        """He knew it in the end: that try was none."""
        for key in keys:
            count, last = self._failed.pop(key, (0, 0.0))
            if count > 1 and key.kind != PAIR:
                self._failed[key] = (count - 1, last)


def csrf_of(word: str) -> str:
    """What the forms of a session must bring: nobody who does not have its cookie knows it."""
    return hashlib.sha256(b"form " + word.encode()).hexdigest()[:32]


def _digest(word: str) -> str:
    return hashlib.sha256(word.encode()).hexdigest()
