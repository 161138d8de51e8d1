"""Logging in and out. Two threads at a time compare passwords, which costs memory and time on purpose.

A third thread is kept for names that have logged in before from the same address, so that no number of wrong passwords
from elsewhere locks them out.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass, field, replace

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from admin.output.layout import HEADERS, Fields
from admin.output.site import Site
from admin.users.access import COOKIE, agent_of, check_origin, who_asks
from admin.users.audit import DONE
from admin.users.roles import Who
from admin.users.sessions import ADDRESS, NAME, PAIR, Key, csrf_of
from shared.auth.auth_file import Identity
from shared.auth.failures import network_of
from shared.auth.passwords import UNKNOWN_USER_HASH, is_password
from shared.http.api import Handler, query
from shared.http.errors import HttpError

AT_ONCE = 2  # passwords compared at the same time
AT_ONCE_OF_KNOWN = 1  # the same, only for names that have logged in from their address
MOST_WAITING = 20  # logins that wait for a comparison: two seconds of work; for the known ones as many
MOST_KNOWN = 1000  # pairs of a name and an address that have logged in; the least recent is forgotten first
OF_ADDRESS, OF_NAME = 20, 100  # failed tries before an address, or a name from any address, has to wait
OF_NAME_LONGEST = 10.0  # s: a user who is attacked from everywhere must still be able to log in
MOST_PASSWORD = 1000  # characters
WRONG = "Incorrect user name or password."
TOO_MANY_FAILED = "Too many failed attempts. Try again in {:.0f} seconds."
TOO_MANY_AT_ONCE = "Too many logins at the same time. Try again in a few seconds."


@dataclass(slots=True)
class _Line:
    """The logins that wait for a comparison."""

    at_once: asyncio.Semaphore
    waiting: int = 0


@dataclass(slots=True)
class Login:
    """The handlers of /login and /logout."""

    site: Site
    _line: _Line = field(default_factory=lambda: _Line(asyncio.Semaphore(AT_ONCE)))
    _line_of_known: _Line = field(default_factory=lambda: _Line(asyncio.Semaphore(AT_ONCE_OF_KNOWN)))
    _known: OrderedDict[Key, None] = field(default_factory=OrderedDict)  # pairs that have logged in, the oldest first

    def routes(self) -> dict[str, dict[str, Handler]]:
        """Return the handlers of both paths, by method."""
        return {"/login": {"GET": self.page, "POST": self.log_in}, "/logout": {"POST": self.log_out}}

    async def page(self, request: Request) -> Response:
        """Return the page with the login form."""
        return self.show(request, query(request).get("next", ""), "", "")

    async def log_in(self, request: Request) -> Response:
        """Check a name and password, and start a session. Every try is counted and recorded."""
        try:
            form = await self.site.renderer.form_of(request)
        except HttpError as error:
            return self.show(request, "", "", error.text, error.status)
        except ValueError:
            return self.show(request, "", "", "The form is invalid.", 400)
        name, following, line = form.get("user", "")[:100], form.get("next", ""), self._line
        keys: tuple[Key, ...] = _keys(name.lower(), self.site.access.remote(request))
        pair = keys[0]
        if pair in self._known:  # wrong passwords for this name, or from this address, do not delay it
            line, keys = self._line_of_known, (pair,)
        wait = self.site.access.tries.wait(*keys)
        if wait > 0:
            return self.show(request, following, name, TOO_MANY_FAILED.format(wait + 0.5), 429)
        if line.waiting >= MOST_WAITING:
            return self.show(request, following, name, TOO_MANY_AT_ONCE, 503)
        self.site.access.tries.failed(*keys)
        found = await self._authenticated(name, form.get("password", ""), line)
        if found is None:
            self.note_refused(request, "wrong user or password", name)
            return self.show(request, following, name, WRONG, 401)
        self.site.access.tries.succeeded(*keys)
        self._known[pair] = None
        self._known.move_to_end(pair)
        if len(self._known) > MOST_KNOWN:
            self._known.popitem(last=False)
        answer = RedirectResponse(self.local(following), 303, HEADERS)
        self.set_cookie(request, answer, self.begin_session(request, *found))
        return answer

    def begin_session(self, request: Request, identity: Identity, secret: str = "", **detail: str) -> str:
        """Start a session of an authenticated user, and return the content of its cookie.

        `secret`: the hash of the password; "" if the OIDC provider has authenticated the user. `detail`: for the audit.
        """
        self.site.access.sessions.end(who_asks(request).session)
        roles = () if secret else identity.roles
        cookie = self.site.access.sessions.begin(identity.name, secret, agent_of(request), identity.kind, roles)
        request.state.who = user = Who(identity, csrf_of(cookie), cookie)
        self.site.audit.note("login", user.name, self.site.access.actor(request), DONE, **detail)
        return cookie

    def set_cookie(self, request: Request, answer: Response, cookie: str) -> None:
        """Have the browser keep the cookie of a session."""
        self.site.access.set_cookie(request, answer, COOKIE, cookie, self.site.renderer.base)

    def note_refused(self, request: Request, reason: str, name: str = "", **detail: str) -> None:
        """Record a login that was refused. `name`: as it was typed."""
        actor = replace(self.site.access.actor(request), user=name, role="")
        self.site.audit.note("login", name, actor, f"refused: {reason}", **detail)

    async def log_out(self, request: Request) -> Response:
        """End the session, if there is one, and delete the cookie."""
        check_origin(request)
        who = who_asks(request)
        if who.session:
            await self.site.renderer.form_of(request)
            self.site.access.sessions.end(who.session)
            self.site.audit.note("logout", who.name, self.site.access.actor(request), DONE)
        answer = RedirectResponse(self.site.renderer.url("login"), 303, HEADERS)
        answer.delete_cookie(COOKIE, path=self.site.renderer.base or "/", httponly=True, samesite="strict")
        return answer

    async def _authenticated(self, name: str, password: str, line: _Line) -> tuple[Identity, str] | None:
        """Return the user who has this password, and its hash."""
        users = self.site.access.users
        found = users.user(name) if users is not None else None
        secret = found[1] if found is not None else ""
        line.waiting += 1
        try:
            async with line.at_once:
                right = await asyncio.to_thread(is_password, secret or UNKNOWN_USER_HASH, password[:MOST_PASSWORD])
        finally:
            line.waiting -= 1
        return found if right and secret else None

    def show(self, request: Request, following: str, user: str, words: str, status: int = 200) -> Response:
        """Return the login page. `words`: the error, or ""."""
        fields: Fields = {
            "page_of": "login", "title": "Log in", "still": True, "next": following[:2000], "user": user, "words": words,
            "has_passwords": self.site.access.users is not None, "has_oidc": self.site.access.oidc is not None,
        }  # fmt: skip
        return self.site.renderer.page(request, fields, status)

    def local(self, where: str) -> str:
        """Return `where` if it is a path of nsqadmin, or else the home page."""
        home = f"{self.site.renderer.base}/"
        is_local = where.startswith(home) and not where.startswith("//") and "\\" not in where
        return where if is_local and where.isprintable() else home


def _keys(name: str, remote: str) -> tuple[Key, Key, Key]:
    """Return the keys that count this try."""
    network = network_of(remote)
    by_name = Key(NAME, name, OF_NAME, OF_NAME_LONGEST)
    return Key(PAIR, f"{name} {network}"), Key(ADDRESS, network, OF_ADDRESS), by_name
