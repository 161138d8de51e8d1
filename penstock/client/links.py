"""The sockets of one blocking consumer, around the decisions of its ConsumerCore."""

import random
import selectors
from collections.abc import Callable
from contextlib import suppress
from time import monotonic

from penstock.client.connection import Connection
from penstock.sansio.consumer import ConsumerCore
from penstock.sansio.errors import ConnectionLost
from penstock.sansio.message import Message
from penstock.sansio.settings import Settings
from penstock.sansio.subscription import Subscription

ANSWERS_WAIT_S = 0.01  # how long an answer may wait for others while the caller is busy with a batch
STALE_S = 1.0  # between two calls of `tend`


class Links:
    """The connections of one consumer, by subscription."""

    def __init__(self, topic: str, channel: str, max_in_flight: int, settings: Settings) -> None:
        """Begin without a connection. Raises ValueError as ConsumerCore does."""
        self.core = ConsumerCore(topic, channel, max_in_flight, settings, self, monotonic, random.Random())
        self.selector = selectors.DefaultSelector()  # a key's data is a Subscription, or None for a socket of the owner
        self._settings = settings
        self._connections: dict[Subscription, Connection] = {}
        self._flushed_at = self._tended_at = monotonic()

    @property
    def is_stale(self) -> bool:
        """Return True if the caller was busy for long: read what has arrived before `tend` judges a silence."""
        return monotonic() - self._tended_at > STALE_S

    def tend(self) -> float:
        """Do what is due, send all output, and return the seconds until the next call is needed."""
        self._tended_at = monotonic()
        seconds = self.core.tick()
        self._dial_one()
        self.flush()
        return seconds

    def receive(self, subscription: Subscription) -> list[Message]:
        """Return the messages that have arrived at a socket that the selector reported."""
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
        """See Sockets: while the caller is busy, answers leave after ANSWERS_WAIT_S."""
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
        self._hear_out(lambda: self.core.has_left, deadline)
        for subscription, connection in [*self._connections.items()]:
            try:
                subscription.end()
                connection.send(subscription.take_output())
                connection.finish_sending()
            except ConnectionLost as error:
                self.core.lose(subscription, error)
        self._hear_out(lambda: not self._connections, deadline)
        for subscription in [*self._connections]:
            self.core.lose(subscription, "the consumer was closed")
        self.selector.close()

    def _hear_out(self, is_over: Callable[[], bool], deadline: float) -> None:
        """Read what the servers send until it `is_over`; messages among it are requeued."""
        self.flush()
        while not is_over() and (left := deadline - monotonic()) > 0:
            for key, _ in self.selector.select(left):
                self.receive(key.data)
            self.flush()

    def _dial_one(self) -> None:
        """Dial one nsqd that is due; only one, since dialing waits while the others have messages."""
        address = self.core.take_due()
        if address is None:
            return
        try:
            connection = Connection(address, self._settings.dial_timeout_s, self._settings.write_timeout_s)
        except ConnectionLost as error:
            self.core.failed(address, error)
            return
        subscription = self.core.connected(address)
        self._connections[subscription] = connection
        self.selector.register(connection, selectors.EVENT_READ, subscription)
