"""Logging in by OIDC: the authorization code flow with PKCE, state and nonce (/login/oidc and /login/oidc/callback).

The cookie of a login in progress is SameSite=Lax, because the browser comes back by a navigation that the provider's site has
begun, with which it would not send a Strict one. It is of no use for anything but this one login, for ten minutes. The cookie
of the session stays Strict. That is why the last answer is a page that goes on by itself and not a redirect: the browser would
count a redirect as a part of the provider's navigation, and would not send the new cookie with it.

See docs/design/security.md#nsqadmin.
"""

from __future__ import annotations

import os
import re
import secrets
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from admin.options import AdminOptions
from admin.output.layout import HEADERS, Fields
from admin.pages.login import OF_ADDRESS, Login
from admin.users.access import Access
from admin.users.oidc_flow import LIFETIME, Flow, FlowError, Flows
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
_UNREACHABLE = "The OIDC provider is unavailable. Try again in a few seconds. The log of nsqadmin has the reason."
_REFUSED = "The response of the OIDC provider is not valid. Log in again. The log of nsqadmin has the reason."
_NO_FLOW = "This login has expired, was already used, or was started in another browser. Log in again."
_NO_USER = "nsqadmin cannot use the user name that the OIDC provider states. The log of nsqadmin has the reason."
_NO_ROLE = (
    "Your account has no role in nsqadmin. Ask the administrator of nsqadmin to map one of your groups to a role."
)
_BUSY = "Too many logins at the same time. Try again in a few seconds."


class RefusedLoginError(Exception):
    """A login is refused: what the user reads, the reason for audit and log, and the status of the answer."""

    def __init__(self, words: str, reason: str, status: int) -> None:
        super().__init__(reason)
        self.words, self.reason, self.status = words, reason, status


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
    _waiting: int = 0

    def routes(self) -> dict[str, dict[str, Handler]]:
        """Return the handlers of both paths, by method."""
        return {BEGIN: {"GET": self.begin}, CALLBACK: {"GET": self.callback}}

    async def begin(self, request: Request) -> Response:
        """Send the browser to the provider, with a cookie by which it is known when it comes back."""
        following = self.login.local(query(request).get("next", ""))
        try:
            self._check_room()
            flow, cookie = self.flows.begin(following)
            self._waiting += 1
            try:
                where = await self.provider.authorization_url(flow, self._redirect_url(request))
            except ProviderError as error:
                raise RefusedLoginError(_UNREACHABLE, str(error), 502) from None
            finally:
                self._waiting -= 1
        except RefusedLoginError as refused:
            log.warning("OIDC: a login cannot begin: %s", refused.reason)
            return self.login.show(request, following, "", refused.words, refused.status)
        answer = RedirectResponse(where, 303, HEADERS)
        answer.set_cookie(
            COOKIE, cookie, path=self._cookie_path, secure=self.access.is_secure(request), httponly=True,
            samesite="lax", max_age=int(LIFETIME),
        )  # fmt: skip
        return answer

    async def callback(self, request: Request) -> Response:
        """Take the provider's answer that the browser brings, and start a session. Each refusal is counted and recorded."""
        cookie = request.cookies.get(COOKIE, "")
        if not cookie:  # is not counted: any page could have this browser ask, and so make its user wait
            return self.login.show(request, "", "", _NO_FLOW, 400)
        key, following = Key(ADDRESS, network_of(self.access.remote(request)), OF_ADDRESS), ""
        wait = self.access.tries.wait(key)
        if wait > 0:
            words = f"Too many failed attempts. Try again in {wait + 0.5:.0f} seconds."
            return self.login.show(request, "", "", words, 429)
        self.access.tries.failed(key)
        try:
            self._check_room()
            asked = query(request)
            try:
                flow = self.flows.finish(cookie, asked.get("state", ""))
            except FlowError as error:
                raise RefusedLoginError(_NO_FLOW, str(error), 400) from None
            following = flow.following
            identity, subject = await self._proven(self._code(asked), flow, request)
        except RefusedLoginError as refused:
            log.warning("OIDC: a login was refused: %s", refused.reason)
            if refused.status >= 500:  # nobody was refused: the provider is down, and that is not counted
                self.access.tries.succeeded(key)
            else:
                self.login.note_refused(request, refused.reason)
            return self._forgotten(self.login.show(request, following, "", refused.words, refused.status))
        self.access.tries.succeeded(key)
        return self._enter(request, identity, subject, following)

    def _check_room(self) -> None:
        """Raise RefusedLoginError if too many wait for the provider."""
        if self._waiting >= AT_ONCE:
            raise RefusedLoginError(_BUSY, "too many logins at the same time", 503)

    def _code(self, asked: Mapping[str, str]) -> str:
        """Return the code in the answer of the provider. Raises RefusedLoginError."""
        if "error" in asked:
            error = asked["error"] if _ERROR.fullmatch(asked["error"]) else "unknown error"
            words = f"The OIDC provider refused the login ({error}). Log in again, or ask its administrator."
            more = asked.get("error_description", "")[:SHOWN]
            raise RefusedLoginError(words, f"the provider answered {error}: {more!r}", 400)
        if asked.get("iss", self.options.oidc_issuer) != self.options.oidc_issuer:
            raise RefusedLoginError(_REFUSED, "the answer is that of another provider", 400)
        code = asked.get("code", "")
        if not 0 < len(code) <= MOST_CODE or not code.isascii() or not code.isprintable():
            raise RefusedLoginError(_REFUSED, "the provider sent no code", 400)
        return code

    async def _proven(self, code: str, flow: Flow, request: Request) -> tuple[Identity, str]:
        """Return the user whom the provider proves by a code, and its subject there. Raises RefusedLoginError."""
        self._waiting += 1
        try:
            claims = await self.provider.claims(code, flow, self._redirect_url(request))
        except (CodeRefusedError, TokenError) as error:
            raise RefusedLoginError(_REFUSED, str(error), 400) from None
        except ProviderError as error:
            raise RefusedLoginError(_UNREACHABLE, str(error), 502) from None
        finally:
            self._waiting -= 1
        roles = self.access.oidc
        assert roles is not None  # there is a provider
        try:
            name = roles.user_name(claims, self.options.oidc_user_claim)
        except NoUserError as error:
            raise RefusedLoginError(_NO_USER, str(error), 403) from None
        values = claim_values(claims, self.options.oidc_claim)
        identity = roles.identity(name, roles.roles_of(values))
        if identity is None:
            seen = repr(values)[:SHOWN]
            log.warning("OIDC: no -oidc-role for %r, whose claim %r has %s", name, self.options.oidc_claim, seen)
            raise RefusedLoginError(_NO_ROLE, f"no role for {name}", 403)
        return identity, str(claims.get("sub"))[:SHOWN]

    def _enter(self, request: Request, identity: Identity, subject: str, following: str) -> Response:
        """Return a page that goes on by itself to the one that the user wanted, with the cookie of a new session."""
        word = self.login.begin_session(request, identity, by="oidc", subject=subject)
        where = quote(self.login.local(following), safe=":/%#?=@[]!$&'()*+,;")
        fields: Fields = {"page_of": "logged_in", "title": "Logged in", "nav_path": "", "still": True, "next": where}
        answer = self.login.site.renderer.page(request, fields)
        answer.headers["Refresh"] = f"0; url={where}"
        self.login.set_cookie(request, answer, word)
        return self._forgotten(answer)

    def _forgotten(self, answer: Response) -> Response:
        """Delete the cookie of the login, which is over."""
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
    if not 0 < len(secret) <= MOST_SECRET or not secret.isascii() or not secret.decode("ascii").isprintable():
        raise ValueError(f"expected a secret of 1 to {MOST_SECRET} printable ASCII characters")
    return secret.decode("ascii")
