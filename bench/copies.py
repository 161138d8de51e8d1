"""The cost of copies of the log on other nodes: for its leader, its followers, and the clients that wait for them.

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
from tempfile import TemporaryDirectory

from bench.load import Load
from bench.rows import CHANNEL, TOPIC, WARM_UP, Effort, publish
from bench.server import BenchError, Program, Server, with_port
from bench.stats import medians
from bench.table import Line, number

_RUNS = 5  # of each kind, in turn
_WAIT = 60.0  # s for followers to have everything
# (followers, copies that a publish waits for); the results are compared with those of the second
_KINDS = ((0, 1), (2, 1), (2, 2), (2, 3))
_AIM = "CPU <= 1.6, p50 <= 2.5, rate >= 0.6 with 2 copies, 0.5 with 3"
_IDLE = 5  # nodes
_SHAPES = {"pub": "PUB", "mpub": "MPUB"}


@dataclass(frozen=True, slots=True)
class CopyStats:
    """The results of one run of one kind, at the leader of the log and at its followers."""

    rate: float  # messages a second
    cpu: float  # ns of the leader's CPU time for each message
    follower: float  # ns of a follower's CPU time for each message
    p50: float  # ns; 0: not measured


@dataclass(frozen=True, slots=True)
class Copies:
    """A row with no and with two followers, and replies that wait for one or both."""

    name: str
    durability: str
    shape: str
    connections: int
    aim: str = ""

    def measure(self, program: Program, go: Program | None, effort: Effort) -> list[Line]:
        program = program.with_flags(program.name, "-durability", self.durability)
        found: dict[tuple[int, int], list[CopyStats]] = {kind: [] for kind in _KINDS}
        for _ in range(_RUNS if effort.scale == 1 else 1):
            for followers, copies in _KINDS:
                with cluster(program, 3, followers) as nodes:
                    nodes[0].create_all([f"/topic/create?topic={TOPIC}&replicate={copies}"])
                    nodes[0].create(TOPIC, [CHANNEL])
                    found[followers, copies].append(self._run(nodes, effort.seconds))
        return [self._line(kind, medians(found[kind]), medians(found[_KINDS[1]])) for kind in _KINDS]

    def _run(self, nodes: list[Server], seconds: float) -> CopyStats:
        with Load(
            "publish", nodes[0], shape=self.shape, topic=TOPIC, connections=self.connections, depth=1, seconds=seconds,
            warm_up=WARM_UP,
        ) as load:  # fmt: skip
            before = [node.cpu() for node in nodes]
            outcome = load.measure().outcome
        spent = [(node.cpu() - was) / max(1, outcome.messages) for node, was in zip(nodes, before, strict=True)]
        rate = outcome.messages / outcome.seconds
        return CopyStats(rate, spent[0], sum(spent[1:]) / 2, outcome.p50 or 0)

    def _line(self, kind: tuple[int, int], stats: CopyStats, one: CopyStats) -> Line:
        followers, copies = kind
        waits = f", a reply waits for {copies} copies" if copies > 1 else ""
        compared = (
            f"CPU {stats.cpu / one.cpu:.2f}, rate {stats.rate / one.rate:.2f}, p50 {stats.p50 / (one.p50 or 1):.2f}"
        )
        cpu = f"CPU {stats.cpu / 1e3:.2f} us, of a follower {stats.follower / 1e3:.2f} us"
        return Line(
            self.name,
            f"{self.durability}: {_SHAPES[self.shape]}, {self.connections} connections, {followers} followers{waits}",
            f"{number(stats.rate)}/s, p50 {stats.p50 / 1e6:.2f} ms, {cpu}",
            f"{compared} of one copy awaited" if kind != _KINDS[1] else "",
            self.aim if copies > 1 else "",
        )


@dataclass(frozen=True, slots=True)
class CatchUp:
    """A follower that begins with nothing while clients publish to the leader."""

    name: str = "copies-catch-up"
    size: int = 512 * 1024 * 1024  # bytes of the log
    aim: str = "CPU <= 1.2 of none"

    def measure(self, program: Program, go: Program | None, effort: Effort) -> list[Line]:
        with cluster(program.with_flags(program.name, "-durability", "os"), 2, 1) as nodes:
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
                f"os: PUB, 50 connections, during a follower's fetch of {self.size * effort.scale / 2**20:.0f} MiB",
                f"CPU {busy / 1e3:.1f} us a message, {quiet / 1e3:.1f} without; caught up after {took:.1f} s",
                f"CPU {busy / quiet:.2f} of without",
                self.aim,
            )
        ]

    @staticmethod
    def _publish(leader: Server, seconds: float) -> float:
        sample = publish(leader, seconds)
        return sample.server_cpu / max(1, sample.outcome.messages)


@dataclass(frozen=True, slots=True)
class Idle:
    """The cost of nodes without clients: _IDLE nodes of a cluster, and one alone."""

    name: str = "copies-idle"
    aim: str = "<= 1 % of a core"

    def measure(self, program: Program, go: Program | None, effort: Effort) -> list[Line]:
        seconds = max(1.0, 10 * effort.scale)
        with cluster(program, _IDLE, 2) as nodes:
            share = self._share(nodes, seconds)
        with program.start() as alone:
            single = self._share([alone], seconds)
        what = f"{_IDLE} nodes without clients"
        return [Line(self.name, what, f"{share:.2%} of a core each", f"a node alone {single:.2%}", self.aim)]

    @staticmethod
    def _share(nodes: list[Server], seconds: float) -> float:
        """Return the mean share of a core that the nodes take when the work of their start is done."""
        time.sleep(2.0)
        before = sum(node.cpu() for node in nodes)
        time.sleep(seconds)
        return (sum(node.cpu() for node in nodes) - before) / len(nodes) / seconds / 1e9


@contextmanager
def cluster(program: Program, count: int, followers: int) -> Iterator[list[Server]]:
    """Run `count` nodes that are a cluster, each with `followers` followers in sync. Raises BenchError."""
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
    """Wait until `followers` followers have all of the node's log. Raises BenchError."""
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
    flags = [flag for flag in follower.program.command if not flag.startswith("-cluster-peer")]
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
