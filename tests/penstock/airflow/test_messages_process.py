"""What Airflow gets of messages, and when they are finished; without Airflow. test_provider_process.py is with it."""

import asyncio
import importlib.util
from collections.abc import Iterator
from contextlib import aclosing
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.airflow.info import get_provider_info
from penstock.airflow.messages import MessageStream, consumer_arguments
from penstock.client import Producer
from penstock.sansio.settings import Settings
from tests.cases import each
from tests.daemons import Daemon, nsqd

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with nsqd(tmp_path_factory.mktemp("airflow")) as daemon:
        yield daemon


def connection(host: str = "", port: int = 0, password: str = "", **extra: Any) -> Any:
    return SimpleNamespace(host=host, port=port, password=password, extra_dejson=extra)


@each(
    "given, nsqds, lookupds, settings",
    [
        (connection("lookup"), [], ["lookup:4161"], Settings()),
        (connection("lookup", 1, "x"), [], ["lookup:1"], Settings(auth_secret="x")),
        (connection("a", lookupd=["b:2"], tls_v1=True), [], ["a:4161", "b:2"], Settings(tls_v1=True)),
        (connection(nsqd=["n:4150"]), ["n:4150"], [], Settings()),
    ],
)
def test_a_connection_says_where_and_how(given: Any, nsqds: list[str], lookupds: list[str], settings: Settings) -> None:
    expected = {"nsqd_addresses": nsqds, "lookupd_addresses": lookupds, "settings": settings}
    assert consumer_arguments(given) == expected


def test_a_setting_that_does_not_exist_is_refused() -> None:
    with pytest.raises(TypeError, match="surprise"):
        consumer_arguments(connection(surprise=1))


def test_messages_are_finished_when_they_are_stored_and_else_come_again(node: Daemon) -> None:
    with Producer(node.tcp) as producer:
        producer.publish("stored", b"text", headers={"a": "b"})
        producer.publish("stored", b"\xff")

    async def connect() -> Any:
        return connection(nsqd=[node.tcp], default_requeue_delay_ms=0)

    async def main() -> list[dict[str, Any]]:
        stream, found = MessageStream("stored", "c", connect), []
        async with aclosing(stream.open()) as messages:
            async for content, message in messages:
                found.append(content)
                if len(found) == 3:
                    break
                stream.answer(message, is_stored=len(found) == 1)
        async with aclosing(stream.open()) as messages:
            found.append((await anext(messages))[0])
        return found

    first, second, third, fourth = asyncio.run(main())
    assert (first["body"], first["headers"], first["attempts"]) == ("text", {"a": "b"}, 1)
    assert [(one["id"], one["attempts"]) for one in (second, third, fourth)] == [
        (second["id"], number) for number in (1, 2, 3)
    ]
    assert (second["body_base64"], "body" in second) == ("/w==", False)


def test_the_provider_names_modules_that_exist() -> None:
    info = get_provider_info()
    names = [name.rpartition(".")[0] for name in info["queues"]]
    names += [name for key in ("triggers", "sensors") for name in info[key][0]["python-modules"]]
    assert len(names) == 3
    assert all(importlib.util.find_spec(name) is not None for name in names)
