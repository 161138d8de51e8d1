"""Jobs: added, and fetched and finished, compared with the server of the original project in the same run.

The rows jobs- compare with Debian's beanstalkd (`--beanstalkd PATH`); bench/queues.py has those of Disque.
"""

from __future__ import annotations

from dataclasses import dataclass

from bench.job_server import BEANSTALKD, JobStats, Served, load, running
from bench.rows import Effort
from bench.server import Program
from bench.stats import medians
from bench.table import Line, number, share

_AIMS = "", "by CPU >= 0.77", "by CPU >= 0.63"
RUNS = 3  # of each program, in turn
_KINDS = ("cycle", "put", "work")  # the loads of bench/job_load.py; the first one on an empty queue


@dataclass(frozen=True, slots=True)
class JobsRow:
    """A row of the load of jobs."""

    name: str
    served: Served
    path: str  # the original to compare with; "": none
    mode: str  # a key of served.modes
    connections: int
    depth: int
    aims: tuple[str, str, str] = ("", "", "")  # of cycle, of put, of work

    def measure(self, program: Program, go: Program | None, effort: Effort) -> list[Line]:
        """Run all kinds of load on both servers, RUNS times in turn, and return a line for each kind. Raises BenchError."""
        served = self.served
        found: dict[tuple[str, str], list[JobStats]] = {}
        for _ in range(RUNS if effort.scale == 1 else 1):
            for who, command in served.commands(self.path).items():
                with running(command, (*served.flags, *served.modes[self.mode])) as server:
                    for kind in _KINDS:
                        depth = self.depth if kind == "put" else 1
                        given = server.cpu, server.port, served.language, kind, self.connections, depth
                        found.setdefault((kind, who), []).append(load(*given, effort.seconds))
        return [self._line(kind, aim, found) for kind, aim in zip(_KINDS, self.aims, strict=True)]

    def _line(self, kind: str, aim: str, found: dict[tuple[str, str], list[JobStats]]) -> Line:
        commands = {
            "put": self.served.put,
            "work": self.served.work,
            "cycle": f"{self.served.put} + {self.served.work}",
        }
        what = f"{self.mode}: {commands[kind]}, {self.connections} connections"
        what += f", {self.depth} deep" if kind == "put" and self.depth > 1 else ""
        stats = medians(found[kind, "penstock"])
        compared = versus(stats, medians(found[kind, "original"]), self.served.name) if self.path else ""
        return Line(self.name, what, described(stats), compared, aim)


def described(got: JobStats) -> str:
    """Format the results of one server for the table."""
    return f"{number(got.rate)}/s, CPU {got.cpu / 1e3:.1f} us ({share(got.busy)}), p99 {got.p99 / 1e6:.2f} ms"


def versus(stats: JobStats, original: JobStats, name: str) -> str:
    """Compare rates, and the jobs per second of CPU time: both are better if they are higher."""
    return (
        f"rate {stats.rate / original.rate:.2f}, jobs per CPU {original.cpu / max(1.0, stats.cpu):.2f} of {name}"
        f" ({number(original.rate)}/s, {original.cpu / 1e3:.1f} us ({share(original.busy)}))"
    )


def jobs(path: str) -> list[JobsRow]:
    """Return all rows that compare with beanstalkd. `path` is that of a beanstalkd, or ""."""
    return [
        JobsRow("jobs-50", BEANSTALKD, path, "memory", 50, 1, _AIMS),
        JobsRow("jobs-pipelined", BEANSTALKD, path, "memory", 50, 20, ("", ">= 0.6", "")),
        JobsRow("jobs-1", BEANSTALKD, path, "memory", 1, 1),
        JobsRow("jobs-500", BEANSTALKD, path, "memory", 500, 1),
        JobsRow("jobs-os-50", BEANSTALKD, path, "-b -F", 50, 1, ("", ">= 0.5", "")),
        JobsRow("jobs-sync-50", BEANSTALKD, path, "-b -f0", 50, 1, ("", ">= 4", "")),
    ]
