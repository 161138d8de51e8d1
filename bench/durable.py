"""Publishing in the durability modes `always` and `os`, beside the original and beside the disk's floor.

The programs and the floor take turns, so that ratios are of one hour of the machine. The floor of a row writes and syncs
as many bytes as the log does for one request; a server's group has more, if several requests share a sync.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from bench.floor import Floor, measure_floor
from bench.load import Load
from bench.log_line import Line
from bench.rows import CHANNEL, TOPIC, WARM_UP, Effort
from bench.server import ALL_IN_MEMORY, Program
from bench.table import number
from bench.wire import BATCH, BODY

_RUNS = 5  # of each program, in turn
_FRAMING = 97  # bytes of records and frame around one message that is published by itself
_FRAME = 34  # bytes of frame around each message of a batch
_FLOOR_SECONDS = 1.0
_GO_QUEUES = {"Go in memory": ALL_IN_MEMORY, "Go default": 10_000, "Go on disk": 0}  # its -mem-queue-size


def modes(ours: Program) -> tuple[Program, Program]:
    """Return the program in the durability modes always and os."""
    return ours.with_flags("always", "-durability", "always"), ours.with_flags("os", "-durability", "os")


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one run of one program."""

    rate: float  # messages a second
    cpu: float  # ns of the server's CPU time for each message
    p50: float  # ns from a request to its reply
    p99: float


@dataclass(frozen=True, slots=True)
class Speed:
    """Publishing in both modes, beside the original with each of its queue sizes in _GO_QUEUES."""

    name: str
    shape: str
    connections: int
    # (mode, which Go or mode) -> the least ratio of speeds
    aims: dict[tuple[str, str], float] = field(default_factory=dict)
    aim: str = ""  # for the mode `always`, beside the ratios

    def measure(self, ours: Program, go: Program | None, effort: Effort) -> list[Line]:
        gos = [(go.with_flags(what), queue) for what, queue in _GO_QUEUES.items()] if go else []
        programs = [*((mode, 0) for mode in modes(ours)), *gos]
        runs: dict[str, list[Figures]] = {program.name: [] for program, _ in programs}
        floors = list[Floor]()
        for _ in range(_RUNS if effort.scale == 1 else 1):
            for program, queue in programs:
                runs[program.name].append(self._run(program, queue, effort))
            with tempfile.TemporaryDirectory() as directory:
                floors.append(measure_floor(Path(directory), self._size(), _FLOOR_SECONDS * effort.scale))
        found = {name: _median(figures) for name, figures in runs.items()}
        return [*self._lines(found), self._floor_line(found["always"], floors)]

    def _size(self) -> int:
        """Return the bytes that the log gets for one request."""
        return BATCH * (_FRAME + len(BODY)) if self.shape == "mpub" else len(BODY) + _FRAMING

    def _run(self, program: Program, queue: int, effort: Effort) -> Figures:
        with program.start(queue) as server:
            server.create(TOPIC, [CHANNEL])
            with Load(
                "publish", server, shape=self.shape, topic=TOPIC, connections=self.connections, depth=1,
                seconds=effort.seconds, warm_up=WARM_UP,
            ) as load:  # fmt: skip
                sample = load.measure()
        outcome = sample.outcome
        cpu = sample.server_cpu / max(1, outcome.messages)
        return Figures(outcome.messages / outcome.seconds, cpu, outcome.p50 or 0, outcome.p99 or 0)

    def _lines(self, found: dict[str, Figures]) -> Iterator[Line]:
        for name, figures in found.items():
            others = [other for other in ("os", *_GO_QUEUES) if other in found and other != name]
            compared = [f"{figures.rate / found[other].rate:.2f}x {other}" for other in others]
            aims = [f">= {times}x {other}" for (mode, other), times in self.aims.items() if mode == name]
            if self.aim and name == "always":
                aims.append(self.aim)
            measured = f"{number(figures.rate)}/s, CPU {figures.cpu / 1e3:.1f} us, {_times(figures.p50, figures.p99)}"
            yield Line(self.name, name, measured, "" if name in _GO_QUEUES else ", ".join(compared), ", ".join(aims))

    def _floor_line(self, always: Figures, floors: list[Floor]) -> Line:
        p50, p99, cpu = (median(getattr(floor, name) for floor in floors) for name in ("p50", "p99", "cpu"))
        measured = f"CPU {cpu / 1e3:.1f} us, {_times(p50, p99)}"
        compared = f"always: p50 {(always.p50 - p50) / 1e3:+.0f} us"
        aim = "p50 <= +90 us" if self.connections == 1 else ""
        return Line(self.name, f"floor: write and sync {self._size()} B", measured, compared, aim)


def _median(runs: list[Figures]) -> Figures:
    return Figures(*(median(getattr(run, name) for run in runs) for name in ("rate", "cpu", "p50", "p99")))


def _times(p50: float, p99: float) -> str:
    return f"p50 {p50 / 1e3:.0f} us, p99 {p99 / 1e6:.2f} ms"


def durable() -> list[Speed]:
    """Return the rows that compare the durability modes."""
    return [
        Speed(
            "log-writer", "mpub", 2,
            {
                ("always", "Go in memory"): 0.7, ("always", "Go default"): 1.6, ("always", "Go on disk"): 1.5,
                ("os", "Go in memory"): 0.75, ("os", "Go default"): 2.4,
            },
            "CPU <= 1.4 of os",
        ),
        Speed("log-pub-1", "pub", 1, {("os", "Go in memory"): 0.9}),
        Speed(
            "log-pub-50", "pub", 50, {("always", "os"): 0.85, ("always", "Go default"): 0.9, ("os", "Go default"): 0.7},
            "CPU <= 14 us, p99 <= 2.5 ms",
        ),
        Speed("log-pub-500", "pub", 500, {("always", "Go default"): 0.8}),
    ]  # fmt: skip
