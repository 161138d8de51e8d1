"""Nodes of a cluster on a simulated network, under one time: delay, cuts, one-way links, pieces, nodes that stand still."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import count
from random import Random

from nsqd.cluster.membership.cluster import TICK, Cluster
from nsqd.cluster.wire.handshake import Credentials
from nsqd.cluster.wire.link import Link
from nsqd.cluster.wire.node_identity import NodeIdentity
from tests.nsqd.cluster.wire.identities import node

MS, SECOND = 1_000_000, 1_000_000_000
SUSPECT_AFTER = 5 * SECOND
SECRET = b"the secret of this cluster"
EOF = b""  # in place of bytes: the other end has closed


class SimMember:
    def __init__(self, network: Network, own: NodeIdentity, seeds: list[str], secret: bytes = SECRET) -> None:
        self.network = network
        self.own = own
        self.cluster = Cluster(Credentials("c", secret, own), seeds, SUSPECT_AFTER, network.random.randbytes)
        self.skew = network.random.randrange(10**12)  # its monotonic clock began at another time
        self.is_up = True
        self.still_until = 0  # SIGSTOP until then
        self.ends: dict[int, Link] = {}  # by the number of the connection
        self.suspicions: list[tuple[int, int]] = []  # (time, number)

    @property
    def now(self) -> int:
        return self.network.now + self.skew

    @property
    def runs(self) -> bool:
        return self.is_up and self.network.now >= self.still_until

    def turn(self) -> None:
        """Do what a reactor does: read bytes that have come, call what is due, send."""
        if not self.runs:
            return
        if self.cluster.membership.must_read_first(self.now):
            self.network.deliver_to(self)
        self.suspicions += [(self.network.now, number) for number in self.cluster.tick(self.now)]
        while (address := self.cluster.take_due(self.now)) is not None:
            self.network.dial(self, address)
        self.network.collect(self)


class Network:
    def __init__(self, seed: int, pieces: int = 1 << 20) -> None:
        self.random = Random(seed)
        self.now = SECOND
        self.pieces = pieces  # the most bytes that arrive at a time
        self.members: dict[str, SimMember] = {}  # by address
        self.cut: set[tuple[str, str]] = set()
        self._numbers = count()
        self._events: list[tuple[int, int, str, int, bytes]] = []  # (time, order, address, connection, bytes)
        self._ends: dict[int, tuple[str, str]] = {}  # the two addresses of each connection
        self._arrives: dict[tuple[int, str], int] = {}  # when the last bytes of a direction arrive

    def start(self, number: int, incarnation: int = 1, seeds: list[str] | None = None, **changes: object) -> SimMember:
        own = node(number, incarnation, **changes)
        member = SimMember(self, own, ["node0:4152"] if seeds is None else seeds)
        self.members[own.address] = member
        return member

    def meet(self, count: int, **changes: object) -> list[SimMember]:
        """Start so many nodes, and let them find each other."""
        found = [self.start(number, **changes) for number in range(count)]
        self.run(10)
        assert self.agree()
        return found

    def kill(self, member: SimMember) -> None:
        member.is_up = False
        for connection in list(member.ends):
            self.close(connection, member)

    def dial(self, member: SimMember, address: str) -> None:
        other = self.members.get(address)
        there, back = (member.own.address, address), (address, member.own.address)
        if other is None or not other.is_up or there in self.cut or back in self.cut:
            member.cluster.dial_failed(address, member.now)
            return
        accepted = other.cluster.accepted(other.now)
        if accepted is None:
            member.cluster.dial_failed(address, member.now)
            return
        number = next(self._numbers)
        self._ends[number] = there
        member.ends[number], other.ends[number] = member.cluster.dialed(address, member.now), accepted

    def close(self, connection: int, closer: SimMember) -> None:
        """One end closes; the other one learns it behind the bytes that are on the way, unless they do not arrive."""
        link = closer.ends.pop(connection, None)
        if link is not None:
            closer.cluster.closed(link, closer.now)
            self._send(connection, self._other(connection, closer.own.address), EOF)

    def _other(self, connection: int, address: str) -> str:
        one, other = self._ends[connection]
        return other if one == address else one

    def _send(self, connection: int, address: str, piece: bytes) -> None:
        at = max(self.now + self.random.randrange(1, 50) * MS, self._arrives.get((connection, address), 0))
        self._arrives[connection, address] = at
        heappush(self._events, (at, next(self._numbers), address, connection, piece))

    def collect(self, member: SimMember) -> None:
        """Send what the links have, and close those that want it."""
        for connection, link in [(number, link) for number, link in member.ends.items() if link.output or link.closing]:
            data = bytes(link.output)
            link.output.clear()
            address = self._other(connection, member.own.address)
            while data:
                piece, data = data[: self.pieces], data[self.pieces :]
                self._send(connection, address, piece)
            if link.closing:
                self.close(connection, member)

    def deliver_to(self, member: SimMember | None = None) -> None:
        """Hand over the bytes that have arrived, to one member or to all that run."""
        kept = []
        while self._events and self._events[0][0] <= self.now:
            event = heappop(self._events)
            _, _, address, connection, data = event
            receiver = self.members.get(address)
            sender = self._other(connection, address)
            if receiver is None or connection not in receiver.ends:
                if data != EOF:  # nobody has this connection any more: the sender is told
                    self._send(connection, sender, EOF)
                continue
            if not receiver.runs or (member is not None and receiver is not member) or (sender, address) in self.cut:
                kept.append(event)  # TCP sends it again
                continue
            if data == EOF:
                receiver.cluster.closed(receiver.ends.pop(connection), receiver.now)
                continue
            receiver.ends[connection].receive(data, receiver.now)
            self.collect(receiver)
        for event in kept:
            heappush(self._events, event)

    def run(self, seconds: float) -> None:
        end = self.now + int(seconds * SECOND)
        while self.now < end:
            self.now += TICK // 5
            for member in list(self.members.values()):
                if self.random.random() < 0.3:
                    member.turn()
            self.deliver_to()

    # questions of a test

    def running(self) -> list[SimMember]:
        return [member for member in self.members.values() if member.runs]

    def agree(self) -> bool:
        """All that run know the same of all nodes, have one connection to each other, and suspect nobody of them."""
        running = self.running()
        numbers = {member.own.number for member in running}
        words = [member.cluster.membership.records for member in running]
        is_linked = all(set(member.cluster.links) == numbers - {member.own.number} for member in running)
        suspected = [member.cluster.membership.suspected & numbers for member in running]
        return all(one == words[0] for one in words) and is_linked and not any(suspected)

    def halves(self) -> Iterator[tuple[str, str]]:
        """The pairs, in both directions, between the two halves of a random partition."""
        addresses = list(self.members)
        self.random.shuffle(addresses)
        size = self.random.randrange(1, len(addresses))
        for one in addresses[:size]:
            for other in addresses[size:]:
                yield from ((one, other), (other, one))
