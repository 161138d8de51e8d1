"""When a node that starts opens the ports of its clients.

A node of a cluster opens them when as many nodes can have a copy of a message as its publishes ask for: before that it would
refuse what it has always taken. If other nodes are down it opens them after WITHIN, because its messages must be delivered.
Until then the connections of clients wait at the listening sockets. The port for HTTP is open, because other nodes need it.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from nsqd.core.broker import Broker

WITHIN = 3.0  # s: as long as a silent node is not suspected yet; one that is not there by then may be down


class ClientPorts:
    """What opens the ports of a node's clients. It belongs to the trio thread, except for `are_open`."""

    def __init__(self, broker: Broker) -> None:
        self.are_open = False
        self._broker = broker
        self._openers: list[Callable[[], None]] = []
        self._waiting: list[Callable[[], None]] = []

    def add(self, opener: Callable[[], None]) -> None:
        """Have `opener` called when the ports open: it accepts clients at one of them."""
        self._openers.append(opener)

    def open(self) -> None:
        """Open all ports now, and continue what waits for them."""
        for opener in self._openers:
            opener()
        self.are_open = True
        for then in self._waiting:
            then()
        self._waiting.clear()

    async def open_with(self, copies: int) -> None:
        """Open the ports when enough nodes can have a copy of a message, this one included, or after WITHIN."""
        with trio.move_on_after(WITHIN):
            await until_copies(self._broker, copies)
        self.open()

    def until_open(self, then: Callable[[], None]) -> None:
        """Call `then` when the ports are open."""
        if self.are_open:
            then()
        else:
            self._waiting.append(then)


class _Waiter:
    """A request that waits until jobs may be put. Implements nsqd.core.broker.PutWaiter."""

    def __init__(self) -> None:
        self.event = trio.Event()

    def retry_put(self) -> None:
        self.event.set()


async def until_copies(broker: Broker, copies: int) -> None:
    """Wait until enough nodes can have a copy of a message, this one included."""
    while broker.context.copies < copies:
        waiter = _Waiter()
        broker.put_waiters[waiter] = None
        try:
            await waiter.event.wait()
        finally:
            broker.put_waiters.pop(waiter, None)
