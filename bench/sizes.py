"""The sizes: many topics, channels, connections and waiting messages, and what they cost while little happens.

Each size is measured once per server, because it takes long and measures a window rather than a speed. The window should
be longer than a minute, so that heartbeats and the server's work of each minute fall into it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol

from bench.load import Load, Sample, raise_file_limit
from bench.rows import CHANNEL, TOPIC, Effort
from bench.server import BenchError, Program, Server
from bench.table import duration, megabytes, number, share

HEADER = ("row", "server", "due", "missing", "p50 late", "p99 late", "most late", "server", "load", "RSS MB",
          "more MB", "aim", "note")  # fmt: skip
_MEM_QUEUE = 1000  # messages: the original allocates that per topic and per channel, and there are 10,000 of each
_SPARE_FILES = 200  # open files needed beside the connections, in either process
_SETTLE = 2.0  # s for work after a creation (writing the metadata file) to end


@dataclass(frozen=True, slots=True)
class SizeLine:
    """One line of the table of sizes."""

    row: str
    server: str
    server_share: float  # of a core
    load_share: float
    rss: int  # bytes
    more: int | None  # bytes of RSS added since the server was empty
    aim: str
    sample: Sample | None = None  # its lateness; None: nothing fires in this size
    note: str = ""

    def cells(self) -> list[str]:
        """Return the cells of this line for bench.table.table."""
        outcome = self.sample.outcome if self.sample else None
        late = [duration(time) for time in (outcome.p50, outcome.p99, outcome.worst)] if outcome else ["-"] * 3
        counts = [number(outcome.messages), str(outcome.missing)] if outcome else ["-", "-"]
        return [
            self.row, self.server, *counts, *late, share(self.server_share), share(self.load_share),
            megabytes(self.rss), megabytes(self.more), self.aim, self.note,
        ]  # fmt: skip


class Size(Protocol):
    """A size, as the driver uses it."""

    @property
    def name(self) -> str:
        """Return the name in the table and for --only."""

    def measure(self, program: Program, effort: Effort) -> list[SizeLine]:
        """Measure the size and return its lines. Raises BenchError if it fails."""


@dataclass(frozen=True, slots=True)
class FiringSize:
    """Many channels with deferred messages and messages in flight, and how late they fire (see bench.firing)."""

    name: str
    channels: int = 10_000
    delayed: int = 54  # with `requeued` over a million, of which some fire before the window begins
    requeued: int = 54
    held: int = 10
    spread: float = 3600.0  # s: delays are even up to --max-req-timeout's default; shorter ones fire more often
    timeouts: tuple[int, int] = (30_000, 90_000)  # ms; NSQ's default is 60 s

    def measure(self, program: Program, effort: Effort) -> list[SizeLine]:
        channels = max(1, int(self.channels * effort.scale))
        _need_files(channels)
        low, high = (int(timeout * min(1.0, effort.window / 30)) for timeout in self.timeouts)
        with program.start(_MEM_QUEUE) as server:
            before = server.rss()
            with Load(
                "firing", server, channels=channels, delayed=self.delayed, requeued=self.requeued, held=self.held,
                spread=self.spread, timeout_min=max(1000, low), timeout_max=max(2000, high), seconds=effort.window,
            ) as load:  # fmt: skip
                sample = load.measure()
        aim = "<= 100 ms late, <= 20% of a core"
        note = f"{channels} channels, {channels * self.held} in flight, {sample.outcome.detail}"
        return [_line(self.name, program, sample, before, aim, note, timed=True)]


@dataclass(frozen=True, slots=True)
class TopicsSize:
    """Many idle topics, first without a channel and then with one each."""

    name: str
    topics: int = 10_000

    def measure(self, program: Program, effort: Effort) -> list[SizeLine]:
        topics = max(1, int(self.topics * effort.scale))
        with program.start(_MEM_QUEUE) as server:
            before = server.rss()
            server.create_all(f"/topic/create?topic=t{i}" for i in range(topics))
            seconds = effort.window / 2  # for each of the two
            alone = self._watch(server, seconds, before, f"{topics} topics")
            server.create_all(f"/channel/create?topic=t{i}&channel={CHANNEL}" for i in range(topics))
            return [alone, self._watch(server, seconds, before, f"{topics} topics with a channel each")]

    def _watch(self, server: Server, seconds: float, before: int, note: str) -> SizeLine:
        time.sleep(_SETTLE)
        cpu, begin = server.cpu(), time.monotonic()
        time.sleep(seconds)
        spent = (server.cpu() - cpu) / (time.monotonic() - begin) / 1e9
        rss = server.rss()
        aim = "<= 250 MB, <= 3% of a core"
        return SizeLine(self.name, server.program.name, spent, 0.0, rss, rss - before, aim, note=note)


@dataclass(frozen=True, slots=True)
class ConnectionsSize:
    """Many subscribed consumers of one channel to which nothing is published; heartbeats come every 30 s."""

    name: str
    connections: int = 5_000

    def measure(self, program: Program, effort: Effort) -> list[SizeLine]:
        connections = max(1, int(self.connections * effort.scale))
        _need_files(connections)
        with program.start() as server:
            server.create(TOPIC, [CHANNEL])
            before = server.rss()
            with Load(
                "idle", server, topic=TOPIC, channel=CHANNEL, connections=connections, seconds=effort.window
            ) as load:
                sample = load.measure()
        aim = "<= 150 MB more, <= 5% of a core"
        return [_line(self.name, program, sample, before, aim, f"{connections} consumers, RDY 1", timed=False)]


def _line(name: str, program: Program, sample: Sample, before: int, aim: str, note: str, *, timed: bool) -> SizeLine:
    ns = sample.outcome.seconds * 1e9
    return SizeLine(
        name, program.name, sample.server_cpu / ns, sample.outcome.cpu / ns, sample.rss, sample.rss - before, aim,
        sample if timed else None, note,
    )  # fmt: skip


def _need_files(connections: int) -> None:
    limit = raise_file_limit()
    if limit < connections + _SPARE_FILES:
        raise BenchError(f"{connections} connections need more open files than {limit}, the hard limit here")


def sizes() -> list[Size]:
    """Return all sizes, in the order of the table."""
    return [
        FiringSize("sizes-firing"),
        FiringSize("sizes-firing-10m", spread=600.0),
        TopicsSize("sizes-topics"),
        ConnectionsSize("sizes-connections"),
    ]
