"""The async consumer against real daemons that fall and return."""

import asyncio
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from penstock.aio import Consumer, ConsumerError, Message, Producer, Settings
from penstock.client import Consumer as BlockingConsumer
from tests.async_tests import on_asyncio, on_both
from tests.daemons import Daemon, eventually, nsqd, publish
from tests.penstock.aio.running import until

pytestmark = pytest.mark.process


async def rest(node: Daemon, topic: str, count: int = 0) -> list[bytes]:
    """Return `count` messages, and those that follow within 0.3 s."""
    found: list[bytes] = []
    with anyio.move_on_after(60) as scope:
        async with Consumer(topic, "c", [node.tcp]) as consumer:
            while True:
                if len(found) >= count:
                    scope.deadline = min(scope.deadline, anyio.current_time() + 0.3)
                message = await anext(consumer)
                found.append(message.body)
                message.finish()
    return found


@on_both
async def test_iteration_finishes_and_gives_back(node: Daemon, topic: str) -> None:
    publish(node, topic, *[b"%03d" % number for number in range(100)])
    seen = []
    async with Consumer(topic, "c", [node.tcp], max_in_flight=30) as consumer:
        async for message in consumer:
            seen.append(message.body)
            message.finish()
            if len(seen) == 40:
                break
    left = await rest(node, topic, 60)
    assert sorted(seen + left) == [b"%03d" % number for number in range(100)]


@on_both
async def test_run_finishes_what_works_requeues_what_fails_and_gives_up(node: Daemon, topic: str) -> None:
    publish(node, topic, *[b"%d" % number for number in range(30)])
    attempts: dict[bytes, list[int]] = {}
    given_up: list[tuple[bytes, int]] = []
    most = now = 0
    settings = Settings(default_requeue_delay_ms=10, backoff_multiplier_s=0.01, max_attempts=3)
    async with Consumer(topic, "c", [node.tcp], settings=settings) as consumer:

        async def handle(message: Message) -> None:
            nonlocal most, now
            now += 1
            most = max(most, now)
            await anyio.sleep(0.001)
            now -= 1
            attempts.setdefault(message.body, []).append(message.attempts)
            if message.body == b"8" or (message.body == b"7" and message.attempts < 3):
                raise RuntimeError("not yet")

        async def on_give_up(message: Message) -> None:
            given_up.append((message.body, message.attempts))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: consumer.run(handle, concurrency=5, on_give_up=on_give_up))
            await until(lambda: given_up and sum(map(len, attempts.values())) == 34)
            consumer.stop()
    assert attempts == {b"%d" % number: [1] for number in range(30)} | {b"7": [1, 2, 3], b"8": [1, 2, 3]}
    assert given_up == [(b"8", 4)]
    assert 1 < most <= 5
    assert await rest(node, topic) == []


@on_asyncio
async def test_messages_are_touched_while_handlers_work_and_while_they_wait(node: Daemon, topic: str) -> None:
    publish(node, topic, b"one", b"two")
    seen: list[tuple[bytes, int]] = []
    async with Consumer(topic, "c", [node.tcp], settings=Settings(msg_timeout_ms=2000)) as consumer:

        async def handle(message: Message) -> None:
            await anyio.sleep(2.5)
            seen.append((message.body, message.attempts))
            if len(seen) == 2:
                consumer.stop()

        await consumer.run(handle, concurrency=1)
    assert sorted(seen) == [(b"one", 1), (b"two", 1)]


@on_both
async def test_a_scope_that_is_cancelled_around_the_consumer_sends_all_answers(node: Daemon, topic: str) -> None:
    publish(node, topic, *[b"%d" % number for number in range(4)])
    done: list[bytes] = []
    with anyio.CancelScope() as scope:
        async with Consumer(topic, "c", [node.tcp]) as consumer:

            async def handle(message: Message) -> None:
                if message.body != b"0":
                    await anyio.sleep_forever()
                message.finish()
                done.append(message.body)
                scope.cancel()

            await consumer.run(handle)
    assert scope.cancelled_caught
    assert done == [b"0"]
    assert sorted(await rest(node, topic, 3)) == [b"1", b"2", b"3"]


@on_asyncio
async def test_a_handler_that_meets_a_cancellation_of_something_else_has_failed(node: Daemon) -> None:
    publish(node, "meets", b"one")
    attempts: list[int] = []
    settings = Settings(default_requeue_delay_ms=1, backoff_multiplier_s=0.01)
    async with Consumer("meets", "c", [node.tcp], settings=settings) as consumer:

        async def handle(message: Message) -> None:
            attempts.append(message.attempts)
            if message.attempts == 1:
                other = asyncio.create_task(asyncio.sleep(60))
                other.cancel()
                await other
            consumer.stop()

        await consumer.run(handle)
    assert attempts == [1, 2]


@on_asyncio
async def test_a_consumer_is_opened_once_and_before_it_is_used(node: Daemon) -> None:
    consumer = Consumer("once", "c", [node.tcp])
    with pytest.raises(RuntimeError, match="not open"):
        await anext(consumer)
    async with consumer:
        with pytest.raises(ValueError, match="concurrency"):
            await consumer.run(until, concurrency=0)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="opened once"):
        async with consumer:
            pass


@on_asyncio
async def test_a_node_found_through_nsqlookupd_is_killed_and_returns(tmp_path: Path) -> None:
    seen: set[bytes] = set()
    with Daemon("nsqlookupd") as lookupd:
        where = f"-lookupd-tcp-address={lookupd.tcp}"
        consumer = Consumer("t", "c", lookupd_addresses=[lookupd.http], settings=Settings(lookupd_poll_interval_s=1))
        async with consumer, anyio.create_task_group() as tasks:

            async def handle(message: Message) -> None:
                seen.add(message.body)

            tasks.start_soon(consumer.run, handle)
            for number in (1, 2):
                with nsqd(tmp_path, where, "-broadcast-address=127.0.0.1") as node:
                    async with Producer(node.tcp) as producer:
                        await producer.publish("t", b"%d" % number)
                    await until(lambda number=number: b"%d" % number in seen)
                    node.kill()
            consumer.stop()


@pytest.mark.parametrize("is_async", [True, False])
def test_the_first_message_of_a_new_topic_comes_at_once_and_a_consumer_that_closes_leaves_no_poll(
    is_async: bool, tmp_path: Path
) -> None:
    with Daemon("nsqlookupd") as lookupd, nsqd(tmp_path, f"-lookupd-tcp-address={lookupd.tcp}") as node:
        where: dict[str, Any] = {
            "lookupd_addresses": [lookupd.http],
            "settings": Settings(lookupd_poll_interval_s=3600),
        }

        def long_polls(count: int) -> bool:
            return f"nsqlookupd_long_polls {count}.0" in httpx.get(f"http://{lookupd.http}/metrics").text

        def publish_soon() -> None:
            eventually(lambda: long_polls(1))
            publish(node, "t", b"first")

        async def first() -> None:
            async with Consumer("t", "c", **where) as consumer:
                await anyio.to_thread.run_sync(publish_soon)
                async for message in consumer:
                    message.finish()
                    break

        if is_async:
            anyio.run(first)
        else:
            with BlockingConsumer("t", "c", **where) as consumer:
                publish_soon()
                next(consumer).finish()
        eventually(lambda: long_polls(0))


@on_asyncio
async def test_a_subscription_that_is_refused_for_good_is_an_error(tmp_path: Path) -> None:
    with nsqd(tmp_path, "-auth-http-address=127.0.0.1:1") as node:
        async with Consumer("t", "c", [node.tcp]) as consumer:
            with pytest.raises(ConsumerError, match="E_AUTH_FIRST"):
                await anext(consumer)
            with pytest.raises(ConsumerError, match="E_AUTH_FIRST"):
                await consumer.run(anyio.sleep)  # type: ignore[arg-type]


def test_arguments() -> None:
    for arguments in (("t", "c"), ("t t", "c", ["h:1"]), ("t", "c", ["h"]), ("t", "c", ["h:1"], [], 0)):
        with pytest.raises(ValueError):
            Consumer(*arguments)


@on_asyncio
async def test_one_message_in_flight_from_two_nsqds_is_one_handler(tmp_path: Path) -> None:

    async def starts(addresses: list[str]) -> None:
        at_work: set[bytes] = set()
        done = 0
        async with Consumer("t", "c", addresses, max_in_flight=1) as consumer:

            async def handle(message: Message) -> None:
                nonlocal done
                at_work.add(message.id)
                assert len(at_work) == 1
                await anyio.sleep(0.001)
                at_work.discard(message.id)
                done += 1
                if done == 3:
                    consumer.stop()

            await consumer.run(handle)
        async with Consumer("t", "c", addresses, max_in_flight=1) as consumer:
            for _ in range(3):
                message = await anext(consumer)
                await anyio.sleep(0.001)
                assert not consumer._ready, "another one, while this one is not answered"
                message.finish()

    with nsqd(tmp_path / "a") as one, nsqd(tmp_path / "b") as two:
        for node in (one, two):
            publish(node, "t", *[b"%d" % number for number in range(20)])
        for _ in range(5):
            await starts([one.tcp, two.tcp])
