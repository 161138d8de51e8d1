"""Disque's queues, compared with the original disque-server (`--disque PATH`) in the same run.

One server and its clients; three nodes with a copy of each job on each; the memory that jobs take; and how soon a job that is
added on one node reaches a client that waits on another.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from bench.copies import cluster
from bench.job_load import BODY, COPIES, QUEUE, command
from bench.job_server import DISQUE, HOST, JobStats, Running, load, running
from bench.jobs import RUNS, JobsRow, described, versus
from bench.outcome import Outcome, timed
from bench.rows import Effort
from bench.server import BenchError, Program, with_port
from bench.stats import medians
from bench.table import Line, duration, number

_NODES = 3
_JOIN = 30.0  # s for nodes to know each other
_PATIENCE = 120.0  # s for a reply; the original asks other nodes every 30 s at the latest
_AT_ONCE = 500  # commands that are sent before their replies are read
_JOBS = 1_000_000
_DELIVERED = 200  # jobs, by Penstock
_DELIVERED_BY_THE_ORIGINAL = 3
_WAITED = 0.05  # s that a client has waited when a job is added for it
_ADD = command(b"ADDJOB", QUEUE, BODY, b"0")
_GET = command(b"GETJOB", b"FROM", QUEUE)


class _Client:
    """A connection whose replies are awaited one by one."""

    def __init__(self, port: int) -> None:
        self._sock = socket.create_connection((HOST, port), timeout=_PATIENCE)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._replies = self._sock.makefile("rb")

    def __enter__(self) -> _Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._replies.close()
        self._sock.close()

    def send(self, data: bytes) -> None:
        self._sock.sendall(data)

    def line(self) -> bytes:
        """Return a line of a reply without its end. Raises BenchError if it is an error."""
        try:
            line = self._replies.readline()
        except TimeoutError:
            raise BenchError("no reply came") from None
        if not line.endswith(b"\r\n") or line.startswith(b"-"):
            raise BenchError(f"refused: {line!r}")
        return line[:-2]

    def job(self) -> bytes:
        """Return the id in the reply to a GETJOB."""
        return [self.line() for _ in range(8)][5]


@contextmanager
def _penstock(program: Program) -> Iterator[tuple[list[int], Callable[[], int]]]:
    """Run nodes that copy each job to all of them. Yields their ports, and the function that returns their CPU time."""
    with cluster(
        with_port(program.with_flags(program.name, "-durability", "os"), "DISQUE"), _NODES, _NODES - 1
    ) as nodes:
        yield [node.ports["DISQUE"] for node in nodes], lambda: sum(node.cpu() for node in nodes)


@contextmanager
def _original(path: str, mode: str) -> Iterator[tuple[list[int], Callable[[], int]]]:
    """Run nodes of the original that know each other; yields the same as `_penstock`. Raises BenchError."""
    with ExitStack() as stack:
        nodes: list[Running] = [
            stack.enter_context(running((path,), (*DISQUE.flags, *DISQUE.modes[mode]))) for _ in range(_NODES)
        ]
        first = stack.enter_context(_Client(nodes[0].port))
        for node in nodes[1:]:
            first.send(command(b"CLUSTER", b"MEET", HOST.encode(), b"%d" % node.port))
            first.line()
        _await_copies(nodes)
        yield [node.port for node in nodes], lambda: sum(node.cpu() for node in nodes)


def _await_copies(nodes: list[Running]) -> None:
    """Wait until each node of the original takes a job that needs a copy on each. Raises BenchError."""
    deadline = time.monotonic() + _JOIN
    request = command(b"ADDJOB", b"joined", b"x", b"1000", b"REPLICATE", b"%d" % _NODES, b"TTL", b"1")
    for node in nodes:
        with _Client(node.port) as client:
            while True:
                try:
                    client.send(request)
                    client.line()
                    break
                except BenchError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.2)


@dataclass(frozen=True, slots=True)
class QueueCopies:
    """Jobs with a copy on each of three nodes: on Penstock, and on the original in memory and with its file, in turn."""

    path: str
    name: str = "queues-copies"
    connections: int = 50
    aim: str = "rate >= 0.7"

    def measure(self, program: Program, go: Program | None, effort: Effort) -> list[Line]:
        found: dict[str, list[JobStats]] = {}
        for _ in range(RUNS if effort.scale == 1 else 1):
            with _penstock(program) as (ports, cpu):
                found.setdefault("penstock", []).append(self._load(ports, cpu, effort))
            for mode in ("memory", "appendfsync no") if self.path else ():
                with _original(self.path, mode) as (ports, cpu):
                    found.setdefault(mode, []).append(self._load(ports, cpu, effort))
        mine = medians(found.pop("penstock"))
        what = f"os: ADDJOB REPLICATE {COPIES}, {self.connections} connections; CPU of all {_NODES} nodes"
        compared = [versus(mine, medians(runs), f"disque-server, {mode}") for mode, runs in found.items()] or [""]
        return [Line(self.name, what, described(mine), each, self.aim) for each in compared]

    def _load(self, ports: list[int], cpu: Callable[[], int], effort: Effort) -> JobStats:
        return load(cpu, ports[0], f"disque-{COPIES}", "put", self.connections, 1, effort.seconds)


@dataclass(frozen=True, slots=True)
class QueueMemory:
    """The resident memory of a server that holds many jobs."""

    path: str
    name: str = "queues-memory"
    aim: str = "<= 0.5"

    def measure(self, program: Program, go: Program | None, effort: Effort) -> list[Line]:
        jobs = max(_AT_ONCE, int(_JOBS * effort.scale) // _AT_ONCE * _AT_ONCE)
        found: dict[str, tuple[int, int]] = {}  # bytes in all, bytes that the jobs added
        for who, line in DISQUE.commands(self.path).items():
            with running(line, (*DISQUE.flags, *DISQUE.modes["memory"])) as server, _Client(server.port) as client:
                before = server.rss()
                for _ in range(jobs // _AT_ONCE):
                    client.send(_ADD * _AT_ONCE)
                    for _ in range(_AT_ONCE):
                        client.line()
                found[who] = server.rss(), server.rss() - before
        mine, added = found["penstock"]
        compared = ""
        if "original" in found:
            all_, more = found["original"]
            compared = f"{mine / all_:.2f} of {DISQUE.name} ({all_ / 1e6:.0f} MB, {more / jobs:.0f} B a job)"
        what = f"memory: {number(jobs)} jobs of {len(BODY)} B"
        return [Line(self.name, what, f"{mine / 1e6:.0f} MB, {added / jobs:.0f} B a job", compared, self.aim)]


@dataclass(frozen=True, slots=True)
class RemoteDelivery:
    """Jobs that are added on one node while a client waits on another: from the sending of ADDJOB to the client's reply."""

    path: str
    name: str = "queues-remote"
    aim: str = "p99 <= 50 ms"

    def measure(self, program: Program, go: Program | None, effort: Effort) -> list[Line]:
        with _penstock(program) as (ports, _):
            mine = _delivery_times(ports, max(20, int(_DELIVERED * effort.scale)))
        compared = ""
        if self.path and effort.scale == 1:
            with _original(self.path, "memory") as (ports, _):
                times = sorted(_delivery_times(ports, _DELIVERED_BY_THE_ORIGINAL))
            compared = f"{DISQUE.name}: {', '.join(map(duration, times))}"
        got = timed(Outcome(len(mine), sum(mine) / 1e9), mine)
        measured = f"p50 {duration(got.p50)}, p99 {duration(got.p99)}, longest {duration(got.worst)}"
        what = f"os: {len(mine)} jobs of one node to a client that waits on another, {_NODES} nodes"
        return [Line(self.name, what, measured, compared, self.aim)]


def _delivery_times(ports: list[int], count: int) -> list[int]:
    """Return the time that each of `count` jobs took, in ns."""
    took = []
    with _Client(ports[0]) as producer, _Client(ports[1]) as worker:
        for _ in range(count):
            worker.send(_GET)
            time.sleep(_WAITED)
            began = time.perf_counter_ns()
            producer.send(_ADD)
            job = worker.job()
            took.append(time.perf_counter_ns() - began)
            producer.line()
            worker.send(command(b"ACKJOB", job))
            worker.line()
    return took


def queues(path: str) -> list[JobsRow | QueueCopies | QueueMemory | RemoteDelivery]:
    """Return all rows that compare with Disque. `path` is that of a disque-server, or ""."""
    by_cpu = ("by CPU >= 0.5", "by CPU >= 0.5", "by CPU >= 0.5")
    return [
        JobsRow("queues-50", DISQUE, path, "memory", 50, 1, by_cpu),
        JobsRow("queues-pipelined", DISQUE, path, "memory", 50, 20, ("", ">= 1.5", "")),
        JobsRow("queues-1", DISQUE, path, "memory", 1, 1, by_cpu),
        JobsRow("queues-500", DISQUE, path, "memory", 500, 1),
        JobsRow(
            "queues-sync-50", DISQUE, path, "appendfsync always", 50, 1, ("by CPU >= 0.5", "rate >= 3", "rate >= 3")
        ),
        QueueCopies(path),
        QueueMemory(path),
        RemoteDelivery(path),
    ]
