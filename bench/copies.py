"""What copies of the log on other nodes cost: its leader, its followers, and the clients that wait for them.

Three nodes on loopback are a cluster; the load publishes to one of them. On a machine with two cores the three nodes and the
load share these, so the rate says less than the CPU.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from bench.load import Load
from bench.log_line import Line
from bench.rows import CHANNEL, TOPIC, WARM_UP, Effort
from bench.server import BenchError, Program, Server, with_port
from bench.table import number

_RUNS = 5  # of each kind, in turn
_WAIT = 60.0  # s for followers to have everything
# (followers, copies that a publish waits for); the figures are compared with those of the second
_KINDS = ((0, 1), (2, 1), (2, 2), (2, 3))
_AIM = "CPU <= 1.6, p50 <= 2.5, rate >= 0.6 with 2 copies, 0.5 with 3"
_IDLE = 5  # nodes
_SHAPES = {"pub": "PUB", "mpub": "MPUB"}


@dataclass(frozen=True, slots=True)
class Figures:
    """What one run of one kind measured, at the leader of the log and at its followers."""

    rate: float  # messages a second
    cpu: float  # ns of the leader's CPU time for each message
    follower: float  # ns of a follower's CPU time for each message
    p50: float  # ns; 0: not measured


@dataclass(frozen=True, slots=True)
class Copies:
    """A row with no and with two followers, and replies that wait for one or both; implements bench.log_sizes.LogSize."""

    name: str
    durability: str
    shape: str
    connections: int
    aim: str = ""

    def measure(self, ours: Program, go: Program | None, effort: Effort) -> list[Line]:
        """Run each kind of _KINDS _RUNS times, in turn, and return a line for each. Raises BenchError."""
        program = ours.with_flags(ours.name, "-durability", self.durability)
        found: dict[tuple[int, int], list[Figures]] = {kind: [] for kind in _KINDS}
        for _ in range(_RUNS if effort.scale == 1 else 1):
            for followers, copies in _KINDS:
                with cluster(program, 3, followers) as nodes:
                    nodes[0].create_all([f"/topic/create?topic={TOPIC}&replicate={copies}"])
                    nodes[0].create(TOPIC, [CHANNEL])
                    found[followers, copies].append(self._run(nodes, effort.seconds))
        one = {name: median(getattr(run, name) for run in found[_KINDS[1]]) for name in ("rate", "cpu", "p50")}
        return [self._line(kind, found[kind], one) for kind in _KINDS]

    def _run(self, nodes: list[Server], seconds: float) -> Figures:
        with Load(
            "publish", nodes[0], shape=self.shape, topic=TOPIC, connections=self.connections, depth=1, seconds=seconds,
            warm_up=WARM_UP,
        ) as load:  # fmt: skip
            before = [node.cpu() for node in nodes]
            outcome = load.measure().outcome
        spent = [(node.cpu() - was) / max(1, outcome.messages) for node, was in zip(nodes, before, strict=True)]
        rate = outcome.messages / outcome.seconds
        return Figures(rate, spent[0], sum(spent[1:]) / 2, outcome.p50 or 0)

    def _line(self, kind: tuple[int, int], runs: list[Figures], one: dict[str, float]) -> Line:
        rate, cpu, follower, p50 = (
            median(getattr(run, name) for run in runs) for name in ("rate", "cpu", "follower", "p50")
        )
        followers, copies = kind
        waits = f", a reply waits for {copies} copies" if copies > 1 else ""
        compared = f"CPU {cpu / one['cpu']:.2f}, rate {rate / one['rate']:.2f}, p50 {p50 / (one['p50'] or 1):.2f}"
        return Line(
            self.name,
            f"{self.durability}: {_SHAPES[self.shape]}, {self.connections} connections, {followers} followers{waits}",
            f"{number(rate)}/s, p50 {p50 / 1e6:.2f} ms, CPU {cpu / 1e3:.2f} us, of a follower {follower / 1e3:.2f} us",
            f"{compared} of one copy awaited" if kind != _KINDS[1] else "",
            self.aim if copies > 1 else "",
        )


@dataclass(frozen=True, slots=True)
class CatchUp:
    """A follower that begins with nothing while the leader is published to; implements bench.log_sizes.LogSize."""

    name: str = "copies-catch-up"
    size: int = 512 * 1024 * 1024  # bytes of the log
    aim: str = "CPU <= 1.2 of none"

    def measure(self, ours: Program, go: Program | None, effort: Effort) -> list[Line]:
        """Publish without and with a follower that catches up, and return one line. Raises BenchError."""
        with cluster(ours.with_flags(ours.name, "-durability", "os"), 2, 1) as nodes:
            leader, follower = nodes
            leader.create(TOPIC, [CHANNEL])
            body = bytes(100_000)
            for _ in range(max(1, int(self.size * effort.scale) // len(body) // 40)):
                leader.post(f"/mpub?topic={TOPIC}", b"\n".join([body.replace(b"\0", b"x")] * 40))
            quiet = self._publish(leader, effort.seconds)
            with restarted(follower, nodes) as began:
                busy = self._publish(leader, effort.seconds)
                wait_for_copies(leader, 1)
                took = time.monotonic() - began
        return [
            Line(
                self.name,
                f"os: PUB, 50 connections, beside a follower that fetches {self.size * effort.scale / 2**20:.0f} MiB",
                f"CPU {busy / 1e3:.1f} us a message, {quiet / 1e3:.1f} without; caught up after {took:.1f} s",
                f"CPU {busy / quiet:.2f} of without",
                self.aim,
            )
        ]

    def _publish(self, leader: Server, seconds: float) -> float:
        with Load(
            "publish", leader, shape="pub", topic=TOPIC, connections=50, depth=1, seconds=seconds, warm_up=WARM_UP
        ) as load:
            before = leader.cpu()
            outcome = load.measure().outcome
        return (leader.cpu() - before) / max(1, outcome.messages)


@dataclass(frozen=True, slots=True)
class Idle:
    """What a node costs that nobody uses: _IDLE nodes of a cluster without clients. Implements bench.log_sizes.LogSize."""

    name: str = "copies-idle"
    aim: str = "<= 1 % of a core"

    def measure(self, ours: Program, go: Program | None, effort: Effort) -> list[Line]:
        """Return one line: the share of a core that a node takes. Raises BenchError."""
        with cluster(ours, _IDLE, 2) as nodes:
            seconds = max(1.0, 10 * effort.scale)
            time.sleep(2.0)  # what the start left to do
            before = sum(node.cpu() for node in nodes)
            time.sleep(seconds)
            share = (sum(node.cpu() for node in nodes) - before) / len(nodes) / seconds / 1e9
        with ours.start() as alone:
            time.sleep(2.0)
            was = alone.cpu()
            time.sleep(seconds)
            single = (alone.cpu() - was) / seconds / 1e9
        what = f"{_IDLE} nodes without clients"
        return [Line(self.name, what, f"{share:.2%} of a core each", f"a node alone {single:.2%}", self.aim)]


@contextmanager
def cluster(program: Program, count: int, followers: int) -> Iterator[list[Server]]:
    """Run nodes that are a cluster, each with so many followers, which have everything. Raises BenchError."""
    with TemporaryDirectory(prefix="penstock-bench-") as directory, ExitStack() as stack:
        secret = Path(directory, "secret")
        secret.write_text("a secret for the bench\n")
        listening = with_port(program, "CLUSTER")
        nodes: list[Server] = []
        for number_ in range(count):
            peers = [f"-cluster-peer={Server.host}:{node.ports['CLUSTER']}" for node in nodes]
            flags = (f"-node-id={number_}", f"-cluster-secret-file={secret}", f"-replicas={followers}", *peers)
            nodes.append(stack.enter_context(listening.with_flags(program.name, *flags).start()))
        wait_for_copies(nodes[0], followers)
        yield nodes


def wait_for_copies(node: Server, followers: int) -> None:
    """Wait until so many followers have all of the node's log. Raises BenchError."""
    deadline = time.monotonic() + _WAIT
    while time.monotonic() < deadline:
        states = [each["state"] for each in json.loads(node.get("/cluster"))["followers"]]
        if states.count("in sync") == followers:
            return
        time.sleep(0.02)
    raise BenchError(f"{node.program.name}: no {followers} followers within {_WAIT:.0f} s")


@contextmanager
def restarted(follower: Server, nodes: list[Server]) -> Iterator[float]:
    """Replace a follower by one that has nothing. Yields when it was started (monotonic s)."""
    address = follower.ports["CLUSTER"]
    leader = nodes[0].ports["CLUSTER"]
    follower.end(signal.SIGKILL)
    flags = [word for word in follower.program.command if not word.startswith("-cluster-peer")]
    program = Program(follower.program.name, (*flags, f"-cluster-peer={Server.host}:{leader}"), False)
    began = time.monotonic()
    with program.with_flags(program.name, f"-cluster-address={Server.host}:{address}").start():
        yield began


def copies() -> list[Copies | CatchUp | Idle]:
    """Return the rows of `make bench` about copies, in the order in which they are run."""
    return [
        Copies("copies-mpub", "os", "mpub", 1, _AIM),
        Copies("copies-pub-20", "os", "pub", 20, _AIM),
        Copies("copies-always-20", "always", "pub", 20, _AIM),
        CatchUp(),
        Idle(),
    ]
