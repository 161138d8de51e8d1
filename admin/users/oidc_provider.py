"""Requests to the OIDC provider: discovery, keys, and the exchange of a code for an ID token.

Every answer is bounded in bytes, memory and time. A failed discovery is remembered for a few seconds, and keys are requested
seldom, so that strangers at the login page cannot make nsqadmin flood the provider.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
from authlib.oauth2.auth import ClientAuth
from authlib.oauth2.rfc6749.parameters import prepare_grant_uri, prepare_token_request
from authlib.oauth2.rfc7636 import create_s256_code_challenge
from joserfc.jwk import KeySet

from admin.users.oidc_flow import Flow
from admin.users.oidc_options import url_problem
from admin.users.oidc_token import Expected, TokenError, UnknownKeyError, claims_of, read_keys, usable_algorithms
from shared.http.bounded import IDENTITY, AnswerError, parse_object, read_answer

DISCOVERY = "/.well-known/openid-configuration"
TIMEOUT = 10.0  # s for a whole answer
MOST_BYTES = 256 * 1024  # of an answer
MOST_MEMORY = 8 * 1024 * 1024  # bytes that a parsed answer may take
FRESH = 3600.0  # s that the metadata and the keys are used
FAILURE = 5.0  # s that a failed discovery is not tried again
LEAST_BETWEEN = 30.0  # s between two requests for keys because of a token with an unknown key


class ProviderError(Exception):
    """The provider did not answer, or what it answers cannot be used. One line says why."""


class CodeRefusedError(ProviderError):
    """The provider does not take the code, or this client: an answer of 4xx."""


@dataclass(frozen=True, slots=True)
class Metadata:
    """The discovery document of the provider."""

    authorization: str  # URL
    token: str  # URL
    keys: str  # URL
    algorithms: list[str]  # of signatures
    auth_method: str  # of the client at the token endpoint


@dataclass(frozen=True, slots=True)
class Client:
    """nsqadmin as a client of the provider."""

    issuer: str
    client_id: str
    secret: str  # "": it has none, and PKCE alone binds the code to it
    scope: str


@dataclass(slots=True)
class Provider:
    """Asks one provider, in one event loop."""

    client: Client
    context: ssl.SSLContext
    clock: Callable[[], float]  # monotonic s
    wall: Callable[[], float]  # s since the epoch
    _metadata: Metadata | None = None
    _found: float = 0.0  # when
    _failure: str = ""  # of the last discovery; "": it worked
    _failed: float = 0.0  # when
    _keys: KeySet | None = None
    _keys_asked: float = float("-inf")  # when
    _http: httpx.AsyncClient | None = None
    _asking: asyncio.Lock = field(default_factory=asyncio.Lock)  # discovery and keys: one request at a time

    async def authorization_url(self, flow: Flow, redirect: str) -> str:
        """Return the URL at which the user logs in. Raises ProviderError."""
        metadata = await self._discovered()
        url: str = prepare_grant_uri(
            metadata.authorization, self.client.client_id, "code", redirect, self.client.scope, flow.state,
            nonce=flow.nonce, code_challenge=create_s256_code_challenge(flow.verifier), code_challenge_method="S256",
        )  # fmt: skip
        return url

    async def claims(self, code: str, flow: Flow, redirect: str) -> dict[str, Any]:
        """Exchange a code for an ID token, and return its claims. Raises CodeRefusedError, ProviderError, TokenError."""
        metadata = await self._discovered()
        answer = await self._exchange(metadata, code, flow, redirect)
        token, access = answer.get("id_token"), answer.get("access_token")
        access_token = access if isinstance(access, str) else ""
        expected = Expected(self.client.issuer, self.client.client_id, flow.nonce, access_token)
        keys = await self._key_set(metadata, FRESH)
        try:
            return claims_of(token, keys, metadata.algorithms, expected, self.wall())
        except UnknownKeyError:  # the provider may have made another key
            keys = await self._key_set(metadata, LEAST_BETWEEN)
        return claims_of(token, keys, metadata.algorithms, expected, self.wall())

    async def _discovered(self) -> Metadata:
        async with self._asking:
            now = self.clock()
            if self._metadata is not None and now - self._found < FRESH:
                return self._metadata
            if self._failure and now - self._failed < FAILURE:
                raise ProviderError(self._failure)
            try:
                self._metadata = self._read(await self._ask("GET", self.client.issuer.rstrip("/") + DISCOVERY))
            except (ProviderError, TokenError) as error:
                self._failure, self._failed = str(error), self.clock()
                raise ProviderError(self._failure) from None
            self._found, self._failure = self.clock(), ""
            return self._metadata

    def _read(self, answer: dict[str, Any]) -> Metadata:
        """Return the metadata of a discovery document. Raises ProviderError, TokenError."""
        if answer.get("issuer") != self.client.issuer:
            raise ProviderError(
                f"discovery names the issuer {str(answer.get('issuer'))[:200]!r}, not {self.client.issuer!r}:"
                " -oidc-issuer must be the same, to the last slash"
            )
        return Metadata(
            _url(answer, "authorization_endpoint"),
            _url(answer, "token_endpoint"),
            _url(answer, "jwks_uri"),
            usable_algorithms(answer.get("id_token_signing_alg_values_supported")),
            self._auth_method(answer.get("token_endpoint_auth_methods_supported")),
        )

    def _auth_method(self, stated: object) -> str:
        if not self.client.secret:
            return "none"
        methods = stated if isinstance(stated, list) else []
        is_post_only = "client_secret_post" in methods and "client_secret_basic" not in methods
        return "client_secret_post" if is_post_only else "client_secret_basic"

    async def _key_set(self, metadata: Metadata, max_age: float) -> KeySet:
        """Return the provider's keys, requested at most `max_age` s ago. Raises ProviderError, TokenError."""
        async with self._asking:
            if self._keys is None or self.clock() - self._keys_asked > max_age:
                self._keys_asked = self.clock()
                self._keys = read_keys(await self._ask("GET", metadata.keys))
            return self._keys

    async def _exchange(self, metadata: Metadata, code: str, flow: Flow, redirect: str) -> dict[str, Any]:
        body = prepare_token_request(
            "authorization_code", redirect_uri=redirect, code=code, code_verifier=flow.verifier
        )
        auth = ClientAuth(self.client.client_id, self.client.secret, metadata.auth_method)
        given = {"Content-Type": "application/x-www-form-urlencoded"}
        url, headers, content = auth.prepare("POST", metadata.token, given, body)
        return await self._ask("POST", url, headers, content.encode())

    async def _ask(self, method: str, url: str, headers: Any = None, content: bytes = b"") -> dict[str, Any]:
        """Return the object that a URL answers. No redirect is followed. Raises CodeRefusedError, ProviderError."""
        if self._http is None:
            self._http = httpx.AsyncClient(verify=self.context, timeout=TIMEOUT, trust_env=False)
        asked = {**(headers or {}), **IDENTITY, "Accept": "application/json"}
        try:
            async with asyncio.timeout(TIMEOUT):
                async with self._http.stream(method, url, headers=asked, content=content) as answer:
                    status, received = answer.status_code, await read_answer(answer, MOST_BYTES)
        except TimeoutError:
            raise ProviderError(f"{url} did not answer within {TIMEOUT:.0f} s") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise ProviderError(f"{url} does not answer: {str(error) or type(error).__name__}") from None
        except AnswerError as error:
            raise ProviderError(f"{url} {error}") from None
        kind = CodeRefusedError if method == "POST" and 400 <= status < 500 else ProviderError
        try:
            found = parse_object(received, MOST_MEMORY)
        except AnswerError as error:
            raise kind(f"{url} {error}, with status {status}") from None
        if status != 200:
            raise kind(f"{url} answered {status}: {str(found.get('error'))[:100]!r}")
        return found


def _url(document: dict[str, Any], name: str) -> str:
    """Return a URL of a discovery document. Raises ProviderError."""
    url = document.get(name)
    problem = url_problem(url) if isinstance(url, str) else "is missing"
    if problem:
        raise ProviderError(f"discovery: {name} {problem}")
    return str(url)
