"""nsqd with an nsqlookupd at which topics of nsqd are deleted: it registers them again."""

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace

import pytest
import trio

from lookupd.protocol import Session
from lookupd.registry import Registry
from nsqd.core.registry import Change, ChangeKind
from nsqd.discovery import lookupds as module
from nsqd.discovery.comparison import Comparison
from nsqd.discovery.lookupds import Lookupds

pytestmark = pytest.mark.process

IDENTITY = {"broadcast_address": "node", "tcp_port": 4150, "http_port": 4151, "version": "1.3.0", "hostname": ""}
HELLO = b'{"broadcast_address":"127.0.0.1"}'  # without a port, so it is not asked for channels


class Node:
    """An nsqd's topics with their channels, its Lookupds, and the nsqlookupd's registry."""

    def __init__(self, lookupds: Lookupds, topics: dict[str, list[str]], registry: Registry) -> None:
        self.lookupds, self.topics, self.registry = lookupds, topics, registry
        self.received: list[bytes] = []  # lines
        self.on_line: Callable[[bytes], None] = lambda _: None

    async def until(self, done: Callable[[], object]) -> None:
        while not done():
            await trio.sleep(0.001)

    def has(self, topic: str, *channels: str) -> bool:
        return bool(self.registry.producers(topic, 0)) and self.registry.channels(topic) == list(channels)


def run(
    monkeypatch: pytest.MonkeyPatch,
    use: Callable[[Node], object],
    *,
    is_original: bool = False,
    topics: dict[str, list[str]],
) -> None:
    """`use` a node whose pings are 5 ms apart, with an nsqlookupd of ours, or one that answers PING like the original."""
    monkeypatch.setattr(module, "Comparison", partial(Comparison, 0.0))
    registry = Registry(300, 45)

    async def serve(stream: trio.SocketStream) -> None:
        session = Session(registry, "10.0.0.1:5001", HELLO, lambda _: None)
        async for data in stream:
            lines = bytes(data).replace(b"PING registered", b"PING") if is_original else bytes(data)
            replies = session.receive(lines, 0)
            for line in bytes(data).splitlines():
                node.received.append(line)
                node.on_line(line)
            await stream.send_all(replies)
        session.disconnected()

    async def main() -> None:
        nonlocal node
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(partial(trio.serve_listeners, serve, [listener]))
                view = SimpleNamespace(  # the topics as the broker has them
                    values=lambda: [SimpleNamespace(name=name, channels=channels) for name, channels in topics.items()]
                )
                broker = SimpleNamespace(directory=SimpleNamespace(), topics=view)
                lookupds = Lookupds(broker, IDENTITY, (1.0, 1.0), lambda: None, nursery, ping_interval=0.005)
                node = Node(lookupds, topics, registry)
                lookupds.set_addresses([f"127.0.0.1:{listener.socket.getsockname()[1]}"])
                await use(node)
                nursery.cancel_scope.cancel()
        registry.check()

    node = None
    trio.run(main)


@pytest.mark.parametrize("is_original", [False, True])
def test_what_is_deleted_there_alone_is_registered_again(monkeypatch: pytest.MonkeyPatch, is_original: bool) -> None:
    async def use(node: Node) -> None:
        await node.until(lambda: node.has("t", "a", "b") and node.has("u"))
        node.registry.delete_topic("t")
        await node.until(lambda: node.has("t", "a", "b"))
        node.registry.delete_topic("*")
        await node.until(lambda: node.has("t", "a", "b") and node.has("u"))
        node.registry.delete_channel("t", "a")
        await node.until(lambda: node.has("t", "a", "b"))

    run(monkeypatch, use, is_original=is_original, topics={"t": ["a", "b"], "u": []})


def test_pings_come_also_while_there_is_always_news(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without them, a node at which something is created every second is inactive after 300 s, and /lookup leaves it out."""

    async def use(node: Node) -> None:
        def more(line: bytes) -> None:
            if line.startswith(b"REGISTER"):
                node.lookupds.queue_changes([Change(ChangeKind.CHANNEL_CREATED, "t", "a")])

        node.on_line = more
        await node.until(lambda: b"PING registered" in node.received)

    run(monkeypatch, use, topics={"t": ["a"]})
