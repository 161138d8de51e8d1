"""Rights on an HTTP API: every route says what it needs, and requests show who sends them.

A request shows a token, as `Authorization: Bearer TOKEN`, or as the password of basic authentication with any user name; or it
shows a user's name and password by basic authentication. What is missing is answered with 401, what is not allowed with 403.

See docs/design/security.md#who-may-do-what.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import Response

from shared.auth.auth_file import Identity
from shared.auth.failures import Failures
from shared.auth.keyring import Keyring, tell_of_failures
from shared.auth.passwords import NOBODYS, is_password
from shared.auth.tokens import is_token
from shared.auth.verbs import Verb
from shared.http.api import Handler, Routes, query
from shared.http.errors import HttpError

MOST_PASSWORD = 1024  # bytes
REMEMBERED_FOR = 60.0  # s for which a password that was right is not hashed again: that takes 50 ms
MOST_REMEMBERED = 1000
MOST_HASHING = 2  # passwords at once: each takes 64 MB and the time of a core
_CHALLENGE = {"WWW-Authenticate": 'Bearer, Basic realm="penstock"'}


@dataclass(frozen=True, slots=True)
class Need:
    """What a route needs."""

    verb: Verb | None  # None: none
    # name of the argument with the topic, tube or queue; "": the route is about all of them, or the node
    topic: str = ""
    channel: str = ""  # name of the argument with the channel
    preview: str = ""  # name of the argument that is 0 if no bodies are wanted; else the route needs READ, too
    is_open: bool = False  # anybody may, also who shows nothing
    target: str = ""  # name of the argument with another topic, on which the route needs PUBLISH


OPEN = Need(None, is_open=True)
KNOWN = Need(None)  # anybody may whom the auth file knows


@dataclass(slots=True)
class Authorizer:
    """Finds out who sends a request. Lives in the HTTP thread."""

    keyring: Keyring
    clock: Callable[[], float] = time.monotonic  # s
    _remembered: dict[bytes, float] = field(default_factory=dict)  # until when: see REMEMBERED_FOR
    _key: bytes = field(default_factory=lambda: secrets.token_bytes(32))
    _hashing: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MOST_HASHING))
    _failures: Failures = field(init=False)  # by address

    def __post_init__(self) -> None:
        self._failures = Failures(lambda: self.clock())

    async def identify(self, request: Request) -> Identity | None:
        """Return who sends a request; None: it shows nothing. Raises HttpError 401 or 429 if what it shows is wrong."""
        kind, _, value = request.headers.get("authorization", "").partition(" ")
        if not kind:
            return None
        address = request.client.host if request.client is not None else ""
        if kind.lower() == "bearer":
            identity = self.keyring.with_token(value.strip().encode("utf-8", "surrogateescape"))
        elif kind.lower() == "basic":
            identity = await self._by_password(value, address)
        else:
            identity = None
        if identity is None:
            self._check_failures(address)
            if self._failures.note(address):
                tell_of_failures(address)
            raise HttpError(401, "UNAUTHORIZED", _CHALLENGE)
        return identity

    async def _by_password(self, value: str, address: str) -> Identity | None:
        try:
            name, colon, password = base64.b64decode(value, validate=True).partition(b":")
        except (binascii.Error, ValueError):
            return None
        if is_token(password) or (is_token(name) and not password):
            return self.keyring.with_token(password or name)
        if not colon or len(password) > MOST_PASSWORD:
            return None
        user = self.keyring.user(name.decode("utf-8", "replace"))
        if user is None or not user[1]:
            await self._hash(NOBODYS, password, address)  # so that it takes as long as a wrong password
            return None
        mark = hmac.digest(
            self._key, b"%s\0%s\0%s" % (name, user[1].encode(), hashlib.sha256(password).digest()), "sha256"
        )
        if self._remembered.get(mark, 0.0) < self.clock():
            if not await self._hash(user[1], password, address):
                return None
            if len(self._remembered) >= MOST_REMEMBERED:
                self._remembered.clear()
            self._remembered[mark] = self.clock() + REMEMBERED_FOR
        return user[0]

    async def _hash(self, hashed: str, password: bytes, address: str) -> bool:
        """Return whether this is the password. An attempt counts as a failure until it is over."""
        self._check_failures(address)
        self._failures.note(address)
        async with self._hashing:
            is_right = await asyncio.to_thread(is_password, hashed, password)
        self._failures.take_back(address)  # a wrong one is counted by `identify`
        return is_right

    def _check_failures(self, address: str) -> None:
        left = self._failures.wait(address)
        if left > 0:
            raise HttpError(429, "TOO_MANY_FAILURES", {"Retry-After": str(int(left) + 1)})


def guarded(routes: Routes, needs: Mapping[str, Need], authorizer: Authorizer) -> Routes:
    """Return the routes, each guarded by what it needs. Raises KeyError for a route of which `needs` says nothing."""
    return {
        path: {method: _guarded(needs[f"{method} {path}"], handler, authorizer) for method, handler in methods.items()}
        for path, methods in routes.items()
    }


def _guarded(need: Need, handler: Handler, authorizer: Authorizer) -> Handler:
    if need.is_open:
        return handler

    async def checked(request: Request) -> Response:
        identity = await authorizer.identify(request)
        if identity is None:
            raise HttpError(401, "UNAUTHORIZED", _CHALLENGE)
        arguments = query(request) if need.topic or need.channel else {}
        topic, channel = arguments.get(need.topic, ""), arguments.get(need.channel, "")
        needed = [(need.verb, topic, channel)] if need.verb is not None else []
        if need.preview and arguments.get(need.preview) != "0":
            needed.append((Verb.READ, topic, channel))
        if need.target:
            needed.append((Verb.PUBLISH, arguments.get(need.target, ""), ""))
        if not all(identity.rights.may(*one) for one in needed):
            raise HttpError(403, "FORBIDDEN")
        request.state.identity = identity
        return await handler(request)

    return checked
