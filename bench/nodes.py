"""Several nodes behind one address (-tcp-shared-address): the total rate, and what a message costs them together."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.gonsq import parse_cload
from bench.load import Load
from bench.log_line import Line
from bench.rows import CHANNEL, TOPIC, WARM_UP, Effort
from bench.server import BenchError, Program, Server
from bench.table import number, share
from shared.process.listen import bind_shared

_COUNTS = (1, 2, 4)  # nodes
_RUNS = 5  # of each count, in turn
_SPARE = 30.0  # s that cload may run beyond its time


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
class Figures:
    """The figures of one run with some number of nodes."""

    rate: float  # messages a second, of all nodes together
    cpu: float  # ns of all nodes' CPU time for each message
    busy: float  # cores that the nodes used
    least: float  # share of the CPU time that the node with the least work used; 1 / nodes: all did the same


@dataclass(frozen=True, slots=True)
class Nodes:
    """A row of 1, 2 and 4 nodes; implements bench.log_sizes.LogSize."""

    name: str
    durability: str
    connections: int  # to all nodes together
    depth: int = 1  # requests outstanding per connection
    cload: str = ""  # the path of cload, which costs less than our own load; "": our own
    aim: str = ""

    def measure(self, ours: Program, go: Program | None, effort: Effort) -> list[Line]:
        program = ours.with_flags(ours.name, "-durability", self.durability)
        found: dict[int, list[Figures]] = {count: [] for count in _COUNTS}
        for _ in range(_RUNS if effort.scale == 1 else 1):
            for count in _COUNTS:
                with _together(program, count) as nodes:
                    found[count].append(self._run(nodes, effort.seconds))
        one = median(run.cpu for run in found[1])
        return [self._line(count, found[count], one) for count in _COUNTS]

    def _run(self, nodes: Together, seconds: float) -> Figures:
        if self.cload:
            _cload(self.cload, nodes, self.connections, self.depth, WARM_UP)
            before = [server.cpu() for server in nodes.servers]
            messages, took = _cload(self.cload, nodes, self.connections, self.depth, seconds)
        else:
            with Load(
                "publish", nodes, shape="pub", topic=TOPIC, connections=self.connections, depth=self.depth,
                seconds=seconds, warm_up=WARM_UP,
            ) as load:  # fmt: skip
                before = [server.cpu() for server in nodes.servers]
                outcome = load.measure().outcome
            messages, took = outcome.messages, outcome.seconds
        spent = [server.cpu() - was for server, was in zip(nodes.servers, before, strict=True)]
        return Figures(messages / took, sum(spent) / max(1, messages), sum(spent) / took / 1e9, min(spent) / sum(spent))

    def _line(self, count: int, runs: list[Figures], one: float) -> Line:
        rate, cpu, busy, least = (
            median(getattr(run, name) for run in runs) for name in ("rate", "cpu", "busy", "least")
        )
        load = f"{self.connections} connections" + (f", {self.depth} deep" if self.depth > 1 else "")
        return Line(
            self.name,
            f"{self.durability}: {count} node{'s' if count > 1 else ''}, {load}",
            f"{number(rate)}/s, CPU {cpu / 1e3:.1f} us, {busy:.2f} cores",
            f"CPU {cpu / one:.2f} of one node; least busy {share(least)}" if count > 1 else "",
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


def _cload(path: str, nodes: Together, connections: int, depth: int, seconds: float) -> tuple[int, float]:
    command = [path, str(nodes.ports["TCP"]), str(connections), str(depth), str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + _SPARE)
    if done.returncode:
        raise BenchError(f"{path} failed, exit code {done.returncode}: {done.stderr}")
    return parse_cload(done.stdout, seconds)


def nodes(directory: str | None) -> list[Nodes]:
    """Return all rows; cload is the load if the directory has it."""
    tool = Path(directory or "", "cload").resolve()
    cload = str(tool) if directory and tool.exists() else ""
    aim = "CPU <= 1.1 of one node"
    return [
        Nodes("nodes-os", "os", 50, 1, cload, aim),
        Nodes("nodes-os-500", "os", 500, 1, cload, aim),
        Nodes("nodes-os-pipelined", "os", 50, 20, cload, aim),
        Nodes("nodes-always", "always", 50, 1, cload, aim),
    ]
