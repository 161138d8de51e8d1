"""The walk of one command: which files a PUB, a FIN and the commands of jobs pass, and how often a call crosses a border.

    python -m tests.walk           the figures
    python -m tests.walk --trace   every call as well, indented by depth

A whole node runs in memory (tests/simulation). One turn of its reactor is traced by sys.setprofile: the turn that receives
`PUB` and delivers the message to a waiting consumer (RDY 1) in the mode `always`, its sync in the turn; then the turn that
receives its `FIN`. The commands of jobs are those of one client, each in a turn of its own: Disque's ADDJOB, GETJOB and
ACKJOB, and beanstalkd's put, reserve and delete.

A call crosses a border when the function that calls is in another file than the one that is called.
Only files of the product count; the simulated disk, network and clock do not. The turns stand so close that no pass of the
queue scan falls into them: that comes with time, not with a message.
"""

import struct
import sys
from dataclasses import dataclass, field
from random import Random
from types import FrameType
from typing import Any, cast

from nsqd.core.limits import Limits
from nsqd.core.queues import Queues
from nsqd.protocols.beanstalk.client import BeanstalkContext
from nsqd.protocols.beanstalk.peer import Peer as BeanstalkPeer
from nsqd.protocols.disque.client import DisqueContext
from nsqd.protocols.disque.context import Alone
from nsqd.protocols.disque.ids import JobIds
from nsqd.protocols.disque.peer import Peer as DisquePeer
from shared.topic_config import Durability
from tests.daemons import ROOT
from tests.nsqd.protocols.disque.wire import read_reply, request
from tests.nsqd.storage.sim_disk import SimDisk
from tests.nsqd.storage.sim_node import NODE, Clock
from tests.simulation.net import Listener
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
    bytecodes: int = 0  # executed in the product's functions
    records: int = 0  # in the group that the turn has written
    trace: list[str] = field(default_factory=list)  # one line a call, indented by depth

    def __str__(self) -> str:
        calls = f"{self.calls} calls in {len(self.files)} files, {self.crossings} of them into another file"
        return f"{calls}, {self.bytecodes} bytecodes, {self.records} records"


class Tracer:
    """Notes every call of the product's functions while it is active."""

    def __init__(self) -> None:
        self.walk = Walk()
        self._files: list[str] = []  # of the calls in progress; "" for what is not the product's

    def __enter__(self) -> Walk:
        sys.settrace(self._count)
        sys.setprofile(self._note)
        return self.walk

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        sys.settrace(None)

    def _count(self, frame: FrameType, event: str, _: object) -> Any:
        if event == "opcode":
            self.walk.bytecodes += 1
        elif event == "call":
            if not frame.f_code.co_filename.startswith(PRODUCT):
                return None
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._count

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


def _new_node() -> tuple[WholeNode, Clock]:
    clock, random = Clock(10**12, 10**18), Steady()
    node = WholeNode(SimDisk(random), Durability.ALWAYS, clock, random, Limits(), 1 << 20, 1 << 30, 1 << 30, 1 << 40)
    return node, clock


def walks() -> dict[str, Walk]:
    """The walks of all commands, by their names."""
    return message_walks() | disque_walks() | beanstalk_walks()


def disque_walks() -> dict[str, Walk]:
    """The walks of ADDJOB, GETJOB and ACKJOB, of a client that has sent each of them before."""
    node, clock = _new_node()
    context = DisqueContext(Queues(node.broker.tubes), JobIds(b"walk"), Alone(NODE, 0), 1 << 20)
    client = _join(node, lambda *given: DisquePeer(node.broker, context, *given[:4]))
    for _ in range(3):
        added, _ = _ask(node, clock, client, request("ADDJOB", "q", BODY, 0))
        fetched, reply = _ask(node, clock, client, request("GETJOB", "NOHANG", "FROM", "q"))
        ((_, job_id, body),), _ = read_reply(reply)
        assert body == BODY
        acknowledged, reply = _ask(node, clock, client, request("ACKJOB", job_id))
        assert reply == b":1\r\n"
    return {"ADDJOB": added, "GETJOB": fetched, "ACKJOB": acknowledged}


def beanstalk_walks() -> dict[str, Walk]:
    """The walks of put, reserve and delete, of a client that has sent each of them before."""
    node, clock = _new_node()
    context = BeanstalkContext()
    client = _join(node, lambda *given: BeanstalkPeer(node.broker, context, *given[:4]))
    for _ in range(3):
        put, _ = _ask(node, clock, client, b"put 0 0 60 %d\r\n%s\r\n" % (len(BODY), BODY))
        reserved, reply = _ask(node, clock, client, b"reserve-with-timeout 0\r\n")
        assert reply.endswith(BODY + b"\r\n")
        deleted, reply = _ask(node, clock, client, b"delete %s\r\n" % reply.split()[1])
        assert reply == b"DELETED\r\n"
    return {"put": put, "reserve": reserved, "delete": deleted}


def _join(node: WholeNode, make_peer: Any) -> Any:
    """Return a client of another protocol."""
    assert node.reactor is not None
    listener = Listener(node.network)
    node.reactor.listen(cast(Any, listener), make_peer)
    return node.network.dial(listener)


def _ask(node: WholeNode, clock: Clock, client: Any, command: bytes) -> tuple[Walk, bytes]:
    """Settle, and return the walk of the turn that receives the command, and the reply to it."""
    for _ in range(3):
        _settle(node, clock, client)
    client.send(command)
    return _trace(node, clock, client)


def message_walks() -> dict[str, Walk]:
    """The walk of a PUB with its delivery, and of a FIN."""
    node, clock = _new_node()
    network = node.network
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
    return {"PUB": published, "FIN": finished}


def _settle(node: WholeNode, clock: Clock, consumer: Any) -> bytes:
    """A turn, and what the consumer has got after it."""
    clock.advance(10_000_000)
    node.network.move()
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
    events = node.reactor._epoll.poll(0, 512)
    before = node.log.writer.records
    with Tracer() as walk:
        node.reactor.turn(events)
    walk.records = node.log.writer.records - before
    return walk, _read(node, clock, consumer)


def main() -> None:
    for name, walk in walks().items():
        print(f"{name}: {walk}")
        if "--trace" in sys.argv[1:]:
            print("\n".join(walk.trace))


if __name__ == "__main__":
    main()
