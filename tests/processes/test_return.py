"""A node returns, and another one leads its log now. The new leader is played by a server that answers /cluster."""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from nsqd.storage.log.disk import RealDisk
from nsqd.storage.log.epochs import Epoch
from nsqd.storage.log.frozen import FrozenDisk
from nsqd.storage.log.reading import LogReading
from tests.daemons import Conversation, Daemon, drained, eventually, post, publish, sized

NEW_LEADER = Epoch(1000, 2, b"promoter")
# nsqd, which takes a signal for the word that its log was promoted
FENCED_BY_SIGNAL = """
import signal
import trio
from nsqd import daemon, main
from nsqd.storage.log.epochs import Epoch

join = daemon.Daemon.join_cluster

def joined(self, directory):
    join(self, directory)
    token, log_id = trio.lowlevel.current_trio_token(), self._opened.log.identity.log_id
    fenced = lambda: self.fenced(log_id, Epoch(1000, 2, b"new leaders"))
    signal.signal(signal.SIGUSR1, lambda *_: token.run_sync_soon(fenced))

daemon.Daemon.join_cluster = joined
raise SystemExit(main.main())
"""


@pytest.fixture
def node(tmp_path: Path) -> Callable[..., Daemon]:
    """Make the node of that number, with a data directory of its own."""
    secret = tmp_path / "secret"
    secret.write_text("the secret of this cluster")

    def make(number: int, *flags: str, command: tuple[str, ...] = ()) -> Daemon:
        directory = tmp_path / str(number)
        directory.mkdir(exist_ok=True)
        given = ["-cluster-secret-file", str(secret), "-node-id", str(number), "-data-path", str(directory)]
        address = () if "-cluster-address" in flags else ("-cluster-address", "127.0.0.1:0")
        listens = ("TCP", "HTTP", "CLUSTER")
        return Daemon("nsqd", *given, *address, *flags, listens=listens, command=command)

    return make


class NewLeader:
    """Answers /cluster at an address as a node that leads logs."""

    def __init__(self, address: str) -> None:
        self.led: list[dict[str, Any]] = []
        led = self.led

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = json.dumps({"replicas": [], "nodes": [], "led": led}).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None: ...

        host, _, port = address.rpartition(":")
        self._server = ThreadingHTTPServer((host, int(port)), Handler)

    def promote(self, directory: Path) -> None:
        """Own the log in the directory of a node, as far as it goes now. Nobody hears of it before the node asks."""
        reading = LogReading(FrozenDisk(RealDisk(directory / "log")))
        assert reading.identity is not None
        epochs = [[epoch.pack().hex(), at] for epoch, at in reading.replay.epochs]
        end = reading.log_records.end
        entry = {"log_id": reading.identity.log_id.hex(), "node": 2, "end": end + 1000}
        self.led.append(entry | {"epochs": [*epochs, [NEW_LEADER.pack().hex(), end]]})

    @contextmanager
    def serving(self) -> Iterator[None]:
        thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()


def member_address(node: Callable[..., Daemon], first: Daemon, directory: Path) -> str:
    """Let node 2 join, and die. Returns the address at which the first one knows it, over HTTP."""
    with node(2, "-cluster-peer", first.addresses["CLUSTER"]) as second:
        address = second.http
        eventually(lambda: address in (directory / "cluster.json").read_text())
        second.kill()
    return address


def channels(daemon: Daemon) -> dict[str, list[str]]:
    answer = httpx.get(f"http://{daemon.http}/stats?format=json").json()
    return {topic["topic_name"]: [one["channel_name"] for one in topic["channels"]] for topic in answer["topics"]}


def log_id(daemon: Daemon) -> str:
    nodes = httpx.get(f"http://{daemon.http}/cluster").json()["nodes"]
    return str(next(each["log_id"] for each in nodes if each["node"] == 1))


def possible_duplicates(daemon: Daemon) -> dict[str, int]:
    """How many messages may come twice because the log has changed its leader, as the node says, by reason."""
    counts = httpx.get(f"http://{daemon.http}/cluster").json()["failovers"]["possible_duplicates"]
    return {reason: count for reason, count in counts.items() if count}


def make_topics(daemon: Daemon) -> None:
    post(daemon, "/topic/create", topic="t")
    post(daemon, "/channel/create", topic="t", channel="c")
    publish(daemon, "t", "a", "b")


def tail(daemon: Daemon) -> None:
    publish(daemon, "t", "c", "d")
    post(daemon, "/topic/create", topic="u")
    post(daemon, "/channel/create", topic="u", channel="x")
    publish(daemon, "u", "y")


def test_a_node_returns_with_a_new_log_and_what_its_new_leader_did_not_have(
    node: Callable[..., Daemon], tmp_path: Path
) -> None:
    directory = tmp_path / "1"
    with node(1) as first:
        new_leader = NewLeader(member_address(node, first, directory))
        make_topics(first)
        new_leader.promote(directory)
        assert drained(first, "t", "c", 2) == [b"a", b"b"]  # the new leader is not told
        tail(first)
        old, port = log_id(first), first.addresses["CLUSTER"]
        first.kill()
    with new_leader.serving(), node(1, "-cluster-address", port) as again:
        line = again.wait_for_line("has promoted this node's log")
        assert "node 2" in line
        assert "the 3 unfinished messages" in line
        assert log_id(again) != old
        assert channels(again) == {"t": ["c"], "u": ["x"]}
        assert possible_duplicates(again) == {"untold": 2, "moved": 3}
        publish(again, "t", "e")
        assert drained(again, "t", "c", 3) == [b"c", b"d", b"e"]
        assert drained(again, "u", "x", 1) == [b"y"]
        parents = httpx.get(f"http://{again.http}/topic/offsets?topic=t").json()["parents"]
        assert [one["next"] for one in parents] == [4]
        assert parents[0]["log"].startswith(old)
        new = log_id(again)
        assert again.stop() == 0
    with node(1, "-cluster-address", port) as third:
        assert log_id(third) == new
        assert [one.name for one in (directory / "diverged").iterdir()] == [old]


def test_a_node_that_learns_it_while_it_runs_serves_again_at_the_same_addresses_twice(
    node: Callable[..., Daemon], tmp_path: Path
) -> None:
    directory = tmp_path / "1"
    with node(1, command=(sys.executable, "-c", FENCED_BY_SIGNAL)) as first:
        new_leader = NewLeader(member_address(node, first, directory))
        make_topics(first)
        with new_leader.serving():
            for round_ in (1, 2):
                new_leader.promote(directory)
                tail(first)
                old = log_id(first)
                with Conversation(first, b"  V2SUB t c\nRDY 1\n") as consumer:
                    assert consumer.frame() is not None  # OK
                    consumer.message()
                    first.process.send_signal(signal.SIGUSR1)
                    eventually(lambda consumer=consumer: consumer.frame() is None)
                first.wait_until(lambda: said(first, "HTTP: listening") > round_, 60)  # noqa: B023
                assert log_id(first) != old
                assert possible_duplicates(first) == {"unfinished": 1, "moved": 3}
                assert drained(first, "t", "c", 2) == [b"c", b"d"]
                assert drained(first, "u", "x", 1) == [b"y"]
                assert said(first, "has promoted this node's log") == round_
                with Conversation(first, b"  V2PUB t\n" + sized(b"z")) as producer:
                    assert producer.frame() == (0, b"OK")
        assert len(list((directory / "diverged").iterdir())) == 2


def said(daemon: Daemon, part: str) -> int:
    return sum(part in line for line in daemon.lines)
