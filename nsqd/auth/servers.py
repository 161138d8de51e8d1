"""ServerRequest the authorization servers: in which order, for how long, and with what result.

A server may be down, be slow or lie: then the next one is asked. When many clients come at once their requests wait for each
other, but no request waits forever. Neither a request's content nor a server's words reach the log.

See docs/contributing/design/nsq-protocol.md#auth.
"""

import ssl
import time
from collections.abc import Callable, Sequence

import httpx
import trio

from nsqd.auth.exchange import ServerReply, ServerRequest, exchange
from nsqd.protocols.nsq.authorization import Authorization, AuthRefused, AuthRequest, parse_authorization
from shared.http.bounded import IDENTITY, AnswerError, https_port, parse_object
from shared.tls.strength import weakness_advice
from shared.version import PENSTOCK_VERSION

MOST_REQUESTS = 32  # requests in progress at once: each is a connection
MOST_WAITING = 10_000  # requests that wait for their turn: every client of a busy node, after a restart
PATIENCE = 30.0  # s that a request waits for its turn
LONGEST = 60.0  # s for an answer where the options set no limit
MAX_SECRET = 20 * 1024  # bytes: in a URL each may take three characters, and httpx accepts 64 Ki
KEEP_ALIVE = 1.5  # s that an idle connection is reused: no server closes one sooner, so none closes during a request
MOST_REFUSAL = 64 * 1024  # bytes of memory that a server's 403 may take once it is parsed
_LONGEST_REASON = 200  # characters
_HEADERS = {**IDENTITY, "Accept": "application/vnd.nsq; version=1.0", "User-Agent": f"penstock/{PENSTOCK_VERSION}"}

# The server is down, or does not speak HTTP, or its address is not valid.
_NO_ANSWER = (httpx.HTTPError, httpx.InvalidURL, ValueError, OSError)


class AuthServers:
    """The authorization servers of a node. Runs in the trio thread; any number of tasks may ask."""

    def __init__(
        self,
        addresses: Sequence[str],
        method: str,
        connect_timeout: float,
        request_timeout: float,
        tls: ssl.SSLContext,
        choose: Callable[[int], int],
    ) -> None:
        """Set up the servers, without connecting to any.

        `addresses` are host:port, or whole URLs. `method` is "get" or "post". Times are in s; 0 sets no limit of its own. `tls`
        says which authorities to trust; no other code may use that context. `choose(n)` returns a random number below n: the
        server that is asked first.
        """
        self._addresses = list(addresses)
        self._posts = method == "post"
        self._connect_timeout = connect_timeout or None
        self._request_timeout = request_timeout or LONGEST
        self._choose = choose
        self._turns = trio.Semaphore(MOST_REQUESTS)
        limits = httpx.Limits(
            max_connections=MOST_REQUESTS, max_keepalive_connections=MOST_REQUESTS, keepalive_expiry=KEEP_ALIVE
        )
        self._transport = httpx.AsyncHTTPTransport(verify=tls, trust_env=False, limits=limits)

    async def ask(self, request: AuthRequest) -> Authorization:
        """Return the first good answer. Raises AuthRefused with all reasons why there is none. May be cancelled."""
        if len(request.secret) > MAX_SECRET:
            raise AuthRefused(f"secret of more than {MAX_SECRET} bytes")
        if self._turns.statistics().tasks_waiting >= MOST_WAITING:
            raise AuthRefused(f"more than {MOST_WAITING} requests wait")
        with trio.move_on_after(PATIENCE) as waiting:
            await self._turns.acquire()
        if waiting.cancelled_caught:
            raise AuthRefused(f"too many requests in progress for {PATIENCE:.0f} s")
        try:
            return await self._ask_any(request)
        finally:
            self._turns.release()

    async def close(self) -> None:
        """Close all connections. No task may ask after that."""
        await self._transport.aclose()

    async def _ask_any(self, request: AuthRequest) -> Authorization:
        first = self._choose(len(self._addresses)) if self._addresses else 0
        reasons = []
        for address in self._addresses[first:] + self._addresses[:first]:
            try:
                reply = await self._query(address, request)
                return parse_authorization(reply.body, time.monotonic_ns())
            except AuthRefused as refused:
                reasons.append(f"failed to auth against {_shown(address)} - {refused}")
        raise AuthRefused("; ".join(reasons) or "no authorization server is known")

    async def _query(self, address: str, request: AuthRequest) -> ServerReply:
        """Return one server's answer with status 200. Raises AuthRefused."""
        try:
            url = httpx.URL(address if "://" in address else f"http://{address}/auth")
            reply = await self._send(url, request)
            if reply.status == 403 and url.scheme == "http":
                reply = await self._send(_https(url, reply.body), request)
        except trio.TooSlowError:
            raise AuthRefused(f"no answer within {self._request_timeout:g} s") from None
        except _NO_ANSWER as error:
            raise AuthRefused(_reason(error)) from None
        if reply.status != 200:
            raise AuthRefused(f"got response {reply.status}")
        return reply

    async def _send(self, url: httpx.URL, request: AuthRequest) -> ServerReply:
        if self._posts:
            ask = ServerRequest("POST", url, _HEADERS, request.body(), self._connect_timeout)
        else:
            given = url.query + b"&" if url.query else b""
            query = given + request.query().encode()
            ask = ServerRequest("GET", url.copy_with(query=query), _HEADERS, connect_timeout=self._connect_timeout)
        with trio.fail_after(self._request_timeout):
            return await exchange(self._transport, ask)


def _https(url: httpx.URL, body: bytes) -> httpx.URL:
    """Return the https URL that a server names when it answers 403 to plain HTTP: {"https_port": 4152}. Raises AuthRefused."""
    try:
        answer = parse_object(body, MOST_REFUSAL)
    except AnswerError:
        answer = {}
    if "https_port" not in answer:
        raise AuthRefused("got response 403")
    port = https_port(answer)
    if not port:
        raise AuthRefused("got response 403 with a bad https_port")
    return url.copy_with(scheme="https", port=port)


def _reason(error: BaseException) -> str:
    """Return the reason of a failure, in the system's or OpenSSL's words, not the server's."""
    text = type(error).__name__
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError):
            text = f"{type(error).__name__} {cause}"  # the last cause is the plainest
        if isinstance(cause, BaseExceptionGroup):  # one exception for each address of a name
            cause = cause.exceptions[0]
        else:
            cause = cause.__cause__ or cause.__context__
    return text[:_LONGEST_REASON] + weakness_advice(text)


def _shown(address: str) -> str:
    """Return an address without the parts that may be secret."""
    return address.partition("?")[0].rpartition("@")[2]
