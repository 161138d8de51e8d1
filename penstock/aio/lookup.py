"""Asks the nsqlookupds which nsqds have a topic."""

import logging
from collections.abc import Callable, Sequence
from random import Random

import anyio
import httpx

from penstock.sansio.discovery import Discovery, Reply, lookup_url
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
        self._discovery = Discovery(settings, Random())
        self._hurry = anyio.Event()

    def hurry(self) -> None:
        """Poll soon: an nsqd went away and may be back at another address."""
        self._discovery.hurry()
        self._hurry.set()

    async def run(self, found: Callable[[frozenset[str]], None]) -> None:
        """Poll until the task is cancelled. `found` is called with all addresses after each poll."""
        async with httpx.AsyncClient(
            timeout=self._timeout_s, params={"topic": self._topic}, headers=self._headers, verify=self._verify
        ) as client:
            while True:
                answers = [await self._ask(client, url) for url in self._urls]
                found(self._discovery.polled(answers, anyio.current_time()))
                await self._pause()

    async def _pause(self) -> None:
        while left := self._discovery.wait(anyio.current_time()):
            self._hurry = anyio.Event()
            with anyio.move_on_after(left):
                await self._hurry.wait()

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
        body = Reply(reply.headers.get("Content-Encoding", "identity"), self._timeout_s, anyio.current_time())
        async for part in reply.aiter_raw():
            body.add(part, anyio.current_time())
        return body.addresses()
