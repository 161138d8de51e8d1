"""Long polls of /lookup: a request waits until the answer differs from the one that its client has.

The registry calls once when a watched topic changes, so a change wakes the polls of its own topic only, and an idle poll costs
its memory and its connection.

The version of an answer is a digest of it. So a version from another nsqlookupd, or from before a restart, is equal only if
the client knows the current state.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from typing import Any

from starlette.requests import ClientDisconnect, Request

from lookupd.producers import UNIX, PeerInfo, count_down
from lookupd.registry import Registry
from shared.http.api import read_body
from shared.http.bridge import Bridge
from shared.http.errors import HttpError
from shared.values import SECOND

MOST_POLLS = 5_000  # that wait: half of the connections that HTTP accepts
MOST_POLLS_PER_HOST = MOST_POLLS // 2  # of one IP address


@dataclass(frozen=True, slots=True)
class Registrations:
    """What /lookup answers about a topic."""

    channels: list[str]
    producers: list[PeerInfo] | None  # None: the topic is unknown

    @property
    def version(self) -> str:
        """A digest. The addresses of connections do not count, because they differ from one nsqlookupd to the next."""
        producers = self.producers and sorted(repr(replace(one, remote_address="")) for one in self.producers)
        return blake2b(repr((self.channels, producers)).encode(), digest_size=12).hexdigest()


class LongPolls:
    """The polls that wait, and the lookups that do not."""

    def __init__(self, registry: Registry, bridge: Bridge, clock: Callable[[], int]) -> None:
        """`clock` returns ns since the epoch."""
        self._registry, self._bridge, self._clock = registry, bridge, clock
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}  # a future of each poll, by topic; holds no empty sets
        self._by_host: Counter[str] = Counter()  # polls that wait, by IP address; holds no zeros

    def __len__(self) -> int:
        return self._by_host.total()

    async def lookup(self, topic: str) -> Registrations:
        """Return the registrations of a topic at once."""
        return await self._bridge.call(lambda: self._find(topic))

    async def poll(self, request: Request, topic: str, wait: int, version: str) -> Registrations:
        """Return the registrations when their version is another one, after `wait` ns, or when the daemon stops.

        Raises HttpError 503 beyond the limits, and ClientDisconnect.
        """
        found = await self.lookup(topic)
        if not wait or found.version != version:
            return found
        await read_body(request, 0, "BODY_TOO_BIG")  # what `receive` returns next is the end of the connection
        with self._counted(request):
            end = asyncio.ensure_future(request.receive())
            try:
                return await self._wait(topic, wait / SECOND, version, end)
            finally:
                end.cancel()

    @contextmanager
    def _counted(self, request: Request) -> Iterator[None]:
        host = request.client.host if request.client is not None else UNIX
        if len(self) >= MOST_POLLS or (self._by_host[host] >= MOST_POLLS_PER_HOST and host != UNIX):
            raise HttpError(503, "TOO_MANY_POLLS", {"Retry-After": "10"})
        self._by_host[host] += 1
        try:
            yield
        finally:
            count_down(self._by_host, host)

    async def _wait(self, topic: str, seconds: float, version: str, end: asyncio.Future[Any]) -> Registrations:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        changed = self._join(topic)
        try:
            while True:
                found, constant_for = await self._bridge.call(lambda: self._watch(topic))
                left = min(deadline - loop.time(), constant_for)
                if found.version != version or left <= 0:
                    return found
                await asyncio.wait((changed, end), timeout=left, return_when=asyncio.FIRST_COMPLETED)
                if end.done():
                    raise ClientDisconnect
                if changed.done():
                    changed = self._join(topic)
        finally:
            await self._leave(topic, changed)

    def _join(self, topic: str) -> asyncio.Future[None]:
        """Return a future that is done after the next change of the topic, if it is watched."""
        changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(topic, set()).add(changed)
        return changed

    async def _leave(self, topic: str, changed: asyncio.Future[None]) -> None:
        waiting = self._waiting.get(topic, set())
        waiting.discard(changed)
        if not waiting:
            self._waiting.pop(topic, None)
            await self._bridge.call(lambda: self._registry.unwatch(topic))

    def _wake(self, topic: str) -> None:
        for changed in self._waiting.pop(topic, ()):
            changed.set_result(None)

    # In the trio thread

    def _find(self, topic: str) -> Registrations:
        return Registrations(self._registry.channels(topic), self._registry.producers(topic, self._clock()))

    def _watch(self, topic: str) -> tuple[Registrations, float]:
        """Return the registrations, and the s until they may change without a call of `_wake`."""
        wake = partial(self._bridge.post, partial(self._wake, topic))
        constant_for = self._registry.watch(topic, wake, self._clock())
        return self._find(topic), constant_for / SECOND
