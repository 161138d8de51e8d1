"""A poller that asks the nsqlookupds which nsqds have a topic.

It runs in its own threads, since a lookupd that hangs must not stop the messages. Only results leave these threads, each with
all addresses, and `wake` is called after each one.
"""

import logging
import random
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from penstock.sansio.discovery import POLL, Discovery, LookupAnswer, LookupReply, lookup_url
from penstock.sansio.requests import request_context, request_headers
from penstock.sansio.settings import Settings

if TYPE_CHECKING:
    import httpx

log = logging.getLogger("penstock.client")

LONGEST_S = 3600.0  # of one wait for a condition
STOP_S = 0.2  # for the threads to end


class LookupPoller:
    """A thread that polls from construction until `stop`, and one more for the long polls of each nsqlookupd."""

    def __init__(self, topic: str, lookupds: Sequence[str], settings: Settings, wake: Callable[[], None]) -> None:
        import httpx  # imported here, so that a script without nsqlookupd does not load it

        self._urls = [lookup_url(address) for address in lookupds]
        self._new_client = partial(
            httpx.Client,
            params={"topic": topic},
            headers=request_headers(settings),
            verify=request_context(settings, self._urls),
        )
        self._timeout_s = settings.lookupd_poll_timeout_s
        self._wake = wake
        # The condition guards the discovery and the results; it is notified when the next request may be due earlier.
        self._condition = threading.Condition()
        self._discovery = Discovery(settings, random.Random(), len(self._urls))
        self._latest: dict[str, float] | None = None
        self._stopping = False
        self._sockets: dict[int, socket.socket] = {}  # the connections of long polls
        tasks: list[Callable[[], None]] = [self._poll]
        tasks += [partial(self._watch, number) for number in range(len(self._urls))]
        self._threads = [threading.Thread(target=one, name="nsqlookupd poller", daemon=True) for one in tasks]
        for thread in self._threads:
            thread.start()

    def latest_addresses(self) -> dict[str, float] | None:
        """Return the nsqd addresses as in `Discovery.answered`, or None if there was no response since the last call."""
        with self._condition:
            latest, self._latest = self._latest, None
        return latest

    def ask(self, at: float) -> None:
        """Poll at this time (monotonic s), if the next poll is later."""
        with self._condition:
            self._discovery.ask(at)
            self._condition.notify_all()

    def poll_often(self) -> None:
        """Poll often for a while: an nsqd went away and may be back at another address."""
        with self._condition:
            self._discovery.poll_often()
            self._condition.notify_all()

    def stop(self) -> None:
        """End the threads; a poll that hangs is left behind, since it is in a daemon thread."""
        with self._condition:
            self._stopping = True
            self._condition.notify_all()
            for connection in self._sockets.values():
                with suppress(OSError):  # it is closed
                    connection.shutdown(socket.SHUT_RDWR)
        until = monotonic() + STOP_S
        for thread in self._threads:
            thread.join(timeout=max(0.0, until - monotonic()))

    def _poll(self) -> None:
        discovery = self._discovery
        with self._new_client() as client:
            while self._pause(discovery.wait):
                with self._condition:
                    numbers = discovery.begin(monotonic())
                for number in numbers:
                    asked_at = monotonic()
                    answer = self._ask(client, number, POLL, self._timeout_s)
                    self._note(partial(discovery.answered, number, answer, asked_at))
                with self._condition:
                    discovery.end(monotonic())

    def _watch(self, number: int) -> None:
        """Send long polls to one nsqlookupd."""
        discovery = self._discovery
        if not self._pause(partial(discovery.watch_wait, number)):
            return
        with self._new_client() as client:
            while self._pause(partial(discovery.watch_wait, number)):
                with self._condition:
                    arguments, timeout_s = discovery.watch(number)
                asked_at = monotonic()
                answer = self._ask(client, number, arguments, timeout_s, trace=partial(self._trace, number))
                self._note(partial(discovery.watched, number, answer, asked_at, monotonic()))

    def _trace(self, number: int, event: str, info: dict[str, Any]) -> None:
        """Keep the socket of a new connection, so that `stop` can end a long poll. See httpx's extension `trace`."""
        if event.endswith((".connect_tcp.complete", ".start_tls.complete")):
            with self._condition:
                if self._stopping:
                    raise OSError("the consumer is closed")
                self._sockets[number] = info["return_value"].get_extra_info("socket")

    def _note(self, note: Callable[[], dict[str, float]]) -> None:
        with self._condition:
            self._latest = note()
            self._condition.notify_all()
        self._wake()

    def _pause(self, wait: Callable[[float], float]) -> bool:
        """Wait as long as `wait` says. Returns False if the threads must end."""
        with self._condition:
            while not self._stopping and (left := wait(monotonic())):
                self._condition.wait(min(left, LONGEST_S))
            return not self._stopping

    def _ask(
        self, client: "httpx.Client", number: int, arguments: Mapping[str, str], timeout_s: float, **extensions: object
    ) -> LookupAnswer | None:
        """Return the response of one nsqlookupd, or None if it does not answer."""
        url = self._urls[number]
        try:
            with client.stream("GET", url, params=arguments, timeout=timeout_s, extensions=extensions) as reply:
                if reply.status_code != 404:  # TOPIC_NOT_FOUND
                    reply.raise_for_status()
                return self._read(reply)
        # A foreign server may break HTTP and JSON in any way; the other lookupds are asked nevertheless.
        except Exception as error:
            if not self._stopping:
                log.warning("cannot ask %s: %s", url, error or type(error).__name__)
            return None

    def _read(self, reply: "httpx.Response") -> LookupAnswer:
        encoding = reply.headers.get("Content-Encoding", "identity")
        body = LookupReply(reply.status_code, encoding, self._timeout_s, monotonic())
        for part in reply.iter_raw():
            body.add(part, monotonic())
        return body.answer()
