"""A topic that is deleted while something consumes it stays deleted, and is consumed again when it is made again."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import anyio
import httpx
import pytest

from penstock import aio
from penstock.client import Consumer, Producer
from tests.daemons import Daemon, eventually, nsqd, post
from tests.http_endpoint import Endpoint, Request, always, status
from tests.tools import Tool, ours

pytestmark = pytest.mark.process

QUESTIONS = 3  # to nsqlookupd after the loss: a client that does not ask before it dials has dialed long before them


def naming(*nodes: Daemon) -> Callable[[Request, socket.socket], bool]:
    """Return the answer of a nsqlookupd that names these nodes for every topic."""
    producers = [{"broadcast_address": "127.0.0.1", "tcp_port": int(node.tcp.rpartition(":")[2])} for node in nodes]
    body = json.dumps({"channels": [], "producers": producers}).encode()
    return always(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))


NOT_FOUND = always(status(404))


def topics_of(node: Daemon) -> dict[str, list[str]]:
    """Return the channels of each topic."""
    topics = httpx.get(f"http://{node.http}/stats?format=json").json()["topics"]
    return {topic["topic_name"]: [one["channel_name"] for one in topic["channels"] or []] for topic in topics}


@contextmanager
def blocking(lookupd: str, got: list[bytes]) -> Iterator[None]:
    """Consume with the blocking client."""
    with Consumer("t", "c", lookupd_addresses=[lookupd]) as consumer:

        def work() -> None:
            for message in consumer:
                got.append(message.body)
                message.finish()

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            consumer.stop()
            thread.join()


@contextmanager
def asynchronous(lookupd: str, got: list[bytes]) -> Iterator[None]:
    """Consume with the async client."""

    async def work() -> None:
        async with aio.Consumer("t", "c", lookupd_addresses=[lookupd]) as consumer:

            async def handle(message: aio.Message) -> None:
                got.append(message.body)
                if message.body == b"end":
                    consumer.stop()

            await consumer.run(handle)

    thread = threading.Thread(target=lambda: anyio.run(work), daemon=True)
    thread.start()
    yield  # it ends with the process: nothing stops another thread's event loop


@contextmanager
def tail(lookupd: str, got: list[bytes]) -> Iterator[None]:
    """Consume with nsq_tail."""
    with Tool(ours("nsq_tail"), "-topic=t", "-channel=c", f"-lookupd-http-address={lookupd}") as tool:
        with ExitStack() as stack:
            stop = threading.Event()
            stack.callback(stop.set)

            def read() -> None:
                while not stop.wait(0.01):
                    got[:] = [line.strip().encode() for line in [*tool.out]]

            threading.Thread(target=read, daemon=True).start()
            yield
        assert tool.stop() == 0


@pytest.mark.parametrize("consume", [blocking, asynchronous, tail])
def test_a_deleted_topic_stays_deleted(tmp_path: Path, consume: Callable[[str, list[bytes]], object]) -> None:
    got: list[bytes] = []
    with nsqd(tmp_path / "a") as node, Endpoint(naming(node)) as lookupd, consume(lookupd.address, got):  # type: ignore[attr-defined]
        eventually(lambda: topics_of(node) == {"t": ["c"]})
        lookupd.answer = NOT_FOUND  # what a nsqlookupd with the tombstone answers
        before = len(lookupd.requests)
        post(node, "/topic/delete", topic="t")
        eventually(lambda: len(lookupd.requests) > before + QUESTIONS)
        assert topics_of(node) == {}
        lookupd.answer = naming(node)
        with Producer(node.tcp) as producer:
            producer.publish("t", b"end")
        eventually(lambda: got == [b"end"])


@pytest.mark.parametrize("program", ["nsq_to_file", "nsq_to_http", "nsq_to_nsq"])
def test_a_deleted_topic_stays_deleted_while_a_tool_consumes_it(tmp_path: Path, program: str) -> None:
    with (
        nsqd(tmp_path / "a") as node,
        nsqd(tmp_path / "b") as other,
        Endpoint(naming(node)) as lookupd,
        Endpoint() as sink,
    ):
        where = {
            "nsq_to_file": f"-output-dir={tmp_path / 'out'}",
            "nsq_to_http": f"-post={sink.url}",
            "nsq_to_nsq": f"-destination-nsqd-tcp-address={other.tcp}",
        }[program]
        with Tool(ours(program), "-topic=t", "-channel=c", f"-lookupd-http-address={lookupd.address}", where) as tool:
            eventually(lambda: topics_of(node) == {"t": ["c"]})
            lookupd.answer = NOT_FOUND
            before = len(lookupd.requests)
            post(node, "/topic/delete", topic="t")
            eventually(lambda: len(lookupd.requests) > before + QUESTIONS)
            assert topics_of(node) == {}
            assert tool.stop() == 0


def test_a_lost_node_is_found_again_while_another_nsqlookupd_is_down(tmp_path: Path) -> None:
    got: list[bytes] = []
    with (
        Endpoint(always(b"", keep=False)) as silent,
        Endpoint(NOT_FOUND) as lookupd,
        Consumer("t", "c", lookupd_addresses=[silent.address, lookupd.address]) as consumer,
    ):
        for body in (b"one", b"two"):
            with nsqd(tmp_path / "a") as node:
                with Producer(node.tcp) as producer:
                    producer.publish("t", body)
                lookupd.answer = naming(node)  # at another port each time
                while got[-1:] != [body]:
                    for message in consumer.poll(30.0):
                        got.append(message.body)
                        message.finish()
                    consumer.flush()
                node.kill()
    assert set(got) == {b"one", b"two"}
