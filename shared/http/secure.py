"""asyncio's TLS layer for connections of strangers: failed handshakes are counted, and leave nothing in memory.

asyncio documents none of what this class extends: tests/shared/http/test_internals.py fails when a new Python has changed it.
"""

from __future__ import annotations

import asyncio
import ssl
from asyncio.sslproto import AppProtocolState, SSLProtocol
from collections.abc import Callable
from typing import Any

from shared.foreign import MOST_LOOKED_AT
from shared.http.guard import GuardedProtocol
from shared.http.transport import close, forget

HANDSHAKE_TIMEOUT = 5  # s, as in the NSQ protocol
PLAIN_HTTP = b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"  # Go's answer


class SecureProtocol(SSLProtocol):
    """The TLS protocol between a socket's transport and an HTTP protocol."""

    max_size = 32 * 1024  # bytes that each connection holds, idle or not; asyncio's default is 256 KiB
    _app_state: AppProtocolState  # asyncio's, but unknown to the type stubs, as are the next ones
    _app_protocol: GuardedProtocol
    _incoming: ssl.MemoryBIO
    _outgoing: ssl.MemoryBIO
    _ssl_buffer_view: memoryview
    _ssl_reading_paused: bool
    _shutdown_timeout_handle: asyncio.TimerHandle | None
    _loop: asyncio.AbstractEventLoop

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        protocol: GuardedProtocol,
        context: ssl.SSLContext,
        on_failed: Callable[[BaseException | None, bytes], None],
        on_left: Callable[[], None],
    ) -> None:
        """`on_failed` is called with the reason and the client's first bytes if the handshake fails, `on_left` at any end."""
        waiter: Any = None  # no future waits for the handshake
        super().__init__(loop, protocol, context, waiter, server_side=True, ssl_handshake_timeout=HANDSHAKE_TIMEOUT)
        self._opening = b""  # the first bytes of the client
        self._on_failed = on_failed
        self._on_left = on_left

    def connection_lost(self, exc: BaseException | None) -> None:
        transport, guarded = self._transport, self._app_protocol
        failed = self._app_state is AppProtocolState.STATE_INIT
        super().connection_lost(exc)
        forget(transport)
        if failed:
            guarded.forget()
            self._on_failed(exc, self._opening)
        self._on_left()

    def _do_handshake(self) -> None:
        if not self._opening:
            self._opening = bytes(self._ssl_buffer_view[: min(self._incoming.pending, MOST_LOOKED_AT)])
        super()._do_handshake()  # type: ignore[misc]

    def pause_writing(self) -> None:
        super().pause_writing()
        # Do not read from a peer that takes no answers, because TLS answers, too.
        if isinstance(self._transport, asyncio.ReadTransport):
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        if isinstance(self._transport, asyncio.ReadTransport) and not self._ssl_reading_paused:
            self._transport.resume_reading()

    def _fatal_error(self, exc: BaseException, message: str = "Fatal error on transport") -> None:
        if isinstance(exc, OSError):  # an error of TLS or sockets, whose frames refer to it and to this connection
            exc = exc.with_traceback(None)
            if self._app_state is AppProtocolState.STATE_INIT and isinstance(self._transport, asyncio.WriteTransport):
                plain = getattr(exc, "reason", "") == "HTTP_REQUEST"
                self._transport.write(PLAIN_HTTP if plain else self._outgoing.read())  # asyncio does not send the alert
        super()._fatal_error(exc, message)

    def _do_shutdown(self) -> None:
        super()._do_shutdown()  # type: ignore[misc]
        if self._shutdown_timeout_handle is not None:
            self._shutdown_timeout_handle.cancel()
        # As in Go: after our close_notify there is no need to wait for the peer's.
        if isinstance(self._transport, asyncio.WriteTransport):
            self._transport.write(self._outgoing.read())  # asyncio holds it back while the peer reads slowly
            close(self._transport, self._loop)
