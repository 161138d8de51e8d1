"""A poller that asks the nsqlookupds which nsqds have a topic.

It runs in its own thread, since a lookupd that hangs must not stop the messages. Only results leave this thread, each with all
addresses, and `wake` is called after each one.
"""

import logging
import random
import threading
from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic
from typing import TYPE_CHECKING

from penstock.sansio.discovery import Discovery, LookupReply, lookup_url
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
        self._discovery = Discovery(settings, random.Random(), len(self._urls))  # belongs to the poller's thread
        self._latest: dict[str, float] | None = None  # for the owner; each side takes or sets it by one assignment
        self._changes: deque[Callable[[], None]] = deque()  # calls of `_discovery` that the owner asks for
        self._changed = threading.Event()  # set when there are changes, or at the end
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="nsqlookupd poller", daemon=True)
        self._thread.start()

    def latest_addresses(self) -> dict[str, float] | None:
        """Return the nsqd addresses as in `Discovery.answered`, or None if there was no response since the last call."""
        latest, self._latest = self._latest, None
        return latest

    def ask(self, at: float) -> None:
        """Poll at this time (monotonic s), if the next poll is later."""
        self._change(lambda: self._discovery.ask(at))

    def poll_often(self) -> None:
        """Poll often for a while: an nsqd went away and may be back at another address."""
        self._change(self._discovery.poll_often)

    def stop(self) -> None:
        """End the thread; if it hangs in a request, leave it behind, since it is a daemon thread."""
        self._stopping = True
        self._changed.set()
        self._thread.join(timeout=0.2)

    def _change(self, call: Callable[[], None]) -> None:
        self._changes.append(call)
        self._changed.set()

    def _run(self) -> None:
        with self._client:
            while not self._stopping:
                for number in self._discovery.begin(monotonic()):
                    asked_at = monotonic()
                    self._latest = self._discovery.answered(number, self._ask(self._urls[number]), asked_at)
                    self._wake()
                self._discovery.end(monotonic())
                self._pause()

    def _pause(self) -> None:
        while True:
            self._changed.clear()
            if self._stopping:
                return
            while self._changes:
                self._changes.popleft()()
            left = self._discovery.wait(monotonic())
            if not left:
                return
            self._changed.wait(left)

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
        body = LookupReply(reply.headers.get("Content-Encoding", "identity"), self._timeout_s, monotonic())
        for part in reply.iter_raw():
            body.add(part, monotonic())
        return body.addresses()
