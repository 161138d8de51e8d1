"""A network in memory, for the reactor and for the checker: bytes arrive late and in pieces, connections break.

Implements what both use of `socket` and of select.epoll. Nothing here blocks or sleeps; time is what the clock says.
"""

import select
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

MOST_IN_FLIGHT = 100_000  # bytes each way: the buffers of a sender's and a receiver's kernel together
MOST_LATE = 3_000_000  # ns on the way


class Way:
    def __init__(self, network: "Network") -> None:
        self._network = network
        self._flying: deque[tuple[int, bytes]] = deque()  # (when it arrives, what)
        self._flying_bytes = 0
        self.arrived = bytearray()
        self.ended = False  # the sender has said that it sends no more
        self.end_arrives = 0  # when
        self.broken = False

    @property
    def room(self) -> int:
        return MOST_IN_FLIGHT - len(self.arrived) - self._flying_bytes

    def send(self, data: bytes) -> int:
        """Take a part of the data, with the results and errors of socket.send."""
        if self.broken or self.ended:
            raise BrokenPipeError
        taken = bytes(data[: max(0, self.room)])
        if not taken:
            raise BlockingIOError
        random = self._network.random
        if random.random() < 0.1:
            taken = taken[: random.randrange(1, len(taken) + 1)]
        self._flying_bytes += len(taken)
        at, start = self._network.now(), 0
        while start < len(taken):
            size = random.choice((1, 7, 100, 5000, 100_000))
            latest = self._flying[-1][0] if self._flying else 0
            self._flying.append((max(latest, at + random.randrange(MOST_LATE)), taken[start : start + size]))
            start += size
        return len(taken)

    def end(self) -> None:
        if not self.ended:
            self.ended = True
            self.end_arrives = max(self._network.now(), self._flying[-1][0] if self._flying else 0)

    def receive(self, size: int) -> bytes:
        """Return some bytes that arrived, with the results and errors of socket.recv."""
        if not self.arrived:
            if self.broken:
                raise ConnectionResetError
            if self.is_over:
                return b""
            raise BlockingIOError
        size = min(size, self._network.random.choice((1, 100, 10_000, 1 << 20)))
        data = bytes(self.arrived[:size])
        del self.arrived[:size]
        return data

    def move(self, now: int) -> None:
        while self._flying and self._flying[0][0] <= now:
            self._land()

    def land(self) -> None:
        while self._flying:
            self._land()

    def _land(self) -> None:
        _, data = self._flying.popleft()
        self.arrived += data
        self._flying_bytes -= len(data)

    @property
    def is_over(self) -> bool:
        """Return whether the sender has ended and everything has arrived."""
        return self.ended and not self._flying and self.end_arrives <= self._network.now()

    @property
    def is_readable(self) -> bool:
        return bool(self.arrived) or self.is_over or self.broken

    def next_arrival(self) -> int | None:
        """Return the time at which the next bytes or the end arrive, None if nothing is in transit."""
        if self._flying:
            return self._flying[0][0]
        return self.end_arrives if self.ended and self.end_arrives > self._network.now() else None


class Socket:
    def __init__(self, network: "Network", incoming: Way, outgoing: Way) -> None:
        self._network = network
        self.incoming = incoming
        self.outgoing = outgoing
        self.fd = network.new_fd(self)
        self.closed = False

    def fileno(self) -> int:
        return self.fd

    def setblocking(self, flag: bool) -> None:
        assert not flag

    def setsockopt(self, *_: int) -> None: ...

    def send(self, data: bytes) -> int:
        return self.outgoing.send(data)

    def recv(self, size: int) -> bytes:
        return self.incoming.receive(size)

    def recv_into(self, buffer: bytearray) -> int:
        data = self.incoming.receive(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def shutdown(self, how: int) -> None:
        self.outgoing.end()

    def close(self) -> None:
        assert not self.closed
        self.closed = True
        self.outgoing.end()
        self._network.sockets.pop(self.fd)

    def reset(self) -> None:
        """The network breaks the connection: both ends lose what is on its way."""
        for way in (self.incoming, self.outgoing):
            way.broken = True


class Listener:
    """The listening socket on which the node accepts."""

    def __init__(self, network: "Network") -> None:
        self.fd = network.new_fd(self)
        self.waiting: deque[tuple[Socket, tuple[str, int]]] = deque()

    def fileno(self) -> int:
        return self.fd

    def setblocking(self, flag: bool) -> None:
        assert not flag

    def listen(self, backlog: int) -> None: ...
    def close(self) -> None: ...

    def accept(self) -> tuple[Socket, tuple[str, int]]:
        if not self.waiting:
            raise BlockingIOError
        return self.waiting.popleft()

    @property
    def incoming(self) -> "Listener":
        return self

    @property
    def is_readable(self) -> bool:
        return bool(self.waiting)


class Poller:
    """Implements nsqd.net.system.Poller. It reports ready files in random order, and not always all of them."""

    def __init__(self, network: "Network") -> None:
        self._network = network
        self._interest: dict[int, int] = {}

    def register(self, fd: int, events: int) -> None:
        assert fd not in self._interest
        self._interest[fd] = events

    def modify(self, fd: int, events: int) -> None:
        assert fd in self._interest
        self._interest[fd] = events

    def unregister(self, fd: int) -> None:
        del self._interest[fd]

    def poll(self, timeout: float = 0, most: int = 512) -> list[tuple[int, int]]:
        found = []
        for fd, interest in self._interest.items():
            end: Any = self._network.sockets[fd]
            events = select.EPOLLIN if end.incoming.is_readable else 0
            if interest & select.EPOLLOUT and (end.outgoing.room > 0 or end.outgoing.broken):
                events |= select.EPOLLOUT
            if events & interest:
                found.append((fd, events & interest))
        random = self._network.random
        random.shuffle(found)
        return found[: random.randrange(1, len(found) + 1)] if found else []

    def fileno(self) -> int:
        return -1

    def close(self) -> None:
        self._interest.clear()


class Network:
    def __init__(self, now: Callable[[], int], random: Random) -> None:
        self.now = now
        self.random = random
        self.sockets: dict[int, Any] = {}  # by file descriptor
        self._ways: list[Way] = []
        self._last_fd = 2
        self.listener = Listener(self)
        self.client = "10.0.0.1"  # the address of all clients

    def new_fd(self, end: Any) -> int:
        self._last_fd += 1
        self.sockets[self._last_fd] = end
        return self._last_fd

    def pair(self) -> tuple[Socket, Socket]:
        """As socket.socketpair, but nothing is late."""
        one, other = Prompt(self), Prompt(self)
        return Socket(self, one, other), Socket(self, other, one)

    def dial(self, listener: Listener | None = None) -> Socket:
        """A new connection to a listener, `self.listener` if none is given: the client's end."""
        there, back = Way(self), Way(self)
        self._ways += [there, back]
        (listener or self.listener).waiting.append((Socket(self, there, back), (self.client, 1000 + self._last_fd)))
        return Socket(self, back, there)

    def move(self) -> None:
        now = self.now()
        for way in self._ways:
            way.move(now)

    def next_arrival(self) -> int | None:
        """Return the time of the next arrival, None if nothing is in transit."""
        times = [at for at in (way.next_arrival() for way in self._ways) if at is not None]
        return min(times, default=None)


class Prompt(Way):
    """A direction that delivers at once, as within a machine."""

    def send(self, data: bytes) -> int:
        self.arrived += data
        return len(data)
