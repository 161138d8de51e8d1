"""Publishing in the durability modes `always` and `os`, compared with the original and with the disk's floor.

The programs and the floor take turns, so that ratios are of one hour of the machine. The floor of a row writes and syncs
as many bytes as the log does for one request; a server's group has more, if several requests share a sync.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bench.rows import CHANNEL, TOPIC, Effort, publish
from bench.server import ALL_IN_MEMORY, Program
from bench.stats import medians
from bench.table import Line, number
from bench.wire import BATCH, BODY

_RUNS = 5  # of each program, in turn
_FRAMING = 97  # bytes of records and frame around one message that is published by itself
_FRAME = 34  # bytes of frame around each message of a batch
_FLOOR_SECONDS = 1.0
_FLOOR_FILE = 48 * 1024 * 1024  # bytes
_CHUNK = 16 * 1024  # bytes written at a time: Linux keeps what one call writes in one piece, and syncs whole pieces
_GO_QUEUES = {"Go in memory": ALL_IN_MEMORY, "Go default": 10_000, "Go on disk": 0}  # its -mem-queue-size


def modes(program: Program) -> tuple[Program, Program]:
    """Return the program in the durability modes always and os."""
    return program.with_flags("always", "-durability", "always"), program.with_flags("os", "-durability", "os")


@dataclass(frozen=True, slots=True)
class ModeStats:
    """The results of one run of one program."""

    rate: float  # messages a second
    cpu: float  # ns of the server's CPU time for each message
    p50: float  # ns from a request to its reply
    p99: float


@dataclass(frozen=True, slots=True)
class Speed:
    """Publishing in both modes, compared with the original with each of its queue sizes in _GO_QUEUES."""

    name: str
    shape: str
    connections: int
    # (mode, which Go or mode) -> the least ratio of speeds
    aims: dict[tuple[str, str], float] = field(default_factory=dict)
    aim: str = ""  # for the mode `always`, in addition to the ratios

    def measure(self, program: Program, go: Program | None, effort: Effort) -> list[Line]:
        gos = [(go.with_flags(what), queue) for what, queue in _GO_QUEUES.items()] if go else []
        programs = [*((mode, 0) for mode in modes(program)), *gos]
        runs: dict[str, list[ModeStats]] = {program.name: [] for program, _ in programs}
        floors = list[Floor]()
        for _ in range(_RUNS if effort.scale == 1 else 1):
            for program, queue in programs:
                runs[program.name].append(self._run(program, queue, effort))
            with tempfile.TemporaryDirectory() as directory:
                floors.append(measure_floor(Path(directory), self._size(), _FLOOR_SECONDS * effort.scale))
        found = {name: medians(stats) for name, stats in runs.items()}
        return [*self._lines(found), self._floor_line(found["always"], floors)]

    def _size(self) -> int:
        """Return the bytes that the log gets for one request."""
        return BATCH * (_FRAME + len(BODY)) if self.shape == "mpub" else len(BODY) + _FRAMING

    def _run(self, program: Program, queue: int, effort: Effort) -> ModeStats:
        with program.start(queue) as server:
            server.create(TOPIC, [CHANNEL])
            sample = publish(server, effort.seconds, self.shape, self.connections)
        outcome = sample.outcome
        cpu = sample.server_cpu / max(1, outcome.messages)
        return ModeStats(outcome.messages / outcome.seconds, cpu, outcome.p50 or 0, outcome.p99 or 0)

    def _lines(self, found: dict[str, ModeStats]) -> Iterator[Line]:
        for name, stats in found.items():
            others = [other for other in ("os", *_GO_QUEUES) if other in found and other != name]
            compared = [f"{stats.rate / found[other].rate:.2f}x {other}" for other in others]
            aims = [f">= {times}x {other}" for (mode, other), times in self.aims.items() if mode == name]
            if self.aim and name == "always":
                aims.append(self.aim)
            measured = f"{number(stats.rate)}/s, CPU {stats.cpu / 1e3:.1f} us, {_times(stats.p50, stats.p99)}"
            yield Line(self.name, name, measured, "" if name in _GO_QUEUES else ", ".join(compared), ", ".join(aims))

    def _floor_line(self, always: ModeStats, floors: list[Floor]) -> Line:
        floor = medians(floors)
        measured = f"CPU {floor.cpu / 1e3:.1f} us, {_times(floor.p50, floor.p99)}"
        compared = f"always: p50 {(always.p50 - floor.p50) / 1e3:+.0f} us"
        aim = "p50 <= +90 us" if self.connections == 1 else ""
        return Line(self.name, f"floor: write and sync {self._size()} B", measured, compared, aim)


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


@dataclass(frozen=True, slots=True)
class Floor:
    """Times of one write and sync, in ns."""

    p50: int
    p99: int
    cpu: int


def measure_floor(directory: Path, size: int, seconds: float) -> Floor:
    """Write and sync `size` bytes again and again for `seconds`, in a file whose blocks were written before.

    This is a `pwrite` and an `fdatasync`, by one thread that does nothing else. Raises OSError.
    """
    fd = os.open(directory / "floor", os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        for at in range(0, _FLOOR_FILE, _CHUNK):
            os.pwrite(fd, bytes(_CHUNK), at)
        os.fsync(fd)
        return _measure_floor(fd, os.urandom(size), seconds)
    finally:
        os.close(fd)
        os.unlink(directory / "floor")


def _measure_floor(fd: int, data: bytes, seconds: float) -> Floor:
    times, at = list[int](), 0
    spent, until = time.process_time_ns(), time.perf_counter() + seconds
    while not times or time.perf_counter() < until:
        began = time.perf_counter_ns()
        os.pwrite(fd, data, at)
        os.fdatasync(fd)
        times.append(time.perf_counter_ns() - began)
        at += len(data)
        if at + len(data) > _FLOOR_FILE:
            at = 0
    spent = time.process_time_ns() - spent
    times.sort()
    last = len(times) - 1
    return Floor(times[last // 2], times[last * 99 // 100], spent // len(times))
