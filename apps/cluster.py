"""HTTP requests to nsqlookupds and nsqds, all at a time, with bounded answers. Runs under trio.

Invariant: a peer that is down, slow or malicious costs the request timeout and one line of the log. It never costs the
answers of the others, nor more memory than the bounds below.
"""

import ssl
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx
import trio

from penstock.protocol import is_valid_name
from shared.http.bounded import IDENTITY, AnswerError, https_port, parse_object, read_answer, valid_names
from shared.log import log
from shared.values import SECOND

MOST_ANSWER = 8 << 20  # bytes; 100,000 topics
MOST_MEMORY = 64 << 20  # bytes for one parsed answer
MOST_NAMES = 100_000
MOST_NODES = 10_000
AT_A_TIME = 16  # requests, which bounds their memory together
HEADERS = {**IDENTITY, "Accept": "application/vnd.nsq; version=1.0"}  # without it, old nsqds wrap their answers


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long a peer may take, in nanoseconds as the options have it."""

    connect: int
    request: int


class Cluster:
    """The peers, asked over one HTTP client. An async context manager."""

    def __init__(
        self, timeouts: Timeouts, headers: Mapping[str, str] | None = None, tls: ssl.SSLContext | bool = True
    ) -> None:
        """Make the client. `headers`: further ones. `tls`: for https; True: the public authorities are trusted."""
        self._seconds = timeouts.request / SECOND
        limit = httpx.Timeout(self._seconds, connect=timeouts.connect / SECOND)
        sent = HEADERS | (dict(headers) if headers else {})
        # No proxies, as the original.
        self._client = httpx.AsyncClient(timeout=limit, headers=sent, trust_env=False, verify=tls)
        self._turns = trio.CapacityLimiter(AT_A_TIME)

    async def __aenter__(self) -> "Cluster":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def ask(self, addresses: Iterable[str], path: str, query: Mapping[str, str]) -> dict[str, dict[str, Any]]:
        """Return the answers by address. An address whose answer cannot be used is logged and left out."""
        answers: dict[str, dict[str, Any]] = {}

        async def ask_one(address: str) -> None:
            async with self._turns:
                try:
                    with trio.fail_after(self._seconds):
                        answers[address] = await self._get(url(address) + path, query)
                except (httpx.HTTPError, httpx.InvalidURL, AnswerError, trio.TooSlowError, ValueError) as error:
                    log.error("cannot ask %s%s: %s", address, path, str(error) or type(error).__name__)

        async with trio.open_nursery() as nursery:
            for address in dict.fromkeys(addresses):
                nursery.start_soon(ask_one, address)
        return answers

    async def _get(self, where: str, query: Mapping[str, str]) -> dict[str, Any]:
        """Return the JSON object of one answer. Raises AnswerError, httpx.HTTPError or httpx.InvalidURL."""
        async with self._client.stream("GET", where, params=query) as response:
            content = await read_answer(response, MOST_ANSWER)
            status = response.status_code
        if status == 403 and where.startswith("http://"):  # nsqd has -tls-required, and says where its HTTPS is
            return await self._get(_over_https(where, parse_object(content, MOST_MEMORY)), query)
        if status != 200:
            raise AnswerError(f"answered {status}: {content[:100].decode('utf-8', 'replace')!r}")
        return parse_object(content, MOST_MEMORY)


def url(address: str) -> str:
    """Return the URL of an address, host:port or a URL, without a path."""
    return (address if "://" in address else f"http://{address}").rstrip("/")


def topic_names(answers: Mapping[str, dict[str, Any]]) -> list[str]:
    """Return the valid names in the answers to /topics, sorted. An answer of another form is logged."""
    names: set[str] = set()
    for address, answer in answers.items():
        try:
            names.update(valid_names(answer.get("topics"), is_valid_name, MOST_NAMES))
        except AnswerError as error:
            log.error("%s/topics %s", address, error)
    return sorted(names)


def node_addresses(answers: Mapping[str, dict[str, Any]]) -> list[str]:
    """Return the HTTP addresses of the nsqds in the answers to /lookup, each once. A wrong form is logged."""
    found = (one for address, answer in answers.items() for one in _addresses(address, answer, "http_port"))
    return list(dict.fromkeys(found))[:MOST_NODES]


def tcp_addresses(address: str, answer: Mapping[str, Any]) -> list[str]:
    """Return the TCP addresses of the nsqds in the answer of a daemon to /nodes. A wrong form is logged."""
    return list(_addresses(address, answer, "tcp_port")) if answer else []


def _addresses(address: str, answer: Mapping[str, Any], port: str) -> Iterator[str]:
    producers = answer.get("producers")
    if not isinstance(producers, list):
        log.error("%s/lookup answered without a list of producers", address)
        return
    for producer in producers[:MOST_NODES]:
        try:
            yield _address(producer, port)
        except AnswerError as error:
            log.error("%s/lookup %s", address, error)


def _address(producer: object, kind: str) -> str:
    host = producer.get("broadcast_address") if isinstance(producer, dict) else None
    port = producer.get(kind) if isinstance(producer, dict) else None
    if not isinstance(host, str) or not host or not set(host).isdisjoint("/?#@ \\") or not _is_port(port):
        raise AnswerError("answered a producer without a usable address")
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _over_https(where: str, answer: Mapping[str, Any]) -> str:
    port = https_port(answer)
    if not port:
        raise AnswerError("answered 403 without a usable https_port")
    return str(httpx.URL(where).copy_with(scheme="https", port=port))


def _is_port(value: object) -> bool:
    return type(value) is int and 0 < value < 65536
