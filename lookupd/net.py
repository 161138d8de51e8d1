"""nsqlookupd's TCP side: a trio task for each connection, around a protocol Session.

Laws: silence is cut short, before IDENTIFY and after it; the number of connections is bounded, by the lobby before IDENTIFY
and by the registry's seats after it; no failure to accept ends or spins the daemon.
"""

from __future__ import annotations

import itertools
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import trio

from lookupd.lobby import Lobby
from lookupd.pace import Pace
from lookupd.producers import UNIX, host_of
from lookupd.protocol import Session
from lookupd.registry import Registry
from shared.listen import OUT_OF_RESOURCES, Listener, display
from shared.log import log

LINGER = 1.0  # s to let the peer read its last error: closing on unread bytes would reset the connection under it
ACCEPT_PAUSE = 0.1  # s between attempts to accept while the machine is out of file descriptors or memory
CHUNK = 1024  # bytes for one receive: 200 of the shortest commands, which take half a millisecond
BODY_CHUNK = 16 * 1024  # bytes before IDENTIFY, whose body may be longer
KEEPALIVE_IDLE, KEEPALIVE_INTERVAL, KEEPALIVE_COUNT = 15, 15, 9  # s, s, probes: Go's defaults


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long a peer may take, in s."""

    identify: float  # from connecting to the end of IDENTIFY
    idle: float  # after it, from one complete command to the next


@dataclass(frozen=True, slots=True)
class Figures:
    """What /metrics shows of the connections."""

    connections: int  # open
    refused: Mapping[str, int]  # because of a limit, since the start; by reason: lobby, identify, silent, register


class _Stay:
    """How long a connection may still stay: until the deadline, or until a newcomer displaces it."""

    def __init__(self) -> None:
        self.scope = trio.CancelScope()
        self.displaced = False

    def end(self) -> None:
        """A newcomer takes its place in the lobby."""
        self.displaced = True
        self.scope.cancel()

    def extend(self, seconds: float) -> None:
        """Let the connection stay for so long from now on."""
        self.scope.deadline = trio.current_time() + seconds


class TcpServer:
    """Accepts connections and serves them until cancelled."""

    def __init__(self, registry: Registry, answer: bytes, clock: Callable[[], int], timeouts: Timeouts) -> None:
        self._registry = registry
        self._answer = answer  # to IDENTIFY
        self._clock = clock  # ns since the epoch
        self._timeouts = timeouts
        self._unnamed = itertools.count(1)  # numbers for peers on a unix socket, which have no address
        self._lobby = Lobby()
        self._pace = Pace()
        self._connections = 0  # tasks being served
        self._displaced = 0  # connections that a newcomer displaced

    async def serve(self, listener: Listener) -> None:
        """Accept for ever. OSError if that is impossible for a reason that does not pass."""
        async with trio.open_nursery() as nursery:
            acceptor = trio.SocketListener(trio.socket.from_stdlib_socket(listener.socket))
            while True:
                stream = await _accept(acceptor)
                remote = self._remote_address(stream.socket)
                stay = _Stay()
                self._enter_lobby(stay, remote)
                nursery.start_soon(self._serve_connection, stream, remote, stay)

    def obstacle(self) -> str:
        """Why a new nsqd would be refused; "" if it would not."""
        seats = self._registry.seats
        return f"{len(seats)} nsqd are connected" if seats.full else ""

    def figures(self) -> Figures:
        return Figures(self._connections, {"lobby": self._displaced, **self._registry.refused})

    def _enter_lobby(self, stay: _Stay, remote: str) -> None:
        if self._lobby.enter(stay, host_of(remote), stay.end):
            self._displaced += 1
            log.warning("TCP: too many connections without IDENTIFY: the oldest is closed")

    async def _serve_connection(self, stream: trio.SocketStream, remote: str, stay: _Stay) -> None:
        """One connection's life; whatever ends it, its registrations go."""
        note = lambda text: log.info("CLIENT(%s): %s", remote, text)  # noqa: E731
        session = Session(self._registry, remote, self._answer, note, stay.end)
        log.info("TCP: new client(%s)", remote)
        self._connections += 1
        try:
            async with stream:
                await self._converse(stream, session, remote, stay)
        except (trio.BrokenResourceError, OSError) as error:  # the network's or the peer's doing: this one is over
            log.info("CLIENT(%s): connection lost - %s", remote, error.__cause__ or error)
        finally:
            session.disconnected()
            self._lobby.leave(stay)
            self._connections -= 1
            log.info("TCP: closed client(%s)", remote)

    async def _converse(self, stream: trio.SocketStream, session: Session, remote: str, stay: _Stay) -> None:
        _keep_alive(stream.socket)
        stay.extend(self._timeouts.identify)
        with stay.scope:
            await self._exchange(stream, session, stay, host_of(remote))
            if session.failure:
                log.error("CLIENT(%s): %s", remote, session.failure)
                session.disconnected()  # now, not only after the linger
                self._enter_lobby(stay, remote)
                stay.extend(LINGER)
                await _linger(stream)
        if stay.displaced:
            log.info("CLIENT(%s): closed, for others need its place", remote)
        elif stay.scope.cancelled_caught and not session.failure:
            what = "command" if session.identified else "IDENTIFY"
            seconds = self._timeouts.idle if session.identified else self._timeouts.identify
            log.warning("CLIENT(%s): no %s within %g s", remote, what, seconds)

    async def _exchange(self, stream: trio.SocketStream, session: Session, stay: _Stay, host: str) -> None:
        """Bytes in, replies out, until the peer ends or errs."""
        while not session.closing:
            data = await stream.receive_some(CHUNK if session.identified else BODY_CHUNK)
            reply = session.receive(data, self._clock()) if data else session.end()
            if session.identified:
                self._lobby.leave(stay)
            if reply:  # it completed a command
                await stream.send_all(reply)
                pause = self._pace.pause(host, session.fetch_idle(), trio.current_time())
                if pause:
                    await trio.sleep(pause)
                if session.identified:
                    stay.extend(self._timeouts.idle)
            if not data:
                return

    def _remote_address(self, sock: trio.socket.SocketType) -> str:
        """The peer's identity: ip:port, as Go prints it; on a unix socket a number."""
        if sock.family == socket.AF_UNIX:
            return f"{UNIX}{next(self._unnamed)}"
        try:
            return display(*sock.getpeername()[:2])
        except OSError:  # already gone: the first receive will say so
            return f"{UNIX}{next(self._unnamed)}"


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
