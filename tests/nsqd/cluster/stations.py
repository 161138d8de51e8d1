"""Nodes that lend each other jobs, and the frames between them. No socket; time is given."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import combinations
from random import Random
from types import SimpleNamespace
from typing import Any

from nsqd.cluster.remote_jobs.lent_jobs import LentJobs
from nsqd.cluster.wire.frames import FrameKind, FrameReader
from nsqd.core.broker import Broker
from nsqd.core.limits import Limits
from nsqd.core.message.ids import IdSource
from nsqd.core.queues import Queues
from nsqd.net.promised import HttpReplies
from nsqd.protocols.beanstalk.client import BeanstalkContext
from nsqd.protocols.disque.client import DisqueContext
from nsqd.protocols.disque.context import Alone
from nsqd.protocols.disque.ids import JobIds
from tests.nsqd.core.node import MS, Node
from tests.nsqd.protocols.beanstalk.wire import Wire as BeanstalkWire
from tests.nsqd.protocols.disque.wire import Wire, request


@dataclass(slots=True)
class End:
    """One end of a connection, as a Link of nsqd/cluster is one: output stays until the network carries it."""

    node: Any  # the identity of the peer
    sent: list[bytes] = field(default_factory=list)
    backlog: int = 0  # bytes that the network has not taken
    delay: int = 0  # ns that frames are on their way

    def age(self, sent: int, now: int) -> int:
        return self.delay

    def send_first(self, frame: bytes) -> None:
        self.sent.append(frame)


class Station:
    """A node with clients of Disque and of beanstalkd, and its part in lending."""

    def __init__(self, number: int, incarnation: int = 1) -> None:
        self.number = number
        self.identity = SimpleNamespace(number=number, incarnation=incarnation, log_id=b"%016d" % number)
        self.node = node = Node(Limits(whole_job_ids=True))
        ids = IdSource(number, 1, lambda ceiling: True)
        node.broker = Broker(Limits(whole_job_ids=True), node.store, ids, Random(1).randrange)
        node.broker.begin(node.now, 1_800_000_000 * 10**9 + node.now)
        self.context = DisqueContext(
            Queues(node.broker.tubes), JobIds(b"a cluster"), Alone(number, 0, node.broker.drain), 1 << 20
        )
        self.links: dict[int, End] = {}
        self.cluster = SimpleNamespace(
            own=self.identity, links=self.links, is_any_member_away=False, has_unserved_log=False, leases={},
            lease=number << 48 | 1 << 40,
            membership=SimpleNamespace(members=[], is_awaited=lambda number: True), leaders=SimpleNamespace(epochs={}),
        )  # fmt: skip
        self.cluster.add = lambda part: None
        self.tubes_context = BeanstalkContext()
        self.jobs = LentJobs(node.broker, self.cluster, lambda: None, self.context, self.tubes_context)
        self.held: list[HttpReplies] | None = None  # what waits for votes; None: every promise is kept at once
        self._node_turn, node.turn = node.turn, self._turn
        node.after_turn = self._end_turn

    def _turn(self) -> None:
        self.jobs.turn()
        self._node_turn()

    def _end_turn(self) -> None:
        """Do what the reactor does when the group of the turn is written."""
        replies = self.jobs.replies()
        assert not self.node.broker.agenda.unsealed_puts, "something changes behind the group of the turn"
        if replies is not None and self.held is None:
            replies.deliver()
        elif replies is not None and self.held is not None:
            self.held.append(replies)

    def note_members(self, members: list[Any]) -> None:
        self.cluster.membership.members = members
        self.cluster.is_any_member_away = not {one.number for one in members} <= {self.number, *self.links}

    def client(self) -> Wire:
        return Wire(self.node, self.context)

    def tube_client(self) -> BeanstalkWire:
        return BeanstalkWire(self.node, self.tubes_context)


class Cluster:
    def __init__(self, count: int) -> None:
        self.stations = [Station(number) for number in range(1, count + 1)]
        self.readers: dict[tuple[int, int], FrameReader] = {}
        self.kinds: list[FrameKind] = []  # of all frames that were carried
        self.holds: Callable[[int, int, FrameKind], bool] = lambda source, target, kind: False  # frames that get lost
        self._note_members()
        for one, other in combinations(self.stations, 2):
            self._connect(one, other)
        self.settle()

    def connect(self, one: Station, other: Station) -> None:
        self._connect(one, other)
        self.settle()

    def restart(self, number: int) -> Station:
        """Let a node of two begin its next run, with nothing of what it had. It is not connected yet."""
        one = self.stations[number - 1] = Station(number, incarnation=2)
        self._note_members()
        return one

    def _note_members(self) -> None:
        for station in self.stations:
            station.note_members([other.identity for other in self.stations])

    def _connect(self, one: Station, other: Station) -> None:
        for here, there in ((one, other), (other, one)):
            here.links[there.number] = End(there.identity)
            reader = self.readers[here.number, there.number] = FrameReader()
            reader.limit = 1 << 20
            here.cluster.leases[there.number] = 1 << 40
            here.note_members(here.cluster.membership.members)
        for here, there in ((one, other), (other, one)):
            here.jobs.admitted(here.links[there.number])

    def cut(self, one: Station, other: Station) -> None:
        for here, there in ((one, other), (other, one)):
            link = here.links.pop(there.number, None)
            if link is not None:
                here.jobs.closed(link)
            here.note_members(here.cluster.membership.members)

    def settle(self) -> None:
        """Run turns and deliver frames until nothing is on its way, and check all brokers."""
        busy = True
        while busy:
            busy = False
            for station in self.stations:
                station.node.turn()
            for station in self.stations:
                for number, link in list(station.links.items()):
                    sent, link.sent = link.sent, []
                    for data in sent:
                        busy = True
                        self._carry(station, self.stations[number - 1], data)
        for station in self.stations:
            station.node.broker.check()

    def _carry(self, source: Station, target: Station, data: bytes) -> None:
        link = target.links.get(source.number)
        for kind, content in self.readers[target.number, source.number].feed(data):
            self.kinds.append(kind)
            if link is not None and not self.holds(source.number, target.number, kind):
                target.jobs.receive(link, kind, content, target.node.now)

    def advance(self, ms: int) -> None:
        for station in self.stations:
            station.node.advance(ms * MS)
        self.settle()

    def waiting(self, station: Station, *queues: str, options: tuple[str | int, ...] = ()) -> Wire:
        """A client of Disque that waits, as all nodes know."""
        client = waiting(station, *queues, options=options)
        self.settle()
        return client

    def add(self, station: Station, *words: str | int | bytes) -> str:
        """Let a client of a station add a job. Returns its id."""
        job_id: str = station.client().add(*words)
        self.settle()
        return job_id


def nodes(count: int) -> tuple[Any, ...]:
    cluster = Cluster(count)
    return cluster, *cluster.stations


def waiting(station: Station, *queues: str, options: tuple[str | int, ...] = ()) -> Wire:
    client = station.client()
    assert client.replies(request("GETJOB", *options, "FROM", *queues)) == []
    return client


def ask(cluster: Cluster, client: Wire, *words: str | int | bytes) -> Any:
    """The reply of a command for which other nodes are asked."""
    found = client.replies(request(*words))
    cluster.settle()
    found += client.replies()
    cluster.settle()
    found += client.replies()
    assert len(found) == 1, found
    return found[0]
