"""The pipeline's rows: topics read by Spark on two cores, compared with nsq_to_file on the original and a channel.

nsq_to_file is looked for in the directory of the original. The cost of an archive that follows is given for each shape of
publishing: reading costs the same for each message, and publishing one in a batch of two hundred costs less than that.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from deltalake import DeltaTable

from bench.rows import CHANNEL, TOPIC, Effort, fill, publish
from bench.server import ROOT, BenchError, Program, Server, cpu_time
from bench.table import Line, number

_RUNS = 3
_START = 120.0  # s that Spark may take to start
_FOLLOWED = 15.0  # least s of publishing while an archive follows
_BATCH = 2.0  # s between the archive's micro-batches
_IDLE = 20.0  # s during which an idle query is watched
_POLL = 0.05  # s between two requests to the server


def retaining(program: Program) -> Program:
    return program.with_flags("penstock", "-durability", "os", "-retention", "1h")


class Spark:
    """A process of bench.spark_load, with which one session does all jobs of a row."""

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
        command = [sys.executable, "-m", "bench.spark_load", str(self._directory)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT,
            start_new_session=True,
        )  # fmt: skip

    def __enter__(self) -> Spark:
        self._line()
        return self

    def __exit__(self, *error: object) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()
        shutil.rmtree(self._directory, ignore_errors=True)

    def do(self, what: str, **given: object) -> tuple[int, float]:
        """Do a job, and return its rows and its seconds."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": what, **given}) + "\n")
        self._process.stdin.flush()
        result: dict[str, Any] = json.loads(self._line())
        return int(result["rows"]), float(result["seconds"])

    def rate(self, what: str, **given: object) -> float:
        """Do a job, and return its rows per second."""
        rows, seconds = self.do(what, **given)
        return rows / seconds

    def cpu(self) -> int:
        """Return the CPU time of the process, its JVM and their children, in ns."""
        return sum(cpu_time(stat.read_text()) for stat in _stats_of(self._process.pid))

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise BenchError(f"Spark ended early, exit code {self._process.wait()}")
        return line


def _stats_of(session: int) -> Iterator[Path]:
    for directory in Path("/proc").iterdir():
        stat = directory / "stat"
        try:
            fields = stat.read_text().rpartition(")")[2].split() if directory.name.isdigit() else []
        except OSError:
            continue
        if fields and int(fields[3]) == session:
            yield stat


@dataclass(frozen=True, slots=True)
class Read:
    """A topic of ten million messages, read by Spark without a target and to Parquet."""

    name: str
    messages: int = 10_000_000

    def measure(self, program: Program, go: Program | None, effort: Effort) -> list[Line]:
        messages = max(20_000, int(self.messages * effort.scale))
        found: dict[str, list[float]] = {"noop": [], "parquet": []}
        costs: list[float] = []
        with retaining(program).start() as server, Spark() as spark:
            published = durable(server, fill(server, messages))
            asked = {"nsqd": http_address(server), "topic": TOPIC, "rows": published}
            for _ in range(_RUNS if effort.scale == 1 else 1):
                for what, rates in found.items():
                    cpu = server.cpu()
                    rates.append(spark.rate(what, **asked))
                    costs.append((server.cpu() - cpu) / published)
        channel = self._channel(program, messages // 10)
        lines = [("noop", "to nowhere", ">= 400k"), ("parquet", "to Parquet", ">= 250k")]
        beside = {"channel mode": channel}
        tool = Path(go.command[0]).with_name("nsq_to_file") if go else None
        if go is not None and tool is not None and tool.exists():
            beside["nsq_to_file, Go"] = self._to_file(go, tool, messages // 10)
        what = f"{number(published)} messages"
        compared = {
            name: ", ".join(f"{median(rates) / rate:.1f}x {other} ({number(rate)}/s)" for other, rate in beside.items())
            for name, rates in found.items()
        }
        return [
            *(Line(self.name, f"{what} {text}", f"{number(median(found[name]))} rows/s", compared[name], aim)
              for name, text, aim in lines),
            Line(self.name, "nsqd's CPU for a row", f"{median(costs):.0f} ns"),
        ]  # fmt: skip

    @staticmethod
    def _channel(program: Program, messages: int) -> float:
        with program.start() as server, Spark() as spark:
            published = fill(server, messages)
            rows, seconds = spark.do("channel", nsqd=http_address(server), topic=TOPIC, channel=CHANNEL)
            if rows != published:
                raise BenchError(f"channel mode gave {rows} of {published} rows")
            return rows / seconds

    @staticmethod
    def _to_file(go: Program, tool: Path, messages: int) -> float:
        """Return the messages/s of nsq_to_file until the channel is empty.

        The tool finishes messages after it has synced them, the last ones some time later.
        """
        directory = tempfile.mkdtemp(prefix="penstock-bench-")
        try:
            with go.start() as server:
                published = fill(server, messages)
                source = f"-nsqd-tcp-address={server.host}:{server.ports['TCP']}"
                flags = (source, f"-topic={TOPIC}", f"-channel={CHANNEL}", f"-output-dir={directory}")
                began = time.perf_counter()
                process = subprocess.Popen([tool, *flags, "-max-in-flight=2500"], stderr=subprocess.DEVNULL)
                try:
                    while _waiting(server):
                        time.sleep(_POLL)
                    return published / (time.perf_counter() - began)
                finally:
                    process.kill()
                    process.wait()
        finally:
            shutil.rmtree(directory, ignore_errors=True)


def durable(server: Server, messages: int) -> int:
    """Wait until all messages are durable, since only durable ones can be read back."""
    while True:
        if json.loads(server.get(f"/topic/offsets?topic={TOPIC}"))["next"] >= messages:
            return messages
        time.sleep(_POLL)


def _waiting(server: Server) -> int:
    topic = json.loads(server.get(f"/stats?format=json&topic={TOPIC}"))["topics"][0]
    return sum(int(one["depth"]) for one in topic["channels"])


@dataclass(frozen=True, slots=True)
class Follow:
    """nsqd's CPU time per published message while `penstock archive` follows, compared with the time without it."""

    name: str
    shapes: tuple[tuple[str, int], ...] = (("pub", 50), ("mpub", 2))

    def measure(self, program: Program, go: Program | None, effort: Effort) -> list[Line]:
        seconds = max(_FOLLOWED, effort.seconds) if effort.scale == 1 else _FOLLOWED / 3
        return [
            self._line(shape, connections, program, seconds, _RUNS if effort.scale == 1 else 1)
            for shape, connections in self.shapes
        ]

    def _line(self, shape: str, connections: int, program: Program, seconds: float, runs: int) -> Line:
        alone, followed, shares = [], [], []
        for _ in range(runs):
            alone.append(self._cost(shape, connections, program, seconds, None)[0])
            with tempfile.TemporaryDirectory(prefix="penstock-bench-") as lake:
                cost, share = self._cost(shape, connections, program, seconds, Path(lake))
            followed.append(cost)
            shares.append(share)
        what = f"{shape.upper()} {connections}: nsqd's CPU a message, archived as it comes"
        compared = f"{median(followed) / median(alone) - 1:+.0%} of {median(alone):.0f} ns"
        compared += f"; {median(shares):.0%} of them archived meanwhile"
        return Line(self.name, what, f"{median(followed):.0f} ns", compared, "<= +15 %")

    @staticmethod
    def _cost(shape: str, connections: int, program: Program, seconds: float, lake: Path | None) -> tuple[float, float]:
        """Return the server's ns per message, and the number of messages archived per published message."""
        with retaining(program).start() as server:
            server.create(TOPIC)
            with _archive(server, lake):
                before = _archived(lake)
                sample = publish(server, seconds, shape, connections)
                archived = _archived(lake) - before
            messages = sample.outcome.messages
            return sample.server_cpu / messages, archived / messages


def _archived(lake: Path | None) -> int:
    """Return the number of messages in the lake; None: 0."""
    return DeltaTable(lake / "messages").count() if lake else 0


@contextmanager
def _archive(server: Server, lake: Path | None) -> Iterator[None]:
    """Run an archive while the context lasts, which begins when its table is there; None: run nothing."""
    if lake is None:
        yield
        return
    job = ("archive", "--nsqd", http_address(server), "--topic", TOPIC, "--lake", str(lake), "--every", str(_BATCH))
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock.launch", "penstock", *job],
        cwd=ROOT,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + _START
        while not DeltaTable.is_deltatable(str(lake / "messages")):
            if process.poll() is not None or time.monotonic() > deadline:
                raise BenchError("the archive did not begin")
            time.sleep(_POLL)
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@dataclass(frozen=True, slots=True)
class Sink:
    """Rows of 200 B that Spark publishes from Parquet to a topic."""

    name: str
    messages: int = 1_000_000

    def measure(self, program: Program, go: Program | None, effort: Effort) -> list[Line]:
        messages = max(20_000, int(self.messages * effort.scale))
        rates, costs = [], []
        with retaining(program).start() as server, Spark() as spark:
            spark.do("bodies", rows=messages)
            for run in range(1 + _RUNS if effort.scale == 1 else 1):
                cpu = server.cpu()
                rate = spark.rate("sink", nsqd=http_address(server), topic=f"{TOPIC}{run}")
                if run or effort.scale < 1:  # the first run has a cold JVM
                    rates.append(rate)
                    costs.append((server.cpu() - cpu) / messages)
        measured = f"{number(median(rates))} rows/s"
        return [Line(self.name, f"{number(messages)} rows", measured, f"nsqd: {median(costs):.0f} ns a row", ">= 150k")]


@dataclass(frozen=True, slots=True)
class Idle:
    """A query that waits for messages: the requests that it sends, and what they cost nsqd and the query."""

    name: str

    def measure(self, program: Program, go: Program | None, effort: Effort) -> list[Line]:
        seconds = _IDLE if effort.scale == 1 else _IDLE / 5
        with retaining(program).start() as server, Spark() as spark, _Relay(server) as relay:
            server.create(TOPIC)
            spark.do("idle", nsqd=f"{server.host}:{relay.port}", topic=TOPIC)
            time.sleep(seconds / 2)  # the query has started by now
            requests, spark_cpu, nsqd_cpu, began = relay.requests, spark.cpu(), server.cpu(), time.monotonic()
            time.sleep(seconds)
            ns = (time.monotonic() - began) * 1e9
            asked = (relay.requests - requests) / ns * 1e9
            nsqd, query = (server.cpu() - nsqd_cpu) / ns, (spark.cpu() - spark_cpu) / ns
        return [
            Line(self.name, "requests", f"{asked:.1f}/s", "", "<= 2/s"),
            Line(self.name, "nsqd", f"{nsqd:.1%} of a core", "", "<= 3 %"),
            Line(self.name, "the query: Python and JVM", f"{query:.1%} of a core", "", "<= 3 %"),
        ]


class _Relay:
    """A proxy for nsqd's HTTP that counts requests, which come one at a time on a connection."""

    def __init__(self, server: Server) -> None:
        self.requests = 0
        self._to = (server.host, server.ports["HTTP"])
        self._listening = socket.create_server((server.host, 0))
        self.port = int(self._listening.getsockname()[1])

    def __enter__(self) -> _Relay:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            far = socket.create_connection(self._to)
            for source, sink, counts in ((near, far, True), (far, near, False)):
                threading.Thread(target=self._pass_on, args=(source, sink, counts), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket, counts: bool) -> None:
        try:
            while data := source.recv(65536):
                if counts and data.startswith((b"GET ", b"POST ")):
                    self.requests += 1
                sink.sendall(data)
        except OSError:
            pass
        finally:
            sink.close()


def http_address(server: Server) -> str:
    return f"{server.host}:{server.ports['HTTP']}"


def pipeline() -> list[Read | Follow | Sink | Idle]:
    """Return all rows of the pipeline."""
    return [Read("spark-read"), Follow("spark-follow"), Sink("spark-sink"), Idle("spark-idle")]
