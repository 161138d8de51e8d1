"""nsqlookupd's TCP side: a trio task for each connection, around a protocol Session.

Laws: silence is cut short only before IDENTIFY (an nsqd may then be as silent as it likes, as with the original; TCP
keepalive finds the dead ones); the number of connections is bounded; no failure to accept ends or spins the daemon.
"""

from __future__ import annotations

import itertools
import math
import socket
from collections.abc import Callable

import trio

from lookupd.protocol import Session
from lookupd.registry import Registry
from shared.listen import OUT_OF_RESOURCES, Listener, display
from shared.log import log

# An nsqd holds one connection, so this is a cluster of 4,000 nodes. An idle task with its session took 7.4 KiB here
# (4,000 connections: 29 MiB), and the file descriptors stay far from the usual hard limits.
MAX_CONNECTIONS = 4_000
IDENTIFY_TIMEOUT = 10.0  # s from accept to the end of IDENTIFY; nsqd sends it with its first packet
LINGER = 1.0  # s to let the peer read its last error: closing on unread bytes would reset the connection under it
ACCEPT_PAUSE = 0.1  # s between attempts to accept while the machine is out of file descriptors or memory
CHUNK = 16 * 1024  # bytes for one receive; an nsqd's REGISTER of 100 channels fits
KEEPALIVE_IDLE, KEEPALIVE_INTERVAL, KEEPALIVE_COUNT = 15, 15, 9  # s, s, probes: Go's defaults


class TcpServer:
    """Accepts connections and serves them until cancelled."""

    def __init__(self, registry: Registry, answer: bytes, clock: Callable[[], int]) -> None:
        self._registry = registry
        self._answer = answer  # to IDENTIFY
        self._clock = clock  # ns since the epoch
        self._unnamed = itertools.count(1)  # numbers for peers on a unix socket, which have no address
        self._full = False  # True: connections are being refused, and the log has said so
        self.connections = 0  # tasks being served, refused ones not included; at most MAX_CONNECTIONS

    async def serve(self, listener: Listener) -> None:
        """Accept for ever. OSError if that is impossible for a reason that does not pass."""
        async with trio.open_nursery() as nursery:
            acceptor = trio.SocketListener(trio.socket.from_stdlib_socket(listener.socket))
            while True:
                stream = await _accept(acceptor)
                if self._admits():
                    self.connections += 1
                    nursery.start_soon(self._serve_connection, stream)
                else:
                    stream.socket.close()

    def obstacle(self) -> str:
        """Why a new nsqd would be refused; "" if it would not."""
        return f"{MAX_CONNECTIONS} connections are open" if self.connections >= MAX_CONNECTIONS else ""

    def _admits(self) -> bool:
        full = self.connections >= MAX_CONNECTIONS
        if full and not self._full:
            log.warning("TCP: refusing connections beyond %d", MAX_CONNECTIONS)
        self._full = full
        return not full

    async def _serve_connection(self, stream: trio.SocketStream) -> None:
        """One connection's life; whatever ends it, its registrations go."""
        remote = self._remote_address(stream.socket)
        session = Session(self._registry, remote, self._answer, lambda text: log.info("CLIENT(%s): %s", remote, text))
        log.info("TCP: new client(%s)", remote)
        try:
            async with stream:
                await self._converse(stream, session, remote)
        except (trio.BrokenResourceError, OSError) as error:  # the network's or the peer's doing: this one is over
            log.info("CLIENT(%s): connection lost - %s", remote, error.__cause__ or error)
        finally:
            session.disconnected()
            self.connections -= 1
            log.info("TCP: closed client(%s)", remote)

    async def _converse(self, stream: trio.SocketStream, session: Session, remote: str) -> None:
        _keep_alive(stream.socket)
        with trio.move_on_after(IDENTIFY_TIMEOUT) as patience:
            await self._exchange(stream, session, patience)
        if patience.cancelled_caught:
            log.warning("CLIENT(%s): no IDENTIFY within %g s", remote, IDENTIFY_TIMEOUT)
        if session.failure:
            log.error("CLIENT(%s): %s", remote, session.failure)
            session.disconnected()  # now, not only after the linger
            await _linger(stream)

    async def _exchange(self, stream: trio.SocketStream, session: Session, patience: trio.CancelScope) -> None:
        """Bytes in, replies out, until the peer ends or errs."""
        while not session.closing:
            data = await stream.receive_some(CHUNK)
            reply = session.receive(data, self._clock()) if data else session.end()
            if session.identified:
                patience.deadline = math.inf
            if reply:
                await stream.send_all(reply)
            if not data:
                return

    def _remote_address(self, sock: trio.socket.SocketType) -> str:
        """The peer's identity: ip:port, as Go prints it; on a unix socket a number."""
        if sock.family == socket.AF_UNIX:
            return f"@{next(self._unnamed)}"
        try:
            return display(*sock.getpeername()[:2])
        except OSError:  # already gone: the first receive will say so
            return f"@{next(self._unnamed)}"


async def _accept(acceptor: trio.SocketListener) -> trio.SocketStream:
    """The next connection, as soon as there are file descriptors and memory for one."""
    complained = False
    while True:
        try:
            return await acceptor.accept()
        except OSError as error:
            if error.errno not in OUT_OF_RESOURCES:
                raise
            if not complained:
                log.warning("TCP: temporary Accept() failure - %s", error.strerror)
            complained = True
            await trio.sleep(ACCEPT_PAUSE)


async def _linger(stream: trio.SocketStream) -> None:
    """Tell the peer that we are done, and drop what it still sends until it is done too, or LINGER is over."""
    with trio.move_on_after(LINGER):
        await stream.send_eof()
        while await stream.receive_some(CHUNK):
            pass


def _keep_alive(sock: trio.socket.SocketType) -> None:
    """Notice within two and a half minutes that a peer's machine is gone."""
    if sock.family == socket.AF_UNIX:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_IDLE)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_INTERVAL)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_COUNT)
