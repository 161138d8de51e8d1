"""The blocking consumer: one channel of one topic, from all nsqds that have it.

It uses one thread, the caller's, and nothing happens between two calls. A caller that works on one message for longer
than a heartbeat interval calls `message.touch()` now and then, which also shows the server that the client is alive.
An nsqd that does not answer, or whose name does not resolve, delays no other nsqd; requests to nsqlookupd run in their own
thread.
"""

import selectors
import socket
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from math import inf
from time import monotonic

from penstock.client.links import Links
from penstock.client.lookup import LookupPoller
from penstock.forks import Guard
from penstock.sansio.address import check_address
from penstock.sansio.errors import ConsumerError
from penstock.sansio.message import Message
from penstock.sansio.settings import Settings
from penstock.telemetry import NSQ, telemetry

CLOSE_S = 1.0  # s for closing all connections together


class Consumer:
    """A consumer to iterate over, or to `poll`; it yields `Message` objects.

    `nsqd_addresses` are as in `dial` (host:port, or a unix socket's path), `lookupd_addresses` are host:port or URLs of
    nsqlookupd's HTTP. `max_in_flight` messages at most are unanswered, on all nsqds together. Raises ValueError for a
    bad name, address or max_in_flight, for no address of either kind, and for TLS settings that cannot be used.
    The caller answers every message: finish or requeue it, and touch it while the work takes long. The consumer
    reconnects a lost nsqd: a given address always, any other when a nsqlookupd that is asked after the loss names it. While
    none of them answers, living connections stay, lost ones are not replaced, and all are asked again every 10 s.

    Example::

        with Consumer("orders", "billing", lookupd_addresses=["127.0.0.1:4161"]) as consumer:
            for message in consumer:
                print(message.body)
                message.finish()
                break
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
        if not nsqd_addresses and not lookupd_addresses:
            raise ValueError("a consumer needs the address of an nsqd or of an nsqlookupd")
        self.topic = topic
        self.channel = channel
        given = frozenset(map(check_address, nsqd_addresses))
        self._ready: deque[Message] = deque()  # received, not iterated yet
        self._refusal: ConsumerError | None = None  # to be raised when there are no messages to return
        self._telemetry = telemetry()
        self._stopped = False
        self._closed = False
        self._losses_seen = 0  # lost_count of the core at the last `poll_often`
        settings = settings or Settings()
        self._links = Links(topic, channel, max_in_flight, settings, self._wake)
        self._links.core.want(given)
        self._waker, self._alarm = socket.socketpair()
        self._waker.setblocking(False)
        self._guards = Guard(self._waker.fileno()), Guard(self._alarm.fileno())
        self._links.selector.register(self._alarm, selectors.EVENT_READ)
        self._lookup = LookupPoller(topic, lookupd_addresses, settings, self._wake) if lookupd_addresses else None

    def poll(self, timeout_s: float | None = None) -> list[Message]:
        """Return the next messages as a batch, as soon as there are any; [] after `timeout_s` or `stop`.

        It also sends the queued answers. Raises ConsumerError if an nsqd refuses the subscription permanently, and in a process
        that was forked since the consumer was made.
        """
        messages = self._poll(timeout_s)
        for message in messages:
            self._begin(message)
        return messages

    def _begin(self, message: Message) -> None:
        """Begin the span in which the application processes the message."""
        if self._telemetry is not None:
            message_id = message.id.decode("ascii", "replace")
            message.operation = self._telemetry.process(NSQ, self.topic, message_id, message.headers, self.channel)

    def _poll(self, timeout_s: float | None) -> list[Message]:
        self._links.require_own()
        deadline = inf if timeout_s is None else monotonic() + timeout_s
        while not self._stopped:
            self._apply_lookups()
            messages = self._receive(0.0) if self._links.is_stale else []
            messages += self._links.core.take_held()
            wait = self._links.maintain()
            messages += self._receive(0.0 if messages else min(wait, max(0.0, deadline - monotonic())))
            if messages or monotonic() >= deadline:
                return messages
        return []

    def __iter__(self) -> Iterator[Message]:
        return self

    def __next__(self) -> Message:
        """Return the next message; after `stop`, end when the messages already received are used up. Raises as `poll`."""
        self._links.require_own()
        ready = self._ready
        while True:
            while ready:
                message = ready.popleft()
                if message.is_pending:  # otherwise its connection is lost, and the server delivers it again
                    self._begin(message)
                    return message
            ready.extend(self._poll(None))
            if self._stopped and not ready:
                raise StopIteration

    def flush(self) -> None:
        """Send the queued answers (FIN and REQ) of all nsqds now."""
        self._links.require_own()
        self._links.flush()

    def pause(self) -> None:
        """Set RDY to 0, which asks for no more messages.

        Messages that are on their way still come from `poll`, or `close` requeues them.
        """
        self._links.require_own()
        self._links.core.limit(0)
        self._links.flush()

    def stop(self) -> None:
        """End the iteration soon. This is the only method for other threads and signal handlers."""
        self._stopped = True
        self._wake()

    def close(self) -> None:
        """Send the answers, requeue messages that were not delivered, and disconnect. Closing again does nothing.

        After a fork, the child's copy sends nothing.
        """
        if self._closed:
            return
        self._closed = self._stopped = True
        if self._guards[0].is_inherited:
            self._links.abandon()
        else:
            if self._lookup is not None:
                self._lookup.stop()
            self._links.selector.unregister(self._alarm)
            for message in self._ready:
                message.requeue(0)
            self._ready.clear()
            self._links.close(monotonic() + CLOSE_S)
        self._waker.close()
        self._alarm.close()

    @property
    def msg_timeout_ms(self) -> int:
        """Return the time in ms for which the servers wait for an answer: the shortest of all, 0 if none is known."""
        return min((one.msg_timeout_ms for one in self._links.core.subscriptions.values()), default=0)

    def fileno(self) -> int:
        """Return a descriptor that is readable when `poll(0)` may return something, to wait for several consumers.

        Work that is due by time is done by `poll` only: call it at least once a second.
        """
        fd: int = self._links.selector.fileno()  # epoll and kqueue selectors have one
        return fd

    def __enter__(self) -> "Consumer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _apply_lookups(self) -> None:
        if self._lookup is None:
            return
        core = self._links.core
        if (addresses := self._lookup.latest_addresses()) is not None:
            core.found(addresses)
        if core.ask_at < inf:
            self._lookup.ask(core.ask_at)
            core.ask_at = inf
        if self._losses_seen != core.lost_count:
            self._losses_seen = core.lost_count
            self._lookup.poll_often()

    def _receive(self, seconds: float) -> list[Message]:
        messages: list[Message] = []
        for key, _ in self._links.selector.select(seconds):
            if key.data is None:
                self._alarm.recv(4096)
                continue
            try:
                messages += self._links.receive(key.data)
            except ConsumerError as error:  # of one nsqd: the messages of the others come first
                self._refusal = error
        if self._refusal is not None and not messages:
            refusal, self._refusal = self._refusal, None
            raise refusal
        return messages

    def _wake(self) -> None:
        with suppress(OSError):  # full: the owner is awake already; closed: it has ended
            self._waker.send(b"!")
