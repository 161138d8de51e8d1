"""Nodes of a cluster on a simulated network, under one time: delay, cuts, one-way links, pieces, nodes that stand still."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from nsqd.cluster.membership.cluster import TICK, Cluster
from nsqd.cluster.wire.handshake import Credentials
from nsqd.cluster.wire.link import Link
from nsqd.cluster.wire.node_identity import NodeIdentity
from tests.nsqd.cluster.wire.identities import node
from tests.nsqd.cluster.wires import Wire, Wires

MS, SECOND = 1_000_000, 1_000_000_000
SUSPECT_AFTER = 5 * SECOND
SECRET = b"the secret of this cluster"


class SimMember:
    def __init__(self, network: Network, own: NodeIdentity, seeds: list[str], secret: bytes = SECRET) -> None:
        self.network = network
        self.own = own
        self.cluster = Cluster(Credentials("c", secret, own), seeds, SUSPECT_AFTER, network.random.randbytes)
        self.skew = network.random.randrange(10**12)  # its monotonic clock began at another time
        self.is_up = True
        self.still_until = 0  # SIGSTOP until then
        self.ends: dict[Wire, Link] = {}
        self.suspicions: list[tuple[int, int]] = []  # (time, number)

    @property
    def now(self) -> int:
        return self.network.now + self.skew

    # the rest of a tests.nsqd.cluster.wires.Place

    @property
    def address(self) -> str:
        return self.own.address

    mono = now

    def gone(self, link: Link) -> None:
        self.cluster.closed(link, self.now)

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
    """The network and its time. `cut` holds the directed pairs of addresses between which nothing arrives."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = SECOND
        self.members: dict[str, SimMember] = {}  # by address
        self.wires = Wires(self.random, lambda: self.now, 50 * MS, 1 << 20)
        self.collect, self.close = self.wires.collect, self.wires.close

    @property
    def cut(self) -> set[tuple[str, str]]:
        return self.wires.cut

    @cut.setter
    def cut(self, pairs: set[tuple[str, str]]) -> None:
        self.wires.cut = pairs

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
        self.wires.kill(member)

    def dial(self, member: SimMember, address: str) -> None:
        other = self.members.get(address)
        is_reached = other is not None and other.is_up and self.wires.connects(member.own.address, address)
        accepted = other.cluster.accepted(other.now) if is_reached else None
        if accepted is None:
            member.cluster.dial_failed(address, member.now)
        else:
            self.wires.connect(member, other, (member.cluster.dialed(address, member.now), accepted))

    def deliver_to(self, *members: SimMember) -> None:
        """Hand over the bytes that have arrived at some members that run."""
        for member in members:
            if member.runs and self.wires.deliver_to(member):
                self.collect(member)

    def run(self, seconds: float) -> None:
        end = self.now + int(seconds * SECOND)
        while self.now < end:
            self.now += TICK // 5
            for member in list(self.members.values()):
                if self.random.random() < 0.3:
                    member.turn()
            self.deliver_to(*self.members.values())
            self.wires.sweep()

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
