"""The transport that an HTTP server's protocol writes its answers to: few system calls, and an end that no client delays."""

from __future__ import annotations

import asyncio
from typing import Any

CLOSE_TIMEOUT = 10.0  # s for the peer to take LEAST_TAKEN of the bytes that wait when we close
LEAST_TAKEN = 8 * 1024  # bytes, or all that is left
LINGER_TIME = 5.0  # s for which input is still read after an answer that came before the end of a request
MOST_LINGERED = 256 * 1024 * 1024  # bytes of such input
MOST_WAITING = 32 * 1024  # bytes in the transport beyond which an answer's next piece is not written


class AnswerTransport(asyncio.Transport):
    """Sends all writes of one pass of the event loop in one system call, and reads only while it is not paused.

    uvicorn writes a response's header and body separately: the second send took an eighth of a request's time.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        """`transport` is the connection's own; its write buffer is limited to MOST_WAITING."""
        super().__init__()
        transport.set_write_buffer_limits(MOST_WAITING)
        self._transport = transport
        self._loop = loop
        self._pending: list[bytes] = []
        self._size = 0  # bytes in `_pending`
        self._is_paused = False  # by the protocol that writes here
        self._is_held = False  # by the guard
        self.closed = False  # True once `close` or `abort` was called: later writes are dropped
        self.is_unread = False  # True: the peer may still send a request that was answered, so `close` lingers
        self._lingering: asyncio.TimerHandle | None = None  # runs while input is read only to be discarded
        self._lingered = 0  # bytes that came after `close`

    def write(self, data: Any) -> None:
        if self.closed:
            return
        if not self._pending:
            self._loop.call_soon(self._flush)
        self._pending.append(data)
        self._size += len(data)
        if self._size > MOST_WAITING:  # so that the writer learns that the network does not take it
            self._flush()

    def _flush(self) -> None:
        pending, self._pending, self._size = self._pending, [], 0
        if pending:
            self._transport.write(pending[0] if len(pending) == 1 else b"".join(pending))

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self._flush()
        if self._transport.is_closing():
            return
        if self.is_unread:
            self._linger()
        else:
            close(self._transport, self._loop)

    def _linger(self) -> None:
        """Read on for a while before closing: with unread input the kernel would send RST, and the peer lose its answer."""
        try:
            if self._transport.can_write_eof():
                self._transport.write_eof()
        except OSError:  # the peer is gone
            self._transport.abort()
            return
        self._transport.resume_reading()
        self._lingering = self._loop.call_later(LINGER_TIME, self._end)

    def expect_more(self) -> None:
        """Have `close` linger, unless that would keep the end of the connection from a peer behind TLS."""
        self.is_unread |= self._transport.can_write_eof()

    def discard(self, size: int) -> None:
        """Count `size` bytes of input that came after `close`."""
        self._lingered += size
        if self._lingered > MOST_LINGERED:
            self._transport.abort()

    def _end(self) -> None:
        if not self._transport.is_closing():
            close(self._transport, self._loop)

    def abort(self) -> None:
        self.closed = True
        self._transport.abort()

    def is_closing(self) -> bool:
        return self.closed or self._transport.is_closing()

    def pause_reading(self) -> None:
        self._is_paused = True
        if not self.closed:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._is_paused = False
        if not self._is_held:
            self._transport.resume_reading()

    def hold_reading(self, is_held: bool) -> None:
        """Stop reading, whatever the protocol asks for, or leave it to the protocol again."""
        self._is_held = is_held
        if self.closed:
            return
        if is_held:
            self._transport.pause_reading()
        elif not self._is_paused:
            self._transport.resume_reading()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def drop(self) -> None:
        """Drop what has not been written, and break the reference cycle of the connection's transport, which is lost."""
        self.closed = True
        self._pending.clear()
        if self._lingering is not None:
            self._lingering.cancel()
        forget(self._transport)


def close(transport: asyncio.WriteTransport, loop: asyncio.AbstractEventLoop) -> None:
    """Close after the peer has taken all bytes, but abort if it takes less than LEAST_TAKEN in CLOSE_TIMEOUT."""
    transport.close()
    owed = transport.get_write_buffer_size()
    if owed:
        loop.call_later(CLOSE_TIMEOUT, _cut_off, transport, loop, owed)


def _cut_off(transport: asyncio.WriteTransport, loop: asyncio.AbstractEventLoop, owed: int) -> None:
    rest = transport.get_write_buffer_size()
    if rest > owed - LEAST_TAKEN and rest:
        transport.abort()
    elif rest:
        loop.call_later(CLOSE_TIMEOUT, _cut_off, transport, loop, rest)


def forget(transport: object) -> None:
    """Clear a lost transport: asyncio's refers to itself by this callback, and nsqd never collects old garbage."""
    if hasattr(transport, "_read_ready_cb"):
        transport._read_ready_cb = None
