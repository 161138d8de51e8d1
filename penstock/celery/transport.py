"""kombu's transport penstock://. See docs/how-to/celery.md.

All channels of a connection share an inbox: threads of `holder` and `subscription` fill it, and `drain_events` empties it.
"""

import logging
import os
import queue
import re
import time
from collections import defaultdict, deque
from time import monotonic
from typing import Any

from kombu.exceptions import ChannelError
from kombu.transport import virtual

from penstock import __version__
from penstock.celery import names
from penstock.celery.address import JOBS_PORT, read_url
from penstock.celery.channel import Channel as JobsChannel
from penstock.celery.envelope import Broadcast, Payload
from penstock.celery.outlet import Outlet
from penstock.celery.subscription import Subscription
from penstock.client import ClientError
from penstock.jobs import ConnectionLost, Draining, OutOfMemory, Refused

logger = logging.getLogger("penstock.celery")
SUBSCRIBE_S = 5.0  # s to wait for a subscription; it is made in the background if it takes longer
MAX_EARLY = 1000  # broadcasts of a queue that are kept until it is consumed
JOIN_S = 2.0
Pattern = re.Pattern[str] | None  # the routing keys that a queue takes; None: all
Item = tuple[JobsChannel, str, Payload] | Exception


class Transport(virtual.Transport):
    """The transport: one per kombu Connection."""

    Channel = JobsChannel
    can_parse_url = True
    default_port = JOBS_PORT
    driver_type = "penstock"
    driver_name = "penstock"
    implements = virtual.Transport.implements.extend(
        asynchronous=False, exchange_type=frozenset(["direct", "topic", "fanout"]), heartbeats=False
    )
    connection_errors = (*virtual.Transport.connection_errors, ConnectionLost, ClientError, OSError)
    channel_errors = (*virtual.Transport.channel_errors, ChannelError, Refused)
    recoverable_connection_errors = connection_errors
    recoverable_channel_errors = (Draining, OutOfMemory)

    def __init__(self, client: Any, **options: object) -> None:
        super().__init__(client, **options)
        self._pid = os.getpid()
        self.endpoint = read_url(client.hostname or "", client.transport_options)
        self.outlet = Outlet(self.endpoint, time.time)
        self.transient: set[str] = set()  # queues that are deleted automatically, or exclusive
        self.no_ack: dict[str, bool] = {}  # of each consumed queue
        self._broadcasts: dict[str, dict[str, list[Pattern]]] = defaultdict(dict)  # queue: exchange: what it takes
        self._subscriptions: dict[tuple[str, str], tuple[JobsChannel, Subscription]] = {}  # by queue and exchange
        self._early: dict[str, deque[tuple[JobsChannel, Payload]]] = defaultdict(lambda: deque(maxlen=MAX_EARLY))
        self._inbox: queue.SimpleQueue[Item] = queue.SimpleQueue()

    def driver_version(self) -> str:
        """Return the version of this package."""
        return __version__

    def establish_connection(self) -> Any:
        """Connect. Raises JobsError if the server does not answer."""
        self.outlet.verify()
        return super().establish_connection()

    def close_connection(self, connection: Any) -> None:
        """Close all channels: jobs that are not acknowledged are ready again."""
        super().close_connection(connection)
        self.outlet.close()

    # delivery

    def enqueue(self, channel: JobsChannel, name: str, payload: Payload) -> None:
        """Note a message for `drain_events`. Any thread may call this."""
        self._inbox.put((channel, name, payload))

    def enqueue_error(self, error: Exception) -> None:
        """Let `drain_events` raise the error."""
        self._inbox.put(error)

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:
        """Deliver the next message. Raises TimeoutError (socket.timeout), JobsError; ConnectionLost after a fork."""
        if os.getpid() != self._pid:  # no thread of this process fills the inbox
            raise ConnectionLost("the connection belongs to the process that forked this one: connect again")
        deadline = None if timeout is None else monotonic() + timeout
        while True:
            try:
                left = None if deadline is None else max(0.0, deadline - monotonic())
                item = self._inbox.get(timeout=left)
            except queue.Empty:
                raise TimeoutError from None
            if isinstance(item, Exception):
                raise item
            if self._deliver_item(*item):
                return

    def deliver_early(self, name: str) -> None:
        """Deliver the broadcasts that came before the queue was consumed."""
        for channel, payload in self._early.pop(name, ()):
            self.enqueue(channel, name, payload)

    def _deliver_item(self, channel: JobsChannel, name: str, payload: Payload) -> bool:
        tag = payload["properties"]["delivery_tag"]
        if channel.closed:
            return False  # its holder has released the job
        callback = self._callbacks.get(name)
        if callback is None:
            if self.is_broadcast(name):
                self._early[name].append((channel, payload))
            else:
                channel.settle(tag, requeue=True)  # cancelled meanwhile
            return False
        if self.no_ack.get(name):
            channel.settle(tag, requeue=False)
        callback(payload)
        return True

    # broadcasts

    def is_broadcast(self, name: str) -> bool:
        """Return whether the queue gets its messages from topics of exchanges."""
        return name in self._broadcasts

    def bind_broadcast(self, name: str, exchange: str, pattern: Pattern) -> None:
        """Note that the queue takes what is published to the exchange with a routing key that matches."""
        self._broadcasts[name].setdefault(exchange, []).append(pattern)

    def subscribe(self, channel: JobsChannel, name: str) -> None:
        """Receive the broadcasts of the queue's exchanges, and wait until that is so. Without an nsqd, do nothing."""
        made = []
        for exchange, patterns in self._broadcasts[name].items():
            if self.endpoint.nsqd and (name, exchange) not in self._subscriptions:
                subscription = self._subscription(channel, name, exchange, patterns)
                self._subscriptions[name, exchange] = channel, subscription
                made.append(subscription)
        deadline = monotonic() + SUBSCRIBE_S
        if not all(subscription.wait(max(0.0, deadline - monotonic())) for subscription in made):
            logger.warning(
                "nsqd at %s does not answer: no control commands and events until it does", self.endpoint.nsqd
            )

    def _subscription(self, channel: JobsChannel, name: str, exchange: str, patterns: list[Pattern]) -> Subscription:
        def deliver(broadcast: Broadcast, tag: str) -> None:
            if any(pattern is None or pattern.fullmatch(broadcast.routing_key) for pattern in patterns):
                broadcast.message["properties"]["delivery_tag"] = f"m{tag}"
                self.enqueue(channel, name, broadcast.message)

        prefix = self.endpoint.prefix
        return Subscription(
            self.endpoint.nsqd,
            names.topic_of(prefix + exchange),
            names.channel_of(prefix + name),
            lambda body: self.outlet.publish(exchange, body),
            deliver,
        )

    def unsubscribe(self, name: str) -> None:
        """Receive the queue's broadcasts no longer."""
        self._stop([key for key in self._subscriptions if key[0] == name])
        self._early.pop(name, None)

    def unsubscribe_channel(self, channel: JobsChannel) -> None:
        """Receive no more broadcasts for the queues of the channel."""
        self._stop([key for key, (owner, _) in self._subscriptions.items() if owner is channel])

    def _stop(self, keys: list[tuple[str, str]]) -> None:
        stopped = [self._subscriptions.pop(key)[1] for key in keys]
        for subscription in stopped:
            subscription.stop()
        for subscription in stopped:
            subscription.join(JOIN_S)
