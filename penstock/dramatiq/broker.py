"""PenstockBroker: messages are put into the tube of their queue once, and wait there until they are due."""

import time
from dataclasses import replace
from typing import Any

from dramatiq import Broker, Message, Middleware, QueueJoinTimeout, QueueNotFound
from dramatiq.common import current_millis
from dramatiq.errors import ConnectionFailed

from penstock.dramatiq.consumer import TTR_OPTION, PenstockConsumer
from penstock.dramatiq.tracing import Tracing
from penstock.jobs import ConnectionLost, Jobs, JobsSettings
from penstock.jobs.calls import MAX_U32
from penstock.jobs.commands import DEFAULT_ADDRESS, DEFAULT_PRIORITY, DEFAULT_TTR_S
from penstock.jobs.shared import SharedJobs
from penstock.telemetry import telemetry

PREFIX = "dramatiq."
UNFINISHED = ("current-jobs-ready", "current-jobs-reserved", "current-jobs-delayed")
JOIN_POLL_S = 0.1


class PenstockBroker(Broker):
    """A broker of Dramatiq at the beanstalkd port of an nsqd.

    `address` is host:port, or the path of a unix socket. The tube of a queue has its name after `prefix`. `ttr_s`: how soon the
    messages of a worker whose connection broke silently are redelivered, in s. Among the jobs of a tube, those of actors with a
    lower `priority` come first. Raises ValueError for a bad address.

    Example::

        broker = PenstockBroker("127.0.0.1:11300")
        dramatiq.set_broker(broker)

        @dramatiq.actor(queue_name="mail")
        def send_invoice(order): ...

        send_invoice.send_with_options(args=(17,), delay=60_000)
    """

    def __init__(
        self,
        address: str = DEFAULT_ADDRESS,
        *,
        prefix: str = PREFIX,
        ttr_s: int = DEFAULT_TTR_S,
        settings: JobsSettings | None = None,
        middleware: list[Middleware] | None = None,
    ) -> None:
        super().__init__(middleware)
        self._address, self._settings = address, settings or JobsSettings()
        self._prefix, self._ttr_s = prefix, ttr_s
        self._jobs = SharedJobs(Jobs(address, self._settings))
        if telemetry() is not None:
            self.add_middleware(Tracing())

    def new_worker_jobs(self) -> Jobs:
        """Return a client for a consumer. It begins no spans, because a message may be prefetched."""
        return Jobs(self._address, replace(self._settings, telemetry=False, headers=telemetry() is not None))

    def tube_of(self, queue_name: str) -> str:
        """Return the tube of a queue."""
        return self._prefix + queue_name

    def close(self) -> None:
        """Close the connection to the node, as the process ends."""
        self._jobs.close()

    def declare_queue(self, queue_name: str) -> None:
        """Declare a queue. It has no second queue for delayed messages: the node keeps them until they are due."""
        if queue_name not in self.queues:
            self.emit_before("declare_queue", queue_name)
            self.queues[queue_name] = None
            self.emit_after("declare_queue", queue_name)

    def consume(self, queue_name: str, prefetch: int = 1, timeout: int = 30000) -> PenstockConsumer:
        """Return a consumer of the queue that holds at most `prefetch` messages. Raises QueueNotFound."""
        self._require_declared(queue_name)
        return PenstockConsumer(self, queue_name, prefetch, timeout)

    def enqueue(self, message: Message[Any], *, delay: int | None = None) -> Message[Any]:
        """Put a message into its queue, once although it is tried again; return it, with the option `eta` if it has a `delay`.

        `delay` and `eta` are in ms, and rounded up to whole seconds. Raises QueueNotFound, ConnectionFailed; JobsError if the
        node refuses the message.
        """
        self._require_declared(message.queue_name)
        if delay is not None:
            message = message.copy(options={"eta": current_millis() + delay})
        self.emit_before("enqueue", message, delay)
        stored = message.copy(options={TTR_OPTION: self._ttr_s})
        try:
            tube, priority = self.tube_of(message.queue_name), self.priority_of(message.actor_name)
            self._jobs.put_once(tube, stored.encode(), priority, _delay_s(message), self._ttr_s)
        except ConnectionLost as error:
            raise ConnectionFailed(error) from error
        self.emit_after("enqueue", message, delay)
        return message

    def priority_of(self, actor_name: str) -> int:
        """Return the priority of an actor's jobs; the default one if the actor is not declared here."""
        actor = self.actors.get(actor_name)
        return min(max(0, DEFAULT_PRIORITY + actor.priority), MAX_U32) if actor is not None else DEFAULT_PRIORITY

    def flush(self, queue_name: str) -> None:
        """Drop the messages of the queue that no worker has, dead letters too. Raises QueueNotFound, JobsError."""
        self._require_declared(queue_name)
        self._jobs.clear(self.tube_of(queue_name))

    def flush_all(self) -> None:
        """Drop the messages of all declared queues that no worker has. Raises JobsError."""
        for queue_name in self.get_declared_queues():
            self.flush(queue_name)

    def join(self, queue_name: str, *, timeout: int | None = None) -> None:
        """Wait until the queue has only dead letters. `timeout` is in ms. Raises QueueJoinTimeout, QueueNotFound, JobsError."""
        self._require_declared(queue_name)
        deadline = None if timeout is None else time.monotonic() + timeout / 1000
        while any(map(self._jobs.stats_tube(self.tube_of(queue_name)).get, UNFINISHED)):
            if deadline is not None and time.monotonic() >= deadline:
                raise QueueJoinTimeout(queue_name)
            time.sleep(JOIN_POLL_S)

    def _require_declared(self, queue_name: str) -> None:
        if queue_name not in self.queues:
            raise QueueNotFound(queue_name)


def _delay_s(message: Message[Any]) -> float:
    """Return the seconds until the message's `eta`; 0 without one, and for one that is no number."""
    eta = message.options.get("eta")
    return max(0, eta - current_millis()) / 1000 if isinstance(eta, int | float) else 0
