"""A channel of kombu: queues are tubes, and what several processes get is a message of the exchange's topic.

A queue that is deleted automatically or exclusive (a worker's mailbox, a reply queue, a monitor's events) is an ephemeral
channel of the topics of its exchanges, and filters by routing key. Any other queue is a tube, unless its exchange is a
fanout.
"""

import re
from collections.abc import Callable
from queue import Empty
from typing import TYPE_CHECKING, Any, ClassVar

from kombu.transport import virtual
from kombu.transport.virtual.exchange import DirectExchange, FanoutExchange, TopicExchange

from penstock.celery.envelope import Payload, pack_broadcast
from penstock.celery.holder import HeldJob, Holder

if TYPE_CHECKING:
    from penstock.celery.transport import Transport

FETCH_S = 60.0  # s for basic_get


class Direct(DirectExchange):
    """A direct exchange: to the tubes that this process has bound; to queues of other processes by the topic."""

    def deliver(self, message: Payload, exchange: str, routing_key: str, **options: object) -> None:
        """Publish the message."""
        if not self.channel.put_to_bound_tubes(exchange, routing_key, message):
            self.channel.broadcast(exchange, message, routing_key)


class Topic(TopicExchange):
    """A topic exchange: to the tubes that this process has bound, and by the exchange's topic to all other queues."""

    def deliver(self, message: Payload, exchange: str, routing_key: str, **options: object) -> None:
        """Publish the message."""
        self.channel.put_to_bound_tubes(exchange, routing_key, message)
        self.channel.broadcast(exchange, message, routing_key)


class QoS(virtual.QoS):
    """Acknowledgements go to the holder, which counts the prefetched jobs, too."""

    def ack(self, delivery_tag: str) -> None:
        """Delete the job."""
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


class Channel(virtual.Channel):
    """A channel of Transport."""

    QoS = QoS
    supports_fanout = True
    do_restore = False  # `close` releases what is not acknowledged; kombu would publish it again
    exchange_types: ClassVar = {"direct": Direct, "topic": Topic, "fanout": FanoutExchange}
    connection: "Transport"

    def __init__(self, connection: "Transport", **options: object) -> None:
        super().__init__(connection, **options)
        self._holder: Holder | None = None

    # consuming

    def basic_consume(
        self, queue: str, no_ack: bool, callback: Callable[[Any], Any], consumer_tag: str, **options: object
    ) -> None:
        """Consume from the queue."""
        super().basic_consume(queue, no_ack, callback, consumer_tag, **options)
        self.connection.no_ack[queue] = bool(no_ack)
        if self.connection.is_broadcast(queue):
            self.connection.subscribe(self, queue)
            self.connection.deliver_early(queue)
        else:
            self._consume_tubes()

    def basic_cancel(self, consumer_tag: str) -> None:
        """Consume from the queue no longer; what is prefetched is released."""
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
        if self._holder is not None and delivery_tag.isdigit():
            (self._holder.release if requeue else self._holder.acknowledge)(int(delivery_tag))

    def drain_events(self, timeout: float | None = None, callback: Callable[..., Any] | None = None) -> None:
        """Deliver the next message of any channel of the connection. Raises queue.Empty."""
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
        tubes = [
            connection.outlet.tube_of(queue) for queue in self._active_queues if not connection.is_broadcast(queue)
        ]
        self._holding().consume(tuple(dict.fromkeys(tubes)))

    def _holding(self) -> Holder:
        if self._holder is None or self._holder.is_inherited:
            transport = self.connection
            self._holder = Holder(
                transport.outlet.new_jobs(),
                lambda held: transport.enqueue(self, held.envelope.queue, self.payload_of(held)),
                transport.enqueue_error,
                self.qos.prefetch_count,
            )
        return self._holder

    @staticmethod
    def payload_of(held: HeldJob) -> Payload:
        """Return kombu's payload of a job, with the job's id as its delivery tag."""
        payload = held.envelope.message
        payload["properties"]["delivery_tag"] = str(held.job.id)
        return payload

    # what kombu's virtual channel is built on

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
        queues = [
            queue for queue in self._lookup(exchange, routing_key) if queue and not self.connection.is_broadcast(queue)
        ]
        for queue in queues:
            self._put(queue, message)
        return len(queues)

    def _put_fanout(self, exchange: str, message: Payload, routing_key: str, **options: object) -> None:
        self.broadcast(exchange, message, routing_key)

    def broadcast(self, exchange: str, message: Payload, routing_key: str) -> None:
        """Publish to the exchange's topic."""
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
