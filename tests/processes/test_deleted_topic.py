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
from penstock.client import Producer
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


@pytest.mark.parametrize("consume", [asynchronous, tail])
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
