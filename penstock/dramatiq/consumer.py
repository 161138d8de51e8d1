"""PenstockConsumer: the messages of one queue, which a thread holds while Dramatiq's worker has them.

Dramatiq asks for messages in one thread, and acknowledges them in others; the thread sends these answers, over the connection
that reserved the jobs, and touches the jobs.
"""

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from dramatiq import Consumer, DecodeError, Message, MessageProxy
from dramatiq.errors import ConnectionClosed

from penstock.jobs import Jobs
from penstock.jobs.commands import DEFAULT_TTR_S
from penstock.jobs.holder import HeldJob, JobHolder
from penstock.telemetry import Operation

TTR_OPTION = "penstock_ttr_s"  # the option of a stored message with the time to run of its job, in s


class SourceBroker(Protocol):
    """The broker of a consumer: PenstockBroker."""

    def new_worker_jobs(self) -> Jobs: ...
    def tube_of(self, queue_name: str) -> str: ...
    def priority_of(self, actor_name: str) -> int: ...


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """The content of a job: a message, the time to run of the job and its priority."""

    message: Message[Any]
    ttr_s: float
    priority: int


class HeldMessage(MessageProxy):
    """A message that a worker has, and its job."""

    def __init__(self, held: HeldJob[StoredMessage], tube: str) -> None:
        super().__init__(held.content.message)
        self.job_id = held.job.id
        self.headers, self.tube = held.job.headers, tube
        self.operation: Operation | None = None  # the span of the actor's call
        self.active = ExitStack()  # as long as that is the current one


class PenstockConsumer(Consumer):
    """An iterator of messages, and None where none came in time. Its connection is lost when a node does not come back."""

    def __init__(self, broker: SourceBroker, queue_name: str, prefetch: int, timeout: int) -> None:
        self._broker = broker
        self._queue_name = queue_name
        self._timeout_s = timeout / 1000
        self._inbox: SimpleQueue[HeldJob[StoredMessage] | Exception] = SimpleQueue()
        self._holder = JobHolder(broker.new_worker_jobs(), self._read, self._inbox.put, self._inbox.put, prefetch)
        self._tube = broker.tube_of(queue_name)
        self._holder.consume((self._tube,))

    def __next__(self) -> MessageProxy | None:
        """Return the next message, or None. Raises ConnectionClosed."""
        try:
            item = self._inbox.get(timeout=self._timeout_s)
        except Empty:
            return None
        if isinstance(item, Exception):
            raise ConnectionClosed(item) from item
        return HeldMessage(item, self._tube)

    def ack(self, message: MessageProxy) -> None:
        """Delete the job of a message that was processed."""
        self._holder.acknowledge(message.job_id)

    def nack(self, message: MessageProxy) -> None:
        """Bury the job of a message that failed: the tube's buried jobs are the dead letters of the queue."""
        self._holder.bury(message.job_id)

    def requeue(self, messages: Iterable[MessageProxy]) -> None:
        """Make the jobs of messages that were not begun ready again."""
        for message in messages:
            self._holder.release(message.job_id)

    def close(self) -> None:
        """Send the answers; all other messages, also those that were never asked for, are ready again."""
        self._holder.stop()

    def _read(self, body: bytes) -> StoredMessage:
        """Read the body of a job. Raises ValueError for a body that is no message of this queue."""
        try:
            message = Message.decode(body)
            message.options.pop("eta", None)  # it has come: with one, the worker would put the message again
            ttr_s = float(message.options.pop(TTR_OPTION, DEFAULT_TTR_S))
            priority = self._broker.priority_of(message.actor_name)
        except (DecodeError, AttributeError, TypeError) as error:
            raise ValueError(f"not a message of Dramatiq: {error}") from error
        if message.queue_name != self._queue_name:
            raise ValueError(f"a message of the queue {message.queue_name!r}")
        return StoredMessage(message, ttr_s, priority)
