"""A poller that asks the nsqlookupds which nsqds have a topic.

It runs in its own thread, since a lookupd that hangs must not stop the messages.

Law: only results leave this thread, each a whole set of addresses, and `wake` is called after each one.
"""

import json
import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from penstock.client.settings import Settings

if TYPE_CHECKING:
    import httpx

log = logging.getLogger("penstock.client")

MAX_REPLY = 4 * 1024 * 1024  # bytes; the reply for 10,000 nsqds
UNKNOWN_INTERVAL_S = 1.0  # while no nsqd has the topic, which may be created at any moment


class LookupPoller:
    """A thread that polls from construction until `stop`."""

    def __init__(self, topic: str, lookupds: Sequence[str], settings: Settings, wake: Callable[[], None]) -> None:
        import httpx  # imported here, so that a script without nsqlookupd does not load it

        headers = {"Accept-Encoding": "identity"}  # the size of a packed reply cannot be bounded while it arrives
        self._client = httpx.Client(timeout=settings.lookupd_poll_timeout_s, params={"topic": topic}, headers=headers)
        self._urls = [lookup_url(address) for address in lookupds]
        self._settings = settings
        self._wake = wake
        self._last_addresses: frozenset[str] = frozenset()  # belongs to the poller's thread
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
                self._last_addresses = self._poll()
                self._fresh = self._last_addresses
                self._wake()
                self._pause()

    def _pause(self) -> None:
        """Wait until the next poll, hurried or not: at least UNKNOWN_INTERVAL_S after the last one."""
        interval = self._settings.lookupd_poll_interval_s
        rest = interval * (1 + random.random() * self._settings.lookupd_poll_jitter) if self._last_addresses else 0.0
        started_hurried = self._hurry.wait(rest)
        if self._stopping:
            return
        self._hurry.clear()
        if started_hurried or not self._last_addresses:
            self._hurry.wait(UNKNOWN_INTERVAL_S)

    def _poll(self) -> frozenset[str]:
        """Return the nsqds that have the topic; while a lookupd does not answer, keep all addresses known so far."""
        found: set[str] = set()
        for url in self._urls:
            try:
                found |= self._ask(url)
            # A foreign server may break HTTP and JSON in any way; the other lookupds are asked nevertheless.
            except Exception as error:
                log.warning("cannot ask %s: %s", url, error or type(error).__name__)
                found |= self._last_addresses
        return frozenset(found)

    def _ask(self, url: str) -> set[str]:
        with self._client.stream("GET", url) as reply:
            if reply.status_code == 404:  # TOPIC_NOT_FOUND
                return set()
            reply.raise_for_status()
            return producer_addresses(json.loads(_content(reply, self._settings.lookupd_poll_timeout_s)))


def _content(reply: "httpx.Response", timeout: float) -> bytes:
    """Return the body of a reply.

    Raises ValueError for a packed reply, for more than MAX_REPLY bytes, and for one that takes more than `timeout` s.
    """
    if reply.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise ValueError("the reply is compressed, although it was not requested")
    content, until = bytearray(), time.monotonic() + timeout
    for part in reply.iter_raw():
        content += part
        if time.monotonic() > until:
            raise ValueError(f"the reply took more than {timeout:g} s")
        if len(content) > MAX_REPLY:
            raise ValueError(f"the reply has more than {MAX_REPLY} bytes")
    return bytes(content)


def lookup_url(address: str) -> str:
    """Return the /lookup URL of a nsqlookupd that is given as host:port or as a URL."""
    base = address if "://" in address else f"http://{address}"
    return base.rstrip("/") + "/lookup"


def producer_addresses(reply: Any) -> set[str]:
    """Return the nsqd addresses in the JSON of /lookup. Raises KeyError, TypeError or ValueError if it has another form."""
    found = set()
    for producer in reply["producers"]:
        host, port = str(producer["broadcast_address"]), int(producer["tcp_port"])
        found.add(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
    return found
