"""The walk of one message: which files a PUB and a FIN pass, and how often a call crosses the border of a file.

    python -m tests.walk           the figures
    python -m tests.walk --trace   every call as well, indented by depth

A whole node runs in memory (tests/simulation). One turn of its reactor is traced by sys.setprofile: the turn that receives
`PUB` and delivers the message to a waiting consumer (RDY 1) in the mode `always`, its sync in the turn; then the turn that
receives its `FIN`. A call crosses a border when the function that calls is in another file than the one that is called.
Only files of the product count; the simulated disk, network and clock do not. The turns stand so close that no pass of the
queue scan falls into them: that comes with time, not with a message.
"""

from __future__ import annotations

import struct
import sys
from dataclasses import dataclass, field
from random import Random
from types import FrameType
from typing import Any

from nsqd.core.limits import Limits
from shared.topic_config import Durability
from tests.daemons import ROOT
from tests.nsqd.storage.sim_disk import SimDisk
from tests.nsqd.storage.sim_node import Clock
from tests.simulation.node import WholeNode

PRODUCT = tuple(f"{ROOT / name}/" for name in ("nsqd", "shared", "penstock"))
BODY = b"x" * 200
STEP = 3_000_000  # ns: longer than anything is on its way in the network, much shorter than a pass of the scan is off


class Steady(Random):
    """Chooses what costs least: syncs happen in the turn, the network delivers at once and in one piece."""

    def random(self) -> float:
        return 0.2

    def randrange(self, *bounds: Any) -> int:
        return int(bounds[0] - 1 if len(bounds) == 1 else bounds[1] - 1)

    def choice(self, seq: Any) -> Any:
        return seq[-1]

    def shuffle(self, x: Any) -> None:
        pass


@dataclass
class Walk:
    """The calls of one turn, counted."""

    calls: int = 0
    crossings: int = 0  # calls from one file of the product into another
    files: set[str] = field(default_factory=set)
    trace: list[str] = field(default_factory=list)  # one line a call, indented by depth

    def __str__(self) -> str:
        return f"{self.calls} calls in {len(self.files)} files, {self.crossings} of them into another file"


class Tracer:
    """Notes every call of the product's functions while it is active."""

    def __init__(self) -> None:
        self.walk = Walk()
        self._files: list[str] = []  # of the calls in progress; "" for what is not the product's

    def __enter__(self) -> Walk:
        sys.setprofile(self._note)
        return self.walk

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            self._enter(frame)
        elif event == "return" and self._files:
            self._files.pop()

    def _enter(self, frame: FrameType) -> None:
        name = frame.f_code.co_filename
        file = name.removeprefix(f"{ROOT}/") if name.startswith(PRODUCT) else ""
        walk = self.walk
        if file:
            walk.calls += 1
            walk.files.add(file)
            caller = next((one for one in reversed(self._files) if one), "")
            crosses = bool(caller) and caller != file
            walk.crossings += crosses
            mark = ">" if crosses else " "
            walk.trace.append(f"{'  ' * len(self._files)}{mark} {file}:{frame.f_code.co_qualname}")
        self._files.append(file)


def walks() -> tuple[Walk, Walk]:
    """The walk of a PUB with its delivery, and of a FIN."""
    clock, random = Clock(10**12, 10**18), Steady()
    node = WholeNode(SimDisk(random), Durability.ALWAYS, clock, random, Limits(), 1 << 20, 1 << 30, 1 << 30, 1 << 40)
    reactor, network = node.reactor, node.network
    assert reactor is not None
    consumer, producer = network.dial(), network.dial()
    publish = b"PUB t\n" + struct.pack(">I", len(BODY)) + BODY
    consumer.send(b"  V2SUB t c\nRDY 1\n")
    producer.send(b"  V2" + publish)
    received = b""
    for _ in range(20):  # until nothing is new: the topic, the channel, the segment
        received += _settle(node, clock, consumer)
    consumer.send(b"FIN " + received[-16 - len(BODY) : -len(BODY)] + b"\n")
    _settle(node, clock, consumer)
    for _ in range(2):  # the first time a pass of the scan is due
        producer.send(publish)
        published, received = _trace(node, clock, consumer)
        assert received.endswith(BODY), "the message was not delivered in the turn"
        consumer.send(b"FIN " + received[-16 - len(BODY) : -len(BODY)] + b"\n")
        finished, _ = _trace(node, clock, consumer)
    assert node.broker.topics["t"].channels["c"].in_flight_count == 0
    return published, finished


def _settle(node: WholeNode, clock: Clock, consumer: Any) -> bytes:
    """A turn, and what the consumer has got after it."""
    clock.advance(10_000_000)
    node.network.move()
    assert node.reactor is not None
    node.reactor.turn(node.reactor._epoll.poll(0, 512))
    return _read(node, clock, consumer)


def _read(node: WholeNode, clock: Clock, consumer: Any) -> bytes:
    clock.advance(STEP)
    node.network.move()
    try:
        return bytes(consumer.recv(1 << 20))
    except BlockingIOError:
        return b""


def _trace(node: WholeNode, clock: Clock, consumer: Any) -> tuple[Walk, bytes]:
    """The next turn, and what the consumer has got after it."""
    clock.advance(STEP)
    node.network.move()
    assert node.reactor is not None
    events = node.reactor._epoll.poll(0, 512)
    with Tracer() as walk:
        node.reactor.turn(events)
    return walk, _read(node, clock, consumer)


def main() -> None:
    for name, walk in zip(("PUB", "FIN"), walks(), strict=True):
        print(f"{name}: {walk}")
        if "--trace" in sys.argv[1:]:
            print("\n".join(walk.trace))


if __name__ == "__main__":
    main()
