"""A poller that asks the nsqlookupds which nsqds have a topic.

It runs in its own thread, since a lookupd that hangs must not stop the messages.

Law: only results leave this thread, each a whole set of addresses, and `wake` is called after each one.
"""

import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from penstock.sansio.discovery import Discovery, Reply, lookup_url
from penstock.sansio.requests import request_context, request_headers
from penstock.sansio.settings import Settings

if TYPE_CHECKING:
    import httpx

log = logging.getLogger("penstock.client")


class LookupPoller:
    """A thread that polls from construction until `stop`."""

    def __init__(self, topic: str, lookupds: Sequence[str], settings: Settings, wake: Callable[[], None]) -> None:
        import httpx  # imported here, so that a script without nsqlookupd does not load it

        self._urls = [lookup_url(address) for address in lookupds]
        self._client = httpx.Client(
            timeout=settings.lookupd_poll_timeout_s,
            params={"topic": topic},
            headers=request_headers(settings),
            verify=request_context(settings, self._urls),
        )
        self._timeout_s = settings.lookupd_poll_timeout_s
        self._wake = wake
        self._discovery = Discovery(settings, random.Random())  # belongs to the poller's thread
        self._fresh: frozenset[str] | None = None  # the result for the owner; each side passes it on by one assignment
        self._hurry = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="nsqlookupd poller", daemon=True)
        self._thread.start()

    def latest_addresses(self) -> frozenset[str] | None:
        """Return the nsqd addresses of the latest poll, or None if there was no poll since the last call."""
        fresh, self._fresh = self._fresh, None
        return fresh

    def hurry(self) -> None:
        """Poll soon: an nsqd went away and may be back at another address."""
        self._hurry.set()

    def stop(self) -> None:
        """End the thread; if it hangs in a request, leave it behind, since it is a daemon thread."""
        self._stopping = True
        self._hurry.set()
        self._thread.join(timeout=0.2)

    def _run(self) -> None:
        with self._client:
            while not self._stopping:
                answers = [self._ask(url) for url in self._urls]
                self._fresh = self._discovery.polled(answers, time.monotonic())
                self._wake()
                self._pause()

    def _pause(self) -> None:
        while not self._stopping and (left := self._discovery.wait(time.monotonic())):
            if self._hurry.wait(left):
                self._hurry.clear()
                self._discovery.hurry()

    def _ask(self, url: str) -> frozenset[str] | None:
        """Return the nsqds that one nsqlookupd knows for the topic, or None if it does not answer."""
        try:
            with self._client.stream("GET", url) as reply:
                if reply.status_code == 404:  # TOPIC_NOT_FOUND
                    return frozenset()
                reply.raise_for_status()
                return self._read(reply)
        # A foreign server may break HTTP and JSON in any way; the other lookupds are asked nevertheless.
        except Exception as error:
            log.warning("cannot ask %s: %s", url, error or type(error).__name__)
            return None

    def _read(self, reply: "httpx.Response") -> frozenset[str]:
        body = Reply(reply.headers.get("Content-Encoding", "identity"), self._timeout_s, time.monotonic())
        for part in reply.iter_raw():
            body.add(part, time.monotonic())
        return body.addresses()
