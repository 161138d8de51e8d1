"""Asks the nsqlookupds which nsqds have a topic."""

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from time import monotonic

import anyio
import httpx

from penstock.sansio.discovery import POLL, Discovery, LookupAnswer, LookupReply, lookup_url
from penstock.sansio.requests import request_context, request_headers
from penstock.sansio.settings import Settings

log = logging.getLogger("penstock.client")

Found = Callable[[dict[str, float]], None]


class Lookup:
    """The polls of one client, in a task of their own, and in one more for the long polls of each nsqlookupd."""

    def __init__(self, topic: str, lookupds: Sequence[str], settings: Settings) -> None:
        self._topic = topic
        self._urls = [lookup_url(address) for address in lookupds]
        self._timeout_s = settings.lookupd_poll_timeout_s
        self._headers, self._verify = request_headers(settings), request_context(settings, self._urls)
        self._discovery = Discovery(settings, Random(), len(self._urls))
        self._changed = anyio.Event()  # set, and replaced, when the next request may be due earlier

    def ask(self, at: float) -> None:
        """Poll at this time (monotonic s), if the next poll is later."""
        self._discovery.ask(at)
        self._notify()

    def poll_often(self) -> None:
        """Poll often for a while: an nsqd went away and may be back at another address."""
        self._discovery.poll_often()
        self._notify()

    async def run(self, found: Found) -> None:
        """Poll until the task is cancelled. `found` is called with all addresses after each response (Discovery.answered)."""
        discovery = self._discovery
        async with (
            httpx.AsyncClient(params={"topic": self._topic}, headers=self._headers, verify=self._verify) as client,
            anyio.create_task_group() as watchers,
        ):
            for number in range(len(self._urls)):
                watchers.start_soon(self._watch, client, number, found)
            while True:
                for number in discovery.begin(monotonic()):
                    asked_at = monotonic()
                    answer = await self._ask(client, number, POLL, self._timeout_s)
                    found(discovery.answered(number, answer, asked_at))
                    self._notify()
                discovery.end(monotonic())
                await self._pause(discovery.wait)

    async def _watch(self, client: httpx.AsyncClient, number: int, found: Found) -> None:
        """Send long polls to one nsqlookupd."""
        discovery = self._discovery
        while True:
            await self._pause(partial(discovery.watch_wait, number))
            arguments, timeout_s = discovery.watch(number)
            asked_at = monotonic()
            answer = await self._ask(client, number, arguments, timeout_s)
            found(discovery.watched(number, answer, asked_at, monotonic()))
            self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def _pause(self, wait: Callable[[float], float]) -> None:
        while left := wait(monotonic()):
            with anyio.move_on_after(left):
                await self._changed.wait()

    async def _ask(
        self, client: httpx.AsyncClient, number: int, arguments: Mapping[str, str], timeout_s: float
    ) -> LookupAnswer | None:
        """Return the response of one nsqlookupd, or None if it does not answer."""
        url = self._urls[number]
        try:
            async with client.stream("GET", url, params=arguments, timeout=timeout_s) as reply:
                if reply.status_code != 404:  # TOPIC_NOT_FOUND
                    reply.raise_for_status()
                return await self._read(reply)
        # A foreign server may break HTTP and JSON in any way; the other lookupds are asked nevertheless.
        except Exception as error:
            log.warning("cannot ask %s: %s", url, error or type(error).__name__)
            return None

    async def _read(self, reply: httpx.Response) -> LookupAnswer:
        encoding = reply.headers.get("Content-Encoding", "identity")
        body = LookupReply(reply.status_code, encoding, self._timeout_s, monotonic())
        async for part in reply.aiter_raw():
            body.add(part, monotonic())
        return body.answer()
