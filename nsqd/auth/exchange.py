"""Make one HTTP request and read its whole answer, for requests that hold a secret, to a server that cannot be trusted.

The module uses httpx's transport, not its client: so no cookie of one answer goes out with the next request, no URL is
logged, no proxy is taken from the environment (the original takes none either), an answer is never unpacked, and each hop of
a redirect is bounded.
"""

from base64 import b64encode
from contextlib import aclosing
from dataclasses import dataclass, replace

import httpx

from nsqd.protocols.nsq.authorization import MAX_BODY, AuthRefused
from shared.http.bounded import AnswerError, read_answer

MOST_HOPS = 10  # including redirects, as Go's client counts
_TO_GET = frozenset({301, 302, 303})  # redirects after which the method is GET
_REDIRECTS = _TO_GET | {307, 308}


@dataclass(frozen=True, slots=True)
class ServerRequest:
    """A request to an authorization server."""

    method: str
    url: httpx.URL
    headers: dict[str, str]
    content: bytes = b""  # JSON
    connect_timeout: float | None = None  # s

    def request(self) -> httpx.Request:
        """Return the request in httpx's terms. A user and password in the URL become HTTP's basic authentication, as in Go.

        Raises httpx.InvalidURL for a port beyond the highest: getaddrinfo would take it modulo 65536.
        """
        if (self.url.port or 0) > 65535:
            raise httpx.InvalidURL("port")
        headers = dict(self.headers)
        if self.content:
            headers["Content-Type"] = "application/json"
        if self.url.userinfo:
            secret = b64encode(f"{self.url.username}:{self.url.password}".encode()).decode()
            headers["Authorization"] = f"Basic {secret}"
        timeout = httpx.Timeout(None, connect=self.connect_timeout).as_dict()
        return httpx.Request(
            self.method, self.url, headers=headers, content=self.content or None, extensions={"timeout": timeout}
        )

    def redirected(self, status: int, location: str) -> "ServerRequest":
        """Return the request to send after a redirect. Raises httpx.InvalidURL."""
        moved = replace(self, url=self.url.join(location))
        return replace(moved, method="GET", content=b"") if status in _TO_GET else moved


@dataclass(frozen=True, slots=True)
class ServerReply:
    """The final answer, after any redirects."""

    status: int
    body: bytes


async def exchange(transport: httpx.AsyncBaseTransport, ask: ServerRequest) -> ServerReply:
    """Send the request and follow redirects, without a timeout. Raises AuthRefused, httpx.HTTPError, httpx.InvalidURL."""
    for _ in range(MOST_HOPS):
        response = await transport.handle_async_request(ask.request())
        async with aclosing(response):
            location = response.headers.get("Location")
            if response.status_code not in _REDIRECTS or not location:
                return ServerReply(response.status_code, await _body(response))
        ask = ask.redirected(response.status_code, location)
    raise AuthRefused(f"stopped after {MOST_HOPS} redirects")


async def _body(response: httpx.Response) -> bytes:
    """Return the body as it is on the wire. Raises AuthRefused if it is too big, or compressed and so perhaps a bomb."""
    try:
        return await read_answer(response, MAX_BODY)
    except AnswerError as error:
        raise AuthRefused(str(error)) from None
