"""Logging in by OIDC: the authorization code flow with PKCE, state and nonce (/login/oidc and /login/oidc/callback).

The cookie of a login in progress is SameSite=Lax, because the browser comes back by a navigation that the provider's site has
begun, with which it would not send a Strict one. It is of no use for anything but this one login, for ten minutes. The cookie
of the session stays Strict. That is why the last answer is a page that loads the next one, and not a redirect: the browser
would count a redirect as a part of the provider's navigation, and would not send the new cookie with it.

See docs/contributing/design/security.md#nsqadmin.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from admin.options import AdminOptions
from admin.output.layout import HEADERS, Fields
from admin.pages.login import OF_ADDRESS, TOO_MANY_AT_ONCE, TOO_MANY_FAILED, Login
from admin.users.access import Access
from admin.users.oidc_flow import LIFETIME, FlowError, Flows
from admin.users.oidc_provider import Client, CodeRefusedError, Provider, ProviderError
from admin.users.oidc_roles import NoUserError, claim_values
from admin.users.oidc_token import TokenError
from admin.users.sessions import ADDRESS, Key
from shared.auth.auth_file import Identity
from shared.auth.failures import network_of
from shared.files import public_problem, without_waiting
from shared.http.api import Handler, query
from shared.log import log

COOKIE = "nsqadmin_oidc"
BEGIN, CALLBACK = "/login/oidc", "/login/oidc/callback"
AT_ONCE = 50  # logins that wait for the provider
MOST_SECRET = 1024  # bytes of the client secret
MOST_CODE = 4096  # characters of a code
SHOWN = 500  # characters of claims in the log
_ERROR = re.compile(r"[a-z_]{1,50}")
_SEE_LOG = "The log of nsqadmin has the reason."
_INVALID = f"The response of the OIDC provider is not valid. Log in again. {_SEE_LOG}"
_NO_ROLE = (
    "Your account has no role in nsqadmin. Ask the administrator of nsqadmin to map one of your groups to a role."
)


class RefusedLoginError(Exception):
    """A login is refused: the text for the user, the reason for audit and log, and the status of the answer."""

    def __init__(self, text: str, reason: str, status: int) -> None:
        super().__init__(reason)
        self.text, self.status = text, status


_FAILURES = (RefusedLoginError, FlowError, TokenError, ProviderError, NoUserError)


def _answer_to(failure: Exception) -> tuple[str, int]:
    """Return the text for the user, and the status, of one of _FAILURES."""
    match failure:
        case RefusedLoginError(text=text, status=status):
            return text, status
        case FlowError():
            return "This login has expired, was already used, or was started in another browser. Log in again.", 400
        case CodeRefusedError() | TokenError():
            return _INVALID, 400
        case NoUserError():
            return f"nsqadmin cannot use the user name that the OIDC provider states. {_SEE_LOG}", 403
        case _:
            return f"The OIDC provider is unavailable. Try again in a few seconds. {_SEE_LOG}", 502


@dataclass(slots=True)
class OidcLogin:
    """Sends browsers to the provider, and logs in those that come back from it."""

    options: AdminOptions
    access: Access
    login: Login
    provider: Provider
    flows: Flows = field(
        default_factory=lambda: Flows(secrets.token_bytes(32), time.monotonic, lambda: secrets.token_urlsafe(32))
    )
    _places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))

    def routes(self) -> dict[str, dict[str, Handler]]:
        """Return the handlers of both paths, by method."""
        return {BEGIN: {"GET": self.begin}, CALLBACK: {"GET": self.callback}}

    async def begin(self, request: Request) -> Response:
        """Send the browser to the provider, with a cookie by which it is known when it comes back."""
        following = self.login.local(query(request).get("next", ""))
        flow, cookie = self.flows.begin(following)
        try:
            async with self._free_place():
                where = await self.provider.authorization_url(flow, self._redirect_url(request))
        except _FAILURES as error:
            log.warning("OIDC: a login cannot begin: %s", error)
            return self.login.show(request, following, "", *_answer_to(error))
        answer = RedirectResponse(where, 303, HEADERS)
        more = {"samesite": "lax", "max_age": int(LIFETIME)}
        self.access.set_cookie(request, answer, COOKIE, cookie, self._cookie_path, **more)
        return answer

    async def callback(self, request: Request) -> Response:
        """Handle the provider's answer that the browser brings, and start a session. Each refusal is counted and recorded."""
        cookie = request.cookies.get(COOKIE, "")
        if not cookie:  # not counted: any page could make this browser ask, and so make its user wait
            return self.login.show(request, "", "", *_answer_to(FlowError()))
        key, following = Key(ADDRESS, network_of(self.access.remote(request)), OF_ADDRESS), ""
        wait = self.access.tries.wait(key)
        if wait > 0:
            return self.login.show(request, "", "", TOO_MANY_FAILED.format(wait + 0.5), 429)
        self.access.tries.failed(key)
        asked = query(request)
        try:
            async with self._free_place():
                flow = self.flows.finish(cookie, asked.get("state", ""))
                following = flow.following
                claims = await self.provider.claims(self._code(asked), flow, self._redirect_url(request))
            identity = self._identity(claims)
        except _FAILURES as error:
            text, status = _answer_to(error)
            log.warning("OIDC: a login was refused: %s", error)
            if status >= 500:  # the provider is down, which is not counted
                self.access.tries.succeeded(key)
            else:
                self.login.note_refused(request, str(error), by="oidc")
            return self._without_cookie(self.login.show(request, following, "", text, status))
        self.access.tries.succeeded(key)
        return self._enter(request, identity, str(claims.get("sub"))[:SHOWN], following)

    def _free_place(self) -> asyncio.Semaphore:
        """Return the places of logins that wait for the provider. Raises RefusedLoginError if all are taken."""
        if self._places.locked():
            raise RefusedLoginError(TOO_MANY_AT_ONCE, "too many logins at the same time", 503)
        return self._places

    def _code(self, asked: Mapping[str, str]) -> str:
        """Return the code in the answer of the provider. Raises RefusedLoginError."""
        if "error" in asked:
            error = asked["error"] if _ERROR.fullmatch(asked["error"]) else "unknown error"
            text = f"The OIDC provider refused the login ({error}). Log in again, or ask its administrator."
            more = asked.get("error_description", "")[:SHOWN]
            raise RefusedLoginError(text, f"the provider answered {error}: {more!r}", 400)
        if asked.get("iss", self.options.oidc_issuer) != self.options.oidc_issuer:
            raise RefusedLoginError(_INVALID, "the answer is that of another provider", 400)
        code = asked.get("code", "")
        if not 0 < len(code) <= MOST_CODE or not code.isascii() or not code.isprintable():
            raise RefusedLoginError(_INVALID, "the provider sent no code", 400)
        return code

    def _identity(self, claims: dict[str, Any]) -> Identity:
        """Return the user whom the claims name. Raises NoUserError, RefusedLoginError."""
        roles = self.access.oidc
        assert roles is not None  # there is a provider
        name = roles.user_name(claims, self.options.oidc_user_claim)
        values = claim_values(claims, self.options.oidc_claim)
        identity = roles.identity(name, roles.roles_of(values))
        if identity is None:
            seen = repr(values)[:SHOWN]
            log.warning("OIDC: no -oidc-role for %r, whose claim %r has %s", name, self.options.oidc_claim, seen)
            raise RefusedLoginError(_NO_ROLE, f"no role for {name}", 403)
        return identity

    def _enter(self, request: Request, identity: Identity, subject: str, following: str) -> Response:
        """Return a page that loads the one that the user asked for, with the cookie of a new session."""
        cookie = self.login.begin_session(request, identity, by="oidc", subject=subject)
        where = quote(self.login.local(following), safe=":/%#?=@[]!$&'()*+,;")
        fields: Fields = {"page_of": "logged_in", "title": "Logged in", "still": True, "next": where}
        answer = self.login.site.renderer.page(request, fields)
        answer.headers["Refresh"] = f"0; url={where}"
        self.login.set_cookie(request, answer, cookie)
        return self._without_cookie(answer)

    def _without_cookie(self, answer: Response) -> Response:
        """Have the answer delete the cookie of the login, which has ended."""
        answer.delete_cookie(COOKIE, path=self._cookie_path, httponly=True, samesite="lax")
        return answer

    @property
    def _cookie_path(self) -> str:
        return f"{self.login.site.renderer.base}{BEGIN}"

    def _redirect_url(self, request: Request) -> str:
        """Return the URL to which the provider sends the browser back. The Host header was checked before."""
        if self.options.oidc_redirect_url:
            return self.options.oidc_redirect_url
        scheme = "https" if self.access.is_secure(request) else "http"
        return f"{scheme}://{request.headers.get('host', '')}{self.login.site.renderer.base}{CALLBACK}"


def open_provider(options: AdminOptions) -> Provider:
    """Return the provider that the options name. Raises ValueError for a file of no use."""
    flag, path = "--oidc-root-ca-file", options.oidc_root_ca_file
    try:
        context = ssl.create_default_context(cafile=path or None)
        flag, path = "--oidc-client-secret-file", options.oidc_client_secret_file
        secret = _read_secret(path) if path else ""
    except (OSError, ValueError) as error:  # also those of ssl
        raise ValueError(f"{flag} {path}: {getattr(error, 'strerror', None) or error}") from None
    client = Client(options.oidc_issuer, options.oidc_client_id, secret, options.oidc_scope)
    return Provider(client, context, time.monotonic, time.time)


def _read_secret(path: str) -> str:
    """Return the client secret in a file. Raises OSError, ValueError."""
    with open(path, "rb", opener=without_waiting) as file:
        wrong = public_problem(os.fstat(file.fileno()))
        secret = file.read(MOST_SECRET + 1).strip()
    if wrong:
        raise ValueError(wrong)
    text = secret.decode("ascii", "replace")
    if not 0 < len(text) <= MOST_SECRET or not text.isascii() or not text.isprintable():
        raise ValueError(f"expected a secret of 1 to {MOST_SECRET} printable ASCII characters")
    return text
