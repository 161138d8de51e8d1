"""Accepting on the HTTP listeners: which connections are accepted, how many, and what happens without file descriptors.

asyncio's own accept code cannot count: under TLS it reports a connection only after the handshake, so peers that stall
there would be unlimited in number. Each refusal is counted by its reason, and the log shows it at most every QUIET
seconds.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from functools import partial
from math import inf

from shared.http.guard import GuardedProtocol
from shared.http.secure import SecureProtocol
from shared.listen import OUT_OF_RESOURCES
from shared.log import log
from shared.tls import describe_failure

BACKLOG = 4096  # connections that the kernel queues for us
ACCEPT_BATCH = 16  # connections accepted in a row, before open connections get a turn
# s without accepting when there are no descriptors: constant retries would starve the open connections.
ACCEPT_PAUSE = 1.0
QUIET = 10.0  # s between two log lines about the same problem


class ConnectionLimiter:
    """The limits on connections, over all listeners of a server."""

    def __init__(self, total: int, per_ip: int) -> None:
        self._total = total
        self._per_ip = per_ip  # 0: no limit per address
        self._open = 0  # connections that were admitted and have not ended
        self._by_ip: dict[str, int] = {}  # open connections by address; holds no zeros
        self._quiet_until: dict[str, float] = {}  # problem -> when it may be logged again, by the loop's clock
        self.refused: Counter[str] = Counter()  # reason -> refused connections

    def admits(self, ip: str) -> bool:
        """Return whether a new connection is within the limits, and count it if so. `ip` is "" for a unix socket."""
        here = self._by_ip.get(ip, 0)
        if self._open >= self._total:
            return self._refuse("max_connections", f"{self._total} connections are open")
        if ip and self._per_ip and here >= self._per_ip:
            return self._refuse("max_connections_per_ip", f"{self._per_ip} connections of {ip} are open")
        self._open += 1
        self._by_ip[ip] = here + 1
        return True

    def left(self, ip: str) -> None:
        """Note that an admitted connection has ended."""
        self._open -= 1
        rest = self._by_ip.pop(ip) - 1
        if rest:
            self._by_ip[ip] = rest

    def handshake_failed(self, ip: str, error: BaseException | None) -> None:
        """Count and log a failed TLS handshake. `error` is None if the peer hung up."""
        self.refused["tls_handshake"] += 1
        log.info("HTTPS: handshake with %s failed: %s", ip or "@", describe_failure(error) if error else "hung up")

    def may_tell(self, trouble: str) -> bool:
        """Return whether another log line about this problem may be written now."""
        now = asyncio.get_running_loop().time()
        if now < self._quiet_until.get(trouble, -inf):
            return False
        self._quiet_until[trouble] = now + QUIET
        return True

    def _refuse(self, reason: str, why: str) -> bool:
        self.refused[reason] += 1
        if self.may_tell(reason):
            log.warning("HTTP: refusing connections: %s", why)
        return False


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
                sock, address = self._sock.accept()
            except BlockingIOError:
                return
            except OSError as failure:
                if failure.errno in OUT_OF_RESOURCES:
                    self._rest(failure)
                    return
                continue  # ECONNABORTED and the like: that connection is gone, the next may be fine
            ip = str(address[0]) if isinstance(address, tuple) else ""
            if self._limiter.admits(ip):
                task = self._loop.create_task(self._join(sock, ip))
                self._joining.add(task)
                task.add_done_callback(self._joining.discard)
            else:
                sock.close()

    def _rest(self, failure: OSError) -> None:
        self._loop.remove_reader(self._sock)
        self._pause = self._loop.call_later(ACCEPT_PAUSE, self._resume)
        if self._limiter.may_tell("accept"):
            log.error("HTTP: cannot accept: %s; trying again", failure.strerror)

    async def _join(self, sock: socket.socket, ip: str) -> None:
        left = partial(self._limiter.left, ip)
        guarded = self._make_protocol()
        protocol: asyncio.BaseProtocol = guarded
        if self._tls is None:
            guarded.on_left = left
        else:
            failed = partial(self._limiter.handshake_failed, ip)
            protocol = SecureProtocol(self._loop, guarded, self._tls, failed, left)
        await self._loop.connect_accepted_socket(lambda: protocol, sock)
