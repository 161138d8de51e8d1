"""The original beside ours: a Go nsqd as the server, and NSQ's bench_writer and bench_reader (and our cload.c) as the load."""

from __future__ import annotations

import re
import resource
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

from bench.load import Sample
from bench.outcome import Outcome
from bench.rows import CHANNEL, FILL_RATE, TOPIC, WARM_UP, DrainRow, Effort, PublishRow, Row, fill
from bench.server import BenchError, Program, Server

_RESULT = re.compile(r"duration: (\S+) - \S+mb/s - ([\d.]+)ops/s")
_CLOAD_RESULT = re.compile(r": (\d+) pub/s ")
_DURATION = re.compile(r"(?:(\d+)m)?([\d.]+)(ms|s)")
_SPARE = 30.0  # s that a tool may run beyond its time


def nsqd(path: str) -> Program:
    """Return the Go nsqd at this path."""
    return Program("Go nsqd", (str(Path(path).resolve()),), original=True)


def parse_result(text: str) -> tuple[int, float]:
    """Return the messages and seconds that bench_writer or bench_reader printed. Raises BenchError without a result."""
    match = _RESULT.search(text)
    time = _DURATION.fullmatch(match[1]) if match else None
    if match is None or time is None:
        raise BenchError(f"NSQ's load printed no result: {text!r}")
    seconds = int(time[1] or 0) * 60 + float(time[2]) / (1000 if time[3] == "ms" else 1)
    return round(float(match[2]) * seconds), seconds


def parse_cload(text: str, seconds: float) -> tuple[int, float]:
    """Return the messages and seconds that cload printed. Raises BenchError without a result."""
    match = _CLOAD_RESULT.search(text)
    if match is None:
        raise BenchError(f"cload printed no result: {text!r}")
    return round(int(match[1]) * seconds), seconds


def with_tools(rows: list[Row], directory: str) -> list[Row]:
    """Return the rows, with NSQ's load in those for which the directory has a tool.

    Raises BenchError if the directory has none of the tools.
    """
    tools = {tool.name: tool.resolve() for tool in Path(directory).iterdir()}
    replaced = [_with_tool(row, tools) for row in rows]
    if not tools.keys() & {"bench_writer", "bench_reader", "cload"}:
        raise BenchError(f"{directory} holds neither bench_writer nor bench_reader nor cload")
    return replaced


def _with_tool(row: Row, tools: dict[str, Path]) -> Row:
    if row.name == "writer" and "bench_writer" in tools:
        return WriterRow(row.name, tools["bench_writer"], aim=f"{row.aim}, >= 0.9x")
    if isinstance(row, DrainRow) and not row.upgrade and "bench_reader" in tools:
        return ReaderRow(row.name, tools["bench_reader"], row.rdy, aim=f"{row.aim}, >= 1.2x")
    if isinstance(row, PublishRow) and row.shape == "pub" and "cload" in tools:
        return CloadRow(row, tools["cload"])
    return row


@dataclass(frozen=True, slots=True)
class WriterRow:
    """bench_writer as the load: MPUBs of 200 messages of 200 B on GOMAXPROCS connections."""

    name: str
    tool: Path
    aim: str

    def measure(self, program: Program, effort: Effort) -> Sample:
        flags = ("-topic", TOPIC, "-size", "200", "-batch-size", "200")
        with program.start() as server:
            server.create(TOPIC, [CHANNEL])
            _nsq_tool(server, self.tool, WARM_UP, *flags)
            return _nsq_tool(server, self.tool, effort.seconds, *flags)


@dataclass(frozen=True, slots=True)
class ReaderRow:
    """bench_reader as the load, on GOMAXPROCS connections."""

    name: str
    tool: Path
    rdy: int
    aim: str

    def measure(self, program: Program, effort: Effort) -> Sample:
        flags = ("-topic", TOPIC, "-channel", CHANNEL, "-size", "200", "-rdy", str(self.rdy))
        with program.start() as server:
            messages = fill(server, effort.seconds * FILL_RATE)
            sample = _nsq_tool(server, self.tool, effort.seconds, *flags)
            if sample.outcome.messages >= messages:
                raise BenchError(f"bench_reader drained all of {messages} messages before its time was up")
            return sample


@dataclass(frozen=True, slots=True)
class CloadRow:
    """cload.c as the load of a row with single PUBs."""

    row: PublishRow
    tool: Path

    @property
    def name(self) -> str:
        return self.row.name

    @property
    def aim(self) -> str:
        return self.row.aim

    def measure(self, program: Program, effort: Effort) -> Sample:
        with program.start() as server:
            server.create(TOPIC, [CHANNEL])
            self._run(server, WARM_UP)
            text, sample = self._run(server, effort.seconds)
            messages, seconds = parse_cload(text, effort.seconds)
            return replace(sample, outcome=replace(sample.outcome, messages=messages, seconds=seconds))

    def _run(self, server: Server, seconds: float) -> tuple[str, Sample]:
        arguments = (server.ports["TCP"], self.row.connections, self.row.depth, seconds)
        return _run(server, seconds, str(self.tool), *map(str, arguments))


def _nsq_tool(server: Server, tool: Path, seconds: float, *flags: str) -> Sample:
    address = f"{server.host}:{server.ports['TCP']}"
    command = (str(tool), "-nsqd-tcp-address", address, "-runfor", f"{round(seconds * 1000)}ms", *flags)
    text, sample = _run(server, seconds, *command)
    messages, measured = parse_result(text)
    return replace(sample, outcome=replace(sample.outcome, messages=messages, seconds=measured))


def _run(server: Server, seconds: float, *command: str) -> tuple[str, Sample]:
    """Run a tool to its end; return what it printed, and a sample of what it cost.

    The caller fills in messages and seconds.
    """
    rss, cpu, own = server.rss(), server.cpu(), _children_cpu()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + _SPARE)
    except subprocess.TimeoutExpired as late:
        raise BenchError(f"{command[0]} did not end") from late
    sample = Sample(Outcome(0, seconds, cpu=_children_cpu() - own), server.cpu() - cpu, rss, server.rss())
    if done.returncode:
        raise BenchError(f"{command[0]} failed, exit code {done.returncode}: {done.stderr}")
    return done.stdout + done.stderr, sample


def _children_cpu() -> int:
    """Return the ns of CPU time of ended children; the server still runs, so a difference is the tool's."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return int((usage.ru_utime + usage.ru_stime) * 1e9)
