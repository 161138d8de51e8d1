"""Real nsqd on one port: producers get any of them, SUB is refused there, and a node that drains or stops leaves the port."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from shared.process.listen import Listener, bind_shared, listen
from tests import forkserver
from tests.certificates import Authority
from tests.daemons import ERROR, OK, ROOT, Conversation, Daemon, nsqd, post, sized
from tests.forkserver import LAUNCH

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


def test_limits_and_tls_hold_for_both_ports_together(tmp_path: Path, place: Listener) -> None:
    authority = Authority(tmp_path / "ca")
    flags = (*authority.flags(), "-tls-required=tcp-https", "-https-address=127.0.0.1:0")
    with (
        nsqd(tmp_path / "n", "-tcp-shared-address", place.address, "-max-connections", "1", *flags) as node,
        Conversation(Shared(place.port), b"  V2IDENTIFY\n" + sized(b"{}")) as producer,  # type: ignore[arg-type]
    ):
        assert producer.frame() == OK  # from now on it is no stranger that has to make room
        with Conversation(node) as second:
            assert second.frame() is None
        producer.send(b"PUB t\n" + sized(b"x"))
        assert producer.frame() == (ERROR, b"E_INVALID cannot PUB in current state (TLS required)")


def start(*flags: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    command = [*LAUNCH, "nsqd", "-tcp-address=127.0.0.1:0", "-http-address=", *flags]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    return forkserver.run(command, cwd=cwd, env=environ, capture_output=True, text=True, timeout=60)


def test_a_port_that_is_held_by_a_process_that_does_not_share_it(tmp_path: Path) -> None:
    with closing(listen("127.0.0.1:0")) as taken:
        ended = start("-tcp-shared-address", taken.address, cwd=tmp_path)
    assert ended.returncode == 1
    assert (
        f"FATAL: failed to instantiate nsqd - listen ({taken.address}) failed - address already in use: held by"
        in ended.stderr
    )
    assert "a port is shared only by processes of one user that all ask for it" in ended.stderr
