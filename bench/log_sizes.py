"""The cost of the commit log, and its bounds: speed by mode, a channel far behind, restarts, disk.

A line has a value, the value that it is compared with, and the aim. Ratios are of medians over alternating runs.
"""

from __future__ import annotations

import re
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.background import in_background
from bench.durable import durable, modes
from bench.load import Load
from bench.read_back import ReadBack
from bench.rows import CHANNEL, TOPIC, Effort, LineRow, drain, fill, publish
from bench.server import BenchError, Program, Server
from bench.table import Line, megabytes, number

_RUNS = 3  # of each program, in turn
_LOOK = 0.05  # s between two samples of the disk or the memory
_MB = 1_000_000
_SEGMENT = 64 * 1024 * 1024  # bytes
_RESERVE = 128 * 1024 * 1024
_METRIC = re.compile(r"^(nsqd_log_\w+) (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ManyTopics:
    """Single publishes to a thousand topics in turn, compared with one topic; each publish waits for its sync."""

    name: str
    topics: int = 1000

    def measure(self, program: Program, go: Program | None, effort: Effort) -> list[Line]:
        always, _ = modes(program)
        topics = max(2, int(self.topics * effort.scale))
        one, many = [], []
        for _ in range(_RUNS if effort.scale == 1 else 1):
            one.append(self._rate(always, 1, effort))
            many.append(self._rate(always, topics, effort))
        ratio = f"{median(many) / median(one):.2f} of one topic ({number(median(one))}/s)"
        return [Line(self.name, f"{topics} topics, always", f"{number(median(many))}/s", ratio, ">= 0.7")]

    def _rate(self, program: Program, topics: int, effort: Effort) -> float:
        with program.start() as server:
            server.create_all(f"/topic/create?topic={TOPIC}{number or ''}" for number in range(topics))
            outcome = publish(server, effort.seconds, topics=topics).outcome
            return outcome.messages / outcome.seconds


@dataclass(frozen=True, slots=True)
class Behind:
    """A channel ten million messages behind: its memory, its restart after a kill, and the speed of its consumers."""

    name: str
    messages: int = 10_000_000

    def measure(self, program: Program, go: Program | None, effort: Effort) -> list[Line]:
        _, os_mode = modes(program)
        messages = max(20_000, int(self.messages * effort.scale))
        in_memory = self._in_memory(os_mode, messages // 10)
        with _directory() as data:
            with os_mode.start(data=data) as server:
                published = fill(server, messages)
                filled = server.rss()
            began = time.perf_counter()
            with os_mode.start(data=data) as server:
                started = time.perf_counter() - began
                fresh = server.rss()
                rate, rss = self._drain(server, published)
            half = self._half(os_mode, messages)
        what = f"{number(published)} behind"
        return [
            Line(self.name, f"{what}: resident, published", f"{megabytes(filled)} MB", "", "<= 300 MB"),
            Line(self.name, f"{what}: start after a kill", f"{started:.2f} s", "", "<= 5 s"),
            Line(self.name, f"{what}: resident, started", f"{megabytes(fresh)} MB", "", "<= 300 MB"),
            Line(self.name, f"{what}: resident, read", f"{megabytes(rss)} MB", "", "<= 300 MB"),
            Line(self.name, f"{what}: resident, every second one finished", f"{megabytes(half)} MB", "", "<= 300 MB"),
            Line(
                self.name, f"{what}: reader", f"{number(rate)}/s",
                f"{rate / in_memory:.2f} of in memory ({number(in_memory)}/s)", ">= 0.7",
            ),
        ]  # fmt: skip

    def _in_memory(self, program: Program, messages: int) -> float:
        with program.with_flags("all in memory", "-mem-budget", str(1 << 33)).start() as server:
            return self._drain(server, fill(server, messages))[0]

    @staticmethod
    def _half(program: Program, messages: int) -> int:
        """Return the most resident bytes, also after a start, when every second message is finished and the others deferred."""
        with _directory() as data:
            with program.start(data=data) as server:
                published = fill(server, messages)
                with Load(
                    "release", server, topic=TOPIC, channel=CHANNEL, seconds=600.0, delay=3_600_000, finish_half=True,
                    messages=published,
                ) as load:  # fmt: skip
                    load.measure()
                most = server.rss()
            with program.start(data=data) as server:
                server.get("/ping")
                return max(most, server.rss())

    @staticmethod
    def _drain(server: Server, messages: int) -> tuple[float, int]:
        """Read the whole channel; return messages/s and the most resident bytes."""
        most = server.rss()

        def watch(done: threading.Event) -> None:
            nonlocal most
            while not done.wait(_LOOK):
                most = max(most, server.rss())

        with in_background(watch):
            outcome = drain(server, 600.0, messages).outcome
        if outcome.missing:
            raise BenchError(f"{outcome.missing} of {messages} messages did not come")
        return outcome.messages / outcome.seconds, most


@dataclass(frozen=True, slots=True)
class Restart:
    """How soon a node serves: with a million live messages in ten channels, after a kill and after a stop, and when empty."""

    name: str
    messages: int = 1_000_000
    channels: int = 10

    def measure(self, program: Program, go: Program | None, effort: Effort) -> list[Line]:
        _, os_mode = modes(program)
        messages = max(2000, int(self.messages * effort.scale))
        with _directory() as data:
            empty = median([_start(os_mode, data) for _ in range(_RUNS)])
        with _directory() as data:
            with os_mode.start(data=data) as server:
                server.create(TOPIC, [f"{CHANNEL}{number}" for number in range(self.channels)])
                fill(server, messages // self.channels)
            killed = _start(os_mode, data)
            clean = median([_start(os_mode, data) for _ in range(_RUNS)])
        what = f"{number(messages)} live in {self.channels} channels"
        return [
            Line(self.name, f"{what}: after a kill", f"{killed:.2f} s", f"empty: {empty:.2f} s", "<= 3 s"),
            Line(self.name, f"{what}: after a stop", f"{clean:.2f} s", f"{clean - empty:+.2f} s", "<= +0.5 s"),
        ]


def _start(program: Program, data: Path) -> float:
    """Return the s from the command until the server serves; then stop the server."""
    began = time.perf_counter()
    server = program.start(data=data)
    with server:
        took = time.perf_counter() - began
        server.get("/ping")
        server.end(signal.SIGTERM)
    return took


@dataclass(frozen=True, slots=True)
class Space:
    """The disk under hard loads: some messages stay while millions pass, and others are requeued again and again."""

    name: str
    messages: int = 10_000_000
    released: int = 100_000
    seconds: float = 30.0

    def measure(self, program: Program, go: Program | None, effort: Effort) -> list[Line]:
        _, os_mode = modes(program)
        return [self._pinned(os_mode, effort), self._handed_back(os_mode, effort)]

    def _pinned(self, program: Program, effort: Effort) -> Line:
        rounds, each = 20, max(1000, int(self.messages * effort.scale) // 20)
        with _directory() as data, program.start(data=data) as server, _watched(data) as watch:
            server.create(TOPIC, [CHANNEL])
            for _ in range(rounds):
                server.post(f"/pub?topic={TOPIC}&defer=3600000", b"stays" * 40)
                Behind._drain(server, fill(server, each))
            return self._line(f"{number(rounds * each)} pass by {rounds} that stay", watch, server)

    def _handed_back(self, program: Program, effort: Effort) -> Line:
        messages = max(1000, int(self.released * effort.scale))
        with _directory() as data, program.start(data=data) as server, _watched(data) as watch:
            published = fill(server, messages)
            with Load(
                "release", server, topic=TOPIC, channel=CHANNEL, seconds=self.seconds * min(1.0, effort.scale * 4)
            ) as load:
                released = load.measure().outcome.messages
            return self._line(f"{number(published)} handed back {number(released)} times", watch, server)

    def _line(self, what: str, watch: _Watch, server: Server) -> Line:
        live = float(dict(_METRIC.findall(server.get("/metrics").decode()))["nsqd_log_live_bytes"])
        allowed = 2 * live + 2 * _SEGMENT + _RESERVE
        return Line(
            self.name, what, f"{megabytes(watch.most)} MB on disk at most", f"{megabytes(live)} MB live",
            f"<= {megabytes(allowed)} MB and two checkpoints",
        )  # fmt: skip


@dataclass(slots=True)
class _Watch:
    most: int = 0  # bytes


@contextmanager
def _watched(data: Path) -> Iterator[_Watch]:
    """Note the most disk space that the files in the directory take while the block runs."""
    watch = _Watch()

    def look(done: threading.Event) -> None:
        while not done.wait(_LOOK):
            watch.most = max(watch.most, _size(data))

    with in_background(look):
        yield watch


def _size(data: Path) -> int:
    total = 0
    for path in data.rglob("*"):
        try:
            total += path.stat().st_blocks * 512
        except FileNotFoundError:
            continue
    return total


@contextmanager
def _directory() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def log_sizes() -> Sequence[LineRow]:
    """Return all rows of the log."""
    return [
        *durable(),
        ManyTopics("log-topics"),
        Behind("log-behind"),
        Restart("log-restart"),
        Space("log-space"),
        ReadBack("log-read"),
    ]  # fmt: skip
