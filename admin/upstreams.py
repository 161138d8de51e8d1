"""Questions to nsqlookupd and nsqd, in the HTTP thread: each has a deadline, all are asked at once, and answers are bounded.

A node is asked the same thing once at a time: who asks meanwhile shares the answer. No node has more than EACH questions to
answer at a time, so that one that hangs does not take the connections of all others.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

import httpx

from admin.bounds import Answer, Bounds
from shared.http import extensions
from shared.http.bounded import IDENTITY, AnswerError, parse_object, read_answer

AT_ONCE, EACH = 100, 8  # questions under way, to all nodes and to each
SILENT_AT_ONCE, MOST_SILENT = 20, 10_000  # likewise to all nodes that did not answer the last time; such nodes
MOST_REFUSAL = 64 * 1024  # bytes of an answer that is none of success
_ADDRESS = re.compile(r"([A-Za-z0-9._-]{1,255}|\[[0-9A-Fa-f:.]{2,45}\]):[0-9]{1,5}")
_V1 = {**IDENTITY, **extensions.ASK, "Accept": "application/vnd.nsq; version=1.0"}

T = TypeVar("T")
Arguments = Mapping[str, str | list[str]]


class UpstreamError(Exception):
    """A node could not be asked, or did not answer as one; one line says which and why."""

    status = 0  # of an answer that was none of success; 0: there was no answer


class Refused(UpstreamError):
    """It answered, and would not."""

    def __init__(self, words: str, status: int) -> None:
        super().__init__(words)
        self.status = status


@dataclass(slots=True)
class Gathered(Generic[T]):
    """What several were asked."""

    answers: dict[str, T] = field(default_factory=dict)  # by address, in the order in which they were named
    errors: list[str] = field(default_factory=list)

    @property
    def memory(self) -> int:
        """How many bytes of the budget the answers hold."""
        return sum(one.memory for one in self.answers.values() if isinstance(one, Answer))


@dataclass(frozen=True, slots=True)
class Times:
    """How long, in s."""

    connect: float
    request: float  # from the question to the end of the answer


class Upstreams:
    """See above. To be made, used and closed in one event loop."""

    def __init__(self, times: Times, context: ssl.SSLContext, bounds: Bounds) -> None:
        timeout = httpx.Timeout(times.request, connect=times.connect)
        limits = httpx.Limits(
            max_connections=AT_ONCE + SILENT_AT_ONCE, max_keepalive_connections=AT_ONCE, keepalive_expiry=30
        )
        self.bounds = bounds
        self._client = httpx.AsyncClient(timeout=timeout, limits=limits, verify=context, trust_env=False)
        self._times = times
        self._slots = asyncio.Semaphore(AT_ONCE)
        # servers that did not answer the last time: hundreds of them keep nobody else waiting
        self._silent: set[str] = set()
        self._slots_of_silent = asyncio.Semaphore(SILENT_AT_ONCE)
        self._slots_of: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()  # by URL without its path
        self._under_way: dict[object, asyncio.Task[Answer]] = {}
        self._changes = 0  # commands that were given: an answer of before one does not serve who asks after it

    async def close(self) -> None:
        """Hang up."""
        await self._client.aclose()

    async def get_object(self, address: str, path: str, arguments: Arguments | None = None) -> Answer:
        """A JSON object. What is wrapped as nsqd before 1.0 did is unwrapped. Raises UpstreamError."""
        key = self._changes, *question(address, path, arguments)
        task = self._under_way.get(key)
        if task is None:
            task = self._under_way[key] = asyncio.create_task(self._get(address, path, arguments or {}))
            task.add_done_callback(lambda done: self._ended(key, done))
        return await asyncio.shield(task)  # who gives up does not take it from the others

    def _ended(self, key: object, task: asyncio.Task[Answer]) -> None:
        del self._under_way[key]
        retrieve(task)

    async def _get(self, address: str, path: str, arguments: Arguments) -> Answer:
        content, _ = await self._ask("GET", _url(address, path), arguments, b"", {})
        try:
            return await self.bounds.parse_answer(content)
        except AnswerError as error:
            raise UpstreamError(f"{address}{path} {error}") from None

    async def get_bytes(self, address: str, path: str, arguments: Arguments) -> bytes:
        """An answer as it is. Raises UpstreamError."""
        return (await self._ask("GET", _url(address, path), arguments, b"", {}))[0]

    async def post(self, address: str, path: str, arguments: Arguments, body: bytes = b"") -> bytes:
        """Have something done. Raises UpstreamError."""
        return (await self.tell(address, path, arguments, body, {}))[0]

    async def tell(
        self, address: str, path: str, arguments: Arguments, body: bytes, headers: dict[str, str]
    ) -> tuple[bytes, dict[str, str]]:
        """Likewise; the answer, and its headers, of which names are in lower case. Raises UpstreamError."""
        try:
            return await self._ask("POST", _url(address, path), arguments, body, headers)
        finally:
            self._changes += 1

    async def all_of(self, addresses: Iterable[str], ask: Callable[[str], Awaitable[T]]) -> Gathered[T]:
        """Every one of them at the same time; nobody waits for longer than its own deadline."""
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

    async def _ask(
        self, method: str, url: str, arguments: Arguments, body: bytes, headers: dict[str, str], again: bool = True
    ) -> tuple[bytes, dict[str, str]]:
        answer, content = await self._exchange(method, url, arguments, body, headers)
        if answer.status_code == 403 and again and url.startswith("http://"):
            elsewhere = _https(url, content)
            if elsewhere:
                return await self._ask(method, elsewhere, arguments, body, headers, again=False)
        if answer.status_code != 200:
            told = content[:200].decode("utf-8", "replace")
            raise Refused(f"{url} answered {answer.status_code} {told!r}", answer.status_code)
        return content, dict(answer.headers)

    async def _exchange(
        self, method: str, url: str, arguments: Arguments, body: bytes, headers: dict[str, str]
    ) -> tuple[httpx.Response, bytes]:
        """One answer, whatever it says, and its content. Raises UpstreamError."""
        server, held = _server(url), 0

        def on_part(size: int) -> None:
            nonlocal held
            self.bounds.take(size)
            held += size

        try:
            async with (
                asyncio.timeout(self._times.request),
                self._turn(server),
                self._client.stream(method, url, params=arguments, content=body, headers=headers | _V1) as answer,
            ):
                most = self.bounds.most_bytes if answer.status_code == 200 else MOST_REFUSAL
                return answer, await read_answer(answer, most, on_part)
        except AnswerError as error:
            raise UpstreamError(f"{url} {error}") from None
        except TimeoutError:
            raise UpstreamError(f"{url} did not answer within {self._times.request:g} s") from None
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, OSError) as error:
            raise UpstreamError(f"{url}: {str(error) or type(error).__name__}") from None
        finally:
            self.bounds.give_back(held)

    @asynccontextmanager
    async def _turn(self, server: str) -> AsyncIterator[None]:
        """Wait until it may be asked, and note whether it answers."""
        own_slots = self._slots_of.setdefault(server, asyncio.Semaphore(EACH))
        async with own_slots, self._slots_of_silent if server in self._silent else self._slots:
            now = asyncio.get_running_loop().time
            began = now()
            try:
                yield
                self._silent.discard(server)
            except (asyncio.CancelledError, httpx.HTTPError, OSError):  # cancelled: by the deadline
                had_time = now() - began >= self._times.request / 2  # else it spent its time waiting for its turn
                if had_time and len(self._silent) < MOST_SILENT:
                    self._silent.add(server)
                raise


def _server(url: str) -> str:
    """The scheme, host and port of a URL."""
    return "/".join(url.split("/", 3)[:3])


def question(address: str, path: str, arguments: Arguments | None) -> tuple[object, ...]:
    """To know the same question by."""
    return address, path, tuple(sorted((name, str(value)) for name, value in (arguments or {}).items()))


def retrieve(task: asyncio.Task[Any]) -> None:
    """Nobody may be there any more to hear what went wrong."""
    if not task.cancelled():
        task.exception()


def _url(address: str, path: str) -> str:
    """Nodes say where they are, and may lie. Raises UpstreamError."""
    if _ADDRESS.fullmatch(address) is None:
        raise UpstreamError(f"{address[:100]!r} is no address")
    return f"http://{address}{path}"


def _https(url: str, refusal: bytes) -> str:
    """Where a node that wants TLS says that it is; "" if it says nothing of the kind."""
    try:
        port = parse_object(refusal, MOST_REFUSAL)["https_port"]
    except (AnswerError, KeyError):
        return ""
    if type(port) is not int or not 0 < port < 65536:
        return ""
    parts = httpx.URL(url)
    return str(parts.copy_with(scheme="https", port=port))
