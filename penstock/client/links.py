"""The sockets of one blocking consumer, around the decisions of its ConsumerCore."""

import os
import random
import selectors
from collections.abc import Callable
from contextlib import suppress
from time import monotonic

from penstock.client.connection import Connection, cannot_connect
from penstock.client.dial import Dialing
from penstock.client.resolver import LONGEST_S, Resolution, resolver
from penstock.sansio.consumer import ConsumerCore
from penstock.sansio.errors import FORKED, ConnectionLost, ConsumerError
from penstock.sansio.message import Message
from penstock.sansio.settings import Settings
from penstock.sansio.subscription import Subscription

ANSWERS_WAIT_S = 0.01  # how long an answer may wait for others while the caller is busy with a batch
DIALS_AT_ONCE = 20
STALE_S = 1.0  # between two calls of `maintain`


class Links:
    """The connections of one consumer, by subscription."""

    def __init__(
        self, topic: str, channel: str, max_in_flight: int, settings: Settings, wake: Callable[[], None]
    ) -> None:
        """Begin without a connection. Raises ValueError as ConsumerCore does.

        `wake` is called in another thread when `maintain` has something to do.
        """
        self.core = ConsumerCore(topic, channel, max_in_flight, settings, self, monotonic, random.Random())
        # a key's data is a Subscription, a Dialing, or None for a socket of the owner
        self.selector = selectors.DefaultSelector()
        self._settings = settings
        self._pid = os.getpid()
        self._connections: dict[Subscription, Connection] = {}
        self._dialings: set[Dialing] = set()
        self._resolutions: dict[str, tuple[Resolution, float]] = {}  # by address; when each is given up
        self._wake = wake
        self._flushed_at = self._maintained_at = monotonic()

    def require_own(self) -> None:
        """Raise ConsumerError in a process that was forked since."""
        if os.getpid() != self._pid:
            raise ConsumerError(FORKED)

    @property
    def is_stale(self) -> bool:
        """Return True if the caller was busy for long: read what has arrived before `maintain` judges a silence."""
        return monotonic() - self._maintained_at > STALE_S

    def maintain(self) -> float:
        """Do what is due, send all output, and return the seconds until the next call is needed."""
        self._maintained_at = monotonic()
        seconds = self.core.tick()
        self._dial()
        self.flush()
        if len(self._dialings) < DIALS_AT_ONCE:
            return seconds
        return max(0.0, min(one.until for one in self._dialings) - self._maintained_at)  # others are due after these

    def receive(self, subscription: Subscription | Dialing) -> list[Message]:
        """Return the messages that have arrived at a socket that the selector reported."""
        if isinstance(subscription, Dialing):
            self._finish(subscription)
            return []
        connection = self._connections.get(subscription)
        if connection is None:
            return []
        try:
            data = connection.receive()
        except ConnectionLost as error:
            self.core.lose(subscription, error)
            return []
        return [] if data is None else self.core.receive(subscription, data)

    def flush(self) -> None:
        """Send the output of all subscriptions."""
        self._flushed_at = monotonic()
        outgoing = self.core.outgoing
        while outgoing:
            subscription, _ = outgoing.popitem()
            try:
                self._connections[subscription].send(subscription.take_output())
            except ConnectionLost as error:
                self.core.lose(subscription, error)

    def has_output(self, subscription: Subscription, is_urgent: bool) -> None:
        """See Sockets: while the caller is busy, answers leave after ANSWERS_WAIT_S. Raises ConsumerError after a fork."""
        self.require_own()
        if is_urgent or monotonic() - self._flushed_at > ANSWERS_WAIT_S:
            self.flush()

    def lost(self, subscription: Subscription) -> None:
        """See Sockets."""
        connection = self._connections.pop(subscription)
        self.selector.unregister(connection)
        with suppress(ConnectionLost):
            connection.close(subscription.take_output())

    def close(self, deadline: float) -> None:
        """Unsubscribe from all nsqds and close their connections, at the latest at `deadline`.

        Each server gets the time to read all answers and close.
        """
        self.core.leave()
        self._resolutions.clear()
        for dialing in [*self._dialings]:
            self._forget(dialing)
        self._read_until(lambda: self.core.has_left, deadline)
        for subscription, connection in [*self._connections.items()]:
            try:
                subscription.end()
                connection.send(subscription.take_output())
                connection.finish_sending()
            except ConnectionLost as error:
                self.core.lose(subscription, error)
        self._read_until(lambda: not self._connections, deadline)
        for subscription in [*self._connections]:
            self.core.lose(subscription, "the consumer was closed")
        self.selector.close()

    def abandon(self) -> None:
        """Close the connections in a forked process. Nothing is sent, and the parent's selector stays as it is."""
        self.selector.close()
        for connection in self._connections.values():
            connection.close()
        for dialing in self._dialings:
            dialing.socket.close()

    def _read_until(self, is_over: Callable[[], bool], deadline: float) -> None:
        """Read what the servers send until it `is_over`; messages among it are requeued."""
        self.flush()
        while not is_over() and (left := deadline - monotonic()) > 0:
            for key, _ in self.selector.select(left):
                self.receive(key.data)
            self.flush()

    def _dial(self) -> None:
        """Dial the nsqds that are due, and give up those that take too long. It waits for none of them."""
        for dialing in [one for one in self._dialings if one.until <= self._maintained_at]:
            self._forget(dialing)
            self.core.failed(dialing.address, cannot_connect(dialing.address, TimeoutError("timed out")))
        for resolved, (resolution, until) in [*self._resolutions.items()]:
            if resolution.is_done or until <= self._maintained_at:
                del self._resolutions[resolved]
                self._dial_resolved(resolved, resolution)
        while len(self._dialings) < DIALS_AT_ONCE and (address := self.core.take_due()) is not None:
            try:
                resolution = resolver().begin(address, self._wake)
            except ValueError as error:  # e.g. port 0: nsqlookupd passes on any address
                self.core.failed(address, cannot_connect(address, OSError(str(error))))
                continue
            if resolution.is_done:
                self._dial_resolved(address, resolution)
            else:
                self._resolutions[address] = resolution, self._maintained_at + LONGEST_S

    def _dial_resolved(self, address: str, resolution: Resolution) -> None:
        """Dial an nsqd whose name is resolved, or has been looked up for too long."""
        try:
            dialing = Dialing(address, resolution.targets(0), self._maintained_at + self._settings.dial_timeout_s)
        except OSError as error:
            self.core.failed(address, cannot_connect(address, error))
            return
        self._dialings.add(dialing)
        self.selector.register(dialing.socket, selectors.EVENT_WRITE, dialing)

    def _finish(self, dialing: Dialing) -> None:
        """Use a connection that is made, or try the next address of its host."""
        self.selector.unregister(dialing.socket)
        try:
            connected = dialing.finish()
        except OSError as error:
            self._dialings.discard(dialing)
            self.core.failed(dialing.address, cannot_connect(dialing.address, error))
            return
        if connected is None:
            self.selector.register(dialing.socket, selectors.EVENT_WRITE, dialing)
            return
        self._dialings.discard(dialing)
        subscription = self.core.connected(dialing.address)
        connection = Connection(dialing.address, connected, self._settings.write_timeout_s)
        self._connections[subscription] = connection
        self.selector.register(connection, selectors.EVENT_READ, subscription)
        self.flush()

    def _forget(self, dialing: Dialing) -> None:
        self._dialings.discard(dialing)
        self.selector.unregister(dialing.socket)
        dialing.socket.close()
