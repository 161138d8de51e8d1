"""The rows of the main table: each starts a server, has a load run against it once, and gives back what that took."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import Protocol

from bench.load import Load, Sample
from bench.server import ALL_IN_MEMORY, Program, Server
from bench.wire import BATCH

TOPIC, CHANNEL = "sub_bench", "ch"  # NSQ's load takes them as flags; cload knows no other topic
WARM_UP = 0.2  # s of the same load before the measured time
FILL_RATE = 1_600_000  # messages for each second of draining: more than any server delivers
UPGRADED_FILL_RATES = {"tls": 1_600_000, "snappy": 1_000_000, "deflate": 300_000}  # likewise, through each upgrade
_FILL_SECONDS = 600.0  # at the most
_COPIES = 15_000_000  # messages times channels: the original makes a copy for each channel, and they must fit
_LEAST_QUEUE = 1_000_000


@dataclass(frozen=True, slots=True)
class Effort:
    """How much of it."""

    seconds: float  # of measured time per run
    window: float  # s of measured time of the sizes
    scale: float  # of the sizes: 1 is what the issue asks for


class Row(Protocol):
    """What the driver needs of a row."""

    @property
    def name(self) -> str:
        """In the table, and for --only."""

    @property
    def aim(self) -> str:
        """What the issues want to see."""

    def measure(self, program: Program, effort: Effort) -> Sample:
        """One run. BenchError if it fails."""


@dataclass(frozen=True, slots=True)
class PublishRow:
    """Connections that publish and wait for the reply, to a topic with channels that nobody reads."""

    name: str
    shape: str  # see bench.publish
    connections: int
    depth: int = 1  # requests outstanding per connection
    channels: int = 1
    upgrade: str = ""  # see bench.upgrade
    aim: str = ""

    def measure(self, program: Program, effort: Effort) -> Sample:
        """See Row."""
        limit = 1 << 60
        if self.channels > 1:
            limit = _COPIES // self.channels // (BATCH if "mpub" in self.shape else 1)
        queue = max(_LEAST_QUEUE, ALL_IN_MEMORY // self.channels)
        with program.start(queue, tls=self.upgrade == "tls") as server:
            server.create(TOPIC, [CHANNEL, *(f"{CHANNEL}{i}" for i in range(1, self.channels))])
            with Load(
                "publish", server, shape=self.shape, topic=TOPIC, connections=self.connections, depth=self.depth,
                seconds=effort.seconds, warm_up=WARM_UP, limit=limit, varied=bool(self.upgrade), upgrade=self.upgrade,
            ) as load:  # fmt: skip
                return load.measure()


@dataclass(frozen=True, slots=True)
class DrainRow:
    """Consumers that receive and finish what was put into their channel before."""

    name: str
    connections: int
    rdy: int
    upgrade: str = ""  # see bench.upgrade
    fill_rate: int = FILL_RATE
    aim: str = ""

    def measure(self, program: Program, effort: Effort) -> Sample:
        """See Row."""
        with program.start(tls=self.upgrade == "tls") as server:
            messages = fill(server, effort.seconds * self.fill_rate, varied=bool(self.upgrade))
            with Load(
                "drain", server, topic=TOPIC, channel=CHANNEL, connections=self.connections, rdy=self.rdy,
                seconds=effort.seconds, messages=messages, upgrade=self.upgrade,
            ) as load:  # fmt: skip
                return load.measure()


def fill(server: Server, messages: float, varied: bool = False) -> int:
    """Put about so many messages into the channel, all alike or `varied`; return how many it is."""
    server.create(TOPIC, [CHANNEL])
    batches = max(1, int(messages / BATCH))
    with Load(
        "publish", server, shape="mpub", topic=TOPIC, connections=min(2, batches), depth=1,
        seconds=_FILL_SECONDS, warm_up=0.0, limit=batches, varied=varied,
    ) as load:  # fmt: skip
        return load.measure().outcome.messages


def rows() -> list[Row]:
    """All of them, in the order of the table."""
    return [
        PublishRow("writer", "mpub", 2, aim="CPU <= 700 ns"),
        DrainRow("reader", 2, 2500, aim="CPU <= 700 ns"),
        *chain.from_iterable(_upgraded(*each) for each in UPGRADED_FILL_RATES.items()),
        PublishRow("pub-1", "pub", 1),
        PublishRow("pub-50", "pub", 50, aim="CPU <= 14 us, >= 0.7x"),
        PublishRow("pub-500", "pub", 500, aim="CPU <= 14 us, >= 0.7x"),
        PublishRow("pub-pipelined", "pub", 4, depth=100),
        PublishRow("http-pub", "http-pub", 16, aim=">= 0.25x"),
        PublishRow("http-mpub", "http-mpub", 16, aim=">= 0.8 of writer"),
        PublishRow("http-mpub-big", "http-mpub-big", 16, aim=">= 0.8 of writer"),
        PublishRow("fanout-1", "mpub", 2, channels=1),
        PublishRow("fanout-10", "mpub", 2, channels=10, aim="CPU <= 2.5 of fanout-1"),
        PublishRow("fanout-100", "mpub", 2, channels=100, aim="B/msg as fanout-1"),
    ]


def _upgraded(upgrade: str, fill_rate: int) -> list[Row]:
    """Writer and reader through it. It is named first, so that `--only writer` means the plain one."""
    aim = "CPU <= 1.5x"
    return [
        PublishRow(f"{upgrade}-writer", "mpub", 2, upgrade=upgrade, aim=aim),
        DrainRow(f"{upgrade}-reader", 2, 2500, upgrade=upgrade, fill_rate=fill_rate, aim=aim),
    ]
