"""Rights on an HTTP API: every route has a table row with the rights it needs, and requests show credentials.

A request shows a token, as `Authorization: Bearer TOKEN`, or as the password of basic authentication with any user name; or it
shows a user's name and password by basic authentication. One that shows nothing has the proof of its connection: a verified
certificate, or the user of a unix socket. A program may name the user for whom it acts. Missing credentials are answered with
401, missing rights with 403.

See docs/contributing/design/security.md#who-may-do-what.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from starlette.requests import Request
from starlette.responses import Response

from shared.auth.auth_file import Identity
from shared.auth.failures import Failures, network_of
from shared.auth.keyring import Keyring, log_failures
from shared.auth.on_behalf import SIGNATURE, USER, is_signed
from shared.auth.passwords import UNKNOWN_USER_HASH, is_password
from shared.auth.tokens import is_token
from shared.auth.verbs import Verb, verbs_to_finish
from shared.http.api import Handler, query
from shared.http.errors import HttpError
from shared.http.exchange import exchange_of, target_of
from shared.http.proof import Proof, proof_in
from shared.http.route import Need, Route
from shared.http.under_way import UnderWay
from shared.process.unix_sockets import NOBODY

MOST_PASSWORD = 1024  # bytes
REMEMBERED_FOR = 60.0  # s for which a password that was right is not hashed again: that takes 50 ms
MOST_REMEMBERED = 1000
MOST_HASHING = 2  # passwords at once: each takes 64 MB and the time of a core
MOST_WAITING = 20  # passwords that are hashed, or wait for it
_CHALLENGE = {"WWW-Authenticate": 'Bearer, Basic realm="penstock"'}


@dataclass(slots=True)
class Authorizer:
    """Finds the identity of a request's sender. Lives in the HTTP thread."""

    keyring: Keyring
    clock: Callable[[], float] = time.monotonic  # s
    _remembered: dict[bytes, float] = field(default_factory=dict)  # until when: see REMEMBERED_FOR
    _key: bytes = field(default_factory=lambda: secrets.token_bytes(32))
    _hashing: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MOST_HASHING))
    _failures: Failures = field(init=False)  # by address
    _waiting: int = 0  # passwords that are hashed, or wait for it
    under_way: UnderWay = field(init=False)

    def __post_init__(self) -> None:
        """Complete the fields, which refer to each other."""
        self._failures = Failures(lambda: self.clock())
        self.under_way = UnderWay(lambda: self.keyring.epoch)

    async def identify(self, request: Request) -> Identity | None:
        """Return the sender of a request, None if it shows no credentials. Raises HttpError 401 or 429 for wrong ones."""
        kind, _, value = request.headers.get("authorization", "").partition(" ")
        proof = proof_in(request.scope)
        if not kind:
            return self._by_connection(proof)
        address = network_of(request.client.host) if request.client is not None else f"user {proof.user}"
        if kind.lower() == "bearer":
            identity = self.keyring.with_token(value.strip().encode("utf-8", "surrogateescape"))
        elif kind.lower() == "basic":
            identity = await self._by_password(value, address)
        else:
            identity = None
        if identity is None:
            self._check_failures(address)
            if self._failures.note(address):
                log_failures(address)
            raise HttpError(401, "UNAUTHORIZED", _CHALLENGE)
        return identity

    def identity_now(self, request: Request, before: Identity) -> Identity | None:
        """Return the current identity of a sender that `identify` knew as `before`, or None if it is no longer valid."""
        kind, _, value = request.headers.get("authorization", "").partition(" ")
        if not kind:
            return self._by_connection(proof_in(request.scope))
        if kind.lower() == "bearer":
            return self.keyring.with_token(value.strip().encode("utf-8", "surrogateescape"))
        name, _, password = base64.b64decode(value).partition(b":")
        token = password if is_token(password) else name
        return self.keyring.with_token(token) if is_token(token) else self.keyring.named(before.name, before.kind)

    def _by_connection(self, proof: Proof) -> Identity | None:
        """Return the identity of the connection's certificate, or else of its user, or None."""
        identity = None
        if proof.subject or proof.names:
            identity = self.keyring.with_certificate(proof.subject, list(proof.names))
        return identity or (self.keyring.with_uid(proof.user) if proof.user != NOBODY else None)

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
            await self._hash(UNKNOWN_USER_HASH, password, address)  # so that it takes as long as a wrong password
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
            now = self.keyring.user(user[0].name)  # the file may have changed meanwhile
            return now[0] if now is not None and now[1] == user[1] else None
        return user[0]

    async def _hash(self, hashed: str, password: bytes, address: str) -> bool:
        """Return whether this is the password. Raises HttpError 429 after too many failures, 503 if too many wait."""
        self._check_failures(address)
        if self._waiting >= MOST_WAITING:
            raise HttpError(503, "TOO_MANY_LOGINS", {"Retry-After": "1"})
        self._failures.note(address)  # until it is over
        self._waiting += 1
        try:
            async with self._hashing:
                is_right = await asyncio.to_thread(is_password, hashed, password)
        finally:
            self._waiting -= 1
        self._failures.take_back(address)  # a wrong one is counted by `identify`
        return is_right

    def _check_failures(self, address: str) -> None:
        left = self._failures.wait(address)
        if left > 0:
            raise HttpError(429, "TOO_MANY_FAILURES", {"Retry-After": str(int(left) + 1)})


def guarded(routes: Iterable[Route], authorizer: Authorizer) -> list[Route]:
    """Return the routes, each guarded by what it needs."""
    return [replace(route, handler=_guarded(route.need, route.handler, authorizer)) for route in routes]


def user_behind(request: Request, identity: Identity) -> str:
    """Return the user for whom a program with this identity sends a request, or "". Raises HttpError 403.

    The name is believed only if the program may do everything anyway, and if either the connection shows the program's
    certificate, or the program's token has signed the name for this request.
    """
    names = request.headers.getlist(USER)
    if not names:
        return ""
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    user = names[0].encode("latin-1").decode("utf-8", "replace")  # Starlette takes headers for Latin-1
    if kind:
        target = target_of(request.scope).decode("latin-1")
        signed = is_signed(request.headers.get(SIGNATURE, ""), token.strip(), user, request.method, target)
        is_proved = kind.lower() == "bearer" and signed
    else:
        is_proved = identity.kind == "certificate"
    if len(names) != 1 or not is_proved or not identity.rights.may(Verb.ADMIN):
        raise HttpError(403, "FORBIDDEN")
    return user


def _guarded(need: Need, handler: Handler, authorizer: Authorizer) -> Handler:
    if need.is_open:
        return handler

    async def checked(request: Request) -> Response:
        identity = await authorizer.identify(request)
        if identity is None:
            raise HttpError(401, "UNAUTHORIZED", _CHALLENGE)
        request.state.identity = identity
        request.state.user = user_behind(request, identity)
        needed = _needed(need, query(request) if need.topic or need.channel else {})
        if not all(identity.rights.may(*one) for one in needed):
            raise HttpError(403, "FORBIDDEN")

        def still_may() -> bool:
            found = authorizer.identity_now(request, identity)
            return found is not None and all(found.rights.may(*one) for one in needed)

        authorizer.under_way.add(exchange_of(request.scope), still_may)
        return await handler(request)

    return checked


def _needed(need: Need, arguments: Mapping[str, str]) -> list[tuple[Verb, str, str]]:
    """Return the rights that a request with these arguments needs: verbs, each with a topic and a channel."""
    topic, channel = arguments.get(need.topic, ""), arguments.get(need.channel, "")
    verbs = [need.verb] if need.verb is not None else []
    has_preview = bool(need.preview) and arguments.get(need.preview) != "0"
    if need.has_bodies or has_preview or any(name in arguments for name in need.reading):
        verbs.append(Verb.READ)
    if need.finishing:
        listed, count = arguments.get(need.finishing, ""), arguments.get("count", "")
        verbs += verbs_to_finish(1 if "," not in listed and count in ("", "0", "1") else 2)
    needed = [(verb, topic, channel) for verb in verbs]
    return [*needed, (Verb.PUBLISH, arguments.get(need.target, ""), "")] if need.target else needed
