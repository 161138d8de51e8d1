"""What a form did, for the page that the browser is sent to next: shown once, to the browser that sent the form.

It is kept here and not in the address, so that no link can make a page claim what was not done. The browser has a random
token of it in a cookie. A restart of nsqadmin forgets all of them. Pure.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

COOKIE = "nsqadmin_done"
KEPT = 60.0  # s until a page must have asked
MOST = 1000  # of all browsers; the oldest is forgotten first
MOST_TOKEN = 100  # characters

Done = dict[str, str]


@dataclass(slots=True)
class Flashes:
    """What forms did and no page has shown yet."""

    clock: Callable[[], float]  # s, monotonic
    new_token: Callable[[], str]
    # By token: when it ends, the user and address, the path of the page, and what was done.
    _kept: OrderedDict[str, tuple[float, str, str, Done]] = field(default_factory=OrderedDict)

    def put(self, owner: str, path: str, done: Done) -> str:
        """Keep what was done for the owner's page, and return the token."""
        token = self.new_token()
        self._kept[token] = self.clock() + KEPT, owner, path, done
        while len(self._kept) > MOST:
            self._kept.popitem(last=False)
        return token

    def take(self, token: str, owner: str, path: str) -> Done:
        """Return what was done, once; empty if the token is not of this owner and page, is unknown or too old."""
        ends, of, where, done = self._kept.get(token[:MOST_TOKEN], (0.0, "", "", {}))
        if not done or (of, where) != (owner, path):
            return {}
        del self._kept[token]
        return done if self.clock() < ends else {}
