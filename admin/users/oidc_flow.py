"""Log-ins by OIDC that are in progress, each bound to one browser. Pure: time and randomness come in.

Nothing is kept for a login that was only begun, so strangers who begin many cannot displace others. All of it is in the
browser's cookie, sealed by a key of this process: a random text, the time at which the login began, and the page to go to.
State, nonce and code verifier are derived from the random text, so the provider, which learns the first two, cannot make the
cookie, and another browser, to which an attacker sends a foreign answer of the provider, does not have it.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

LIFETIME = 600.0  # s to log in at the provider
MOST_USED = 10_000  # logins that have ended, of which it is known
MOST_FOLLOWING = 1000  # characters of the page to go to; a cookie has at most 4,096


class FlowError(Exception):
    """The browser has no login in progress that fits, for the reason in the text."""


@dataclass(frozen=True, slots=True)
class Flow:
    """A login that a browser has begun and that ends when it comes back from the provider."""

    state: str  # comes back from the provider
    nonce: str  # comes back in the ID token
    verifier: str  # proves to the provider that the same client began and ends the login (PKCE)
    following: str  # path of the page to go to


@dataclass(slots=True)
class Flows:
    """Begins logins and ends each of them once."""

    key: bytes  # a secret of this process
    clock: Callable[[], float]  # s
    new_token: Callable[[], str]  # returns random letters, digits, - and _
    _used: OrderedDict[str, float] = field(
        default_factory=OrderedDict
    )  # by the tokens of ended logins: when they began

    def begin(self, following: str) -> tuple[Flow, str]:
        """Begin a login, and return it with the content of its cookie. `following`: left out if it is too long."""
        path = following if len(following) <= MOST_FOLLOWING else ""
        token = self.new_token()
        content = f"{token}.{self.clock():.0f}.{base64.urlsafe_b64encode(path.encode()).decode()}"
        return self._flow(token, path), f"{content}.{self._mac('cookie', content)}"

    def finish(self, cookie: str, state: str) -> Flow:
        """Return the login of this cookie, whose state the provider has sent back, and end it. Raises FlowError."""
        content, _, mac = cookie.rpartition(".")
        if not _is_equal(mac, self._mac("cookie", content)):
            raise FlowError("the cookie was not made by this process")
        token, began, path = content.split(".")
        flow = self._flow(token, base64.urlsafe_b64decode(path).decode())
        if not _is_equal(state, flow.state):
            raise FlowError("the state is that of another login")
        now = self.clock()
        if now - float(began) > LIFETIME:
            raise FlowError(f"the login was started more than {LIFETIME:.0f} s ago")
        if token in self._used:
            raise FlowError("the response of the provider was already used")
        # forget logins whose time is over, and the oldest one if there are too many
        while self._used and (len(self._used) >= MOST_USED or now - next(iter(self._used.values())) > LIFETIME):
            self._used.popitem(last=False)
        self._used[token] = float(began)
        return flow

    def _flow(self, token: str, following: str) -> Flow:
        state, nonce, verifier = (self._mac(purpose, token) for purpose in ("state", "nonce", "verifier"))
        return Flow(state, nonce, verifier, following)

    def _mac(self, purpose: str, text: str) -> str:
        return hmac.new(self.key, f"{purpose} {text}".encode(), hashlib.sha256).hexdigest()


def _is_equal(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())
