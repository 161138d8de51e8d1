"""An OIDC provider on loopback: discovery, keys, and codes, without asking the user."""

import base64
import functools
import hmac
import html
import json
import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from authlib.oauth2.rfc7636 import create_s256_code_challenge
from joserfc import jwt
from joserfc.jwk import RSAKey

from tests.auth_server import response
from tests.http_endpoint import Endpoint, Request

CLIENT, SECRET = "nsqadmin", "not-a-real-one"


def make_key(kid: str) -> RSAKey:
    return RSAKey.generate_key(2048, {"kid": kid, "use": "sig"})


_first_key = functools.cache(lambda: make_key("one"))  # of all providers: 70 ms of CPU


def unsigned(claims: dict[str, Any], algorithm: str = "none", kid: str | None = None) -> str:
    head = {"alg": algorithm} | ({"kid": kid} if kid else {})
    parts = (json.dumps(part).encode() for part in (head, claims))
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts) + "."


def signed_by_secret(claims: dict[str, Any], key: RSAKey) -> str:
    """An ID token by HS256, whose secret is the public key."""
    head, body, _ = unsigned(claims, "HS256", key.kid).split(".")
    proof = hmac.digest(key.as_pem(private=False), f"{head}.{body}".encode(), "sha256")
    return f"{head}.{body}.{base64.urlsafe_b64encode(proof).rstrip(b'=').decode()}"


class FakeProvider:
    """The behavior that a test changes, and the requests."""

    def __init__(self) -> None:
        self.key = _first_key()
        self.keys = [self.key]  # in the JWKS
        self.claims: dict[str, Any] = {"sub": "1", "preferred_username": "ann", "groups": ["ops"]}
        self.token = ""  # the ID token to answer; "": one that is right
        self.discovery: dict[str, Any] = {}  # what differs in the document
        self.body: bytes | None = None  # what every path answers
        self.status = 0  # with which every path answers; 0: its own
        self.asked: Counter[str] = Counter()  # how often, by path
        self.codes: dict[str, dict[str, str]] = {}  # the query of the browser, by code
        self.issuer = ""
        self.asks_first = False  # whether the user has to follow a link before going back

    def right_claims(self, nonce: str) -> dict[str, Any]:
        now = int(time.time())
        known = {"iss": self.issuer, "aud": CLIENT, "exp": now + 300, "iat": now, "nonce": nonce}
        return known | self.claims

    def sign(self, claims: dict[str, Any], key: RSAKey | None = None) -> str:
        by = key or self.key
        return jwt.encode({"alg": "RS256", "kid": by.kid}, claims, by, algorithms=["RS256"])

    def answer(self, path: str, query: dict[str, str]) -> tuple[int, object]:
        if path == "/.well-known/openid-configuration":
            urls = {name: f"{self.issuer}/{name}" for name in ("authorization_endpoint", "token_endpoint", "jwks_uri")}
            return 200, {"issuer": self.issuer, **urls, **self.discovery}
        if path == "/jwks_uri":
            return 200, {"keys": [key.as_dict(private=False) for key in self.keys]}
        return 404, {"error": "not_found"}

    def log_in(self, query: dict[str, str]) -> str:
        """The user has agreed: return where the browser is sent."""
        code = f"code-{len(self.codes)}"
        self.codes[code] = query
        return f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state']})}"

    def exchange(self, form: dict[str, str], authorization: str) -> tuple[int, object]:
        basic = "Basic " + base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        begun = self.codes.pop(form.get("code", ""), None)
        if authorization != basic or begun is None or form.get("redirect_uri") != begun["redirect_uri"]:
            return 400, {"error": "invalid_grant"}
        if create_s256_code_challenge(form.get("code_verifier", "")) != begun["code_challenge"]:
            return 400, {"error": "invalid_grant"}
        token = self.token or self.sign(self.right_claims(begun["nonce"]))
        return 200, {"access_token": "a", "token_type": "Bearer", "id_token": token}

    def respond(self, request: Request, peer: socket.socket) -> bool:
        """Answer a request of a browser or of nsqadmin."""
        path, query = urlsplit(request.target).path, request.query
        self.asked[path] += 1
        if path == "/authorization_endpoint":
            peer.sendall(self._sent_back(self.log_in(query)))
            return True
        if request.method == "POST":
            form = dict(parse_qsl(request.body.decode()))
            status, content = self.exchange(form, request.headers.get("authorization", ""))
        else:
            status, content = self.answer(path, query)
        body = self.body if self.body is not None else json.dumps(content).encode()
        peer.sendall(response(self.status or status, body))
        return True

    def _sent_back(self, where: str) -> bytes:
        if not self.asks_first:
            return response(302, b"", Location=where)
        page = f'<!doctype html><a href="{html.escape(where)}">Agree</a>'
        return response(200, page.encode(), Content_Type="text/html")


@contextmanager
def fake_provider(host: str = "127.0.0.1") -> Iterator[FakeProvider]:
    """Run a provider. `host`: its name in the issuer, which must be one of loopback."""
    provider = FakeProvider()
    with Endpoint(provider.respond) as endpoint:
        provider.issuer = f"http://{host}:{endpoint.port}"
        yield provider
