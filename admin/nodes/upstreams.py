"""Requests to nsqlookupd and nsqd, in the HTTP thread: each has a deadline, they run concurrently, and answers are bounded.

A node gets the same request once at a time: concurrent callers share the answer. A node gets at most EACH requests at a time,
so that one that hangs does not use up the connections for all others.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import string
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import quote
from weakref import WeakValueDictionary

import httpx

from admin.nodes.answer_budget import Answer, AnswerBudget
from admin.nodes.answer_times import AnswerTimes
from admin.nodes.places import Places
from shared.auth.on_behalf import headers_by_certificate, headers_on_behalf
from shared.auth.own_token import headers_for, own_token
from shared.http import extensions
from shared.http.bounded import IDENTITY, AnswerError, https_port, parse_object, read_answer
from shared.json_fields import JsonObject
from shared.tls.client import advised, why_failed

AT_ONCE, EACH = 100, 8  # concurrent requests, to all nodes and to each
# Concurrent requests to all nodes that did not answer the last time; number of such nodes.
SILENT_AT_ONCE, MOST_SILENT = 20, 10_000
TIMED_OUT = (
    "did not answer within"  # in the text of an UpstreamError: the server was reached, and did not answer in time
)
MOST_REFUSAL = 64 * 1024  # bytes of an answer whose status is not 200
_ADDRESS = re.compile(r"(https?://)?([A-Za-z0-9._-]{1,255}|\[[0-9A-Fa-f:.]{2,45}\]):[0-9]{1,5}")
_PRINTABLE = string.digits + string.ascii_letters + string.punctuation.replace("%", "") + " "  # not escaped in a header
_V1 = {**IDENTITY, **extensions.ASK, "Accept": "application/vnd.nsq; version=1.0"}

# The user whose request causes the requests to nodes ("": none), which name the user. Work in the background, such as a task,
# inherits it from the request that began it.
ON_BEHALF_OF: ContextVar[str] = ContextVar("ON_BEHALF_OF", default="")
MOST_NAME = 100  # characters of it

T = TypeVar("T")
Arguments = Mapping[str, str | list[str]]


class UpstreamError(Exception):
    """A node could not be asked, or its answer is invalid. One line says which node and why."""

    status = 0  # of an answer that is not 200; 0: there was no answer


class Refused(UpstreamError):
    """The node answered with a status other than 200."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


@dataclass(slots=True)
class Gathered(Generic[T]):
    """The answers of several nodes, and the errors of the others."""

    answers: dict[str, T] = field(default_factory=dict)  # by address, in the order of the addresses
    errors: list[str] = field(default_factory=list)

    @property
    def memory(self) -> int:
        """The bytes of the budget that the answers hold."""
        return sum(one.memory for one in self.answers.values() if isinstance(one, Answer))


@dataclass(frozen=True, slots=True)
class Times:
    """Time limits for requests, in seconds."""

    connect: float
    request: float  # from the start of the request to the end of the answer


class Upstreams:
    """A client for the nodes of a cluster. Make, use and close it in one event loop."""

    def __init__(
        self, times: Times, context: ssl.SSLContext, answer_budget: AnswerBudget, places: Places | None = None,
        has_certificate: bool = False,
    ) -> None:  # fmt: skip
        """`places`: None: all nodes are asked by plain HTTP. `has_certificate`: the context presents one to servers."""
        self._has_certificate = has_certificate
        self.places = places or Places()
        timeout = httpx.Timeout(times.request, connect=times.connect)
        limits = httpx.Limits(
            max_connections=AT_ONCE + SILENT_AT_ONCE, max_keepalive_connections=AT_ONCE, keepalive_expiry=30
        )
        self.answer_budget = answer_budget
        self.answer_times = AnswerTimes()
        self._client = httpx.AsyncClient(timeout=timeout, limits=limits, verify=context, trust_env=False)
        self._times = times
        self._slots = asyncio.Semaphore(AT_ONCE)
        # Servers that did not answer the last time; even hundreds of them do not delay requests to others.
        self._silent: set[str] = set()
        self._slots_of_silent = asyncio.Semaphore(SILENT_AT_ONCE)
        self._slots_of: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()  # by URL without the path
        self._under_way: dict[object, asyncio.Task[Answer]] = {}
        self._changes = 0  # commands sent: an answer from before a command does not serve a request after it

    async def get_object(self, address: str, path: str, arguments: Arguments | None = None) -> Answer:
        """Return a JSON object. The envelope of nsqd before 1.0 is unwrapped. Raises UpstreamError."""
        key = self._changes, *request_key(address, path, arguments)
        task = self._under_way.get(key)
        if task is None:
            task = self._under_way[key] = asyncio.create_task(self._get(address, path, arguments or {}))
            task.add_done_callback(lambda done: self._ended(key, done))
        return await asyncio.shield(task)  # a caller that gives up must not cancel it for the others

    def _ended(self, key: object, task: asyncio.Task[Answer]) -> None:
        del self._under_way[key]
        retrieve(task)

    async def _get(self, address: str, path: str, arguments: Arguments) -> Answer:
        content, _ = await self._ask("GET", self._url(address, path), arguments, b"", {})
        try:
            return await self.answer_budget.parse_answer(content)
        except AnswerError as error:
            raise UpstreamError(f"{address}{path} {error}") from None

    async def get_bytes(self, address: str, path: str, arguments: Arguments) -> bytes:
        """Return the content of an answer. Raises UpstreamError."""
        return (await self._ask("GET", self._url(address, path), arguments, b"", {}))[0]

    async def post(self, address: str, path: str, arguments: Arguments, body: bytes = b"") -> bytes:
        """Send a command and return the content of the answer. Raises UpstreamError."""
        return (await self.send(address, path, arguments, body, {}))[0]

    async def send(
        self, address: str, path: str, arguments: Arguments, body: bytes, headers: dict[str, str]
    ) -> tuple[bytes, dict[str, str]]:
        """Send a command and return the answer's content and headers, with names in lower case. Raises UpstreamError."""
        try:
            return await self._ask("POST", self._url(address, path), arguments, body, headers)
        finally:
            self._changes += 1

    async def https_of(self, address: str) -> str:
        """Return the base of the HTTPS URLs that a server of plain HTTP names, or "". Raises UpstreamError."""
        _, content = await self._exchange("GET", f"http://{address}/info", {}, b"", {})
        return _https(f"http://{address}", content)

    async def all_of(self, addresses: Iterable[str], ask: Callable[[str], Awaitable[T]]) -> Gathered[T]:
        """Ask all addresses concurrently. None waits for longer than its own deadline."""
        named = list(dict.fromkeys(addresses))
        found: Gathered[T] = Gathered()
        for address, result in zip(named, await asyncio.gather(*map(ask, named), return_exceptions=True), strict=True):
            if isinstance(result, UpstreamError):
                found.errors.append(str(result))
            elif isinstance(result, BaseException):
                raise result
            else:
                found.answers[address] = result
        return found

    async def objects_of(
        self, addresses: Iterable[str], path: str, arguments: Arguments | None = None
    ) -> Gathered[JsonObject]:
        """Return the JSON objects of all addresses, see get_object."""
        return await self.all_of(addresses, lambda one: self.get_object(one, path, arguments))

    def _url(self, address: str, path: str) -> str:
        """Return the URL of a path on a node. Raises UpstreamError for a bad address, since nodes may lie about theirs."""
        if _ADDRESS.fullmatch(address) is None:
            raise UpstreamError(f"{address[:100]!r} is not an address of the form host:port")
        base = self.places.base(address)
        if not base:
            raise UpstreamError(f"{address} registers no HTTPS port, and -nsqd-https is on: give that nsqd -tls-cert")
        return f"{base}{path}"

    async def _ask(
        self, method: str, url: str, arguments: Arguments, body: bytes, headers: dict[str, str], again: bool = True
    ) -> tuple[bytes, dict[str, str]]:
        answer, content = await self._exchange(method, url, arguments, body, headers)
        if answer.status_code == 403 and again and url.startswith("http://"):
            elsewhere = _https(url, content)
            if elsewhere:
                return await self._ask(method, elsewhere, arguments, body, headers, again=False)
        if answer.status_code != 200:
            refusal = content[:200].decode("utf-8", "replace")
            raise Refused(f"{url} answered {answer.status_code} {refusal!r}{self._hint(answer)}", answer.status_code)
        return content, dict(answer.headers)

    def _hint(self, answer: httpx.Response) -> str:
        """Return the remedy for a server that does not recognize nsqadmin; "" if that is not the reason."""
        if answer.status_code != 401 or not self._has_certificate or answer.url.scheme != "https":
            return ""
        return "; give it the policy verify-if-given, and its auth file a [[certificate]] for -http-client-tls-cert"

    async def _exchange(
        self, method: str, url: str, arguments: Arguments, body: bytes, headers: dict[str, str]
    ) -> tuple[httpx.Response, bytes]:
        """Return one response of any status, and its content. Raises UpstreamError."""
        server, held = "/".join(url.split("/", 3)[:3]), 0  # scheme, host and port

        def on_part(size: int) -> None:
            nonlocal held
            self.answer_budget.charge(size)
            held += size

        try:
            target = httpx.URL(url, params=arguments) if arguments else httpx.URL(url)
            sent = headers | self._shown(method, target) | _V1
            async with (
                asyncio.timeout(self._times.request),
                self._slot(server),
                self._client.stream(method, target, content=body, headers=sent) as answer,
            ):
                most = self.answer_budget.most_bytes if answer.status_code == 200 else MOST_REFUSAL
                return answer, await read_answer(answer, most, on_part)
        except AnswerError as error:
            raise UpstreamError(f"{url} {error}") from None
        except (TimeoutError, httpx.ReadTimeout):
            raise UpstreamError(f"{url} {TIMED_OUT} {self._times.request:g} s") from None
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, OSError) as error:
            raise UpstreamError(f"{url}: {_reason(error)}") from None
        finally:
            self.answer_budget.release(held)

    def _shown(self, method: str, url: httpx.URL) -> dict[str, str]:
        """Return the headers with nsqadmin's token and the user's name for a server that may have them.

        A server that recognizes nsqadmin by its certificate gets no token, which it could present to other servers.
        """
        shown = headers_for(str(url))
        user = quote(ON_BEHALF_OF.get()[:MOST_NAME].strip(), safe=_PRINTABLE)
        if shown:
            return shown | headers_on_behalf(own_token(), user, method, url.raw_path.decode())
        return headers_by_certificate(user) if self._has_certificate and url.scheme == "https" else {}

    @asynccontextmanager
    async def _slot(self, server: str) -> AsyncIterator[None]:
        """Wait until the server may be asked, and note whether it answers."""
        own_slots = self._slots_of.setdefault(server, asyncio.Semaphore(EACH))
        async with own_slots, self._slots_of_silent if server in self._silent else self._slots:
            now = asyncio.get_running_loop().time
            began = now()
            try:
                yield
                self._silent.discard(server)
                self.answer_times.note(server, now() - began)
            except (asyncio.CancelledError, httpx.HTTPError, OSError):  # cancelled: by the deadline
                had_time = now() - began >= self._times.request / 2  # otherwise it spent the time waiting for its turn
                if had_time and len(self._silent) < MOST_SILENT:
                    self._silent.add(server)
                self.answer_times.note(server, now() - began, failed=True)
                raise


def _reason(error: BaseException) -> str:
    """Return the reason why a request failed, and the remedy if it was TLS."""
    return advised(
        why_failed(error, "-http-client-tls-security-level"), "-http-client-tls-root-ca-file", "-http-client-tls-cert"
    )


def request_key(address: str, path: str, arguments: Arguments | None) -> tuple[object, ...]:
    """Return a key that is the same for equal requests."""
    return address, path, tuple(sorted((name, str(value)) for name, value in (arguments or {}).items()))


def retrieve(task: asyncio.Future[Any]) -> None:
    """Retrieve the exception, so that asyncio does not complain if no caller is left to see it."""
    if not task.cancelled():
        task.exception()


def _https(url: str, refusal: bytes) -> str:
    """Return the URL that a node names in its refusal if it requires TLS, or ""."""
    try:
        port = https_port(parse_object(refusal, MOST_REFUSAL))
    except AnswerError:
        return ""
    return str(httpx.URL(url).copy_with(scheme="https", port=port)) if port else ""
