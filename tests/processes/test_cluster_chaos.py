"""Bad nights of a cluster of three real nodes: kills, lost disks and tails, nodes that stand still, full disks, hostile bytes.

After each of them everything that was acknowledged is delivered, and nothing that was refused. The tests of a full disk need
root and mount; else they are skipped, with the reason.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.daemons import OK, Conversation, Daemon, drained, eventually, post, publish, run, several, sized
from tests.processes.test_cluster import connected, depth, in_sync, nodes_of, publish_to
from tests.processes.test_cluster import node as node  # the fixture

pytestmark = pytest.mark.process

NodeMaker = Callable[..., Daemon]


class Publisher:
    """Publishes numbered messages in a thread until it is stopped, and remembers what became of each."""

    def __init__(self, daemon: Daemon, *topics: str) -> None:
        self.acked: dict[str, set[bytes]] = {topic: set() for topic in topics}
        self.refused: dict[str, set[bytes]] = {topic: set() for topic in topics}
        self.unexpected: list[str] = []
        self._address = daemon.http
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Publisher:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        assert self.unexpected == []

    def use(self, daemon: Daemon) -> None:
        """Publish to a node that has taken the place of the other one."""
        self._address = daemon.http

    def goes_on(self) -> None:
        """Wait until more was acknowledged in each topic."""
        before = {topic: len(acked) for topic, acked in self.acked.items()}
        eventually(lambda: all(len(acked) > before[topic] + 20 for topic, acked in self.acked.items()))

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            for topic in self.acked:
                number += 1
                self._publish(topic, b"%d" % number)

    def _publish(self, topic: str, body: bytes) -> None:
        try:
            answer = httpx.post(f"http://{self._address}/pub?topic={topic}", content=body, timeout=60)
        except httpx.HTTPError:  # the node was killed: the message may be there
            self._stop.wait(0.01)
            return
        if answer.status_code == 200:
            self.acked[topic].add(body)
        elif answer.text == '{"message":"NOREPL"}':
            self.refused[topic].add(body)
        elif answer.text == '{"message":"STARTING"}':  # it serves its replicas already, and nothing else
            self._stop.wait(0.01)
        elif answer.text not in ('{"message":"NOREPL_MAY_BE_DELIVERED"}', '{"message":"EXITING"}'):
            self.unexpected.append(answer.text)


def create(daemon: Daemon, **copies: int) -> None:
    """Make topics that ask for so many copies, each with the channel c."""
    for topic, count in copies.items():
        post(daemon, "/topic/create", topic=topic, replicate=str(count))
        post(daemon, "/channel/create", topic=topic, channel="c")


def check(daemon: Daemon, publisher: Publisher) -> None:
    """Check that each topic delivers what was acknowledged, and nothing that was refused; each id and content once."""
    for topic, acked in publisher.acked.items():
        found: dict[bytes, bytes] = {}
        with Conversation(daemon, b"  V2SUB %s c\nRDY 100\n" % topic.encode()) as consumer:
            assert consumer.frame() == OK
            while not acked <= set(found.values()):
                message = consumer.message()
                assert found.setdefault(message.id, message.body) == message.body
                consumer.send(b"FIN %s\n" % message.id)
        assert len(set(found.values())) == len(found)
        assert not publisher.refused[topic] & set(found.values())


def again(stack: ExitStack, node: NodeMaker, number: int, old: Daemon, peer: Daemon, **flags: str) -> Daemon:
    """Start a killed node on its directory and its cluster address."""
    return stack.enter_context(node(number, peer, cluster_address=old.addresses["CLUSTER"], **flags))


def cut(directory: Path, size: int) -> None:
    """Remove the last bytes of the log that a killed node has written, as a power cut does."""
    last = max((directory / "log").glob("*.log"))
    end = len(last.read_bytes().rstrip(b"\0"))
    os.truncate(last, end - size)


def diverged(directory: Path) -> list[Path]:
    return list(directory.glob("*/replicas/*.diverged-*"))


# kills


def test_kills_of_followers_in_turn_lose_nothing(node: NodeMaker, tmp_path: Path) -> None:
    with ExitStack() as stack, node(0) as first:
        followers = {number: stack.enter_context(node(number, first)) for number in (1, 2)}
        eventually(lambda: in_sync(first) == {1, 2})
        create(first, two=2, three=3)
        with Publisher(first, "two", "three") as publisher:
            for number, old in followers.items():
                publisher.goes_on()
                old.kill()
                eventually(lambda number=number: in_sync(first) == {3 - number})
                again(stack, node, number, old, first)
                eventually(lambda: in_sync(first) == {1, 2})
                publisher.goes_on()
        check(first, publisher)
        assert diverged(tmp_path) == []


def test_kills_of_the_origin_lose_nothing_that_was_acknowledged(node: NodeMaker, tmp_path: Path) -> None:
    with ExitStack() as stack:
        first = stack.enter_context(node(0, durability="os"))
        second = stack.enter_context(node(1, first))
        stack.enter_context(node(2, first))
        eventually(lambda: in_sync(first) == {1, 2})
        create(first, two=2, three=3)
        with Publisher(first, "two", "three") as publisher:
            for _ in range(2):
                publisher.goes_on()
                first.kill()
                first = again(stack, node, 0, first, second, durability="os")
                publisher.use(first)
        eventually(lambda: in_sync(first) == {1, 2})
        check(first, publisher)
        assert diverged(tmp_path) == []


def test_two_nodes_are_lost_one_after_the_other(node: NodeMaker, tmp_path: Path) -> None:
    flags = {"failover_quorum": "none"}  # an operator recovers what is lost
    with ExitStack() as stack:
        nodes = [stack.enter_context(node(0, **flags))]
        nodes += [stack.enter_context(node(number, nodes[0], **flags)) for number in (1, 2)]
        publishers = []
        for number in (0, 1):
            eventually(lambda number=number: len(in_sync(nodes[number])) == 2)
            create(nodes[number], two=2, three=3)
            publishers.append(stack.enter_context(Publisher(nodes[number], "two", "three")))
        for number in (0, 1):
            publishers[number].goes_on()
            nodes[number].kill()
            shutil.rmtree(tmp_path / str(number))
            recovered = run(
                "penstock", "recover", str(tmp_path / str(number)), "--node", str(number), "--from", nodes[2].http
            )
            assert recovered.returncode == 0, recovered.stderr
            nodes[number] = again(stack, node, number, nodes[number], nodes[2], **flags)
            publishers[number].use(nodes[number])
            for daemon in nodes:
                eventually(lambda daemon=daemon: len(in_sync(daemon)) == 2)
        for publisher in publishers:
            publisher.__exit__()
        for number in (0, 1):
            check(nodes[number], publishers[number])


# power cuts


def test_the_end_of_a_log_that_a_power_cut_took_comes_back_from_a_replica(node: NodeMaker, tmp_path: Path) -> None:
    with ExitStack() as stack:
        first = stack.enter_context(node(0, durability="os"))
        second = stack.enter_context(node(1, first))
        eventually(lambda: in_sync(first) == {1})
        create(first, two=2)
        for size in (5, 1000, 3000):
            publish(first, "two", *(b"%d.%d" % (size, number) for number in range(200)))
            first.kill()
            cut(tmp_path / "0", size)
            first = again(stack, node, 0, first, second, durability="os")
            assert "fetching the last" in first.wait_for_line("CLUSTER: fetching")
            eventually(lambda first=first: in_sync(first) == {1})
        found = drained(first, "two", "c", 600)
        assert sorted(found) == sorted(b"%d.%d" % (size, number) for size in (5, 1000, 3000) for number in range(200))
        assert diverged(tmp_path) == []


def test_after_a_power_cut_of_all_the_end_of_a_log_comes_back_though_all_start_together(
    node: NodeMaker, tmp_path: Path
) -> None:
    with ExitStack() as stack, ThreadPoolExecutor(3) as pool:
        first = stack.enter_context(node(0, durability="os"))
        nodes = [first, *(stack.enter_context(node(number, first, durability="os")) for number in (1, 2))]
        eventually(lambda: in_sync(first) == {1, 2})
        create(first, three=3)
        publish(first, "three", *(b"%d" % number for number in range(400)))
        known = [(tmp_path / str(number) / "cluster.json") for number in range(3)]
        eventually(lambda: all(old.http in file.read_text() for old in nodes for file in known))
        for old in nodes:
            old.kill()
        cut(tmp_path / "0", 3000)
        makers = [
            node(
                number,
                cluster_address=old.addresses["CLUSTER"],
                http_address=old.http,
                durability="os",
                rejoin_timeout="20s",
            )
            for number, old in enumerate(nodes)
        ]
        first, *others = pool.map(Daemon.__enter__, makers)
        for started in (first, *others):
            stack.push(started)
        assert sorted(drained(first, "three", "c", 400)) == sorted(b"%d" % number for number in range(400))
        assert diverged(tmp_path) == []


def test_a_node_whose_followers_are_down_goes_on_without_its_end_which_a_follower_delivers_when_it_returns(
    node: NodeMaker, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        first = stack.enter_context(node(0, durability="os"))
        second = stack.enter_context(node(1, first))
        eventually(lambda: in_sync(first) == {1})
        create(first, two=2)
        publish(first, "two", *(b"%d" % number for number in range(400)))
        second.kill()
        first.kill()
        cut(tmp_path / "0", 3000)
        first = again(stack, node, 0, first, second, durability="os", rejoin_timeout="100ms")
        assert publish_to(first, "one") == (200, "OK")
        assert publish_to(first, "two") == (503, '{"message":"NOREPL"}')
        second = again(stack, node, 1, second, first)
        eventually(lambda: in_sync(first) == {1})
        assert publish_to(first, "two", b"after") == (200, "OK")
        assert "of node 0" in second.wait_for_line("unfinished messages of the log")
        second.wait_for_line("opened the log of node 0 again")
        eventually(lambda: diverged(tmp_path) == [])
        lost = depth(second, "two")
        assert lost == 400  # they were one publish
        bodies = [*drained(second, "two", "c", lost), *drained(first, "two", "c", 400 - lost + 1)]
        assert sorted(bodies) == sorted([b"after", *(b"%d" % number for number in range(400))])
        eventually(lambda: list((tmp_path / "1" / "promoted").iterdir()) == [])  # it owes nothing, so it is closed


# damage


def test_what_is_damaged_in_a_log_is_mended_from_a_replica(node: NodeMaker, tmp_path: Path) -> None:
    with ExitStack() as stack:
        first = stack.enter_context(node(0))
        second = stack.enter_context(node(1, first))
        eventually(lambda: in_sync(first) == {1})
        create(first, two=2)
        for number in range(40):
            publish(first, "two", b"%d" % number + b"x" * 1000)
        first.stop()
        (segment,) = (tmp_path / "0" / "log").glob("*.0.log")
        content = bytearray(segment.read_bytes())
        for at in (10_000, 10_001, 30_000):
            content[at] ^= 0xFF
        segment.write_bytes(content)
        first = again(stack, node, 0, first, second)
        assert sum("damaged bytes" in line for line in first.lines) == 2
        assert sorted(drained(first, "two", "c", 40)) == sorted(b"%d" % number + b"x" * 1000 for number in range(40))
        eventually(lambda: in_sync(first) == {1})
    assert run("penstock", "verify", str(tmp_path / "0")).returncode == 0


# nodes that stand still


def test_a_consumer_gets_nothing_before_it_has_its_copies(node: NodeMaker) -> None:
    with node(0, replicate_timeout="0s") as first, node(1, first) as second:
        eventually(lambda: in_sync(first) == {1})
        create(first, one=1, two=2)
        with (
            Conversation(first, b"  V2SUB two c\nRDY 9\n") as consumer,
            Conversation(first, b"  V2SUB one c\nRDY 9\n") as other,
            Conversation(first, b"  V2") as producer,
        ):
            assert consumer.frame() == other.frame() == OK
            for command in (b"PUB two\n" + sized(b"x"), b"MPUB two\n" + several(b"x"), b"DPUB two 1\n" + sized(b"x")):
                second.process.send_signal(signal.SIGSTOP)
                try:
                    producer.send(command)
                    eventually(lambda: httpx.get(f"http://{first.http}/stats?format=json&topic=two").json()["topics"])
                    assert publish_to(first, "one") == (200, "OK")
                    marker = other.message()  # it was published later
                    other.send(b"FIN %s\n" % marker.id)
                    for conversation in (consumer, producer):
                        assert is_silent(conversation.socket)
                finally:
                    second.process.send_signal(signal.SIGCONT)
                assert producer.frame() == OK
                message = consumer.message()
                assert (message.body, message.attempts) == (b"x", 1)
                consumer.send(b"FIN %s\n" % message.id)


def is_silent(sock: socket.socket) -> bool:
    """Return True if nothing has come."""
    sock.setblocking(False)
    try:
        return not sock.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    finally:
        sock.setblocking(True)


def test_a_message_whose_producer_was_told_that_it_may_be_delivered_is_delivered(node: NodeMaker) -> None:
    with node(0, replicate_timeout="500ms") as first, node(1, first) as second:
        eventually(lambda: in_sync(first) == {1})
        create(first, two=2)
        with Conversation(first, b"  V2SUB two c\nRDY 9\n") as consumer:
            assert consumer.frame() == OK
            second.process.send_signal(signal.SIGSTOP)
            try:
                assert publish_to(first, "two") == (503, '{"message":"NOREPL_MAY_BE_DELIVERED"}')
                message = consumer.message()
                consumer.send(b"FIN %s\n" % message.id)
            finally:
                second.process.send_signal(signal.SIGCONT)
            eventually(lambda: publish_to(first, "two", b"after") == (200, "OK"))
            assert consumer.message().body == b"after"


def test_an_origin_that_stood_still_suspects_nobody_and_goes_on(node: NodeMaker) -> None:
    with node(0) as first, node(1, first) as second, node(2, first):
        eventually(lambda: in_sync(first) == {1, 2})
        create(first, three=3)
        with Publisher(first, "three") as publisher:
            publisher.goes_on()
            first.process.send_signal(signal.SIGSTOP)
            eventually(lambda: nodes_of(second)[0]["suspected"])
            first.process.send_signal(signal.SIGCONT)
            eventually(lambda: in_sync(first) == {1, 2} and not nodes_of(second)[0]["suspected"])
            publisher.goes_on()
        check(first, publisher)
        assert "no heartbeat from" not in first.stderr


# disks


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of a few megabytes as the directory of node 1."""
    place = tmp_path / "1"
    place.mkdir()
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(place)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def fill(directory: Path) -> Path:
    """Write until no byte is free, and return the file."""
    path = directory / "fill"
    with path.open("wb", buffering=0) as file:
        for size in (1 << 16, 1):
            try:
                while file.write(bytes(size)):
                    pass
            except OSError:
                continue
    return path


def failures(daemon: Daemon) -> dict[int, str]:
    """The reason why each follower cannot copy the log."""
    followers = httpx.get(f"http://{daemon.http}/cluster").json()["followers"]
    return {each["node"]: each["failure"] for each in followers if each["failure"]}


def test_a_follower_with_a_full_disk_gives_up_and_returns_when_there_is_space(node: NodeMaker, volume: Path) -> None:
    with ExitStack() as stack, node(0) as first:
        second = stack.enter_context(node(1, first))
        stack.enter_context(node(2, first))
        eventually(lambda: in_sync(first) == {1, 2})
        create(first, two=2)
        with Publisher(first, "two") as publisher:
            publisher.goes_on()
            full = fill(volume)
            eventually(lambda: 1 in failures(first))
            assert "cannot copy this node's log" in first.wait_for_line("CLUSTER: node 1 cannot")
            publisher.goes_on()
            second.kill()
            second = again(stack, node, 1, second, first)
            eventually(lambda: 1 in failures(first))
            publisher.goes_on()
            full.unlink()
            eventually(lambda: in_sync(first) == {1, 2})
        check(first, publisher)


def test_a_copy_on_a_disk_without_space_recovers_a_lost_node(node: NodeMaker, volume: Path, tmp_path: Path) -> None:
    with node(0) as first, node(1, first) as second:
        eventually(lambda: in_sync(first) == {1})
        create(first, two=2)
        publish(first, "two", *(b"%d" % number for number in range(100)))
        with (volume / "fill").open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, shutil.disk_usage(volume).free - (1 << 20))
        eventually(lambda: failures(first) == {1: "too little space is free"})
        first.kill()
        shutil.rmtree(tmp_path / "0")
        arguments = (str(tmp_path / "0"), "--node", "0", "--from", second.http)
        refused = run("penstock", "recover", *arguments)
        assert "cannot read its copy at present: too little space is free" in refused.stderr
        eventually(lambda: run("penstock", "recover", *arguments).returncode == 0)
        with node(0, second, cluster_address=first.addresses["CLUSTER"]) as again:
            assert len(drained(again, "two", "c", 100)) == 100


# strangers


def test_hostile_bytes_at_the_cluster_port_harm_nobody(node: NodeMaker) -> None:
    with node(0) as first, node(1, first) as second:
        eventually(lambda: in_sync(first) == {1})
        hello = struct.pack(">IB", 40, 1) + bytes(20)
        greetings = [os.urandom(4096), b"\xff\xff\xff\xff\x01", b"\0\0\0\0", hello, b"GET / HTTP/1.1\r\n\r\n", b""]
        with ExitStack() as stack:
            sockets = [stack.enter_context(first.connect("CLUSTER")) for _ in range(200)]
            for place, sock in enumerate(sockets):
                try:
                    for byte in greetings[place % len(greetings)][:200]:
                        sock.send(bytes([byte]))
                except OSError:  # closed
                    continue
            assert publish_to(first, "t") == (200, "OK")
            assert connected(first) == {1}
            with node(2, second) as third:  # it is known to the second node, which tells the first one to dial it
                eventually(lambda: connected(third) == {0, 1})
                eventually(lambda: in_sync(first) == {1, 2})
            for sock in sockets:
                assert is_closed(sock)


def is_closed(sock: socket.socket) -> bool:
    """Read what comes until the other side closes."""
    try:
        while sock.recv(4096):
            pass
    except ConnectionResetError:
        pass
    return True


# a stop


def test_a_request_that_waits_for_copies_is_answered_when_its_node_stops(node: NodeMaker) -> None:
    with node(0, replicate_timeout="60s") as first, node(1, first) as second, ThreadPoolExecutor(1) as pool:
        eventually(lambda: in_sync(first) == {1})
        create(first, two=2)
        second.process.send_signal(signal.SIGSTOP)
        answer = pool.submit(httpx.post, f"http://{first.http}/pub?topic=two&key=k", content=b"x", timeout=60)
        stats = f"http://{first.http}/stats?format=json&topic=two"
        eventually(lambda: httpx.get(stats).json()["topics"][0]["message_count"] == 1)
        assert first.stop() == 0
        second.process.send_signal(signal.SIGCONT)
        assert (answer.result().status_code, answer.result().text) == (503, '{"message":"NOREPL_MAY_BE_DELIVERED"}')
