"""What programs that fork do with the clients. Each function is a program: python -m tests.penstock.forking NAME ADDRESS."""

import gc
import os
import sys
import threading
import traceback
from collections.abc import Callable

import anyio
import pytest

from penstock import aio
from penstock.client import Consumer, ConsumerError, Producer, PublishError
from penstock.jobs import AsyncJobs, Jobs, NotFound, ReservationLost

ROUNDS = 200
CHILDREN = 4


def fork(work: Callable[[], object]) -> int:
    """Start a child that does the work, and exits with 1 if it raises. Return its process id."""
    pid = os.fork()
    if pid:
        return pid
    try:
        work()
        gc.collect()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def wait(*pids: int) -> None:
    assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids] == [0] * len(pids)


def jobs(address: str) -> None:
    """Parent and children look at jobs of their own at once."""
    with Jobs(address) as client:
        ids = [client.put(b"%d" % number) for number in range(CHILDREN + 1)]

        def peek(number: int) -> None:
            for _ in range(ROUNDS):
                assert client.peek(ids[number]).body == b"%d" % number  # type: ignore[union-attr]

        pids = [fork(lambda number=number: peek(number)) for number in range(CHILDREN)]  # type: ignore[misc]
        peek(CHILDREN)
        wait(*pids)
        peek(CHILDREN)
        assert client.epoch == 1, "the parent has kept its connection"


def reservations(address: str) -> None:
    """A reserved job stays the parent's, whatever the child does."""
    with Jobs(address, watch=["r"]) as client:
        client.put(b"work", tube="r")
        job = client.reserve(0)
        assert job is not None

        def child() -> None:
            for answer in (job.delete, job.release, job.bury, job.touch):
                with pytest.raises(ReservationLost, match="forked"):
                    answer()
            with pytest.raises(NotFound):
                client.delete(job.id)
            assert client.reserve(0) is None
            client.close()

        wait(fork(child), fork(lambda: client.close()), fork(lambda: client.__exit__(None, None, None)))
        job.touch()
        job.delete()
        assert client.epoch == 1


def async_jobs(address: str) -> None:
    """The async client connects again in an event loop of the child."""
    client = AsyncJobs(address)

    async def peek(job_id: int, body: bytes) -> None:
        for _ in range(ROUNDS):
            found = await client.peek(job_id)
            assert found.body == body

    async def parent() -> None:
        ids = [await client.put(b"%d" % number) for number in range(CHILDREN + 1)]
        pids = []
        for number in range(CHILDREN):
            pid = fork(lambda number=number: in_new_loop(lambda: peek(ids[number], b"%d" % number)))  # type: ignore[misc]
            pids.append(pid)
        await peek(ids[CHILDREN], b"%d" % CHILDREN)
        wait(*pids)
        await peek(ids[CHILDREN], b"%d" % CHILDREN)
        assert client.epoch == 1
        await client.aclose()

    anyio.run(parent)


def in_new_loop(main: Callable[[], object]) -> None:
    """Run an async function in a thread of its own, because this one may be within the parent's event loop."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            anyio.run(main)  # type: ignore[arg-type]
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]


def producer(address: str) -> None:
    """Parent and children publish at once; a submitted publish of the parent stays its own."""
    client = Producer(address)
    client.publish("t", b"parent")
    client.submit("t", [b"parent"])

    def publish() -> None:
        client.flush()
        for _ in range(ROUNDS):
            client.publish("t", b"child")
            with pytest.raises(PublishError, match="E_BAD_MESSAGE"):
                client.publish("t", b"")

    pids = [fork(publish) for _ in range(CHILDREN)]
    pids += [fork(client.close), fork(lambda: client.__exit__(None, None, None))]
    client.flush()
    for _ in range(ROUNDS):
        client.publish("t", b"parent")
    wait(*pids)
    assert client.fileno() >= 0
    client.poll()
    client.publish("t", b"parent")
    client.close()


def consumer(address: str) -> None:
    """A message stays the parent's: the child can neither answer it nor get another one, nor end the subscription."""
    with Producer(address) as client:
        client.publish_many("t", [b"one", b"two"])
    with Consumer("t", "c", [address], max_in_flight=1) as subscribed:
        message = next(subscribed)

        def child() -> None:
            for call in (message.touch, message.finish, subscribed.poll, subscribed.flush, subscribed.pause):
                with pytest.raises(ConsumerError, match="forked"):
                    call()
            with pytest.raises(ConsumerError, match="forked"):
                next(subscribed)
            subscribed.stop()
            subscribed.close()

        wait(fork(child), fork(subscribed.close), fork(lambda: None))
        message.finish()
        second = next(subscribed)
        assert second.attempts == 1
        second.finish()


def async_clients(address: str) -> None:
    """The async producer and consumer belong to the parent's event loop: the child gets errors at once."""

    async def parent() -> None:
        async with aio.Producer(address) as publisher, aio.Consumer("t", "c", [address], max_in_flight=1) as subscribed:
            await publisher.publish("t", b"one")
            message = await anext(subscribed)

            async def child() -> None:
                with pytest.raises(PublishError, match="forked"):
                    await publisher.publish("t", b"child")
                with pytest.raises(ConsumerError, match="forked"):
                    message.finish()
                with pytest.raises(ConsumerError, match="forked"):
                    await anext(subscribed)

            wait(fork(lambda: in_new_loop(child)))
            message.finish()
            await publisher.publish("t", b"two")
            second = await anext(subscribed)
            assert (second.body, second.attempts) == (b"two", 1)
            second.finish()

    anyio.run(parent)


if __name__ == "__main__":
    globals()[sys.argv[1]](sys.argv[2])
