"""The sizes: the cost of many topics, channels, connections and waiting messages while little happens.

Each size is measured once per server, because it takes long and measures a window rather than a speed. The window should
be longer than a minute, so that heartbeats and the server's work of every minute fall into it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from bench.load import Load, Sample, raise_file_limit
from bench.rows import CHANNEL, TOPIC, Effort
from bench.server import BenchError, Program, Server
from bench.table import Line, duration, megabytes, number, share

_MEM_QUEUE = 1000  # messages: the original allocates that per topic and per channel, and there are 10,000 of each
_SPARE_FILES = 200  # open files needed in addition to the connections, in either process
_SETTLE = 2.0  # s for work after a creation (writing the metadata file) to end


class _Size:
    """The part that all sizes share: each program is measured once."""

    name: str

    def measure(self, program: Program, go: Program | None, effort: Effort) -> list[Line]:
        return [line for one in (program, go) if one is not None for line in self._lines(one, effort)]

    def _lines(self, program: Program, effort: Effort) -> list[Line]:
        raise NotImplementedError

    def _line(self, program: Program, what: str, measured: str, rss: int, before: int, aim: str) -> Line:
        memory = f"{megabytes(rss)} MB, {megabytes(rss - before)} MB more"
        return Line(self.name, f"{program.name}: {what}", measured, memory, aim)


@dataclass(frozen=True)
class FiringSize(_Size):
    """Many channels with deferred messages and messages in flight, and how late they fire (see bench.firing)."""

    name: str
    channels: int = 10_000
    delayed: int = 54  # with `requeued` over a million, of which some fire before the window begins
    requeued: int = 54
    held: int = 10
    spread: float = 3600.0  # s: delays are even up to --max-req-timeout's default; shorter ones fire more often
    timeouts: tuple[int, int] = (30_000, 90_000)  # ms; NSQ's default is 60 s

    def _lines(self, program: Program, effort: Effort) -> list[Line]:
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
        got = sample.outcome
        what = f"{channels} channels, {channels * self.held} in flight, {got.detail}"
        late = f"{duration(got.p50)} late (p50), p99 {duration(got.p99)}, longest {duration(got.worst)}"
        measured = f"{number(got.messages)} due, {got.missing} missing, {late}"
        aim = "<= 100 ms late, <= 20% of a core"
        return [self._line(program, what, f"{measured}; {_cores(sample)}", sample.rss, before, aim)]


@dataclass(frozen=True)
class TopicsSize(_Size):
    """Many idle topics, first without a channel and then with one each."""

    name: str
    topics: int = 10_000

    def _lines(self, program: Program, effort: Effort) -> list[Line]:
        topics = max(1, int(self.topics * effort.scale))
        with program.start(_MEM_QUEUE) as server:
            before = server.rss()
            server.create_all(f"/topic/create?topic=t{i}" for i in range(topics))
            seconds = effort.window / 2  # for each of the two
            alone = self._watch(server, seconds, before, f"{topics} topics")
            server.create_all(f"/channel/create?topic=t{i}&channel={CHANNEL}" for i in range(topics))
            return [alone, self._watch(server, seconds, before, f"{topics} topics with a channel each")]

    def _watch(self, server: Server, seconds: float, before: int, what: str) -> Line:
        time.sleep(_SETTLE)
        cpu, begin = server.cpu(), time.monotonic()
        time.sleep(seconds)
        spent = (server.cpu() - cpu) / (time.monotonic() - begin) / 1e9
        aim = "<= 250 MB, <= 3% of a core"
        return self._line(server.program, what, f"{share(spent)} of a core", server.rss(), before, aim)


@dataclass(frozen=True)
class ConnectionsSize(_Size):
    """Many subscribed consumers of one channel to which nothing is published; heartbeats come every 30 s."""

    name: str
    connections: int = 5_000

    def _lines(self, program: Program, effort: Effort) -> list[Line]:
        connections = max(1, int(self.connections * effort.scale))
        _need_files(connections)
        with program.start() as server:
            server.create(TOPIC, [CHANNEL])
            before = server.rss()
            plan = {"connections": connections, "seconds": effort.window}
            with Load("idle", server, topic=TOPIC, channel=CHANNEL, **plan) as load:
                sample = load.measure()
        what, aim = f"{connections} consumers, RDY 1", "<= 150 MB more, <= 5% of a core"
        return [self._line(program, what, _cores(sample), sample.rss, before, aim)]


def _cores(sample: Sample) -> str:
    """Return the shares of a core that the server and the load took."""
    ns = sample.outcome.seconds * 1e9
    return f"server {share(sample.server_cpu / ns)} of a core, load {share(sample.outcome.cpu / ns)}"


def _need_files(connections: int) -> None:
    limit = raise_file_limit()
    if limit < connections + _SPARE_FILES:
        raise BenchError(f"{connections} connections need more open files than {limit}, the hard limit here")


def sizes() -> list[_Size]:
    """Return all sizes, in the order of the table."""
    return [
        FiringSize("sizes-firing"),
        FiringSize("sizes-firing-10m", spread=600.0),
        TopicsSize("sizes-topics"),
        ConnectionsSize("sizes-connections"),
    ]
