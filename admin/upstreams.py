"""Questions to nsqlookupd and nsqd: each with its own deadline, all at once, answers bounded. In the HTTP thread."""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import httpx

from shared.http import extensions
from shared.http.bounded import IDENTITY, AnswerError, read_answer

MOST_BYTES = 64 * 1024 * 1024  # of an answer
AT_ONCE = 100  # questions under way
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


@dataclass(frozen=True, slots=True)
class Times:
    """How long, in s."""

    connect: float
    request: float  # from the question to the end of the answer


class Upstreams:
    """See above. To be made, used and closed in one event loop."""

    def __init__(self, times: Times, context: ssl.SSLContext) -> None:
        timeout = httpx.Timeout(times.request, connect=times.connect)
        limits = httpx.Limits(max_connections=AT_ONCE, max_keepalive_connections=AT_ONCE, keepalive_expiry=30)
        self._client = httpx.AsyncClient(timeout=timeout, limits=limits, verify=context, trust_env=False)
        self._times = times
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def close(self) -> None:
        """Hang up."""
        await self._client.aclose()

    async def get(self, address: str, path: str, arguments: Arguments | None = None) -> Any:
        """A JSON answer. Raises UpstreamError."""
        return (await self._get(address, path, arguments))[0]

    async def _get(self, address: str, path: str, arguments: Arguments | None) -> tuple[Any, int]:
        content, _ = await self._ask("GET", _url(address, path), arguments or {}, b"", {})
        try:
            return json.loads(content), len(content)
        except (ValueError, RecursionError):
            raise UpstreamError(f"{address}{path} answered something that is no JSON") from None

    async def get_object(self, address: str, path: str, arguments: Arguments | None = None) -> dict[str, Any]:
        """Likewise; an object. What is wrapped as nsqd before 1.0 did is unwrapped."""
        return (await self.get_sized(address, path, arguments))[0]

    async def get_sized(self, address: str, path: str, arguments: Arguments | None) -> tuple[dict[str, Any], int]:
        """Likewise, and how many bytes it was."""
        told, size = await self._get(address, path, arguments)
        if isinstance(told, dict) and isinstance(told.get("data"), dict) and "status_code" in told:
            told = told["data"]
        if not isinstance(told, dict):
            raise UpstreamError(f"{address}{path} answered something else than an object")
        return told, size

    async def get_bytes(self, address: str, path: str, arguments: Arguments) -> bytes:
        """An answer as it is. Raises UpstreamError."""
        return (await self._ask("GET", _url(address, path), arguments, b"", {}))[0]

    async def post(self, address: str, path: str, arguments: Arguments, body: bytes = b"") -> bytes:
        """Have something done. Raises UpstreamError."""
        return (await self._ask("POST", _url(address, path), arguments, body, {}))[0]

    async def tell(
        self, address: str, path: str, arguments: Arguments, body: bytes, headers: dict[str, str]
    ) -> tuple[bytes, dict[str, str]]:
        """Likewise; the answer, and its headers, of which names are in lower case. Raises UpstreamError."""
        return await self._ask("POST", _url(address, path), arguments, body, headers)

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
        try:
            async with (
                self._slots,
                asyncio.timeout(self._times.request),
                self._client.stream(method, url, params=arguments, content=body, headers=headers | _V1) as answer,
            ):
                content = await read_answer(answer, MOST_BYTES)
        except AnswerError as error:
            raise UpstreamError(f"{url} {error}") from None
        except TimeoutError:
            raise UpstreamError(f"{url} did not answer within {self._times.request:g} s") from None
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, OSError) as error:
            raise UpstreamError(f"{url}: {str(error) or type(error).__name__}") from None
        if answer.status_code == 403 and again and url.startswith("http://"):
            elsewhere = _https(url, content)
            if elsewhere:
                return await self._ask(method, elsewhere, arguments, body, headers, again=False)
        if answer.status_code != 200:
            told = content[:200].decode("utf-8", "replace")
            raise Refused(f"{url} answered {answer.status_code} {told!r}", answer.status_code)
        return content, dict(answer.headers)


def _url(address: str, path: str) -> str:
    """Nodes say where they are, and may lie. Raises UpstreamError."""
    if _ADDRESS.fullmatch(address) is None:
        raise UpstreamError(f"{address[:100]!r} is no address")
    return f"http://{address}{path}"


def _https(url: str, refusal: bytes) -> str:
    """Where a node that wants TLS says that it is; "" if it says nothing of the kind."""
    try:
        port = json.loads(refusal)["https_port"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    if type(port) is not int or not 0 < port < 65536:
        return ""
    parts = httpx.URL(url)
    return str(parts.copy_with(scheme="https", port=port))
