"""nsqlookupd's TCP side: one trio task for each connection, around a protocol Session.

Invariants: a silent peer is disconnected, before IDENTIFY and after it. The number of connections is bounded, by
PendingConnections before IDENTIFY and by ProducerSlots after it. No failure of accept() ends the daemon or makes it spin.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import trio

from lookupd.cluster_nodes import ClusterNode, ClusterNodes
from lookupd.pending import PendingConnections
from lookupd.producers import UNIX, host_of
from lookupd.protocol import Session
from lookupd.rate_limit import RateLimit
from lookupd.registry import Registry
from lookupd.tls import REFUSAL, Tls
from shared.log import log
from shared.process.listen import OUT_OF_RESOURCES, Listener, display, leave_spare
from shared.process.unix_sockets import NOBODY, peer_user
from shared.tls.stream import HandshakeError, TlsStream

if TYPE_CHECKING:
    from shared.auth.keyring import Keyring

LINGER = 1.0  # s for the peer to read its last error: closing with unread bytes would reset the connection before that
ACCEPT_PAUSE = 0.1  # s between attempts to accept while the machine is out of file descriptors or memory
LOOK_EVERY = 0.5  # s between two looks at the auth file
CHUNK = 1024  # bytes of one receive: 200 of the shortest commands, which take half a millisecond
BODY_CHUNK = 16 * 1024  # bytes of one receive before IDENTIFY, whose body may be longer
KEEPALIVE_IDLE, KEEPALIVE_INTERVAL, KEEPALIVE_COUNT = 15, 15, 9  # s, s, probes: Go's defaults


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long a peer may take, in seconds."""

    identify: float  # from the connection to the end of IDENTIFY
    idle: float  # after IDENTIFY, from one complete command to the next


@dataclass(frozen=True, slots=True)
class ConnectionCounts:
    """The counts of connections that /metrics shows."""

    connections: int  # open
    # Refused since the start, by reason: the limits lobby, identify, silent and register; tls_handshake and clear_text.
    refused: Mapping[str, int]


class _Lifetime:
    """How long a connection may stay: until its deadline, or until a new connection displaces it."""

    def __init__(self) -> None:
        self.scope = trio.CancelScope()
        self.displaced = False

    def end(self) -> None:
        """Close the connection because a new one takes its place among the pending ones."""
        self.displaced = True
        self.scope.cancel()

    def extend(self, seconds: float) -> None:
        """Move the deadline to `seconds` from now."""
        self.scope.deadline = trio.current_time() + seconds


class TcpServer:
    """Accepts connections and serves them until it is cancelled."""

    def __init__(
        self,
        registry: Registry,
        answer: bytes,
        clock: Callable[[], int],
        timeouts: Timeouts,
        monotonic: Callable[[], int] = time.monotonic_ns,
        keyring: Keyring | None = None,
        tls: Tls | None = None,
    ) -> None:
        """`keyring`: the auth file; None: there is none. `tls`: None: all connections are in clear text."""
        self._keyring, self._tls = keyring, tls
        self._sessions: set[Session] = set()
        self._registry = registry
        self._monotonic = monotonic  # ns
        self._answer = answer  # the reply to IDENTIFY
        self._clock = clock  # ns since the epoch
        self._timeouts = timeouts
        self.cluster_nodes = ClusterNodes(registry.slots.limits)
        self._unnamed = itertools.count(1)  # numbers for peers on a unix socket, which have no address
        self._pending = PendingConnections()
        self._rate_limit = RateLimit()
        self._connections = 0  # connections being served
        # connections that a new one displaced before IDENTIFY, and those refused because of TLS
        self._refused = Counter({"lobby": 0, "tls_handshake": 0, "clear_text": 0})

    async def serve(self, listener: Listener) -> None:
        """Accept connections forever. Raises OSError if accept() fails for a reason that does not pass."""
        async with trio.open_nursery() as nursery:
            acceptor = trio.SocketListener(trio.socket.from_stdlib_socket(listener.socket))
            while True:
                stream = await _accept(acceptor)
                remote = self._remote_address(stream.socket)
                lifetime = _Lifetime()
                self._add_pending(lifetime, remote)
                nursery.start_soon(self._serve_connection, stream, remote, lifetime)

    async def watch_rights(self) -> None:
        """Read the auth file when it has changed, and end connections whose rights have ended, until cancelled."""
        keyring = self._keyring
        while keyring is not None:
            await trio.sleep(LOOK_EVERY)
            if await trio.to_thread.run_sync(keyring.reload_if_changed):
                for session in list(self._sessions):
                    session.rights_changed()

    def obstacle(self) -> str:
        """Return the reason why a new nsqd would be refused, or "" if it would be accepted."""
        slots = self._registry.slots
        return f"{len(slots)} nsqd are connected" if slots.full else ""

    def known_nodes(self) -> list[ClusterNode]:
        """Return the nodes of clusters, also those that have disconnected recently."""
        return self.cluster_nodes.nodes(self._monotonic())

    def connection_counts(self) -> ConnectionCounts:
        return ConnectionCounts(self._connections, {**self._refused, **self._registry.refused})

    def _add_pending(self, lifetime: _Lifetime, remote: str) -> None:
        if self._pending.add(lifetime, host_of(remote), lifetime.end):
            self._refused["lobby"] += 1
            log.warning("TCP: too many connections have not sent IDENTIFY: closing the oldest")

    async def _serve_connection(self, stream: trio.SocketStream, remote: str, lifetime: _Lifetime) -> None:
        """Serve one connection from start to end. However it ends, its registrations are removed."""
        note = lambda text: log.info("CLIENT(%s): %s", remote, text)  # noqa: E731
        is_unix = self._keyring is not None and stream.socket.family == socket.AF_UNIX
        user = peer_user(stream.socket) if is_unix else NOBODY
        session = Session(self._registry, remote, self._answer, note, lifetime.end, self._keyring, user)
        self._sessions.add(session)
        log.info("TCP: new client(%s)", remote)
        self._connections += 1
        try:
            async with stream:
                await self._converse(stream, session, remote, lifetime)
        except HandshakeError as error:
            log.info("CLIENT(%s): TLS handshake failed: %s", remote, error)
        except (trio.BrokenResourceError, OSError) as error:  # the network or the peer failed: only this one ends
            log.info("CLIENT(%s): connection lost - %s", remote, error.__cause__ or error)
        finally:
            self._sessions.discard(session)
            self._disconnected(session)
            self._pending.remove(lifetime)
            self._connections -= 1
            log.info("TCP: closed client(%s)", remote)

    async def _converse(self, plain: trio.SocketStream, session: Session, remote: str, lifetime: _Lifetime) -> None:
        _keep_alive(plain.socket)
        lifetime.extend(self._timeouts.identify)  # which bounds a handshake of TLS, too
        with lifetime.scope:
            stream = await self._encrypted(plain, session)
            async with stream or plain:
                await self._exchange(stream or plain, session, lifetime, host_of(remote))
                if session.failure:
                    log.error("CLIENT(%s): %s", remote, session.failure)
                    self._disconnected(session)  # at once, not only after the linger
                    self._add_pending(lifetime, remote)
                    lifetime.extend(LINGER)
                    if stream:
                        await stream.say_goodbye()
                    await _linger(plain)
        if lifetime.displaced:
            log.info("CLIENT(%s): closed to make room for other connections", remote)
        elif lifetime.scope.cancelled_caught and not session.failure:
            what = "command" if session.identified else "IDENTIFY"
            seconds = self._timeouts.idle if session.identified else self._timeouts.identify
            log.warning("CLIENT(%s): no %s within %g s", remote, what, seconds)

    async def _encrypted(self, plain: trio.SocketStream, session: Session) -> TlsStream | None:
        """Return the encrypted stream, or None for clear text, which the session refuses if TLS is required."""
        if self._tls is None:
            return None
        try:
            stream = await self._tls.accept(plain)
        except HandshakeError:
            self._refused["tls_handshake"] += 1
            with contextlib.suppress(trio.BrokenResourceError):  # the failure before is raised
                await _linger(plain)  # for the alert that says why
            raise
        if stream is None and self._tls.is_required:
            self._refused["clear_text"] += 1
            await plain.send_all(session.refuse(REFUSAL))
        return stream

    async def _exchange(self, stream: trio.abc.Stream, session: Session, lifetime: _Lifetime, host: str) -> None:
        """Receive bytes and send replies until the peer closes or makes an error."""
        while not session.closing:
            known = session.info
            data = bytes(await stream.receive_some(CHUNK if session.identified else BODY_CHUNK))
            reply = session.receive(data, self._clock()) if data else session.end()
            if session.info is not None:
                self._pending.remove(lifetime)
                note = self.cluster_nodes.connected if known is None else self.cluster_nodes.note_contact
                if data:
                    note(session.info, self._monotonic())
            if reply:  # the bytes completed a command
                await stream.send_all(reply)
                pause = self._rate_limit.pause(host, session.fetch_idle(), trio.current_time())
                if pause:
                    await trio.sleep(pause)
                if session.identified:
                    lifetime.extend(self._timeouts.idle)
            if not data:
                return

    def _disconnected(self, session: Session) -> None:
        """Remove what the connection has registered. May be called twice."""
        if session.info is not None:
            self.cluster_nodes.disconnected(session.info)
        session.disconnected()

    def _remote_address(self, sock: trio.socket.SocketType) -> str:
        """Return the identity of the peer: ip:port as Go prints it, or a number on a unix socket."""
        if sock.family == socket.AF_UNIX:
            return f"{UNIX}{next(self._unnamed)}"
        try:
            return display(*sock.getpeername()[:2])
        except OSError:  # the peer is already gone, and the first receive will show it
            return f"{UNIX}{next(self._unnamed)}"


async def _accept(acceptor: trio.SocketListener) -> trio.SocketStream:
    """Return the next connection. While file descriptors or memory are short, retry every ACCEPT_PAUSE."""
    complained = False
    while True:
        try:
            leave_spare()
            return await acceptor.accept()
        except OSError as error:
            if error.errno not in OUT_OF_RESOURCES:
                raise
            if not complained:
                log.warning("TCP: temporary Accept() failure - %s", error.strerror)
            complained = True
            await trio.sleep(ACCEPT_PAUSE)


async def _linger(stream: trio.SocketStream) -> None:
    """Shut down the sending side, and drop what the peer still sends until it closes or LINGER has passed."""
    with trio.move_on_after(LINGER):
        await stream.send_eof()
        while await stream.receive_some(CHUNK):
            pass


def _keep_alive(sock: trio.socket.SocketType) -> None:
    """Turn on TCP keepalive, which detects within two and a half minutes that a peer's machine is gone."""
    if sock.family == socket.AF_UNIX:
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_IDLE)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_INTERVAL)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, KEEPALIVE_COUNT)
