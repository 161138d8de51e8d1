"""A stream of bytes over TLS for trio, on top of another stream. One task uses it, which sends or receives at a time.

Unlike trio.SSLStream it takes any TlsObject, and it sends the alert of a failed handshake, so that the peer can say why.
A peer that closes without saying goodbye is at its end, as over plain TCP.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Callable

import trio

from shared.tls.certificates import TlsObject, describe_failure

CHUNK = 16 * 1024  # bytes of one receive: a whole record of TLS
GOODBYE = 0.1  # s for a peer that does not read to make room for the last words


class HandshakeError(Exception):
    """The two sides did not agree. The text says why, in one line."""


class TlsStream(trio.abc.Stream):
    """One side of a connection whose handshake may be in progress."""

    def __init__(self, transport: trio.abc.Stream, begin: Callable[[ssl.MemoryBIO, ssl.MemoryBIO], TlsObject]) -> None:
        """`begin` returns a new connection: the first buffer holds bytes from the peer, the second bytes for it."""
        self._transport = transport
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._connection = begin(self._incoming, self._outgoing)

    async def do_handshake(self) -> None:
        """Agree with the peer on keys. Raises HandshakeError, trio.BrokenResourceError."""
        while True:
            try:
                self._connection.do_handshake()
            except ssl.SSLWantReadError:
                await self._flush()
                if not await self._feed():
                    raise HandshakeError("the peer hung up") from None
            except ssl.SSLError as error:
                with contextlib.suppress(trio.BrokenResourceError):  # the peer is gone, and needs no alert
                    await self._flush()
                raise HandshakeError(describe_failure(error)) from None
            else:
                return await self._flush()

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send the bytes, encrypted, as one or more records. Raises trio.BrokenResourceError."""
        try:
            if data:
                self._connection.write(bytes(data))
        except ssl.SSLError as error:
            raise trio.BrokenResourceError(f"TLS: {describe_failure(error)}") from None
        await self._flush()

    async def wait_send_all_might_not_block(self) -> None:
        """Wait until the other stream accepts bytes."""
        await self._transport.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:  # trio's name (words: ok)
        """Return bytes from the peer; b"": it has closed. Raises trio.BrokenResourceError for an alert or broken TLS."""
        while True:
            try:
                data: bytes = self._connection.read(max_bytes or CHUNK)
            except ssl.SSLWantReadError:
                await self._flush()
                if not await self._feed():
                    return b""
            except ssl.SSLZeroReturnError:
                return b""
            except ssl.SSLError as error:
                raise trio.BrokenResourceError(f"TLS: {describe_failure(error)}") from None
            else:
                await self._flush()
                return data

    async def say_goodbye(self) -> None:
        """Send close_notify, unless the peer accepts no more bytes."""
        with contextlib.suppress(ssl.SSLError):  # the peer has not said goodbye, or there is no connection
            self._connection.unwrap()
        with trio.move_on_after(GOODBYE), contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await self._flush()

    async def aclose(self) -> None:
        """Say goodbye, and close the other stream."""
        try:
            await self.say_goodbye()
        finally:
            await self._transport.aclose()

    async def _flush(self) -> None:
        if data := self._outgoing.read():
            await self._transport.send_all(data)

    async def _feed(self) -> bool:
        """Take what comes from the peer. Returns False at its end."""
        data = await self._transport.receive_some(CHUNK)
        if data:
            self._incoming.write(data)
        return bool(data)
