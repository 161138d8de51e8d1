"""A server of jobs under measurement, Penstock's or the original, and one run of the load of bench/job_load.py on it.

It is killed at the end, never stopped.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.ports import lease_port
from bench.server import ROOT, BenchError, cpu_clock, resident

HOST = "127.0.0.1"
_START = 10.0  # s to wait until the server listens


@dataclass(frozen=True, slots=True)
class Served:
    """The original server and Penstock's, and their flags, in which PORT and DIR are replaced."""

    name: str  # of the original
    program: str  # Penstock's, by its name in penstock.launch
    language: str  # a key of bench.job_load.LANGUAGES
    flags: tuple[str, ...]
    modes: dict[str, tuple[str, ...]]  # further flags
    put: str  # the commands of the load's `put`, for the table
    work: str

    def commands(self, path: str) -> dict[str, tuple[str, ...]]:
        """Return the commands of Penstock's server and, if `path` names it, of the original."""
        penstock = (sys.executable, "-m", "penstock.launch", self.program)
        return {"penstock": penstock} | ({"original": (path,)} if path else {})


_DISQUE_FLAGS = ("--bind", HOST, "--port", "PORT", "--dir", "DIR", "--loglevel", "warning", "--maxmemory", "8gb")
BEANSTALKD = Served(
    "beanstalkd", "beanstalkd", "beanstalkd", ("-l", HOST, "-p", "PORT"),
    {"memory": (), "-b -F": ("-b", "DIR", "-F"), "-b -f0": ("-b", "DIR", "-f0")},
    "put", "reserve + delete",
)  # fmt: skip
DISQUE = Served(
    "disque-server", "disque-server", "disque", _DISQUE_FLAGS,
    {"memory": ("--appendonly", "no"),
     "appendfsync no": ("--appendonly", "yes", "--appendfsync", "no"),
     "appendfsync always": ("--appendonly", "yes", "--appendfsync", "always")},
    "ADDJOB", "GETJOB + ACKJOB",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Running:
    """A server that runs and listens."""

    process: subprocess.Popen[bytes]
    port: int

    def cpu(self) -> int:
        """Return the CPU time used so far in ns."""
        return time.clock_gettime_ns(cpu_clock(self.process.pid))

    def rss(self) -> int:
        """Return the resident memory in bytes."""
        return resident(Path(f"/proc/{self.process.pid}/status").read_text())


@dataclass(frozen=True, slots=True)
class JobStats:
    """The results of one run of a load, or the medians of several."""

    rate: float  # jobs a second
    cpu: float  # ns of the server's CPU time for each job
    p99: float  # ns from a command to its answer

    @property
    def busy(self) -> float:
        """Return the server's CPU time as a share of one core."""
        return self.rate * self.cpu / 1e9


@contextmanager
def running(command: tuple[str, ...], flags: tuple[str, ...]) -> Iterator[Running]:
    """Run a server with a directory of its own. Raises BenchError if it does not listen."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        port = lease_port(HOST)
        values = {"PORT": str(port), "DIR": directory}
        process = subprocess.Popen(
            [*command, *(values.get(flag, flag) for flag in flags)],
            cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            _await(port)
            yield Running(process, port)
        finally:
            process.kill()
            process.wait()


def _await(port: int) -> None:
    deadline = time.monotonic() + _START
    while time.monotonic() < deadline:
        try:
            socket.create_connection((HOST, port)).close()
            return
        except OSError:
            time.sleep(0.05)
    raise BenchError("it does not listen")


def load(
    cpu: Callable[[], int], port: int, language: str, kind: str, connections: int, depth: int, seconds: float
) -> JobStats:
    """Run the load once. `cpu`: returns the CPU time of the server. Raises BenchError."""
    command = [sys.executable, "-m", "bench.job_load", language, str(port), kind, str(connections), str(depth)]
    with subprocess.Popen([*command, str(seconds)], stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        if process.stdout.readline() != "begin\n":
            raise BenchError("the load could not begin: there were too few jobs, or commands were refused")
        before = cpu()
        line = process.stdout.readline()
        spent = cpu() - before
    if not line:
        raise BenchError("the load failed")
    jobs, took, p99 = line.split()
    return JobStats(int(jobs) / float(took), spent / max(1, int(jobs)), float(p99))
