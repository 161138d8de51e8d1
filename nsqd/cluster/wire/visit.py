"""A visit: a connection over which a node asks what another one has of logs, and takes part in nothing. It blocks its thread.

A node visits others before it has read its log, and is visited then; later it visits them from threads. Both sides prove
themselves as on every connection, and the visitor's identity has no log.

See docs/contributing/design/cluster-protocol.md#visits.
"""

from __future__ import annotations

import os
import socket
import time
from collections import deque
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

from nsqd.cluster.wire.frames import FrameKind, PeerError
from nsqd.cluster.wire.handshake import NONCE_SIZE, Credentials
from nsqd.cluster.wire.link import HANDSHAKE_WITHIN, Link, Listener, make_link
from shared.process.listen import parse_address

if TYPE_CHECKING:
    from shared.tls.mutual import MutualCertificates

CHUNK = 1024 * 1024  # bytes


class Receiver(Protocol):
    """Takes the frames of a visit. A link asks nothing else of its listener there."""

    def receive(self, link: Link, kind: FrameKind, content: bytes, now: int) -> None:
        """Take a frame of the visitor or the visited node. Raises PeerError."""


@dataclass(frozen=True, slots=True)
class Visits:
    """How this node visits others, and is visited."""

    credentials: Credentials  # of a visitor
    tls: MutualCertificates | None  # None: there is no TLS between the nodes

    @contextmanager
    def dial(self, address: str, timeout: float) -> Iterator[Visit]:
        """Visit the node at host:port, which is proved. `timeout`: s for each step. Raises OSError, PeerError."""
        parsed = parse_address(address)
        with closing(Visit(self, socket.create_connection((parsed.host, parsed.port), timeout))) as visit:
            visit.prove()
            yield visit

    def answer(self, sock: socket.socket, receiver: Receiver, timeout: float) -> None:
        """Have `receiver` answer a visitor, over a connection that was accepted, until it ends. Raises OSError, PeerError."""
        sock.settimeout(timeout)
        with closing(Visit(self, sock, receiver)) as visit:
            visit.prove()
            while True:
                visit.step()


class Visit:
    """The exchange over one connection, in blocking calls. Implements Receiver."""

    def __init__(self, visits: Visits, sock: socket.socket, receiver: Receiver | None = None) -> None:
        """Begin over a new connection. `receiver` answers; None: this node has dialed, and asks."""
        self._answers: deque[tuple[FrameKind, bytes]] = deque()  # that came and were not taken
        self._tls, self._socket, self._is_dialer = visits.tls, sock, receiver is None
        listener, nonce = cast("Listener", receiver or self), os.urandom(NONCE_SIZE)
        self._link = make_link(listener, visits.credentials, nonce, self._is_dialer, time.monotonic_ns())

    def close(self) -> None:
        """Close the socket of the visit, without a farewell."""
        self._socket.close()

    def prove(self) -> None:
        """Have both sides prove themselves. Raises OSError, PeerError."""
        if self._tls is not None:
            wrap = self._tls.dial_socket if self._is_dialer else self._tls.accept_socket
            self._socket, uris = wrap(self._socket)
            self._link.certify(uris)
        while not self._link.handshake.is_done:
            self.step()
            if time.monotonic_ns() - self._link.begun > HANDSHAKE_WITHIN:
                raise PeerError("the handshake took too long")

    def step(self) -> None:
        """Send what is to be sent, and take what comes next. Raises OSError, PeerError."""
        self._send()
        data = self._socket.recv(CHUNK)
        if not data:
            raise PeerError("the peer closed the connection")
        self._link.receive(data, time.monotonic_ns())
        if self._link.closing:
            self._send()

    def _send(self) -> None:
        """Send what is to be sent. Raises PeerError if the visit is over then."""
        for data in self._link.drain():
            self._socket.sendall(data)
        if self._link.closing:
            raise PeerError(self._link.closing)

    def ask(self, frame: bytes, kind: FrameKind) -> bytes:
        """Send a request, and return the content of the reply, a frame of this kind. Raises OSError, PeerError."""
        self._link.send(frame)
        while not self._answers:
            self.step()
        answered, content = self._answers.popleft()
        if answered is not kind:
            raise PeerError(f"{answered.name} came instead of {kind.name}")
        return content

    def receive(self, link: Link, kind: FrameKind, content: bytes, now: int) -> None:
        self._answers.append((kind, content))
