"""One Python client at work, in a process of its own: `python -m bench.client_load CLIENT WORK ADDRESS TOPIC CHANNEL COUNT`.

It prints {"cpu", "seconds"} in s for COUNT messages, from the first message on: connecting and importing do not count.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

MAX_IN_FLIGHT = 500
TASKS = 50  # that publish, each of which waits for its OK
BODY = b"x" * 200


class Clock:
    """Measures from the first message to the last."""

    def __init__(self, count: int) -> None:
        self._left = count
        self._began: tuple[float, float] | None = None
        self.result = ""  # JSON

    def begin(self) -> None:
        """Note that the work begins."""
        self._began = time.process_time(), time.perf_counter()

    def note(self) -> bool:
        """Note a message. Returns True after the last one."""
        if self._began is None:
            self.begin()
        self._left -= 1
        if not self._left:
            assert self._began is not None
            cpu, seconds = time.process_time() - self._began[0], time.perf_counter() - self._began[1]
            self.result = json.dumps({"cpu": cpu, "seconds": seconds})
        return not self._left


def blocking_consume(clock: Clock, address: str, topic: str, channel: str, count: int) -> None:
    """Consume with penstock.client."""
    from penstock.client import Consumer

    with Consumer(topic, channel, [address], max_in_flight=MAX_IN_FLIGHT) as consumer:
        for message in consumer:
            message.finish()
            if clock.note():
                return


def blocking_publish(clock: Clock, address: str, topic: str, channel: str, count: int) -> None:
    """Publish with penstock.client: as many unanswered as other clients have tasks."""
    from penstock.client import Producer

    with Producer(address, max_outstanding=TASKS) as producer:
        producer.publish(topic, BODY)
        clock.begin()
        for _ in range(count):
            producer.submit(topic, (BODY,))
            clock.note()


async def aio_consume(clock: Clock, address: str, topic: str, channel: str, count: int) -> None:
    """Consume with penstock.aio."""
    from penstock.aio import Consumer

    async with Consumer(topic, channel, [address], max_in_flight=MAX_IN_FLIGHT) as consumer:
        async for message in consumer:
            message.finish()
            if clock.note():
                return


async def aio_publish(clock: Clock, address: str, topic: str, channel: str, count: int) -> None:
    """Publish with penstock.aio."""
    from penstock.aio import Producer

    async with Producer(address) as producer:
        await _publish(clock, lambda: producer.publish(topic, BODY), count)


async def ansq_consume(clock: Clock, address: str, topic: str, channel: str, count: int) -> None:
    """Consume with ansq."""
    import ansq

    reader = await ansq.create_reader(topic, channel, nsqd_tcp_addresses=[address])
    for connection in reader.connections:
        await connection.rdy(MAX_IN_FLIGHT)
    async for message in reader.messages():
        await message.fin()
        if clock.note():
            break
    await reader.close()


async def ansq_publish(clock: Clock, address: str, topic: str, channel: str, count: int) -> None:
    """Publish with ansq."""
    import ansq

    writer = await ansq.create_writer(nsqd_tcp_addresses=[address])
    await _publish(clock, lambda: writer.pub(topic, BODY), count)
    await writer.close()


async def _publish(clock: Clock, publish: Callable[[], Awaitable[object]], count: int) -> None:
    await publish()
    clock.begin()

    async def task() -> None:
        for _ in range(count // TASKS):
            await publish()
            clock.note()

    await asyncio.gather(*(task() for _ in range(TASKS)))


def pynsq_consume(clock: Clock, address: str, topic: str, channel: str, count: int) -> None:
    """Consume with pynsq."""
    import nsq
    from tornado.ioloop import IOLoop

    def handle(message: Any) -> bool:
        if clock.note():
            IOLoop.current().stop()
        return True

    nsq.Reader(
        topic=topic, channel=channel, message_handler=handle, nsqd_tcp_addresses=[address], max_in_flight=MAX_IN_FLIGHT
    )
    IOLoop.current().start()


def pynsq_publish(clock: Clock, address: str, topic: str, channel: str, count: int) -> None:
    """Publish with pynsq: each answer publishes the next message, on as many chains as other clients have tasks."""
    import nsq
    from tornado.ioloop import IOLoop

    writer, loop = nsq.Writer([address]), IOLoop.current()
    left = count

    def publish() -> None:
        nonlocal left
        if left > 0:
            left -= 1
            writer.pub(topic, BODY, callback=answered)

    def answered(connection: Any, data: Any) -> None:
        if clock.note():
            loop.stop()
        else:
            publish()

    def begin() -> None:
        if not writer.conns:  # connecting is asynchronous, and has no callback
            loop.call_later(0.01, begin)
            return
        clock.begin()
        for _ in range(TASKS):
            publish()

    loop.add_callback(begin)
    loop.start()


_ALL: dict[tuple[str, str], Callable[[Clock, str, str, str, int], Any]] = {
    ("penstock.client", "consume"): blocking_consume,
    ("penstock.client", "publish"): blocking_publish,
    ("penstock.aio", "consume"): aio_consume,
    ("penstock.aio", "publish"): aio_publish,
    ("ansq", "consume"): ansq_consume,
    ("ansq", "publish"): ansq_publish,
    ("pynsq", "consume"): pynsq_consume,
    ("pynsq", "publish"): pynsq_publish,
}


def main(client: str, work: str, address: str, topic: str, channel: str, count: str) -> None:
    """Do the work and print the times."""
    clock = Clock(int(count))
    running = _ALL[client, work](clock, address, topic, channel, int(count))
    if running is not None:
        asyncio.run(running)
    print(clock.result)


if __name__ == "__main__":
    main(*sys.argv[1:])
