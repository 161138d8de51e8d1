"""Jobs: put, and reserve with delete, compared with Debian's beanstalkd (`--beanstalkd PATH`) in the same run."""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.log_line import Line
from bench.rows import Effort
from bench.server import ROOT, BenchError, Program, cpu_time
from bench.table import number

_RUNS = 3  # of each program, in turn
_START = 10.0  # s to wait until the server listens
_OURS = (sys.executable, "-m", "penstock.launch", "beanstalkd")
_MODES = {"memory": (), "-b -F": ("-b", "DIR", "-F"), "-b -f0": ("-b", "DIR", "-f0")}


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one run of a load."""

    rate: float  # jobs a second
    cpu: float  # ns of the server's CPU time per job
    p99: float  # ns from a command to its answer


@dataclass(frozen=True, slots=True)
class JobsRow:
    """A row of job figures; implements bench.log_sizes.LogSize."""

    name: str
    path: str  # the beanstalkd to compare with; "": none
    mode: str  # a key of _MODES
    connections: int
    depth: int
    aim: str = ""

    def measure(self, ours: Program, go: Program | None, effort: Effort) -> list[Line]:
        commands = {"ours": _OURS} | ({"theirs": (self.path,)} if self.path else {})
        found: dict[tuple[str, str], list[Figures]] = {}
        for _ in range(_RUNS if effort.scale == 1 else 1):
            for who, command in commands.items():
                with _running(command, _MODES[self.mode]) as (process, port):
                    for kind in ("put", "work"):
                        depth = self.depth if kind == "put" else 1
                        got = _load(process.pid, port, kind, self.connections, depth, effort.seconds)
                        found.setdefault((kind, who), []).append(got)
        return [self._line(kind, found) for kind in ("put", "work")]

    def _line(self, kind: str, found: dict[tuple[str, str], list[Figures]]) -> Line:
        ours, theirs = (
            {name: median(getattr(one, name) for one in found[kind, who]) for name in ("rate", "cpu", "p99")}
            if (kind, who) in found
            else {}
            for who in ("ours", "theirs")
        )
        what = f"{self.mode}: {'put' if kind == 'put' else 'reserve + delete'}, {self.connections} connections"
        what += f", {self.depth} deep" if kind == "put" and self.depth > 1 else ""
        measured = f"{number(ours['rate'])}/s, CPU {ours['cpu'] / 1e3:.1f} us, p99 {ours['p99'] / 1e6:.2f} ms"
        compared = ""
        if theirs:
            other = f"{number(theirs['rate'])}/s, {theirs['cpu'] / 1e3:.1f} us"
            compared = f"{ours['rate'] / theirs['rate']:.2f} of beanstalkd ({other})"
        return Line(self.name, what, measured, compared, self.aim if kind == "put" else "")


@contextmanager
def _running(command: tuple[str, ...], flags: tuple[str, ...]) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
        probe.close()
        flags = tuple(directory if flag == "DIR" else flag for flag in flags)
        process = subprocess.Popen(
            [*command, "-l", "127.0.0.1", "-p", str(port), *flags], cwd=ROOT, stderr=subprocess.DEVNULL
        )
        try:
            _await(port)
            yield process, port
        finally:
            process.kill()
            process.wait()


def _await(port: int) -> None:
    deadline = time.monotonic() + _START
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            time.sleep(0.05)
    raise BenchError("it does not listen")


def _load(pid: int, port: int, kind: str, connections: int, depth: int, seconds: float) -> Figures:
    command = [sys.executable, "-m", "bench.job_load", str(port), kind, str(connections), str(depth), str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as load:
        assert load.stdout is not None
        if load.stdout.readline() != "begin\n":
            raise BenchError("the load could not begin: there were too few jobs")
        before = _cpu(pid)
        jobs, took, p99 = load.stdout.readline().split()
        spent = _cpu(pid) - before
    return Figures(int(jobs) / float(took), spent / max(1, int(jobs)), float(p99))


def _cpu(pid: int) -> int:
    return cpu_time(Path(f"/proc/{pid}/stat").read_text())


def jobs(path: str) -> list[JobsRow]:
    """Return all rows. `path` is that of a beanstalkd, or ""."""
    return [
        JobsRow("jobs-50", path, "memory", 50, 1, ">= 0.4"),
        JobsRow("jobs-pipelined", path, "memory", 50, 20, ">= 0.6"),
        JobsRow("jobs-1", path, "memory", 1, 1),
        JobsRow("jobs-500", path, "memory", 500, 1),
        JobsRow("jobs-os-50", path, "-b -F", 50, 1, ">= 0.5"),
        JobsRow("jobs-sync-50", path, "-b -f0", 50, 1, ">= 4"),
    ]
