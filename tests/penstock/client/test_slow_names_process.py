"""A host name that does not resolve does not hold up what comes from healthy nsqds."""

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from penstock import aio
from penstock.client import Consumer, Producer, resolver
from tests.async_tests import BACKENDS, run
from tests.daemons import Daemon, nsqd, publish

pytestmark = pytest.mark.process
REAL = socket.getaddrinfo


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with nsqd(tmp_path_factory.mktemp("node")) as daemon:
        yield daemon


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Set: names resolve. Before, those that begin with "slow" do not."""
    event = threading.Event()

    def look_up(host: str, port: int, *arguments: Any, **options: Any) -> Any:
        if str(host).startswith("slow"):
            event.wait(60)
            host = "127.0.0.1"
        return REAL(host, port, *arguments, **options)

    monkeypatch.setattr(resolver, "_shared", resolver.Resolver(look_up))
    yield event
    event.set()


def bodies(consumer: Consumer, count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        for message in consumer.poll(30):
            found.append(message.body)
            message.finish()
    consumer.flush()
    return found


def test_messages_come_while_another_name_does_not_resolve(node: Daemon, answer: threading.Event) -> None:
    names = [f"slow{number}:4150" for number in range(30)]
    with Consumer("t", "c", [*names, node.tcp]) as consumer:
        for number in range(20):
            publish(node, "t", b"%d" % number)
            assert bodies(consumer, 1) == [b"%d" % number]
        assert not answer.is_set()


@pytest.mark.parametrize("backend", BACKENDS)
def test_messages_come_to_the_async_client_meanwhile(node: Daemon, answer: threading.Event, backend: str) -> None:
    async def main() -> None:
        names = [f"slow{number}:4150" for number in range(30)]
        async with (
            aio.Consumer(backend, "c", [*names, node.tcp]) as consumer,
            aio.Producer([*names, node.tcp]) as producer,
        ):
            for number in range(20):
                await producer.publish(backend, b"%d" % number)
                message = await anext(consumer)
                assert message.body == b"%d" % number
                message.finish()
        assert not answer.is_set()

    run(backend, main)


def test_a_name_that_resolves_late_is_dialed_then(node: Daemon, answer: threading.Event) -> None:
    name = f"slow:{node.tcp.rpartition(':')[2]}"
    publish(node, "late", b"one")
    with Consumer("late", "c", [name]) as consumer:
        assert consumer.poll(0) == []
        answer.set()
        assert bodies(consumer, 1) == [b"one"]
        with Producer(name) as producer:
            producer.publish("late", b"two")
        assert bodies(consumer, 1) == [b"two"]
