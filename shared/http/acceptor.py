"""Accepting on the HTTP listeners: which connections are accepted, how many, and what happens without file descriptors.

asyncio's own accept code cannot count: under TLS it reports a connection only after the handshake, so peers that stall
there would be unlimited in number. The limits and counts are those of shared/connection_limiter.py.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
import weakref
from collections.abc import Callable
from functools import partial

from shared.connection_limiter import ConnectionLimiter
from shared.foreign import Foreign, recognize
from shared.http.guard import GuardedProtocol
from shared.http.secure import SecureProtocol
from shared.log import log
from shared.process.listen import BACKLOG, OUT_OF_RESOURCES, leave_spare
from shared.tls.certificates import describe_failure

ACCEPT_BATCH = 16  # connections accepted in a row, before open connections get a turn
# s without accepting when there are no descriptors: constant retries would starve the open connections.
ACCEPT_PAUSE = 1.0
QUIET = 10.0  # s between two lines in the log about such pauses


def watched(limiter: ConnectionLimiter, guarded: GuardedProtocol, sock: socket.socket, ip: str) -> Callable[[], None]:
    """Let a connection be displaced while it is idle. Returns what is to be called when it has ended."""
    key = object()
    reference = weakref.ref(guarded)  # the guard has what is returned, and the two must not refer to each other

    def displace() -> bool | None:
        guard = reference()
        if guard is not None and not guard.is_idle:
            return None
        try:
            sock.shutdown(socket.SHUT_RDWR)  # the event loop sees its end
        except OSError:  # it is closed already, and about to be counted off
            pass
        return True

    def left() -> None:
        limiter.stop_displacing(key)
        limiter.count_off(ip)

    limiter.watch(key, ip, displace)
    return left


class Acceptor:
    """Accepts connections on one listening socket. It lives in the event loop of the HTTP thread."""

    def __init__(
        self,
        sock: socket.socket,
        make_protocol: Callable[[], GuardedProtocol],
        limiter: ConnectionLimiter,
        tls: ssl.SSLContext | None,
    ) -> None:
        """Start to accept; `tls` is None for plain HTTP. Raises OSError if the socket cannot listen."""
        sock.setblocking(False)
        sock.listen(BACKLOG)
        self._sock = sock
        self._make_protocol = make_protocol
        self._limiter = limiter
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None
        self._quiet_until = 0.0  # s by the loop's clock: when the log reports a pause again
        self._joining: set[asyncio.Task[None]] = set()  # connections that asyncio has not taken over yet
        self._resume()

    def close(self) -> None:
        """Stop accepting, and close the socket."""
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._sock)
        self._sock.close()

    def _resume(self) -> None:
        self._loop.add_reader(self._sock, self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPT_BATCH):
            try:
                leave_spare()
                sock, address = self._sock.accept()
            except BlockingIOError:
                return
            except OSError as failure:
                if failure.errno in OUT_OF_RESOURCES:
                    self._rest(failure)
                    return
                continue  # ECONNABORTED and the like: that connection is gone, the next may be fine
            ip = str(address[0]) if isinstance(address, tuple) else ""
            if self._limiter.admits(ip, time.monotonic_ns()):
                guarded = self._make_protocol()
                left = watched(self._limiter, guarded, sock, ip)  # at once: the next connection may need its place
                task = self._loop.create_task(self._join(sock, ip, guarded, left))
                self._joining.add(task)
                task.add_done_callback(self._joining.discard)
            else:
                sock.close()

    def _rest(self, failure: OSError) -> None:
        self._loop.remove_reader(self._sock)
        self._pause = self._loop.call_later(ACCEPT_PAUSE, self._resume)
        now = self._loop.time()
        if now >= self._quiet_until:
            self._quiet_until = now + QUIET
            log.error("HTTP: cannot accept: %s; trying again", failure.strerror)

    async def _join(self, sock: socket.socket, ip: str, guarded: GuardedProtocol, left: Callable[[], None]) -> None:
        protocol: asyncio.BaseProtocol = guarded
        if self._tls is None:
            guarded.on_left = left
        else:
            failed = partial(self._handshake_failed, ip)
            protocol = SecureProtocol(self._loop, guarded, self._tls, failed, left)
        await self._loop.connect_accepted_socket(lambda: protocol, sock)

    def _handshake_failed(self, ip: str, error: BaseException | None, opening: bytes) -> None:
        """Count and log a failed TLS handshake. `error` is None if the peer hung up; `opening`: what it has sent first."""
        self._limiter.refused["tls_handshake"] += 1
        found = recognize(opening)
        if found not in (None, Foreign.TLS):
            log.warning("HTTPS: closed %s, which sent %s", ip or "@", found)
            return
        log.info("HTTPS: handshake with %s failed: %s", ip or "@", describe_failure(error) if error else "hung up")
