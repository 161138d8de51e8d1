"""Asks the nsqlookupds who has a topic, in a thread of its own: a lookupd that hangs must not stop the messages.

Law: only answers leave this thread, as a whole set each, and `wake` is called behind each one.
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

MAX_REPLY = 4 * 1024 * 1024  # bytes: those of 10,000 nsqd
UNKNOWN_INTERVAL_S = 1.0  # while nobody has the topic: it may be born any moment


class LookupPoller:
    """Polls from construction until `stop`."""

    def __init__(self, topic: str, lookupds: Sequence[str], settings: Settings, wake: Callable[[], None]) -> None:
        import httpx  # here, so that a script without nsqlookupd starts without it

        headers = {"Accept-Encoding": "identity"}  # what is packed could not be bounded as it comes
        self._client = httpx.Client(timeout=settings.lookupd_poll_timeout_s, params={"topic": topic}, headers=headers)
        self._urls = [lookup_url(address) for address in lookupds]
        self._settings = settings
        self._wake = wake
        self._known: frozenset[str] = frozenset()  # of this thread
        self._fresh: frozenset[str] | None = None  # handed over, one assignment either way
        self._hurry = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="nsqlookupd poller", daemon=True)
        self._thread.start()

    def take(self) -> frozenset[str] | None:
        """The nsqd addresses as of the latest poll, or None if there was none since the last call."""
        fresh, self._fresh = self._fresh, None
        return fresh

    def hurry(self) -> None:
        """Poll soon: an nsqd went away and may be back elsewhere."""
        self._hurry.set()

    def stop(self) -> None:
        """Ends the thread; one that hangs in a request is left behind, since it is a daemon thread."""
        self._stopping = True
        self._hurry.set()
        self._thread.join(timeout=0.2)

    def _run(self) -> None:
        with self._client:
            while not self._stopping:
                self._known = self._poll()
                self._fresh = self._known
                self._wake()
                self._pause()

    def _pause(self) -> None:
        """Never less than UNKNOWN_INTERVAL_S between two polls, hurried or not."""
        interval = self._settings.lookupd_poll_interval_s
        rest = interval * (1 + random.random() * self._settings.lookupd_poll_jitter) if self._known else 0.0
        started_hurried = self._hurry.wait(rest)
        if self._stopping:
            return
        self._hurry.clear()
        if started_hurried or not self._known:
            self._hurry.wait(UNKNOWN_INTERVAL_S)

    def _poll(self) -> frozenset[str]:
        """Who has the topic. While a lookupd does not answer, what it may have said earlier stays true."""
        found: set[str] = set()
        for url in self._urls:
            try:
                found |= self._ask(url)
            # whatever a foreign server makes of HTTP and JSON: the others are asked all the same
            except Exception as error:
                log.warning("cannot ask %s: %s", url, error or type(error).__name__)
                found |= self._known
        return frozenset(found)

    def _ask(self, url: str) -> set[str]:
        with self._client.stream("GET", url) as reply:
            if reply.status_code == 404:  # TOPIC_NOT_FOUND
                return set()
            reply.raise_for_status()
            return producer_addresses(json.loads(_content(reply, self._settings.lookupd_poll_timeout_s)))


def _content(reply: "httpx.Response", timeout: float) -> bytes:
    """As it is on the wire. Raises ValueError for what is packed, has more than MAX_REPLY bytes, or takes over `timeout` s."""
    if reply.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise ValueError("the reply is packed, which nobody asked for")
    content, until = bytearray(), time.monotonic() + timeout
    for part in reply.iter_raw():
        content += part
        if time.monotonic() > until:
            raise ValueError(f"a reply that takes more than {timeout:g} s")
        if len(content) > MAX_REPLY:
            raise ValueError(f"a reply of more than {MAX_REPLY} bytes")
    return bytes(content)


def lookup_url(address: str) -> str:
    """host:port, or a URL whose path is then ours."""
    base = address if "://" in address else f"http://{address}"
    return base.rstrip("/") + "/lookup"


def producer_addresses(reply: Any) -> set[str]:
    """The nsqd addresses in the JSON of /lookup. Raises KeyError or TypeError for anything else."""
    found = set()
    for producer in reply["producers"]:
        host, port = str(producer["broadcast_address"]), int(producer["tcp_port"])
        found.add(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
    return found
