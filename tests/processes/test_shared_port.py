"""Real nsqd on one port: producers get any of them, SUB is refused there, and a node that drains or stops leaves the port."""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from shared.process.listen import Listener, bind_shared
from tests.daemons import ERROR, OK, Conversation, Daemon, nsqd, post, sized

pytestmark = pytest.mark.process

CLIENTS = 40  # connections; the kernel gives all of them to one of two nodes in one of 2 ** 39 runs
PUB = b"  V2PUB t\n" + sized(b"x")


class Shared:
    """The shared port as Conversation expects a daemon to be."""

    def __init__(self, port: int) -> None:
        self._node = Daemon("nsqd")
        self._node.addresses["TCP"] = f"127.0.0.1:{port}"

    def connect(self) -> Any:
        return self._node.connect()


@pytest.fixture
def place() -> Iterator[Listener]:
    """A port that no other process takes, because a socket that never listens is bound to it."""
    with closing(bind_shared("127.0.0.1:0")) as place:
        yield place


def published(node: Daemon) -> int:
    topics = httpx.get(f"http://{node.http}/stats?format=json&topic=t").json()["topics"]
    return int(topics[0]["message_count"]) if topics else 0


def test_two_nodes_share_a_port_until_one_drains_or_is_killed(tmp_path: Path, place: Listener) -> None:
    flags = ("-tcp-shared-address", place.address, "-node-id")
    with ExitStack() as stack:
        first, second = (stack.enter_context(nsqd(tmp_path / number, *flags, number)) for number in "12")
        for node in (first, second):
            node.wait_for_line(f"TCP SHARED: listening on {place.address}")

        def publish() -> None:
            """Publish a message over each of CLIENTS connections, which stay open."""
            clients = [stack.enter_context(Conversation(Shared(place.port), PUB)) for _ in range(CLIENTS)]  # type: ignore[arg-type]
            assert [client.frame() for client in clients] == [OK] * CLIENTS

        publish()
        assert published(first) + published(second) == CLIENTS
        assert published(first) > 0
        assert published(second) > 0
        post(first, "/node/drain")
        before = published(first)
        publish()
        assert published(first) == before
        post(first, "/node/undrain")
        publish()
        assert published(first) > before
        assert published(first) + published(second) == 3 * CLIENTS
        with Conversation(Shared(place.port), b"  V2SUB t c\n") as consumer:  # type: ignore[arg-type]
            kind, text = consumer.frames()[0]
        assert (kind, text[:52]) == (ERROR, b"E_SUB_FAILED SUB failed several nsqd share this port")
        assert httpx.get(f"http://{first.http}/info").json()["tcp_port"] == int(first.tcp.rpartition(":")[2])
        first.kill()
        before = published(second)
        publish()
        assert published(second) == before + CLIENTS
