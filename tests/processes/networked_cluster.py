"""A cluster of real nodes, each in a network namespace of its own, under load, for rounds of faults.

A round is: load on all nodes, a fault, healing, all in sync, then one node is killed, its data directory removed and rebuilt
by `penstock recover`; then everything is drained and the books are closed.
"""

from __future__ import annotations

import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any

import httpx
import pytest

from bench.crash import volume
from bench.crash.process import CrashError
from bench.crash.volume import Cut, LoopDevice
from tests.daemons import START_TIMEOUT, Daemon, eventually, run
from tests.effort import EFFORT, seeds
from tests.namespaces import Network
from tests.processes.cluster_load import (
    Books,
    Client,
    HttpPublisher,
    JobPublisher,
    LiveConsumer,
    NsqPublisher,
    Outcome,
    drain,
    prepare,
    summary,
)
from tests.processes.test_cluster import SECRET
from tests.processes.test_cluster_tls import certificates, tls
from tests.requirements import require

LONG = EFFORT >= 5
NODES = (0, 1, 2)
AGAIN = 120.0  # s: after a long silence a node is dialed every 30 s, and a replica that failed is tried every 10 s
LISTENS = ("TCP", "HTTP", "CLUSTER", "BEANSTALK", "DISQUE")
_PORTS = {"cluster": 7000, "tcp": 4150, "http": 4151, "beanstalk": 11300, "disque": 7711}


class NetworkedCluster:
    """Three nodes, their load and their books."""

    def __init__(
        self, network: Network, place: Path, certificates: Path, volumes: list[LoopDevice], **flags: str
    ) -> None:
        """`place`: an empty directory; `volumes`: for the data of each node; `flags` are for all."""
        self.network = network
        self.books = Books()
        self.counts = Counter[str]()
        self.nodes: dict[int, Daemon] = {}
        self._client = httpx.Client(
            timeout=START_TIMEOUT, verify=False, limits=httpx.Limits(max_keepalive_connections=0)
        )
        self._place = place
        self._certificates = certificates
        self.volumes = volumes
        self._flags = flags
        self._stack = ExitStack()
        self._stack.callback(self._client.close)
        self._clients: list[Client] = []
        self._life = 0
        (place / "secret").write_text(SECRET)

    def __enter__(self) -> NetworkedCluster:
        try:
            with ThreadPoolExecutor(len(NODES)) as pool:
                list(pool.map(self.start, NODES))
            self.all_in_sync()
            for number in NODES:
                prepare(self.nodes[number])
        except BaseException:
            self._stack.__exit__(*sys.exc_info())
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for client in self._clients:
            client.ask_to_stop()
        self._stack.__exit__(kind, error, at)

    # nodes

    def directory(self, number: int) -> Path:
        """Return the data directory of a node."""
        return self.volumes[number].directory / "data"

    def start(self, number: int, **flags: str) -> None:
        """Start a node, and wait until it listens. `flags` override those of all nodes."""
        self.nodes[number] = self.run(number, LISTENS, **flags)

    def run(self, number: int, listens: Sequence[str], **flags: str) -> Daemon:
        """Run the process of a node, and wait until it listens for that. `flags` override those of all nodes."""
        self.directory(number).mkdir(exist_ok=True)
        address = self.network.address(number)
        given = {f"{name}-address": f"{address}:{port}" for name, port in _PORTS.items()}
        given |= {
            "broadcast-address": address,
            "cluster-secret-file": str(self._place / "secret"),
            "node-id": str(number),
            "data-path": str(self.directory(number)),
            "failover-after": "3s",
            "replicate-timeout": "1s",
            "max-msg-timeout": "10m",
            "msg-timeout": "5m",
            **tls(self._certificates, number),
            **self._flags,
            **flags,
        }
        words = [word for name, value in given.items() for word in (f"-{name.replace('_', '-')}", value)]
        for peer in NODES:
            words += ["-cluster-peer", f"{self.network.address(peer)}:{_PORTS['cluster']}"]
        program = (sys.executable, "-m", "penstock.launch", "nsqd")
        daemon = Daemon("nsqd", *words, listens=listens, command=self.network.command(number, *program))
        return self._stack.enter_context(daemon)

    def kill(self, *numbers: int) -> None:
        """Kill nodes by SIGKILL, all at once."""
        for number in numbers:
            self.nodes[number].process.send_signal(signal.SIGKILL)
            self.counts["kills"] += 1
        for number in numbers:
            self.nodes[number].wait()

    def is_dead(self, number: int) -> bool:
        """Return True if a node was killed."""
        return self.nodes[number].process.poll() is not None

    def start_all(self, *numbers: int) -> None:
        """Start nodes, or all that were killed, all at once: one that starts may wait for another."""
        dead = [number for number in NODES if self.is_dead(number)]
        with ThreadPoolExecutor(len(NODES)) as pool:
            list(pool.map(self.start, numbers or dead))

    def lose_disk(self, lost: int, witness: int) -> None:
        """Remove the data directory of a node that was killed, and make it again by way of another node."""
        shutil.rmtree(self.directory(lost))
        source = self.nodes[witness].http
        done = run("penstock", "recover", str(self.directory(lost)), "--node", str(lost), "--from", source)
        assert done.returncode == 0, done.stderr
        self.counts["lost disks"] += 1

    def stand_still(self, number: int) -> None:
        """Stop the process of a node, which does not notice."""
        self.nodes[number].process.send_signal(signal.SIGSTOP)
        self.counts["stops"] += 1

    # the network

    def cut(self, *sides: set[int]) -> None:
        """Drop all packets between nodes of different sides."""
        self.network.cut(*sides)
        self.counts["partitions"] += 1

    def heal(self) -> None:
        """Let all packets pass again."""
        self.network.heal()

    # load

    def load(self) -> None:
        """Begin to publish to all nodes, and to consume from them."""
        self._life += 1
        for number in NODES:
            self._clients += self.clients(number, lambda number=number: self.nodes[number], self._life)  # type: ignore[misc]
        for client in self._clients:
            client.start()

    def clients(self, number: int, daemon: Callable[[], Daemon], life: int) -> list[Client]:
        """Return what publishes to a node and consumes from it."""
        publishers = (kind(number, daemon, self.books, life) for kind in (HttpPublisher, NsqPublisher, JobPublisher))
        return [*publishers, LiveConsumer(number, daemon, self.books, "two")]

    def unload(self, kind: type[Client] = Client) -> None:
        """Stop what `load` has begun, or the clients of that kind."""
        clients = [client for client in self._clients if isinstance(client, kind)]
        for client in clients:
            client.ask_to_stop()
        for client in clients:
            client.wait_for_end()
            self._clients.remove(client)

    def goes_on(self, numbers: Iterable[int], *copies: int) -> None:
        """Wait until nodes have acknowledged more publishes with each number of copies."""
        self._wait_for_responses(numbers, copies, Outcome.ACKNOWLEDGED)

    def refuses(self, numbers: Iterable[int], *copies: int) -> None:
        """Wait until nodes have refused more publishes with each number of copies."""
        self._wait_for_responses(numbers, copies, Outcome.REFUSED)

    def _wait_for_responses(self, numbers: Iterable[int], copies: tuple[int, ...], outcome: Outcome) -> None:
        keys = [(number, count, outcome) for number in numbers for count in copies]
        before = {key: self.books.answers[key] for key in keys}
        self.until(lambda: all(self.books.answers[key] >= before[key] + 5 for key in keys))

    def until(self, done: Callable[[], object]) -> None:
        """Wait until `done`, for AGAIN at most, while all nodes that were not killed live."""
        eventually(done, AGAIN)

    def let_pass(self, seconds: float) -> None:
        """Let a fault last for so long, under load."""
        over = time.monotonic() + seconds
        eventually(lambda: time.monotonic() >= over, seconds + START_TIMEOUT)

    # what nodes say

    def figures(self, number: int) -> dict[str, list[dict[str, object]]]:
        """Return the answer of a node to /cluster."""
        figures: dict[str, list[dict[str, object]]] = self._client.get(
            f"http://{self.nodes[number].http}/cluster"
        ).json()
        return figures

    def in_sync(self, number: int) -> set[object]:
        """Return the followers of a node that are in sync."""
        return {each["node"] for each in self.figures(number)["followers"] if each["state"] == "in sync"}

    def failures(self, number: int) -> dict[object, object]:
        """Return why followers of a node cannot copy its log."""
        return {each["node"]: each["failure"] for each in self.figures(number)["followers"] if each["failure"]}

    def all_in_sync(self) -> None:
        """Wait until the log of each node has all its copies."""
        for number in NODES:
            self.until(lambda number=number: self.in_sync(number) == {*NODES} - {number})

    # the end of a round

    def finish(self, random: Random) -> None:
        """Heal what was cut, lose the disk of one node, recover it from a replica, and close the books."""
        self.network.heal()
        self.all_in_sync()
        self.goes_on(NODES, 2, 3)
        lost, witness, _ = random.sample(NODES, 3)
        self.kill(lost)
        self.lose_disk(lost, witness)
        self.start(lost)
        self.all_in_sync()
        self.goes_on(NODES, 2, 3)
        self.unload()
        self.close_books()

    def close_books(self) -> None:
        """Take all that the nodes have, and compare it with what was acknowledged."""
        with ThreadPoolExecutor(len(NODES)) as pool:
            list(pool.map(lambda number: drain(self.nodes[number], self.books), NODES))
        self._check()
        self.counts["rounds"] += 1

    def _check(self) -> None:
        books = self.books
        lost = sorted(books.lost)
        assert not lost, f"{len(lost)} of {len(books.acknowledged)} acknowledged messages are lost: {lost[:20]}"
        assert not books.twice, books.twice[:20]
        wrong = sorted(books.refused & {*books.delivered, *books.ids.values()})
        assert not wrong, f"{len(wrong)} refused messages were delivered: {wrong[:20]}"

    def summary(self) -> dict[str, int]:
        """Return what happened in all rounds so far."""
        return {**self.counts, **summary(self.books)}


Fault = Callable[[Any, Random], None]  # on a NetworkedCluster
Play = Callable[[Fault, str], None]


class Clusters:
    """One cluster at a time, which all tests of a mode share. A test that fails leaves none."""

    def __init__(self, place: Path, certificates: Path) -> None:
        self._place = place
        self.certificates = certificates
        self._mode = ""
        self._current: NetworkedCluster | None = None
        self.stack = ExitStack()
        self._count = 0

    def of_mode(self, mode: str) -> NetworkedCluster:
        """Return a cluster with this durability."""
        if self._current is None or mode != self._mode:
            self.close()
            self._mode, self._count = mode, self._count + 1
            place = self._place / str(self._count)
            place.mkdir()
            self._current = self.stack.enter_context(self.make(place, mode))
        return self._current

    def make(self, place: Path, mode: str) -> NetworkedCluster:
        """Return a cluster that is not running, with its data below `place`."""
        volumes = [self._volume(number) for number in NODES]
        network = self.stack.enter_context(Network(len(NODES)))
        return NetworkedCluster(network, place, self.certificates, volumes, durability=mode, failover_quorum="none")

    def _volume(self, number: int) -> LoopDevice:
        kinds, why = volume.kinds()
        try:
            device = LoopDevice(kinds[number % len(kinds)], lambda: Cut.STILL) if kinds else None
        except CrashError as error:
            device, why = None, f"no loop device can be mounted: {error}"
        if device is None:
            pytest.skip(why)
        self.stack.callback(device.close)
        return device

    def close(self, error: BaseException | None = None) -> None:
        """Remove the cluster, and add what its nodes have said to `error`."""
        self._current = None
        self.stack.__exit__(type(error) if error else None, error, None)


@pytest.fixture(scope="module")
def clusters(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    """Make clusters as the file's CLUSTERS says."""
    require("namespaces")
    kind: type[Clusters] = getattr(request.module, "CLUSTERS", Clusters)
    made = kind(tmp_path_factory.mktemp("clusters"), certificates(tmp_path_factory.mktemp("own")))
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def rounds(clusters: Clusters, request: pytest.FixtureRequest) -> Play:
    """Run rounds of one fault in one mode, and note the counts for the summary of the run."""

    def play(fault: Fault, mode: str) -> None:
        cluster = clusters.of_mode(mode)
        before = cluster.summary()
        try:
            for number in seeds(1):
                random = Random(f"{request.node.name} {number}")
                cluster.load()
                cluster.goes_on(NODES, 2, 3)
                fault(cluster, random)
                cluster.finish(random)
        except BaseException as error:
            clusters.close(error)
            raise
        finally:
            counts = {name: count - before.get(name, 0) for name, count in cluster.summary().items()}
            request.node.user_properties.append(("cluster rounds", counts))

    return play


def played(*modes: object) -> Callable[[Fault], Callable[..., None]]:
    """Make of a fault a test that plays rounds of it in each of these modes."""

    def decorate(fault: Fault) -> Callable[..., None]:
        @pytest.mark.parametrize("mode", modes)
        def play(rounds: Play, mode: str) -> None:
            rounds(fault, mode)

        return play

    return decorate
