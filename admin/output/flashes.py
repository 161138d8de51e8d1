"""Results of forms, for the page that the browser is sent to next: each is shown once, to the browser that sent the form.

They are kept here and not in the address, so that no link can make a page show a false result. The browser has a random
token of its result in a cookie. A restart of nsqadmin forgets all results. Pure.
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
    """The results of forms that no page has shown yet."""

    clock: Callable[[], float]  # s, monotonic
    new_token: Callable[[], str]
    # By token: when it ends, the owner, the path of the page, and the result.
    _kept: OrderedDict[str, tuple[float, str, str, Done]] = field(default_factory=OrderedDict)

    def put(self, owner: str, path: str, done: Done) -> str:
        """Keep a result for the owner's page, and return the token."""
        token = self.new_token()
        self._kept[token] = self.clock() + KEPT, owner, path, done
        while len(self._kept) > MOST:
            self._kept.popitem(last=False)
        return token

    def take(self, token: str, owner: str, path: str) -> Done:
        """Return the result, once; empty if the token is unknown, expired, or of another owner or page."""
        ends, of, where, done = self._kept.get(token[:MOST_TOKEN], (0.0, "", "", {}))
        if not done or (of, where) != (owner, path):
            return {}
        del self._kept[token]
        return done if self.clock() < ends else {}
