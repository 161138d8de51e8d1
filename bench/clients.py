"""The cost of a message to programs with Python's clients: Penstock's, blocking and async, and pynsq and ansq.

Each client runs in a process of its own (bench/client_load.py) against the same nsqd, one after the other, in each run.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from statistics import median

from bench.rows import TOPIC, Effort
from bench.server import BenchError, Program, Server
from bench.table import Line

CLIENTS = ("penstock.client", "penstock.aio", "pynsq", "ansq")
_OTHERS = ("pynsq", "ansq")
_RUNS = 5
_MESSAGES = {"consume": 50_000, "publish": 20_000}  # of 200 B; publishes by 50 tasks, each of which waits for its OK
_PATIENCE = 300.0  # s
_BATCH = 500  # messages in one /mpub
SIZE = 200


@dataclass(frozen=True, slots=True)
class Clients:
    """A row of all clients."""

    name: str
    work: str  # "consume" or "publish"
    aim: str

    def measure(self, program: Program, go: Program | None, effort: Effort) -> list[Line]:
        count = max(500, int(_MESSAGES[self.work] * effort.scale))
        found: dict[str, list[tuple[float, float]]] = {client: [] for client in CLIENTS}
        with program.start() as server:
            for turn in range(_RUNS if effort.scale == 1 else 1):
                channels = [f"{client}-{turn}" for client in CLIENTS] if self.work == "consume" else []
                topic = f"{TOPIC}-{turn}"
                server.create(topic, channels)
                for _ in range(0, count if channels else 0, _BATCH):
                    server.post(f"/mpub?topic={topic}", b"\n".join([b"x" * SIZE] * _BATCH))
                for client in CLIENTS:
                    found[client].append(_measure(server, client, self.work, topic, f"{client}-{turn}", count))
        costs = {client: median(cpu for cpu, _ in runs) for client, runs in found.items()}
        return [self._line(client, costs, median(rate for _, rate in found[client])) for client in CLIENTS]

    def _line(self, client: str, costs: dict[str, float], rate: float) -> Line:
        compared = ""
        if client == "penstock.aio":
            other = min(costs[one] for one in _OTHERS) / costs[client]
            compared = f"{other:.1f} x the faster of {' and '.join(_OTHERS)}"
            compared += f"; {costs['penstock.client'] / costs[client]:.2f} x penstock.client"
        measured = f"CPU {costs[client]:.1f} us, {rate:,.0f}/s"
        return Line(self.name, client, measured, compared, self.aim if compared else "")


def _measure(server: Server, client: str, work: str, topic: str, channel: str, count: int) -> tuple[float, float]:
    """Return the client's CPU time for each message in us, and its rate in messages a second."""
    address = f"{server.host}:{server.ports['TCP']}"
    command = [sys.executable, "-m", "bench.client_load", client, work, address, topic, channel, str(count)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE)
    if done.returncode:
        raise BenchError(f"{client} failed to {work}: {done.stderr[-2000:]}")
    result = json.loads(done.stdout)
    return result["cpu"] / count * 1e6, count / result["seconds"]


def clients() -> list[Clients]:
    """Return all rows, in order."""
    aim = ">= 3 x the faster of the others, >= 0.6 x penstock.client"
    return [Clients("clients-consume", "consume", aim), Clients("clients-publish", "publish", aim)]
