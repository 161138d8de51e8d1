"""A node returns, and another one leads its log now. The new leader is played by a server that answers visits."""

from __future__ import annotations

import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from nsqd.cluster.early import EarlyPort
from nsqd.cluster.wire.handshake import Credentials
from nsqd.cluster.wire.node_identity import visitor
from nsqd.cluster.wire.visit import Visits
from nsqd.storage.log.disk import RealDisk
from nsqd.storage.log.epochs import Epoch
from nsqd.storage.log.frozen import FrozenDisk
from nsqd.storage.log.reading import LogReading
from tests.daemons import Conversation, Daemon, drained, eventually, post, publish, sized

SECRET = b"the secret of this cluster"
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
    secret.write_bytes(SECRET)

    def make(number: int, *flags: str, command: tuple[str, ...] = ()) -> Daemon:
        directory = tmp_path / str(number)
        directory.mkdir(exist_ok=True)
        given = ["-cluster-secret-file", str(secret), "-node-id", str(number), "-data-path", str(directory)]
        address = () if "-cluster-address" in flags else ("-cluster-address", "127.0.0.1:0")
        listens = ("TCP", "HTTP", "CLUSTER")
        return Daemon("nsqd", *given, *address, *flags, listens=listens, command=command)

    return make


class NewLeader:
    """Answers visits as node 2, which leads logs."""

    def __init__(self, address: str, directory: Path) -> None:
        """`address`: that of its cluster port; `directory`: an empty one."""
        self.led: list[dict[str, Any]] = []
        self._address, self._directory = address, directory
        self._visits = Visits(Credentials("penstock", SECRET, visitor(2, address)), None)

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
        host, _, port = self._address.rpartition(":")
        with socket.create_server((host, int(port))) as sock:
            early = EarlyPort(sock, self._visits, self._directory)
            early.led.states = lambda: self.led  # type: ignore[method-assign]
            with early:
                yield


def member_address(node: Callable[..., Daemon], first: Daemon, directory: Path) -> str:
    """Let node 2 join, and die. Returns the address at which the first one knows it."""
    with node(2, "-cluster-peer", first.addresses["CLUSTER"]) as second:
        address = second.addresses["CLUSTER"]
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
        new_leader = NewLeader(member_address(node, first, directory), tmp_path / "new leader")
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
        new_leader = NewLeader(member_address(node, first, directory), tmp_path / "new leader")
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


def test_no_acknowledged_message_is_lost_and_none_comes_twice_when_a_node_is_fenced_under_load(
    node: Callable[..., Daemon], tmp_path: Path
) -> None:
    directory = tmp_path / "1"
    with node(1, command=(sys.executable, "-c", FENCED_BY_SIGNAL)) as first:
        new_leader = NewLeader(member_address(node, first, directory), tmp_path / "new leader")
        make_topics(first)
        new_leader.promote(directory)
        acknowledged: list[bytes] = []
        is_over = threading.Event()
        with new_leader.serving():
            producer = threading.Thread(target=produce, args=(first, acknowledged, is_over))
            producer.start()
            try:
                eventually(lambda: len(acknowledged) > 200)
                first.process.send_signal(signal.SIGUSR1)
                first.wait_for_line("has promoted this node's log")
                count = len(acknowledged)
                eventually(lambda: len(acknowledged) > count + 200)
            finally:
                is_over.set()
                producer.join()
            depth = httpx.get(f"http://{first.http}/stats?format=json&topic=t").json()["topics"][0]["channels"][0][
                "depth"
            ]
            found = drained(first, "t", "c", depth)
    assert len(set(found)) == len(found)
    assert set(acknowledged) <= set(found)
    assert not {b"a", b"b"} & set(found), "the new leader delivers these"


def produce(daemon: Daemon, acknowledged: list[bytes], is_over: threading.Event) -> None:
    """Publish one message after the other, each with a body of its own, and connect again when the node closes."""
    number = 0
    while not is_over.is_set():
        with suppress(OSError), Conversation(daemon, b"  V2") as producer:
            while not is_over.is_set():
                number += 1
                producer.send(b"PUB t\n" + sized(b"%d" % number))
                if producer.frame() != (0, b"OK"):
                    break
                acknowledged.append(b"%d" % number)
