"""The blocking consumer: one channel of one topic, from all the nsqds that have it.

One thread, the caller's. Nothing happens between two calls: who works on one message for longer than a heartbeat
interval calls `message.touch()` now and then, which also tells the server that we live. Dialling an nsqd waits
dial_timeout_s at most, and one is dialled at a time; questions to nsqlookupd have a thread of their own.
"""

import selectors
import socket
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from time import monotonic
from types import TracebackType

from penstock.client.dial import check_address
from penstock.client.links import Links
from penstock.client.lookup import LookupPoller
from penstock.client.message import Message
from penstock.client.settings import Settings
from penstock.protocol import nsq

CLOSE_S = 1.0  # for the goodbyes, all connections together


class Consumer:
    """Iterate it, or call `poll`. Answer every message: finish, requeue, or touch while it takes long.

    A lost nsqd is connected again for as long as it is wanted: one that was given always, others while nsqlookupd
    names them.
    """

    def __init__(
        self,
        topic: str,
        channel: str,
        nsqd_addresses: Sequence[str] = (),
        lookupd_addresses: Sequence[str] = (),
        max_in_flight: int = 200,
        settings: Settings | None = None,
    ) -> None:
        nsq.sub(topic, channel)  # raises ValueError for bad names: now, rather than in the first poll
        if not nsqd_addresses and not lookupd_addresses:
            raise ValueError("a consumer needs the address of an nsqd or of an nsqlookupd")
        if max_in_flight < 1:
            raise ValueError("max_in_flight must be at least 1")
        self.topic = topic
        self.channel = channel
        self._given = frozenset(map(check_address, nsqd_addresses))
        self._ready: deque[Message] = deque()  # received, not yet iterated
        self._stopped = False
        self._closed = False
        self._losses_seen = 0  # of the links, when nsqlookupd was last hurried
        settings = settings or Settings()
        self._links = Links(topic, channel, max_in_flight, settings)
        self._links.want(self._given)
        self._waker, self._alarm = socket.socketpair()
        self._waker.setblocking(False)
        self._links.selector.register(self._alarm, selectors.EVENT_READ)
        self._lookup = LookupPoller(topic, lookupd_addresses, settings, self._wake) if lookupd_addresses else None

    def poll(self, timeout_s: float | None = None) -> list[Message]:
        """The next messages, as a batch: as soon as there are any; none after timeout_s, or after `stop`.

        Sends the answers that wait. Raises ConsumerError if an nsqd refuses the subscription for good.
        """
        deadline = float("inf") if timeout_s is None else monotonic() + timeout_s
        while not self._stopped:
            self.flush()
            self._hear_lookups()
            now = monotonic()
            messages = self._receive(min(self._links.tend(now), max(0.0, deadline - now)))
            if messages or monotonic() >= deadline:
                return messages
        return []

    def __iter__(self) -> Iterator[Message]:
        return self

    def __next__(self) -> Message:
        """The next message; ends after `stop`, when those already received are through."""
        while not self._ready:
            self._ready.extend(self.poll())
            if self._stopped and not self._ready:
                raise StopIteration
        return self._ready.popleft()

    def flush(self) -> None:
        """Send the answers that wait for company, now."""
        self._links.flush()

    def pause(self) -> None:
        """RDY 0: ask for no more messages. Those on the way come from `poll` still, or are given back by `close`."""
        self._links.limit(0)

    def stop(self) -> None:
        """End the iteration soon. The only method for other threads and signal handlers."""
        self._stopped = True
        self._wake()

    def close(self) -> None:
        """Say goodbye: answers are delivered, messages not handed out are given back. Idempotent."""
        if self._closed:
            return
        self._closed = self._stopped = True
        if self._lookup is not None:
            self._lookup.stop()
        self._links.selector.unregister(self._alarm)
        for message in self._ready:
            message.requeue(0)
        self._ready.clear()
        self._links.close(monotonic() + CLOSE_S)
        self._waker.close()
        self._alarm.close()

    def fileno(self) -> int:
        """Readable when `poll(0)` may bring something, so that consumers can be waited for together.

        What is due by time is done by `poll` only: call it at least once a second.
        """
        fd: int = self._links.selector.fileno()  # epoll and kqueue have one
        return fd

    def __enter__(self) -> "Consumer":
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _hear_lookups(self) -> None:
        if self._lookup is None:
            return
        news = self._lookup.take()
        if news is not None:
            self._links.want(self._given | news)
        if self._losses_seen != self._links.lost_count:
            self._losses_seen = self._links.lost_count
            self._lookup.hurry()

    def _receive(self, seconds: float) -> list[Message]:
        messages: list[Message] = []
        for key, _ in self._links.selector.select(seconds):
            if key.data is None:
                self._alarm.recv(4096)
            else:
                messages += self._links.receive(key.data)
        return messages

    def _wake(self) -> None:
        with suppress(OSError):  # full: it is awake already; closed: nobody sleeps
            self._waker.send(b"!")
