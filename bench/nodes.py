"""Several nodes behind one address (-tcp-shared-address): the total rate, and what a message costs them together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from statistics import median

from bench.load import Load
from bench.rows import CHANNEL, TOPIC, WARM_UP, Effort
from bench.server import Program, Server
from bench.stats import medians
from bench.table import Line, number, share
from shared.process.listen import bind_shared

_COUNTS = (1, 2, 4)  # nodes
_RUNS = 5  # of each count, in turn


class Together:
    """Several servers as a load sees them: one address, and one account of CPU time and memory."""

    host = Server.host

    def __init__(self, servers: list[Server], port: int) -> None:
        self.servers = servers
        self.ports = {"TCP": port}

    def cpu(self) -> int:
        """Return the CPU time of all servers in ns."""
        return sum(server.cpu() for server in self.servers)

    def rss(self) -> int:
        """Return the resident memory of all servers in bytes."""
        return sum(server.rss() for server in self.servers)


@dataclass(frozen=True, slots=True)
class NodeStats:
    """The results of one run with some number of nodes."""

    rate: float  # messages a second, of all nodes together
    cpu: float  # ns of all nodes' CPU time for each message
    busy: float  # cores that the nodes used
    least: float  # share of the CPU time that the node with the least work used; 1 / nodes: all did the same


@dataclass(frozen=True, slots=True)
class Nodes:
    """A row of 1, 2 and 4 nodes."""

    name: str
    durability: str
    connections: int  # to all nodes together
    depth: int = 1  # requests outstanding per connection
    aim: str = ""

    def measure(self, program: Program, go: Program | None, effort: Effort) -> list[Line]:
        program = program.with_flags(program.name, "-durability", self.durability)
        found: dict[int, list[NodeStats]] = {count: [] for count in _COUNTS}
        for _ in range(_RUNS if effort.scale == 1 else 1):
            for count in _COUNTS:
                with _together(program, count) as nodes:
                    found[count].append(self._run(nodes, effort.seconds))
        one = median(run.cpu for run in found[1])
        return [self._line(count, found[count], one) for count in _COUNTS]

    def _run(self, nodes: Together, seconds: float) -> NodeStats:
        with Load(
            "publish", nodes, shape="pub", topic=TOPIC, connections=self.connections, depth=self.depth,
            seconds=seconds, warm_up=WARM_UP,
        ) as load:  # fmt: skip
            before = [server.cpu() for server in nodes.servers]
            outcome = load.measure().outcome
        messages, took = outcome.messages, outcome.seconds
        spent = [server.cpu() - was for server, was in zip(nodes.servers, before, strict=True)]
        return NodeStats(
            messages / took, sum(spent) / max(1, messages), sum(spent) / took / 1e9, min(spent) / sum(spent)
        )

    def _line(self, count: int, runs: list[NodeStats], one: float) -> Line:
        stats = medians(runs)
        load = f"{self.connections} connections" + (f", {self.depth} deep" if self.depth > 1 else "")
        return Line(
            self.name,
            f"{self.durability}: {count} node{'s' if count > 1 else ''}, {load}",
            f"{number(stats.rate)}/s, CPU {stats.cpu / 1e3:.1f} us, {stats.busy:.2f} cores",
            f"CPU {stats.cpu / one:.2f} of one node; least busy {share(stats.least)}" if count > 1 else "",
            self.aim if count == 2 else "",
        )


@contextmanager
def _together(program: Program, count: int) -> Iterator[Together]:
    with (
        closing(bind_shared(f"{Server.host}:0")) as place,
        ExitStack() as stack,
    ):  # it keeps the port, and never listens
        sharing = program.with_flags(program.name, "-tcp-shared-address", place.address)
        servers = [
            stack.enter_context(sharing.with_flags(program.name, "-node-id", str(n)).start()) for n in range(count)
        ]
        for server in servers:
            server.create(TOPIC, [CHANNEL])
        yield Together(servers, place.port)


def nodes() -> list[Nodes]:
    """Return all rows."""
    aim = "CPU <= 1.1 of one node"
    return [
        Nodes("nodes-os", "os", 50, 1, aim),
        Nodes("nodes-os-500", "os", 500, 1, aim),
        Nodes("nodes-os-pipelined", "os", 50, 20, aim),
        Nodes("nodes-always", "always", 50, 1, aim),
    ]
