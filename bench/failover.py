"""The time of a failover, and the cost of consuming from promoted logs.

Three nodes on loopback are a cluster. One of them is killed while its log has many unfinished messages; a consumer waits at
each of the others. The load, the nodes and this program share the machine's cores.
"""

from __future__ import annotations

import json
import select
import shutil
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from bench.copies import cluster
from bench.rows import CHANNEL, TOPIC, Effort, drain, fill
from bench.server import BenchError, Program, Server, with_port
from bench.table import Line, number
from bench.turns import Turns
from bench.wire import FRAME, connect, expect_ok, identify, read_exactly

_UNFINISHED = 1_000_000  # messages
_LARGE = 40_000_000  # finished messages, which are kept: 10 GB
_POLL = 0.005  # s
_WAIT = 60.0  # s
_CATCH_UP = 600.0  # s, for followers to get all that was published
_RUNS = 5  # of each number of logs, in turn
_LOGS = (0, 1, 3, 10)  # promoted ones
_AIMS = {0: "", 1: "CPU <= 1.05", 3: "CPU <= 1.1", 10: "CPU <= 1.2"}
_TO_CONSUME = 1_000_000  # messages, over all logs


@dataclass(frozen=True, slots=True)
class Seen:
    """The measurements of a failover."""

    seconds: float  # from the suspicion to the first delivery
    more: int  # bytes of memory that the new leader took
    longest: str  # turn of the new leader

    def __str__(self) -> str:
        return (
            f"first delivery {self.seconds:.2f} s after the suspicion, {self.more / 1e6:.0f} MB more, "
            f"longest turn {self.longest}"
        )


@dataclass(frozen=True, slots=True)
class Failover:
    """A node is killed that has many unfinished messages."""

    name: str = "failover"
    aim: str = "first delivery <= 2 s after the suspicion, <= 300 MB, no turn > 10 ms"

    def measure(self, program: Program, go: Program | None, effort: Effort) -> list[Line]:
        program = program.with_flags(program.name, "-durability", "os", "-failover-quorum", "majority")
        with cluster(program, 3, 2) as nodes:
            messages = fill(nodes[0], max(1000, int(_UNFINISHED * effort.scale)))
            seen = _kill_leader(nodes, 2)
        what = f"os: the leader of {number(messages)} unfinished messages of 200 B is killed"
        return [Line(self.name, what, str(seen), aim=self.aim)]


@dataclass(frozen=True, slots=True)
class FailoverLarge:
    """A node is killed whose log has many finished messages, which are kept; its log is also started alone."""

    name: str = "failover-large"
    aim: str = "no more than its replay"

    def measure(self, program: Program, go: Program | None, effort: Effort) -> list[Line]:
        kept = program.with_flags(
            program.name, "-durability", "os", "-retention", "24h", "-retention-bytes", str(1 << 40)
        )
        with cluster(kept.with_flags(program.name, "-failover-quorum", "majority"), 3, 1) as nodes:
            fill(nodes[0], max(1000, int(_LARGE * effort.scale)))
            nodes[0].post(f"/channel/empty?topic={TOPIC}&channel={CHANNEL}", b"")
            messages = fill(nodes[0], max(1000, int(_UNFINISHED * effort.scale)))
            seen = _kill_leader(nodes, 1)
            size = sum(each.stat().st_size for each in (nodes[0].data / "log").iterdir())
            began = time.monotonic()
            with kept.start(data=nodes[0].data):
                alone = time.monotonic() - began
        what = f"os: the leader of {size / 1e9:.1f} GB, {number(messages)} messages of it unfinished, is killed"
        started = f"a process that starts with this log listens after {alone:.2f} s"
        return [Line(self.name, what, str(seen), started, self.aim)]


def _kill_leader(nodes: list[Server], followers: int) -> Seen:
    """Kill the first node when its followers have all of its log, and wait for a message of it. Raises BenchError."""
    leader, others = nodes[0], nodes[1:]
    _until(lambda: _has_copies(leader, followers), "the followers lag behind", _CATCH_UP)
    consumers = [_consumer(node) for node in others]
    turns = [Turns(node) for node in others]
    before = [node.rss() for node in others]
    leader.end(signal.SIGKILL)

    def is_suspected() -> bool:
        return any(each["suspected"] for node in others for each in _cluster(node)["nodes"])

    _until(is_suspected, "no node suspects the leader")
    suspected = time.monotonic()
    readable, _, _ = select.select(consumers, [], [], _WAIT)
    took = time.monotonic() - suspected
    if not readable:
        raise BenchError(f"failover: no node delivers the unfinished messages of the lost node within {_WAIT:.0f} s")
    place = consumers.index(readable[0])
    read_exactly(consumers[place], FRAME)
    more, longest = others[place].rss() - before[place], turns[place].longest()
    for consumer in consumers:
        consumer.close()
    return Seen(took, more, longest)


@dataclass(frozen=True, slots=True)
class Shards:
    """Consumers of a channel that has messages in several promoted logs, which is drained _RUNS times for each of _LOGS."""

    name: str = "shards"

    def measure(self, program: Program, go: Program | None, effort: Effort) -> list[Line]:
        program = program.with_flags(program.name, "-durability", "os")
        messages = max(2000, int(_TO_CONSUME * effort.scale))
        found: dict[int, list[float]] = {count: [] for count in _LOGS}
        for _ in range(_RUNS if effort.scale == 1 else 1):
            for count in _LOGS:
                found[count].append(self._run(program, count, messages))
        alone = median(found[0])
        return [
            Line(
                self.name,
                f"os: {number(messages)} messages, {f'in {count} promoted logs' if count else 'in the own log'}",
                f"CPU {median(runs) / 1e3:.2f} us a message",
                f"CPU {median(runs) / alone:.2f} of the own log" if count else "",
                _AIMS[count],
            )
            for count, runs in found.items()
        ]

    def _run(self, program: Program, count: int, messages: int) -> float:
        with TemporaryDirectory(prefix="penstock-bench-") as place:
            data = Path(place, "node")
            data.mkdir()
            for leader in range(max(1, count)):
                self._publish(program, Path(place), leader + 1 if count else 0, messages // max(1, count))
                if count:
                    _promoted(Path(place, str(leader + 1)), data)
                else:
                    data.rmdir()
                    Path(place, "0").rename(data)
            secret = Path(place, "secret")
            secret.write_text("a secret for the bench\n")
            flags = "-node-id=0", f"-cluster-secret-file={secret}"
            node = with_port(program, "CLUSTER")
            with node.with_flags(program.name, *flags).start(data=data) as server:
                _until(lambda: len(_serving(server)) == count + 1, "the promoted logs are not served")
                sample = drain(server, _WAIT, messages // max(1, count) * max(1, count))
        return sample.server_cpu / max(1, sample.outcome.messages)

    def _publish(self, program: Program, place: Path, leader: int, messages: int) -> None:
        """Make the data directory of a node with `messages` unfinished messages."""
        data = place / str(leader)
        data.mkdir()
        with program.with_flags(program.name, f"-node-id={leader}").start(data=data) as server:
            fill(server, messages)
            server.end(signal.SIGTERM)


def _promoted(source: Path, data: Path) -> None:
    """Let a node have promoted the log of another one, whose data directory is `source`."""
    log_id = (source / "log" / "log.id").read_bytes()[12:28].hex()
    target = data / "promoted" / log_id
    target.mkdir(parents=True)
    shutil.move(source / "log", target / "log")


def _cluster(node: Server) -> dict[str, Any]:
    """Return the response of a node to /cluster; while it starts, it is empty."""
    found: dict[str, Any] = json.loads(node.get("/cluster"))
    return {"nodes": [], "led": [], "followers": []} | found


def _has_copies(node: Server, followers: int) -> bool:
    """Return whether `followers` followers are in sync and have all of the node's log."""
    found = [each for each in _cluster(node)["followers"] if each["state"] == "in sync"]
    return len(found) >= followers and all(each["behind"] == 0 for each in found)


def _serving(node: Server) -> list[Any]:
    return [each for each in _cluster(node)["led"] if each["state"] == "serving"]


def _consumer(node: Server) -> socket.socket:
    """Subscribe to the channel, and be ready for one message."""
    sock = connect(node.host, node.ports["TCP"])
    identify(sock, heartbeat_interval=60_000)
    sock.sendall(f"SUB {TOPIC} {CHANNEL}\n".encode())
    expect_ok(sock)
    sock.sendall(b"RDY 1\n")
    return sock


def _until(done: Callable[[], bool], why: str, seconds: float = _WAIT) -> None:
    """Wait until `done` returns True, for `seconds` at most. Raises BenchError."""
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            raise BenchError(f"failover: {why}")
        time.sleep(_POLL)


def failovers() -> list[Failover | FailoverLarge | Shards]:
    """Return the rows of `make bench` about failovers."""
    return [Failover(), FailoverLarge(), Shards()]
