"""PenstockBroker: tasks are put into a tube once, and deleted when their worker has acknowledged them."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

from taskiq import AckableMessage, AsyncBroker, BrokerMessage

from penstock.jobs import AsyncJob, AsyncJobs, JobsSettings, Retries, Unsupported
from penstock.jobs.commands import DEFAULT_ADDRESS, DEFAULT_PRIORITY, DEFAULT_TTR_S

QUEUE = "taskiq"  # the tube


class PenstockBroker(AsyncBroker):
    """A broker of taskiq at the beanstalkd port of an nsqd.

    `address` is host:port, or the path of a unix socket; `queue` the tube. A worker has at most `concurrency` tasks at a time,
    over a connection each, and touches them while they work. `ttr_s`: how soon the tasks of a worker whose connection broke
    silently are redelivered, in s. The labels `delay` (s) and `priority` (lower ones come first; 65,536 without one) of a task
    are those of its job. Raises ValueError for a bad address or name.

    Example::

        broker = PenstockBroker("127.0.0.1:11300", queue="mail")

        @broker.task
        async def send_invoice(order: int) -> None: ...

        await send_invoice.kicker().with_labels(delay=60).kiq(17)
    """

    def __init__(
        self,
        address: str = DEFAULT_ADDRESS,
        queue: str = QUEUE,
        *,
        concurrency: int = 10,
        ttr_s: float = DEFAULT_TTR_S,
        settings: JobsSettings | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._jobs = AsyncJobs(address, settings, queue, [queue])
        self._concurrency, self._ttr_s = concurrency, ttr_s

    async def shutdown(self) -> None:
        """Close the connection to the node, as the process ends."""
        await self._jobs.aclose()
        await super().shutdown()

    async def kick(self, message: BrokerMessage) -> None:
        """Put a task into the tube, once although it is tried again: the key of its job is the task's id. Raises JobsError."""
        priority = int(message.labels.get("priority", DEFAULT_PRIORITY))
        delay = float(message.labels.get("delay", 0))
        try:
            await self._jobs.put_unique(message.task_id, message.message, priority, delay, self._ttr_s)
        except Unsupported:  # the original beanstalkd
            await self._jobs.put(message.message, priority, delay, self._ttr_s)

    async def listen(self) -> AsyncGenerator[AckableMessage, None]:
        """Yield the tasks of the tube, each when a worker is free for it. Raises BadServer, Refused, ClientClosed."""
        deliveries: asyncio.Queue[AckableMessage | None] = asyncio.Queue()

        async def deliver(job: AsyncJob) -> None:
            """Have the job done; it is deleted after the return, and released if this is cancelled."""
            acknowledged = asyncio.Event()

            async def acknowledge() -> None:
                acknowledged.set()

            deliveries.put_nowait(AckableMessage(data=job.body, ack=acknowledge))
            await acknowledged.wait()

        running = asyncio.create_task(self._jobs.run(deliver, self._concurrency, Retries()))
        running.add_done_callback(lambda _: deliveries.put_nowait(None))
        try:
            while (message := await deliveries.get()) is not None:
                yield message
            await running
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
