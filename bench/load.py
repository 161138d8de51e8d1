"""The load: a separate process, so that its cost is not added to the server's and can be shown next to it.

    python -m bench.load KIND PLAN      KIND: a key of `kinds` in `main`; PLAN: JSON, the fields of that class

The process prepares (connects, warms up), prints `ready`, waits for a line, runs, prints its Outcome as JSON and waits
for the end of its standard input. `Load` is the other end of that conversation.
"""

from __future__ import annotations

import gc
import json
import resource
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Protocol

from bench.outcome import Outcome
from bench.server import ROOT, BenchError


@dataclass(frozen=True, slots=True)
class Sample:
    """A measured run: the load's outcome, and what the server spent on it."""

    outcome: Outcome
    server_cpu: int  # ns of CPU time in the measured time
    rss_before: int  # bytes, before the measured time
    rss: int  # bytes, at the end


class Runnable(Protocol):
    """A kind of load, as its process runs it."""

    def prepare(self) -> None:
        """Connect and warm up, before the measured time."""

    def run(self) -> Outcome:
        """Run the measured part and return the outcome."""


class Target(Protocol):
    """The interface of the server, or of several servers at one address, for a load."""

    @property
    def host(self) -> str:
        """Return the address to connect to."""

    @property
    def ports(self) -> dict[str, int]:
        """Return the ports, by the name of their protocol."""

    def cpu(self) -> int:
        """Return the CPU time used so far in ns."""

    def rss(self) -> int:
        """Return the resident memory in bytes."""


class Load:
    """The driver's end of a load process. Entering the context waits until the load is prepared; leaving it kills the load."""

    def __init__(self, kind: str, server: Target, **plan: object) -> None:
        self._server = server
        full = {"host": server.host, "ports": server.ports, **plan}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.load", kind, json.dumps(full)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
        )  # fmt: skip

    def __enter__(self) -> Load:
        try:
            self._line()
        except BenchError:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.kill()
        self._process.communicate()

    def measure(self) -> Sample:
        """Run the load, and read the server's CPU time right before and after."""
        assert self._process.stdin is not None
        rss, cpu = self._server.rss(), self._server.cpu()
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        line = self._line()
        spent = self._server.cpu() - cpu
        return Sample(Outcome(**json.loads(line)), spent, rss, self._server.rss())

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise BenchError(f"the load ended early, exit code {self._process.wait()}")
        return line


def raise_file_limit() -> int:
    """Raise the limit of open files to the hard limit, and return that. Children inherit it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def main() -> None:
    """Run a load as a process; see the head of this file."""
    from bench.consume import Drain, Release
    from bench.crowd import Idle
    from bench.firing import Firing
    from bench.publish import Publish

    kinds = {"publish": Publish, "drain": Drain, "idle": Idle, "firing": Firing, "release": Release}
    gc.disable()  # safe, since no cycles are made in the measured time
    load: Runnable = kinds[sys.argv[1]](**json.loads(sys.argv[2]))
    load.prepare()
    print("ready", flush=True)
    sys.stdin.readline()
    cpu = time.process_time_ns()
    outcome = asdict(load.run())
    print(json.dumps({**outcome, "cpu": time.process_time_ns() - cpu}), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
