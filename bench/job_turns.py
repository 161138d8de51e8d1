"""The CPU time of the reactor for a job that is added, fetched and finished, without sockets, so without the kernel's share.

    python -m bench.job_turns [SECONDS]

The node is nsqd's own broker, reactor and log (mode `os`) in this process, and its sockets are bytes in memory. Each client
sends one command a turn; a third of them adds, a third fetches and a third finishes. Included is the work of the clients: some
10 us a job.
"""

from __future__ import annotations

import random
import select
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from bench.job_load import LANGUAGES, Cycles
from bench.rows import Effort
from bench.server import Program
from bench.stats import medians
from bench.table import Line
from nsqd.core.broker import Broker
from nsqd.core.limits import Limits
from nsqd.core.message.ids import IdSource
from nsqd.core.queues import Queues
from nsqd.core.retention.policy import StoragePolicy
from nsqd.net.endpoint import Endpoint
from nsqd.net.promised import HttpReplies
from nsqd.net.reactor import Reactor
from nsqd.net.system import Poller, System
from nsqd.protocols.beanstalk.client import BeanstalkContext
from nsqd.protocols.beanstalk.peer import Peer as BeanstalkPeer
from nsqd.protocols.conversation import Conversation
from nsqd.protocols.disque.client import DisqueContext
from nsqd.protocols.disque.context import Alone
from nsqd.protocols.disque.ids import JobIds
from nsqd.protocols.disque.peer import Peer as DisquePeer
from nsqd.protocols.transport import Transport
from nsqd.storage.log.disk import RealDisk
from nsqd.storage.log.opening import LogOptions, open_log
from shared.connection_limiter import ConnectionLimiter, ConnectionLimits
from shared.topic_config import Durability

RUNS = 5
WARM_UP = 300  # turns
_COMMANDS = 3  # for a job
_FIRST_FD = 1 << 20  # a number that no file has
_NODE, _MEMORY = 1, 1 << 30  # number of the node, and bytes that its messages may take
_MOST_BYTES = 1 << 20  # of a job


class _Socket:
    """A connected socket whose two directions are bytes in memory."""

    family = socket.AF_INET

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.arrived = self.sent = b""

    def fileno(self) -> int:
        return self._fd

    def getpeername(self) -> tuple[str, int]:
        return "127.0.0.1", self._fd

    def recv(self, size: int) -> bytes:
        data, self.arrived = self.arrived, b""
        return data

    def send(self, data: bytes) -> int:
        self.sent += data
        return len(data)

    def setblocking(self, flag: bool) -> None: ...
    def setsockopt(self, level: int, option: int, value: int) -> None: ...
    def shutdown(self, how: int) -> None: ...
    def close(self) -> None: ...


class _Poller:
    """A poller that has nothing to report: the caller of `Reactor.turn` names the connections that are readable."""

    def register(self, fd: int, eventmask: int) -> None: ...
    def modify(self, fd: int, eventmask: int) -> None: ...
    def unregister(self, fd: int) -> None: ...
    def close(self) -> None: ...
    def poll(self, timeout: float, maxevents: int) -> list[tuple[int, int]]:
        return []

    def fileno(self) -> int:
        return -1


@dataclass(slots=True)
class Node:
    """A node with one front end, and its clients."""

    reactor: Reactor
    endpoint: Endpoint
    clients: list[tuple[_Socket, Cycles]] = field(default_factory=list)

    def join(self, cycles: Cycles) -> None:
        """Connect a client, which sends its first command in the next turn."""
        sock = _Socket(_FIRST_FD + len(self.clients))
        self.reactor.adopt(cast(socket.socket, sock), self.endpoint)
        self.clients.append((sock, cycles))
        sock.arrived = cycles.first

    def turn(self) -> None:
        """Run a turn with the command of each client, and prepare the next one."""
        events = [(sock.fileno(), select.EPOLLIN) for sock, _ in self.clients if sock.arrived]
        self.reactor.turn(events)
        for sock, cycles in self.clients:
            sent, sock.sent = sock.sent, b""
            if sent:  # else a turn that took long has left the command to the next one
                sock.arrived = cycles.next(sent)


@contextmanager
def node_of(language: str) -> Iterator[Node]:
    """Make a node for clients of one language, with a log in a directory of its own."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        options = LogOptions(_NODE, Durability.OS, 0, _MEMORY)
        log = open_log(RealDisk(Path(directory, "log")), options, lambda: None)
        broker = Broker(
            Limits(policy=StoragePolicy(Durability.OS)),
            log.store,
            IdSource(_NODE, 1, log.store.lease),
            random.Random(1).randrange,
        )
        broker.begin(*_clocks())
        broker.commit()
        log.serve(broker)
        context = DisqueContext(Queues(broker.tubes), JobIds(b"bench"), Alone(_NODE, 0), _MOST_BYTES)
        beanstalk = BeanstalkContext()

        def make_peer(transport: Transport, ip: str, port: str, now: int, wall: int) -> Conversation:
            if language == "disque":
                return DisquePeer(broker, context, transport, ip, port, now)
            return BeanstalkPeer(broker, beanstalk, transport, ip, port, now)

        reactor = Reactor(
            broker, _clocks, lambda: HttpReplies(lambda: None, lambda: None), lambda changes: None,
            system=System(lambda: cast(Poller, _Poller())),
        )  # fmt: skip
        yield Node(reactor, Endpoint(make_peer, ConnectionLimiter("TCP", ConnectionLimits(), broker.refused)))
        reactor.close_all()
        log.close()


def _clocks() -> tuple[int, int]:
    return time.monotonic_ns(), time.time_ns()


@dataclass(frozen=True, slots=True)
class _Cost:
    """The CPU time that a run has taken for each job."""

    cpu: float  # ns for each job


def measure(language: str, connections: int, seconds: float) -> _Cost:
    """Run turns for that time, and return what a job costs."""
    with node_of(language) as node:
        cycles = [Cycles(LANGUAGES[language]) for _ in range(connections)]
        for start in range(_COMMANDS):  # so that each turn has all of them
            for one in cycles[start::_COMMANDS]:
                node.join(one)
            node.turn()
        random.Random(1).shuffle(node.clients)  # so that the commands come in any order
        for _ in range(WARM_UP):
            node.turn()
        before, end, began = sum(one.done for one in cycles), time.monotonic() + seconds, time.thread_time_ns()
        while time.monotonic() < end:
            node.turn()
        spent = time.thread_time_ns() - began
        return _Cost(spent / (sum(one.done for one in cycles) - before))


@dataclass(frozen=True, slots=True)
class JobTurnsRow:
    """The row of one language and number of connections."""

    name: str
    language: str
    connections: int

    def measure(self, program: Program, go: Program | None, effort: Effort) -> list[Line]:
        """Run it RUNS times, in this process."""
        costs = [
            measure(self.language, self.connections, effort.seconds) for _ in range(RUNS if effort.scale == 1 else 1)
        ]
        what = f"os, in one process: a job added, fetched, finished by {self.connections} of {self.language}'s clients"
        return [Line(self.name, what, f"CPU {medians(costs).cpu / 1e3:.1f} us a job")]


def job_turns() -> list[JobTurnsRow]:
    """Return the rows of both protocols, with many connections and with one."""
    return [
        JobTurnsRow(f"job-turns-{language}-{connections}", language, connections)
        for language in ("disque", "beanstalkd")
        for connections in (50, 1)
    ]


if __name__ == "__main__":
    for name in ("disque", "beanstalkd"):
        for count in (50, 1):
            costs = [measure(name, count, float(sys.argv[1]) if len(sys.argv) > 1 else 1.0) for _ in range(3)]
            print(name, count, *(f"{cost.cpu / 1e3:.1f}" for cost in costs), "us a job", flush=True)
