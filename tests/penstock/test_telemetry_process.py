"""The context of a publish reaches the consumer that processes its messages, with each of the clients."""

from collections.abc import Iterator
from pathlib import Path

import anyio
import dramatiq
import pytest
from kombu import Connection, Consumer, Queue
from opentelemetry import trace

from penstock.aio import Consumer as AsyncConsumer
from penstock.aio import Message
from penstock.aio import Producer as AsyncProducer
from penstock.client import Consumer as BlockingConsumer
from penstock.client import Producer
from penstock.dramatiq import PenstockBroker
from penstock.jobs import AsyncJob, AsyncJobs, Jobs, JobsSettings
from tests.async_tests import run
from tests.daemons import Daemon
from tests.penstock.spans import Recorded
from tests.penstock.test_telemetry import recorded as recorded  # the fixture
from tests.processes.test_jobs_client import beanstalk_node

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with beanstalk_node(tmp_path_factory.mktemp("spans")) as daemon:
        yield daemon


def families(recorded: Recorded) -> dict[str, list[str]]:
    found: dict[int, list[str]] = {}
    for span in recorded.spans:
        found.setdefault(span.context.trace_id, []).append(span.name)
    return {names[0]: sorted(names) for names in found.values()}


def test_the_blocking_client(node: Daemon, recorded: Recorded) -> None:
    with Producer([node.tcp]) as producer:
        producer.publish("blocking", b"one", headers={"source": "shop"})
    with BlockingConsumer("blocking", "c", [node.tcp]) as consumer:
        message = next(consumer)
        assert message.headers["source"] == "shop"
        message.finish()
    assert families(recorded) == {"publish blocking": ["process blocking", "publish blocking"]}


def test_the_async_client_and_what_its_handler_does(node: Daemon, recorded: Recorded) -> None:
    async def main() -> None:
        async with AsyncProducer(node.tcp) as producer:
            await producer.publish_many("async", [b"one", b"two"])
        async with AsyncConsumer("async", "c", [node.tcp], max_in_flight=1) as consumer:

            async def handle(message: Message) -> None:
                with trace.get_tracer("test").start_as_current_span("work"):
                    await anyio.lowlevel.checkpoint()
                if message.body == b"two":
                    consumer.stop()

            await consumer.run(handle)

    run("asyncio", main)
    assert families(recorded) == {"publish async": ["process async"] * 2 + ["publish async"] + ["work"] * 2}


def test_a_job(node: Daemon, recorded: Recorded) -> None:
    address = node.addresses["BEANSTALK"]

    async def main() -> None:
        async with AsyncJobs(address, watch=["tube"]) as jobs:
            with anyio.CancelScope() as scope:

                async def handle(job: AsyncJob) -> None:
                    await job.delete()
                    scope.cancel()

                await jobs.run(handle, concurrency=1)

    with Jobs(address, use="tube") as jobs:
        jobs.put_unique("k", b"one")
    run("asyncio", main)
    assert families(recorded) == {"publish tube": ["process tube", "publish tube"]}


def test_headers_of_jobs_outlive_a_kill(tmp_path: Path) -> None:
    settings = JobsSettings(headers=True)
    with beanstalk_node(tmp_path) as node:
        address = node.addresses["BEANSTALK"]
        with Jobs(address, settings) as jobs:
            jobs.put(b"x", headers={"Source": "shop"})
        with Jobs(address) as jobs, pytest.raises(ValueError, match="headers=True"):
            jobs.put(b"x", headers={"source": "shop"})
        node.kill()
        with beanstalk_node(tmp_path, address), Jobs(address, settings) as jobs:
            job = jobs.reserve(5)
            assert job is not None
            assert (job.body, job.headers) == (b"x", {"source": "shop"})


def test_a_message_of_dramatiq(node: Daemon, recorded: Recorded) -> None:
    broker = PenstockBroker(node.addresses["BEANSTALK"], middleware=[])

    def work() -> None:
        with trace.get_tracer("test").start_as_current_span("work"):
            raise ValueError("as it should")

    dramatiq.actor(work, broker=broker, queue_name="mail").send()
    worker = dramatiq.Worker(broker, worker_timeout=50, worker_threads=1)
    worker.start()
    broker.join("mail", timeout=20_000)
    worker.stop()
    broker.close()
    assert families(recorded) == {"publish dramatiq.mail": ["process dramatiq.mail", "publish dramatiq.mail", "work"]}
    assert recorded.durations()["messaging.process.duration", "ValueError"] == 1


def test_a_task_of_celery(node: Daemon, recorded: Recorded, tmp_path: Path) -> None:
    queue = Queue("tasks")
    with Connection(f"penstock://{node.addresses['BEANSTALK']}?nsqd={node.tcp}") as connection:
        with connection.Producer() as producer:
            producer.publish({"n": 1}, routing_key="tasks", declare=[queue], headers={"id": "7"})
        with Consumer(connection.channel(), [queue], callbacks=[lambda _, message: message.ack()]):
            connection.drain_events(timeout=20)
    assert families(recorded) == {"publish tasks": ["process tasks", "publish tasks"]}
