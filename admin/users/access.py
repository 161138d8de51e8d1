"""Authentication and authorization of nsqadmin's requests: who the user is, and what that user may do.

With a file of users or an OIDC provider, a user has logged in, sends a token, or is named by a trusted proxy. Otherwise rights
are as in the original: every user may do everything; or, with -admin-user, users that the header names may, and others may only
read. Unlike the original, nsqadmin believes a header only from a trusted network.

See docs/contributing/design/security.md#nsqadmin.
"""

from __future__ import annotations

import base64
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from admin.nodes.upstreams import ON_BEHALF_OF
from admin.options import AdminOptions
from admin.users.audit import Actor
from admin.users.oidc_roles import KIND as OIDC
from admin.users.oidc_roles import OidcRoles
from admin.users.roles import NEEDED, NOBODY, OPEN, Need, Who, of_role
from admin.users.sessions import Session, Sessions, Tries, csrf_of
from shared.auth.auth_file import Identity
from shared.auth.keyring import Keyring
from shared.http.api import Handler, Routes
from shared.http.errors import HttpError
from shared.values import SECOND

COOKIE = "nsqadmin_session"
LOOPBACK = ("127.0.0.0/8", "::1/128")
MOST_TEXT = 500  # characters kept of each text of a request
_NAMED = ("{topic}", "{channel}")  # the path parameters that rights apply to; views check those of tubes

Refuse = Callable[[Request, HttpError], Awaitable[Response]]


@dataclass(slots=True)
class Access:
    """Finds the user of a request, and guards routes by the rights that they need."""

    options: AdminOptions
    users: Keyring | None  # None: there is no file of users
    sessions: Sessions = field(init=False)
    oidc: OidcRoles | None = field(init=False)  # None: there is no OIDC provider
    tries: Tries = field(default_factory=lambda: Tries(time.monotonic))

    def __post_init__(self) -> None:
        lifetime = self.options.session_lifetime / SECOND
        self.sessions = Sessions(lifetime, time.monotonic, lambda: secrets.token_urlsafe(32))
        self.oidc = None
        if self.options.oidc_issuer:
            self.oidc = OidcRoles(self.options.oidc_role, self.users, self.options.admin_user)

    # The user

    @property
    def has_users(self) -> bool:
        """True if users can log in: there is a file of users, or an OIDC provider."""
        return self.users is not None or self.oidc is not None

    def who(self, request: Request, *, is_use: bool = True) -> Who:
        """Return the user of a request. Raises HttpError 401 for an unknown token.

        `is_use` False: the request does not extend the session, because a page that was left open sent it.
        """
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and self.users is not None:
            identity = self.users.with_token(token.strip().encode())
            if identity is None:
                raise HttpError(401, "UNAUTHORIZED", {"WWW-Authenticate": "Bearer"})
            return Who(identity)
        cookie = request.cookies.get(COOKIE, "")
        if cookie and self.has_users:
            identity = self.sessions.find(cookie, agent_of(request), self._current, is_use=is_use)
            if identity is not None:
                return Who(identity, csrf_of(cookie), cookie)
        return self._by_header(request)

    def _current(self, session: Session) -> tuple[Identity, str] | None:
        """Return the user of a session as it is now, and the hash of the password; "" for a user of the OIDC provider."""
        if session.kind != OIDC:
            return self.users.user(session.name) if self.users is not None else None
        identity = self.oidc.identity(session.name, session.roles) if self.oidc is not None else None
        return (identity, session.secret) if identity is not None else None

    def _by_header(self, request: Request) -> Who:
        given = request.headers.getlist(self.options.acl_http_header) if self.is_trusted(request) else []
        name = given[0][:MOST_TEXT] if len(given) == 1 else ""  # of several, the client has sent some
        # a user with a password or token has to log in
        identity = self.users.claimed(name) if name and self.users is not None else None
        if identity is not None:
            return Who(identity)
        return Who(of_role(name, "admin" if name and name in self.options.admin_user else self.anonymous))

    @property
    def anonymous(self) -> str:
        """The role of a user without identification."""
        if self.options.anonymous_role:
            return self.options.anonymous_role
        if self.has_users:
            return "nobody"
        return "body-viewer" if self.options.admin_user else "admin"

    def is_trusted(self, request: Request) -> bool:
        """Return whether the connection comes from a proxy that may name users. A unix socket has no address.

        With a file of users such a proxy must be configured, because otherwise every process of this machine would be one.
        """
        trusted = self.options.acl_trusted_cidr or (() if self.has_users else LOOPBACK)
        if request.client is None:
            return bool(trusted)
        return _is_in(request.client.host, trusted)

    def remote(self, request: Request) -> str:
        """Return the client's address, as a trusted proxy states it, or else that of the connection."""
        own = request.client.host if request.client else ""
        # the last one: the proxy has appended it, to the header or as a header of its own
        forwarded = ",".join(request.headers.getlist("x-forwarded-for")).rpartition(",")[2].strip()
        return forwarded[:100] if forwarded and self.is_trusted(request) else own

    def is_secure(self, request: Request) -> bool:
        """Return whether the browser uses TLS, to nsqadmin or to a trusted proxy that says so."""
        protocols = request.headers.getlist("x-forwarded-proto") if self.is_trusted(request) else []
        return "https" in (request.url.scheme, *protocols[-1:])

    def set_cookie(self, request: Request, response: Response, name: str, value: str, path: str, **more: Any) -> None:
        """Have the response set a cookie, which scripts cannot read, and which needs TLS if the browser uses it now."""
        given: dict[str, Any] = {
            "path": path or "/",
            "secure": self.is_secure(request),
            "httponly": True,
            "samesite": "strict",
        }
        response.set_cookie(name, value, **given | more)

    # The user's rights

    def guarded(self, routes: Routes, refuse: Refuse | None = None) -> Routes:
        """Return the routes, each guarded by the rights that it needs. Raises KeyError for a route that is not in the table.

        `refuse` makes the answer to users without the right; None leaves it to the API, as an HttpError.
        """
        return {
            path: {method: self._guarded(path, method, handler, refuse) for method, handler in methods.items()}
            for path, methods in routes.items()
        }

    def _guarded(self, path: str, method: str, handler: Handler, refuse: Refuse | None) -> Handler:
        needed = NEEDED[f"{method} {path}"]
        if path.startswith("/config/") and not self.has_users:
            needed = OPEN  # only the network counts, as in the original
        pattern = path.strip("/").split("/")
        named = [place for place, segment in enumerate(pattern) if segment in _NAMED]

        async def guarded(request: Request) -> Response:
            parts = request.scope["path"].split("/")[-len(pattern) :]
            request.state.place = tuple(parts[place] for place in named)

            def admit(*, is_use: bool) -> None:
                request.state.who = self.who(request, is_use=is_use)
                ON_BEHALF_OF.set(request.state.who.name)
                self.check(request.state.who, needed, *request.state.place)

            request.state.again = partial(admit, is_use=False)
            try:
                admit(is_use=True)
                # a browser attaches the cookie of a session to any request that a page makes it send
                if who_asks(request).session and method not in ("GET", "HEAD"):
                    check_origin(request)
            except HttpError as error:
                if refuse is None:
                    raise
                return await refuse(request, error)
            return await handler(request)

        return guarded

    def check(self, who: Who, needed: Need, topic: str = "", channel: str = "") -> None:
        """Raise HttpError 403 if the user may not use a route, or 401 if logging in would help."""
        if who.meets(needed, topic, channel):
            return
        if who.is_unknown:
            raise HttpError(401, "UNAUTHORIZED", {"WWW-Authenticate": "Bearer"})
        raise HttpError(403, "FORBIDDEN")

    def still_may(self, who: Who, action: str, topic: str, channel: str = "") -> bool:
        """Return whether the user may still do the action, by the file as it is now. For long tasks."""
        identity: Identity | None
        if who.identity.kind == OIDC and self.oidc is not None:
            identity = self.oidc.identity(who.name, who.identity.roles)
        elif self.users is None or not who.identity.kind:  # a user of the options, which do not change
            return who.may(action, topic, channel)
        else:
            identity = self.users.named(who.name, who.identity.kind)
        return identity is not None and Who(identity).may(action, topic, channel)

    def check_config(self, request: Request) -> None:
        """Raise HttpError 403 for a client outside of the network for /config, or 400 if it has no address."""
        network = self.options.allow_config_from_cidr
        if not network:
            return
        host = request.client.host if request.client else ""
        if _address(host) is None:
            raise HttpError(400, "INVALID_REMOTE_ADDR")
        if not _is_in(host, (network,)):
            raise HttpError(403, "FORBIDDEN")

    def actor(self, request: Request) -> Actor:
        """Return the user and the origin of the request, for audit records and notifications.

        A name by basic authentication alone is not verified; with a file of users it is marked "(said)".
        """
        client, who, claimed = request.client, who_asks(request), _claimed_name(request)
        remote = f"{client.host}:{client.port}" if client else ""
        forwarded = self.remote(request)
        if client and forwarded != client.host:
            remote = f"{forwarded} by way of {remote}"
        name = who.name or (f"{claimed} (said)" if claimed and self.has_users else claimed)
        return Actor(name, remote, agent_of(request), str(request.url)[:MOST_TEXT], who.role)


def who_asks(request: Request) -> Who:
    """Return the user that the guard has found for this request."""
    found: Who = getattr(request.state, "who", NOBODY)
    return found


def check_origin(request: Request) -> None:
    """Raise HttpError 403 unless the browser says that nsqadmin's own page sent it. Foreign Origins were refused before."""
    if "origin" not in request.headers and request.headers.get("sec-fetch-site") != "same-origin":
        raise HttpError(403, "Forms must be sent from a page of nsqadmin. Scripts can use the API below /api.")


def place_of(request: Request) -> tuple[str, ...]:
    """Return the topic and channel in the path of a guarded request, as far as its route has them."""
    found: tuple[str, ...] = getattr(request.state, "place", ())
    return found


def check_action(who: Who, action: str, topic: str, channel: str = "") -> None:
    """Raise HttpError 403 if the user may not do the action to the topic or channel, even if it does not exist."""
    if not who.may(action, topic, channel):
        raise HttpError(403, "FORBIDDEN")


def agent_of(request: Request) -> str:
    """Return the browser's User-Agent header, at most MOST_TEXT characters."""
    return request.headers.get("user-agent", "")[:MOST_TEXT]


def _is_in(host: str, networks: tuple[str, ...]) -> bool:
    address = _address(host)
    return address is not None and any(address in ip_network(network, strict=False) for network in networks)


def _address(host: str) -> IPv4Address | IPv6Address | None:
    """Return the address, an IPv4 address if it is mapped to IPv6; None if the host is none."""
    try:
        address = ip_address(host)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _claimed_name(request: Request) -> str:
    """Return the user of HTTP basic authentication, or "". It is not verified, and no decision depends on it."""
    kind, _, credentials = request.headers.get("authorization", "").partition(" ")
    try:
        user, colon, _ = base64.b64decode(credentials, validate=True).decode().partition(":")
    except ValueError:
        return ""
    return user[:MOST_TEXT] if kind == "Basic" and colon else ""
