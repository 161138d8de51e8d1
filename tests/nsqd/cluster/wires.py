"""The connections between the nodes of a simulated cluster: delay, pieces down to a byte, losses, and ways that are cut.

A connection is two directions. Each takes as many bytes as the kernels of both ends buffer; the rest waits at the sender. What
is sent into a cut direction waits, as TCP sends it again, and arrives when the cut is over, unless the connection is gone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

from nsqd.cluster.wire.link import Link

MOST_SLOW = 1_500_000_000  # ns that bytes to and from a slow machine take: its heartbeats arrive in time
EOF = b""  # in place of bytes: the other end has closed
# a machine: its address, its `ends` of connections, `is_up`, its clock `mono`, and `gone` when a link is gone
Place = Any


class Way:
    def __init__(self, sender: Place, receiver: Place) -> None:
        self.sender, self.receiver = sender, receiver
        self.waiting = bytearray()  # bytes that the sender has sent and the network has not accepted
        self.flying: deque[tuple[int, bytes]] = deque()  # (when it arrives, what)
        self.size = 0  # bytes that fly


class Wire:
    def __init__(self, one: Place, other: Place) -> None:
        self.ways = Way(one, other), Way(other, one)

    def from_(self, place: Place) -> Way:
        one, other = self.ways
        return one if one.sender is place else other

    def to(self, place: Place) -> Way:
        one, other = self.ways
        return one if one.receiver is place else other


class Wires:
    """All connections of the cluster. Times are true ns."""

    def __init__(self, random: Random, now: Callable[[], int], latency: int, window: int) -> None:
        """`latency`: the longest delay in ns; `window`: bytes that a direction takes."""
        self._random, self._now = random, now
        self.latency, self.window = latency, window
        self.wires: list[Wire] = []
        self.cut: set[tuple[str, str]] = set()  # (from, to) of directions in which nothing arrives
        self.slow: dict[str, int] = {}  # by address: how many times as long everything takes to and from it

    def connects(self, one: str, other: str) -> bool:
        """Return True if a request from one address would be answered by the other."""
        return (one, other) not in self.cut and (other, one) not in self.cut

    def connect(self, one: Place, other: Place, links: tuple[Link, Link]) -> None:
        wire = Wire(one, other)
        self.wires.append(wire)
        one.ends[wire], other.ends[wire] = links

    def collect(self, place: Place) -> None:
        """Take what the links of a machine have to say, and close those that want it."""
        for wire, link in list(place.ends.items()):
            way = wire.from_(place)
            for data in link.drain():
                way.waiting += data
            self._take(way)
            link.unsent = len(way.waiting)
            if link.closing and (link.is_dead or not way.waiting):
                self.close(wire, place)

    def _take(self, way: Way) -> None:
        """Let bytes begin their way, in pieces."""
        random, room = self._random, self.window - way.size
        data = bytes(way.waiting[:room]) if room > 0 else b""
        if not data:
            return
        del way.waiting[: len(data)]
        way.size += len(data)
        cuts = sorted(random.randrange(len(data)) for _ in range(random.choice((0, 0, 1, 3))))
        for start, stop in zip([0, *cuts], [*cuts, len(data)], strict=True):
            if start < stop:
                self._fly(way, data[start:stop])

    def _fly(self, way: Way, data: bytes) -> None:
        latest = way.flying[-1][0] if way.flying else 0
        took = self._random.randrange(1, self.latency)
        if self.slow:
            factor = max(self.slow.get(way.sender.address, 1), self.slow.get(way.receiver.address, 1))
            took = max(took, min(took * factor, MOST_SLOW))
        way.flying.append((max(latest, self._now() + took), data))

    def close(self, wire: Wire, place: Place) -> None:
        """One end closes. The other one sees it after the bytes in transit."""
        link = place.ends.pop(wire, None)
        if link is not None:
            place.gone(link)
            self._fly(wire.from_(place), EOF)

    def kill(self, place: Place) -> None:
        """The process is gone: its system closes its connections."""
        for wire in list(place.ends):
            del place.ends[wire]
            self._fly(wire.from_(place), EOF)

    def reset(self, wire: Wire) -> None:
        """The network breaks a connection: bytes in transit are lost."""
        for way in wire.ways:
            way.waiting.clear()
            way.flying.clear()
            way.size = 0
            link = way.receiver.ends.pop(wire, None)
            if link is not None:
                way.receiver.gone(link)

    def deliver_to(self, place: Place) -> bool:
        """Hand over the bytes that have arrived at a machine that runs. Returns True if there are any."""
        now, found = self._now(), False
        for wire, link in list(place.ends.items()):
            way = wire.to(place)
            if not way.flying or (way.sender.address, place.address) in self.cut:
                continue
            while way.flying and way.flying[0][0] <= now and wire in place.ends:
                _, data = way.flying.popleft()
                found = True
                if data == EOF:
                    del place.ends[wire]
                    place.gone(link)
                    break
                way.size -= len(data)
                link.receive(data, place.mono)
        return found

    def sweep(self) -> None:
        """Notify senders whose peer has forgotten the connection, and forget connections without an end."""
        for wire in list(self.wires):
            if not any(wire in way.sender.ends for way in wire.ways):
                self.wires.remove(wire)
                continue
            for way in wire.ways:
                receiver, sender = way.receiver, way.sender
                is_lost = wire not in receiver.ends and receiver.is_up and wire in sender.ends
                if is_lost and any(data for _, data in way.flying) and self.connects(sender.address, receiver.address):
                    way.flying.clear()
                    self._fly(wire.from_(receiver), EOF)

    def between(self, places: Iterable[Place]) -> list[Wire]:
        return list(dict.fromkeys(wire for place in places for wire in place.ends))
