"""The port that a node shares with other nodes of its machine (-tcp-shared-address), for producers.

The kernel gives each new connection to one of the sockets that listen there. It does not know which of the nodes can serve, so
a node listens only while it takes messages: from the moment at which it serves, except while it drains, until it stops.
"""

from __future__ import annotations

from nsqd.net.endpoint import MakePeer
from nsqd.net.reactor import Reactor
from shared.log import log
from shared.process.listen import BACKLOG, Listener, ListenError, bind_shared


class SharedPort:
    """The node's socket at the shared port. It belongs to the reactor's thread."""

    def __init__(self, address: str, listener: Listener, reactor: Reactor, make_peer: MakePeer) -> None:
        """Take over a bound socket; `address` is the text of the option, for binding again."""
        self._address = address
        self._listener: Listener | None = listener  # None: the node takes no connections there
        self._reactor = reactor
        self._make_peer = make_peer

    def open(self) -> None:
        """Take connections from now on. If the port was taken meanwhile, the node continues without it."""
        try:
            self._listener = self._listener or bind_shared(self._address)
            self._listener.socket.listen(BACKLOG)
        except (ListenError, OSError) as error:
            log.error("TCP SHARED: cannot listen, producers reach this node at its own address only: %s", error)
            self._listener = None
            return
        self._reactor.listen(self._listener.socket, self._make_peer)
        log.info("TCP SHARED: listening on %s", self._listener.address)

    def close(self) -> None:
        """Accept the connections that wait, and leave all others to the other nodes. May be called twice."""
        if self._listener is not None:
            self._reactor.stop_listening(self._listener.socket)
            self._listener = None
            log.info("TCP SHARED: closed")

    def follow(self, draining: bool) -> None:
        """Close the port because the node begins to drain, or open it again because the draining was cancelled."""
        if draining:
            self.close()
        else:
            self.open()
