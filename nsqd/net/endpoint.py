"""A listener as the reactor sees it: its limits, protocol and TLS, and the server that takes connections over."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass

from nsqd.net.layers import Wrap
from nsqd.protocols.conversation import Conversation
from nsqd.protocols.transport import Transport
from shared.connection_limiter import ConnectionLimiter

# Makes the peer of a new connection from its transport, the client's address and port, and the clock (monotonic ns, wall ns).
MakePeer = Callable[[Transport, str, str, int, int], Conversation]
# Takes a socket that leaves the reactor: the client's address ("" for a unix socket), the input that is not answered, and until
# when the head of a request that it begins with must be complete (monotonic ns; NEVER: as usual).
Adopt = Callable[[socket.socket, str, bytes, int], None]


@dataclass(frozen=True, slots=True)
class OutputBounds:
    """How much output of a connection may wait before nothing more is read from it."""

    unsent: int = 4 * 1024 * 1024  # bytes that the network has not accepted
    sealed: int = 1 << 30  # turns whose output waits for the log


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A listener and what belongs to it."""

    make_peer: MakePeer
    limiter: ConnectionLimiter
    adopt: Adopt | None = None  # None: connections stay on the reactor
    bounds: OutputBounds = OutputBounds()
    proof_timeout: int = 0  # ns in which a client has to be identified, where there is an auth file; 0: no limit
    wrap: Wrap | None = None  # makes the TLS of its connections; None: the node's own does
