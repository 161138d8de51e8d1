"""The broker for Dramatiq, with Dramatiq's own worker in this process."""

import time
from collections.abc import Callable, Iterator
from itertools import count
from threading import Event
from typing import Any

import dramatiq
import pytest
from dramatiq import Message, QueueJoinTimeout, QueueNotFound, Worker
from dramatiq.errors import ConnectionFailed
from dramatiq.middleware import Retries

from penstock.dramatiq import PenstockBroker
from penstock.jobs import Jobs, JobsSettings
from tests.daemons import Daemon, eventually
from tests.processes.task_workers import job_counts
from tests.processes.test_jobs_client import beanstalk_node

pytestmark = pytest.mark.process
NUMBERS = count()
RETRIES = Retries(max_retries=1, min_backoff=0, max_backoff=1)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with beanstalk_node(tmp_path_factory.mktemp("dramatiq")) as daemon:
        yield daemon


@pytest.fixture
def address(node: Daemon) -> str:
    return node.addresses["BEANSTALK"]


@pytest.fixture
def broker(address: str) -> Iterator[PenstockBroker]:
    """A broker with queues of its own."""
    broker = PenstockBroker(address, prefix=f"test{next(NUMBERS)}.", middleware=[RETRIES])
    yield broker
    broker.close()


def actor(broker: PenstockBroker, function: Callable[..., Any], **options: Any) -> dramatiq.Actor[..., Any]:
    return dramatiq.actor(function, broker=broker, actor_name="task", queue_name="work", **options)


def counts(broker: PenstockBroker, address: str) -> tuple[object, ...]:
    return job_counts(address, broker.tube_of("work"))


def work(broker: PenstockBroker, threads: int = 2) -> Worker:
    worker = Worker(broker, worker_timeout=50, worker_threads=threads)
    worker.start()
    return worker


def test_messages_are_done_by_priority_retried_and_become_dead_letters(broker: PenstockBroker, address: str) -> None:
    done: list[object] = []

    def fail(number: int) -> None:
        done.append(("failed", number))
        raise ValueError("as it should")

    task = actor(broker, done.append, priority=10)
    urgent = dramatiq.actor(done.append, broker=broker, actor_name="urgent", queue_name="work", priority=1)
    failing = dramatiq.actor(fail, broker=broker, actor_name="failing", queue_name="work", priority=20)
    failing.send(1)
    task.send("a")
    task.send("b")
    urgent.send("first")
    worker = work(broker, threads=1)
    broker.join("work", timeout=30_000)
    worker.stop()
    assert done == ["first", "a", "b", ("failed", 1), ("failed", 1)]
    assert counts(broker, address) == (0, 0, 0, 1)
    broker.flush_all()
    assert counts(broker, address) == (0, 0, 0, 0)


def test_a_delay_is_kept_by_the_node_and_is_never_too_short(broker: PenstockBroker, address: str) -> None:
    done: list[float] = []
    task = actor(broker, lambda: done.append(time.time()))
    sent = task.send_with_options(delay=1_200)
    task.send_with_options(eta=time.time() * 1000 + 3_600_000)
    worker = work(broker)
    eventually(lambda: done)
    worker.stop()
    assert done[0] * 1000 >= sent.options["eta"]
    assert counts(broker, address) == (0, 0, 1, 0)


def test_a_stopped_worker_finishes_its_messages_and_returns_prefetched_ones(
    broker: PenstockBroker, address: str
) -> None:
    begun, finish = Event(), Event()

    def wait() -> None:
        begun.set()
        finish.wait()

    task = actor(broker, wait)
    for _ in range(4):
        task.send()
    worker = work(broker, threads=1)
    assert begun.wait(30)
    eventually(lambda: counts(broker, address) == (2, 2, 0, 0))  # the prefetch is two for each thread
    for thread in worker.workers:
        thread.stop()
    finish.set()
    worker.stop()
    assert counts(broker, address) == (3, 0, 0, 0)


def test_a_job_without_a_message_of_the_queue_is_buried(broker: PenstockBroker, address: str) -> None:
    done: list[str] = []
    task = actor(broker, done.append)
    other = Message(queue_name="other", actor_name="task", args=("x",), kwargs={}, options={})
    endless = other.copy(queue_name="work", args=("b",), options={"penstock_ttr_s": 1e300})
    nameless = other.copy(queue_name="work", actor_name=[])
    with Jobs(address, use=broker.tube_of("work")) as jobs:
        for body in (b"\xff", b"[]", b'{"args": 7}', other.encode(), nameless.encode(), endless.encode()):
            jobs.put(body)
    task.send("a")
    worker = work(broker, threads=1)
    broker.join("work", timeout=30_000)
    worker.stop()
    assert (done, counts(broker, address)) == (["b", "a"], (0, 0, 0, 5))


def test_dramatiq_gets_its_own_errors(broker: PenstockBroker) -> None:
    message = Message(queue_name="undeclared", actor_name="task", args=(), kwargs={}, options={})
    for ask in (broker.consume, broker.flush, broker.join):
        with pytest.raises(QueueNotFound):
            ask("undeclared")
    with pytest.raises(QueueNotFound):
        broker.enqueue(message)
    broker.declare_queue("work")
    broker.join("work", timeout=0)
    broker.enqueue(message.copy(queue_name="work"))
    with pytest.raises(QueueJoinTimeout):
        broker.join("work", timeout=0)
    nowhere = PenstockBroker("127.0.0.1:1", settings=JobsSettings(retry_s=0), middleware=[])
    nowhere.declare_queue("work")
    with pytest.raises(ConnectionFailed):
        nowhere.enqueue(message.copy(queue_name="work"))
