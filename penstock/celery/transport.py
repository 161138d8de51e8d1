"""kombu's transport penstock://. See docs/how-to/task-libraries.md.

Queues are tubes, and a message for several processes goes to the exchange's topic. A queue that is deleted automatically or
exclusive (a worker's mailbox, a reply queue, a monitor's events) is an ephemeral channel of the topics of its exchanges, and
filters by routing key. Any other queue is a tube, unless its exchange is a fanout.

All channels of a connection share an inbox: threads of `holder` and `subscription` fill it, and `drain_events` empties it.
"""

import logging
import os
import re
import time
from collections import defaultdict, deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any, ClassVar

from kombu.exceptions import ChannelError
from kombu.transport import virtual
from kombu.transport.virtual.exchange import DirectExchange, FanoutExchange, TopicExchange

from penstock import __version__
from penstock.celery import names
from penstock.celery.address import JOBS_PORT, read_url
from penstock.celery.envelope import Broadcast, Envelope, Payload, pack_broadcast, read_job
from penstock.celery.outlet import Outlet
from penstock.celery.subscription import BroadcastSubscription
from penstock.client import ClientError
from penstock.jobs import ConnectionLost, Draining, OutOfMemory, Refused
from penstock.jobs.holder import HeldJob, JobHolder
from penstock.telemetry import JOBS, Operation, activated, telemetry

logger = logging.getLogger("penstock.celery")
SUBSCRIBE_S = 5.0  # s to wait for a subscription; it is made in the background if it takes longer
MAX_EARLY = 1000  # broadcasts of a queue that are kept until it is consumed
JOIN_S = 2.0
Pattern = re.Pattern[str] | None  # the routing keys that a queue takes; None: all

FETCH_S = 60.0  # s for basic_get


class TubeDirectExchange(DirectExchange):
    """A direct exchange: to the tubes that this process has bound; to queues of other processes by the topic."""

    def deliver(self, message: Payload, exchange: str, routing_key: str, **options: object) -> None:
        """Put the message to the bound tubes. Raises JobsError."""
        if not self.channel.put_to_bound_tubes(exchange, routing_key, message):
            self.channel.broadcast(exchange, message, routing_key)


class TubeTopicExchange(TopicExchange):
    """A topic exchange: to the tubes that this process has bound, and by the exchange's topic to all other queues."""

    def deliver(self, message: Payload, exchange: str, routing_key: str, **options: object) -> None:
        """Put the message to the bound tubes, and publish it to the exchange's topic. Raises JobsError."""
        self.channel.put_to_bound_tubes(exchange, routing_key, message)
        self.channel.broadcast(exchange, message, routing_key)


class QoS(virtual.QoS):
    """Acknowledgements go to the holder, which counts the prefetched jobs, too."""

    def ack(self, delivery_tag: str) -> None:
        """Delete the job of a delivery. This is sent later, by the holder's thread."""
        self.channel.settle(delivery_tag, requeue=False)
        super().ack(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Release the job, or delete it."""
        self.channel.settle(delivery_tag, requeue)
        super().ack(delivery_tag)

    def restore_unacked(self) -> list[object]:
        """Release all jobs that are not acknowledged."""
        self._flush()
        for delivery_tag in list(self._delivered):
            self.channel.settle(delivery_tag, requeue=True)
        self._delivered.clear()
        return []


class JobsChannel(virtual.Channel):
    """A channel of Transport: kombu's methods for queues, on jobs in tubes and on broadcasts."""

    QoS = QoS
    supports_fanout = True
    do_restore = False  # `close` releases what is not acknowledged; kombu would publish it again
    exchange_types: ClassVar = {"direct": TubeDirectExchange, "topic": TubeTopicExchange, "fanout": FanoutExchange}
    connection: "Transport"

    def __init__(self, connection: "Transport", **options: object) -> None:
        super().__init__(connection, **options)
        self._holder: JobHolder[Envelope] | None = None
        self.operations: dict[str, Operation] = {}  # spans of tasks that are not acknowledged, by delivery tag

    # consuming

    def basic_consume(
        self, queue: str, no_ack: bool, callback: Callable[[Any], Any], consumer_tag: str, **options: object
    ) -> None:
        """Deliver the jobs of the queue, or the broadcasts to it, to `callback`. `no_ack`: they are acknowledged at once."""
        super().basic_consume(queue, no_ack, callback, consumer_tag, **options)
        self.connection.no_ack[queue] = bool(no_ack)
        if self.connection.is_broadcast(queue):
            self.connection.subscribe(self, queue)
            self.connection.deliver_early(queue)
        else:
            self._consume_tubes()

    def basic_cancel(self, consumer_tag: str) -> None:
        """Consume from the queue no longer; prefetched jobs are released."""
        queue = self._tag_to_queue.get(consumer_tag)
        super().basic_cancel(consumer_tag)
        if queue is not None and self._holder is not None and not self.connection.is_broadcast(queue):
            self._consume_tubes()

    def basic_qos(self, prefetch_size: int = 0, prefetch_count: int = 0, apply_global: bool = False) -> None:
        """Hold at most `prefetch_count` unacknowledged jobs; 0: no limit of the caller's."""
        super().basic_qos(prefetch_size, prefetch_count, apply_global)
        if self._holder is not None:
            self._holder.limit = prefetch_count
            self._holder.consume(self._holder.tubes)

    def settle(self, delivery_tag: str, requeue: bool) -> None:
        """Delete or release the job with this tag; broadcasts have nothing to settle."""
        if (operation := self.operations.pop(delivery_tag, None)) is not None:
            operation.end()
        if self._holder is not None and delivery_tag.isdigit():
            (self._holder.release if requeue else self._holder.acknowledge)(int(delivery_tag))

    def drain_events(self, timeout: float | None = None, callback: Callable[..., Any] | None = None) -> None:
        """Deliver the next message of any channel of the connection. Raises Empty."""
        try:
            self.connection.drain_events(self.connection, timeout or 0)
        except TimeoutError:
            raise Empty from None

    def close(self) -> None:
        """Close the channel; jobs that are not acknowledged are ready again."""
        if not self.closed:
            if self._holder is not None:
                self._holder.stop()
            self.connection.unsubscribe_channel(self)
            super().close()

    def _consume_tubes(self) -> None:
        connection = self.connection
        queues = [name for name in self._active_queues if not connection.is_broadcast(name)]
        self._holding().consume(tuple(dict.fromkeys(map(connection.outlet.tube_of, queues))))

    def _holding(self) -> JobHolder[Envelope]:
        if self._holder is None or self._holder.is_inherited:
            transport = self.connection
            self._holder = JobHolder(
                transport.outlet.new_jobs(),
                read_job,
                lambda held: transport.enqueue(self, held.content.queue, self.payload_of(held)),
                transport.enqueue_error,
                self.qos.prefetch_count,
            )
        return self._holder

    @staticmethod
    def payload_of(held: HeldJob[Envelope]) -> Payload:
        """Return kombu's payload of a job, with the job's id as its delivery tag."""
        payload = held.content.message
        payload["properties"]["delivery_tag"] = str(held.job.id)
        return payload

    # the methods that kombu's virtual channel calls

    def _new_queue(self, queue: str, auto_delete: bool = False, exclusive: bool = False, **options: object) -> None:
        if auto_delete or exclusive:
            self.connection.transient.add(queue)

    def _queue_bind(self, exchange: str, routing_key: str, pattern: str | None, queue: str) -> None:
        kind = self.state.exchanges[exchange]["type"]
        if kind == "fanout" or queue in self.connection.transient:
            accepts = re.compile(re.escape(routing_key) if kind == "direct" else pattern or "", re.DOTALL)
            self.connection.bind_broadcast(queue, exchange, None if kind == "fanout" else accepts)
            if kind == "direct":  # a reply may come before its queue is consumed
                self.connection.subscribe(self, queue)

    def put_to_bound_tubes(self, exchange: str, routing_key: str, message: Payload) -> int:
        """Put the message into each tube that is bound and matches; return how many."""
        bound = self._lookup(exchange, routing_key)
        queues = [name for name in bound if name and not self.connection.is_broadcast(name)]
        for name in queues:
            self._put(name, message)
        return len(queues)

    def _put_fanout(self, exchange: str, message: Payload, routing_key: str, **options: object) -> None:
        self.broadcast(exchange, message, routing_key)

    def broadcast(self, exchange: str, message: Payload, routing_key: str) -> None:
        """Publish the message to the ephemeral topic of the exchange."""
        self.connection.outlet.publish(exchange, pack_broadcast(routing_key or "", message))

    def _put(self, queue: str, message: Payload, **options: object) -> None:
        self.connection.outlet.put(queue, str(message["properties"]["delivery_tag"]), message)

    def _get(self, queue: str, timeout: float | None = None) -> Payload:
        held = None
        if not self.connection.is_broadcast(queue):
            held = self._holding().fetch(self.connection.outlet.tube_of(queue), FETCH_S)
        if held is None:
            raise Empty
        return self.payload_of(held)

    def basic_get(self, queue: str, no_ack: bool = False, **options: object) -> Any:
        """Return the next message of the queue, or None."""
        message = super().basic_get(queue, no_ack, **options)
        if message is not None and no_ack:
            self.settle(message.delivery_tag, requeue=False)
        return message

    def _size(self, queue: str) -> int:
        return 0 if self.connection.is_broadcast(queue) else self.connection.outlet.ready_count(queue)

    def _purge(self, queue: str) -> int:
        return 0 if self.connection.is_broadcast(queue) else self.connection.outlet.clear(queue)

    def _delete(self, queue: str, *arguments: object, **options: object) -> None:
        self.connection.unsubscribe(queue)
        self._purge(queue)

    def encode_body(self, body: Any, encoding: str | None = None) -> tuple[Any, str | None]:
        """Leave text as it is: JSON holds it. Bytes become base64."""
        return (body, "utf-8") if isinstance(body, str) else super().encode_body(body, encoding)


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
        self._telemetry = telemetry()
        self.endpoint = read_url(client.hostname or "", client.transport_options)
        self.outlet = Outlet(self.endpoint, time.time)
        self.transient: set[str] = set()  # queues that are deleted automatically, or exclusive
        self.no_ack: dict[str, bool] = {}  # of each consumed queue
        # by queue and exchange: the accepted routing keys
        self._broadcasts: dict[str, dict[str, list[Pattern]]] = defaultdict(dict)
        # by queue and exchange
        self._subscriptions: dict[tuple[str, str], tuple[JobsChannel, BroadcastSubscription]] = {}
        self._early: dict[str, deque[tuple[JobsChannel, Payload]]] = defaultdict(lambda: deque(maxlen=MAX_EARLY))
        self._inbox: SimpleQueue[tuple[JobsChannel, str, Payload] | Exception] = SimpleQueue()

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
        """Let `drain_events` raise the error. Any thread may call this."""
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
            except Empty:
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
        operation = None
        if self._telemetry is not None and tag.isdigit():
            headers = {key: value for key, value in payload.get("headers", {}).items() if isinstance(value, str)}
            operation = channel.operations[tag] = self._telemetry.process(JOBS, name, tag, headers)
        with activated(operation):
            if self.no_ack.get(name):
                channel.settle(tag, requeue=False)
            callback(payload)
        return True

    # broadcasts

    def is_broadcast(self, name: str) -> bool:
        """Return whether the queue gets its messages from topics of exchanges."""
        return name in self._broadcasts

    def bind_broadcast(self, name: str, exchange: str, pattern: Pattern) -> None:
        """Note that the queue takes the messages of the exchange whose routing key matches."""
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
            logger.warning("nsqd at %s does not answer: no control commands, no events", self.endpoint.nsqd)

    def _subscription(
        self, channel: JobsChannel, name: str, exchange: str, patterns: list[Pattern]
    ) -> BroadcastSubscription:
        def deliver(broadcast: Broadcast, tag: str) -> None:
            if any(pattern is None or pattern.fullmatch(broadcast.routing_key) for pattern in patterns):
                broadcast.message["properties"]["delivery_tag"] = f"m{tag}"
                self.enqueue(channel, name, broadcast.message)

        prefix = self.endpoint.prefix
        return BroadcastSubscription(
            self.endpoint.nsqd,
            names.ephemeral(prefix + exchange),
            names.ephemeral(prefix + name),
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
