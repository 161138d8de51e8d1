"""The rows of the main table: each starts a server, runs a load against it once, and returns the sample."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import Protocol

from bench.load import Load, Sample, Target
from bench.server import ALL_IN_MEMORY, Program, Server
from bench.table import Line
from bench.wire import BATCH

TOPIC, CHANNEL = "sub_bench", "ch"  # of most rows
WARM_UP = 0.2  # s of the same load before the measured time
FILL_RATE = 1_600_000  # messages per second of draining: more than any server delivers
UPGRADED_FILL_RATES = {"tls": 1_600_000, "snappy": 1_000_000, "deflate": 300_000}  # the same, through each upgrade
_FILL_SECONDS = 600.0  # at most
_COPIES = 15_000_000  # messages times channels: the original makes a copy for each channel, and all must fit in memory
_LEAST_QUEUE = 1_000_000


@dataclass(frozen=True, slots=True)
class Effort:
    """How long and how large to measure."""

    seconds: float  # measured time of a run
    window: float  # s of measured time of a size
    scale: float  # of the sizes; 1: the size that the issue asks for


class Row(Protocol):
    """A row, as the driver uses it."""

    @property
    def name(self) -> str:
        """Return the name in the table and for --only."""

    @property
    def aim(self) -> str:
        """Return the goal, for the table."""

    def measure(self, program: Program, effort: Effort) -> Sample:
        """Make one run. Raises BenchError if it fails."""


class LineRow(Protocol):
    """A row with lines of text, as the driver uses it."""

    @property
    def name(self) -> str:
        """Return the name in the table and for --only."""

    def measure(self, program: Program, go: Program | None, effort: Effort) -> list[Line]:
        """Measure Penstock's nsqd, and the Go nsqd where the row compares them. Raises BenchError if it fails."""


@dataclass(frozen=True, slots=True)
class PublishRow:
    """Connections that publish and wait for the reply, to a topic whose channels have no consumers."""

    name: str
    shape: str  # see bench.publish
    connections: int
    depth: int = 1  # requests outstanding per connection
    channels: int = 1
    upgrade: str = ""  # see bench.upgrade
    aim: str = ""

    def measure(self, program: Program, effort: Effort) -> Sample:
        limit = 1 << 60
        if self.channels > 1:
            limit = _COPIES // self.channels // (BATCH if "mpub" in self.shape else 1)
        queue = max(_LEAST_QUEUE, ALL_IN_MEMORY // self.channels)
        plan = {"depth": self.depth, "limit": limit, "varied": bool(self.upgrade), "upgrade": self.upgrade}
        with program.start(queue, tls=self.upgrade == "tls") as server:
            server.create(TOPIC, [CHANNEL, *(f"{CHANNEL}{i}" for i in range(1, self.channels))])
            return publish(server, effort.seconds, self.shape, self.connections, **plan)


@dataclass(frozen=True, slots=True)
class DrainRow:
    """Consumers that receive and finish messages that were put into their channel before."""

    name: str
    connections: int
    rdy: int
    upgrade: str = ""  # see bench.upgrade
    fill_rate: int = FILL_RATE
    aim: str = ""

    def measure(self, program: Program, effort: Effort) -> Sample:
        with program.start(tls=self.upgrade == "tls") as server:
            messages = fill(server, effort.seconds * self.fill_rate, varied=bool(self.upgrade))
            return drain(server, effort.seconds, messages, self.connections, self.rdy, self.upgrade)


def publish(server: Target, seconds: float, shape: str = "pub", connections: int = 50, **plan: object) -> Sample:
    """Run a load of publishers once, on TOPIC unless `plan` says otherwise. `plan`: more fields of bench.publish.Publish."""
    full = {"topic": TOPIC, "depth": 1, "warm_up": WARM_UP} | plan
    with Load("publish", server, shape=shape, connections=connections, seconds=seconds, **full) as load:
        return load.measure()


def drain(
    server: Target, seconds: float, messages: int, connections: int = 2, rdy: int = 2500, upgrade: str = ""
) -> Sample:
    """Run a load of consumers of the channel once, until they have `messages` or the time is over."""
    plan = {"connections": connections, "rdy": rdy, "upgrade": upgrade, "seconds": seconds, "messages": messages}
    with Load("drain", server, topic=TOPIC, channel=CHANNEL, **plan) as load:
        return load.measure()


def fill(server: Server, messages: float, varied: bool = False) -> int:
    """Put about `messages` messages into the channel, all alike or `varied`; return their number."""
    server.create(TOPIC, [CHANNEL])
    batches = max(1, int(messages / BATCH))
    sample = publish(server, _FILL_SECONDS, "mpub", min(2, batches), warm_up=0.0, limit=batches, varied=varied)
    return sample.outcome.messages


def rows() -> list[Row]:
    """Return all rows, in the order of the table."""
    return [
        PublishRow("writer", "mpub", 2, aim="CPU <= 700 ns"),
        DrainRow("reader", 2, 2500, aim="CPU <= 700 ns"),
        *chain.from_iterable(_upgraded(*each) for each in UPGRADED_FILL_RATES.items()),
        PublishRow("pub-1", "pub", 1),
        PublishRow("pub-50", "pub", 50, aim="CPU <= 14 us, >= 0.7x"),
        PublishRow("pub-500", "pub", 500, aim="CPU <= 14 us, >= 0.7x"),
        PublishRow("pub-pipelined", "pub", 4, depth=100),
        PublishRow("http-pub", "http-pub", 16, aim=">= 0.6x"),
        PublishRow("http-mpub", "http-mpub", 16, aim=">= 0.8 of writer"),
        PublishRow("http-mpub-big", "http-mpub-big", 16, aim=">= 0.8 of writer"),
        PublishRow("fanout-1", "mpub", 2, channels=1),
        PublishRow("fanout-10", "mpub", 2, channels=10, aim="CPU <= 2.5 of fanout-1"),
        PublishRow("fanout-100", "mpub", 2, channels=100, aim="B/msg as fanout-1"),
    ]


def _upgraded(upgrade: str, fill_rate: int) -> list[Row]:
    """Return writer and reader through the upgrade.

    The upgrade comes first in the name, so that `--only writer` selects the plain row.
    """
    aim = "CPU <= 1.5x"
    return [
        PublishRow(f"{upgrade}-writer", "mpub", 2, upgrade=upgrade, aim=aim),
        DrainRow(f"{upgrade}-reader", 2, 2500, upgrade=upgrade, fill_rate=fill_rate, aim=aim),
    ]
