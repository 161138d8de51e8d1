"""Asks the nsqlookupds which nsqds have a topic."""

import logging
from collections.abc import Callable, Sequence
from random import Random
from time import monotonic

import anyio
import httpx

from penstock.sansio.discovery import Discovery, LookupReply, lookup_url
from penstock.sansio.requests import request_context, request_headers
from penstock.sansio.settings import Settings

log = logging.getLogger("penstock.client")


class Lookup:
    """The polls of one client, in a task of their own."""

    def __init__(self, topic: str, lookupds: Sequence[str], settings: Settings) -> None:
        self._topic = topic
        self._urls = [lookup_url(address) for address in lookupds]
        self._timeout_s = settings.lookupd_poll_timeout_s
        self._headers, self._verify = request_headers(settings), request_context(settings, self._urls)
        self._discovery = Discovery(settings, Random(), len(self._urls))
        self._changed = anyio.Event()  # set when the next poll may be due earlier

    def ask(self, at: float) -> None:
        """Poll at this time (monotonic s), if the next poll is later."""
        self._discovery.ask(at)
        self._changed.set()

    def poll_often(self) -> None:
        """Poll often for a while: an nsqd went away and may be back at another address."""
        self._discovery.poll_often()
        self._changed.set()

    async def run(self, found: Callable[[dict[str, float]], None]) -> None:
        """Poll until the task is cancelled. `found` is called with all addresses after each response (Discovery.answered)."""
        async with httpx.AsyncClient(
            timeout=self._timeout_s, params={"topic": self._topic}, headers=self._headers, verify=self._verify
        ) as client:
            while True:
                for number in self._discovery.begin(monotonic()):
                    asked_at = monotonic()
                    answer = await self._ask(client, self._urls[number])
                    found(self._discovery.answered(number, answer, asked_at))
                self._discovery.end(monotonic())
                await self._pause()

    async def _pause(self) -> None:
        while left := self._discovery.wait(monotonic()):
            self._changed = anyio.Event()
            with anyio.move_on_after(left):
                await self._changed.wait()

    async def _ask(self, client: httpx.AsyncClient, url: str) -> frozenset[str] | None:
        """Return the nsqds that one nsqlookupd knows for the topic, or None if it does not answer."""
        try:
            async with client.stream("GET", url) as reply:
                if reply.status_code == 404:  # TOPIC_NOT_FOUND
                    return frozenset()
                reply.raise_for_status()
                return await self._read(reply)
        # A foreign server may break HTTP and JSON in any way; the other lookupds are asked nevertheless.
        except Exception as error:
            log.warning("cannot ask %s: %s", url, error or type(error).__name__)
            return None

    async def _read(self, reply: httpx.Response) -> frozenset[str]:
        body = LookupReply(reply.headers.get("Content-Encoding", "identity"), self._timeout_s, monotonic())
        async for part in reply.aiter_raw():
            body.add(part, monotonic())
        return body.addresses()
