"""The async producer against real nsqds, over a network that breaks."""

import socket
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from penstock.aio import Consumer as AsyncConsumer
from penstock.aio import Producer, PublishError, Settings
from penstock.client import Consumer
from tests.async_tests import on_asyncio, on_both
from tests.daemons import Daemon, nsqd
from tests.penstock.aio.running import network, until

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with nsqd(tmp_path_factory.mktemp("other")) as daemon:
        yield daemon


def dead_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"127.0.0.1:{listener.getsockname()[1]}"


def bodies(node: Daemon, topic: str, count: int) -> list[bytes]:
    """Return the first `count` messages of a topic, and those that follow."""
    found: list[bytes] = []
    with Consumer(topic, "all", [node.tcp]) as consumer:
        while len(found) < count:
            batch = consumer.poll(20)
            assert batch, f"{len(found)} of {count} messages"
            found += [message.body for message in batch]
            for message in batch:
                message.finish()
        found += [message.body for message in consumer.poll(0.2)]
    return sorted(found)


@on_both
async def test_publishes(node: Daemon, topic: str) -> None:
    async with Producer(node.tcp) as producer:
        await producer.publish(topic, b"one")
        await producer.publish_many(topic, [b"two", b"three"])
        await producer.publish_many(topic, [])
        await producer.publish(topic, b"late", delay_ms=50)
    assert bodies(node, topic, 4) == [b"late", b"one", b"three", b"two"]


@on_both
async def test_headers_reach_a_consumer(node: Daemon, topic: str) -> None:
    headers = {"traceparent": "00-ab-cd-01", "city": "Zürich"}
    async with Producer(node.tcp) as producer:
        await producer.publish(topic, b"plain")
        await producer.publish(topic, b"one", headers=headers)
        await producer.publish_many(topic, [b"two", b"three"], headers={"Source": "shop"})
        with pytest.raises(ValueError):
            await producer.publish(topic, b"bad", headers={"a": "x\r\nb: y"})
    found = {}
    async with AsyncConsumer(topic, "c", [node.tcp]) as consumer:
        async for message in consumer:
            found[message.body] = message.headers
            message.finish()
            if len(found) == 4:
                break
    shop = {"source": "shop"}
    assert found == {b"plain": {}, b"one": headers, b"two": shop, b"three": shop}


@on_both
async def test_many_tasks_over_a_network_that_breaks_publish_each_message_once(node: Daemon, topic: str) -> None:
    async with network(node.tcp) as net, Producer(net.address) as producer:

        async def publish(task: int) -> None:
            for number in range(40):
                await producer.publish(topic, b"%d %d" % (task, number))

        async with anyio.create_task_group() as tasks:
            for task in range(20):
                tasks.start_soon(publish, task)
            for _ in range(8):
                net.swallows_answers = True  # nsqd has the messages, and the producer does not know
                await anyio.sleep(0.03)
                await net.cut()
                net.swallows_answers = False
                await anyio.sleep(0.1)
        assert net.connections > 4
    assert bodies(node, topic, 800) == sorted(b"%d %d" % (i, j) for i in range(20) for j in range(40))


@on_asyncio
async def test_two_nodes_take_turns_and_one_that_is_down_is_passed_over(node: Daemon, other: Daemon) -> None:
    async with Producer([node.tcp, other.tcp, dead_address()]) as producer:
        await until(lambda: len(producer._ready) == 2)
        for number in range(10):
            await producer.publish("turns", b"%d" % number)
    first, second = bodies(node, "turns", 5), bodies(other, "turns", 5)
    assert len(first) == len(second) == 5
    assert sorted(first + second) == sorted(b"%d" % number for number in range(10))


@on_asyncio
async def test_a_refusal_reaches_its_call_and_no_other(node: Daemon, topic: str) -> None:
    outcomes: list[str] = []
    async with Producer(node.tcp) as producer:

        async def publish(body: bytes) -> None:
            try:
                await producer.publish(topic, body)
                outcomes.append("OK")
            except PublishError as error:
                outcomes.append(error.code)

        async with anyio.create_task_group() as tasks:
            for size in (1, 2, 2 << 20, 3, 4):
                tasks.start_soon(publish, b"x" * size)
    assert sorted(outcomes) == ["E_BAD_MESSAGE", "OK", "OK", "OK", "OK"]
    assert [len(body) for body in bodies(node, topic, 4)] == [1, 2, 3, 4]


@on_asyncio
async def test_a_wrong_body_harms_no_other_call(node: Daemon, topic: str) -> None:
    async with Producer(node.tcp, max_unanswered=1000) as producer:
        for _ in range(3):
            with pytest.raises(TypeError, match="a body must be bytes, not str"):
                await producer.publish(topic, "x" * 900)  # type: ignore[arg-type]
            with pytest.raises(TypeError, match="a body must be bytes, not int"):
                await producer.publish_many(topic, [b"x", 3])  # type: ignore[list-item]
        await producer.publish(topic, b"right")
        await producer.publish_many(topic, (b"%d" % number for number in range(2)))  # type: ignore[arg-type]
    assert bodies(node, topic, 3) == [b"0", b"1", b"right"]


@on_asyncio
async def test_without_deduplication(node: Daemon, other: Daemon, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Settings, "identify", lambda settings: {"feature_negotiation": True})
    async with network(node.tcp) as net, Producer([net.address, other.tcp]) as producer:
        await until(lambda: len(producer._ready) == 2)
        net.swallows_answers = True
        async with anyio.create_task_group() as tasks:
            for number in range(10):
                tasks.start_soon(producer.publish, topic, b"%d" % number)
            await anyio.sleep(0.1)
            await net.cut()
            net.swallows_answers = False
    found = {*bodies(node, topic, 5), *bodies(other, topic, 5)}
    assert found == {b"%d" % number for number in range(10)}


@on_asyncio
async def test_a_dead_address_ends_in_an_error() -> None:
    async with Producer(dead_address(), retry_s=0.3) as producer:
        with pytest.raises(PublishError, match=r"cannot connect to .*: Connection refused"):
            await producer.publish("t", b"x")


@on_asyncio
async def test_a_server_that_takes_and_never_answers(node: Daemon) -> None:
    async with network(node.tcp) as net, Producer(net.address, retry_s=0.5) as producer:
        await until(lambda: producer._ready)
        net.swallows_answers = True
        with pytest.raises(PublishError, match=r"no answer in 0\.5 s, so the messages may be published or not"):
            await producer.publish("silent", b"y")
        await until(lambda: producer._unanswered == 0)  # when the connection is dropped


@on_asyncio
async def test_a_silent_server_is_dropped_and_dialed_again(node: Daemon) -> None:
    settings = Settings(read_timeout_s=0.5)
    async with network(node.tcp) as net, Producer(net.address, settings) as producer:
        await producer.publish("dropped", b"x")
        net.swallows_answers = True
        await until(lambda: net.connections > 1)
        net.swallows_answers = False
        await producer.publish("dropped", b"y")


@on_both
async def test_what_waits_is_bounded_and_cancelled_calls_leave_nothing(node: Daemon) -> None:
    async with network(node.tcp) as net, Producer(net.address, max_unanswered=1000) as producer:
        await producer.publish("bounded", b"x")
        net.swallows_answers = True
        async with anyio.create_task_group() as tasks:
            for _ in range(50):
                tasks.start_soon(producer.publish, "bounded", b"y" * 200)
            await until(lambda: len(producer._queue) == 47)
            assert producer._unanswered == 900
            tasks.cancel_scope.cancel()
        assert (producer._unanswered, len(producer._queue)) == (900, 0), "they are sent, and may be answered"
        await net.cut()
        await until(lambda: producer._unanswered == 0)
        net.swallows_answers = False
        await producer.publish("bounded", b"z" * 5000)  # larger than the bound, and alone


@on_both
async def test_a_producer_that_is_closed_fails_the_calls_of_others(node: Daemon) -> None:
    failed: list[str] = []

    async def publish(producer: Producer) -> None:
        try:
            await producer.publish("closed", b"y" * 500)
        except PublishError as error:
            failed.append(str(error))

    async with (
        network(node.tcp) as net,
        anyio.create_task_group() as tasks,
        Producer(net.address, max_unanswered=1000) as producer,
    ):
        await producer.publish("closed", b"x")
        net.swallows_answers = True
        for _ in range(4):
            tasks.start_soon(publish, producer)
        await until(lambda: len(producer._queue) == 3)
    assert len(failed) == 4
    assert all("the producer is closed" in one for one in failed)


@on_asyncio
async def test_arguments() -> None:
    with pytest.raises(ValueError, match="needs an nsqd address"):
        Producer([])
    with pytest.raises(ValueError, match="not an address"):
        Producer("nonsense")
    async with Producer(dead_address()) as producer:
        with pytest.raises(ValueError, match="not a legal topic"):
            await producer.publish("a b", b"x")


@pytest.mark.parametrize(("settings", "code", "why"), [
    (Settings(heartbeat_interval_ms=1), "E_BAD_BODY", "heartbeat interval"),
    (Settings(auth_secret="s", tls_v1=True, tls_insecure_skip_verify=True), "", "does not support TLS"),
])  # fmt: skip
@on_asyncio
async def test_a_refused_client_learns_it_at_once(node: Daemon, settings: Settings, code: str, why: str) -> None:
    async with Producer(node.tcp, settings, retry_s=10_000) as producer:
        for _ in range(2):  # while it connects, and afterwards
            with pytest.raises(PublishError, match=why) as caught:
                await producer.publish("refused", b"x")
            assert caught.value.code == code


@on_asyncio
async def test_an_nsqd_that_refuses_does_not_keep_the_others_from_publishing(tmp_path: Path, other: Daemon) -> None:
    with nsqd(tmp_path, "-max-heartbeat-interval=2s") as strict:
        settings = Settings(heartbeat_interval_ms=20_000)
        async with Producer([strict.tcp, other.tcp], settings, retry_s=10_000) as producer:
            for number in range(4):
                await producer.publish("elsewhere", b"%d" % number)
        async with Producer([strict.tcp, dead_address()], settings, retry_s=0.5) as producer:
            with pytest.raises(PublishError, match="heartbeat interval"):
                await producer.publish("elsewhere", b"x")
    assert bodies(other, "elsewhere", 4) == [b"0", b"1", b"2", b"3"]
