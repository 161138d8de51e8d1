"""Byte streams to an nsqd, over anyio."""

import os
import socket
import ssl
from contextlib import AbstractAsyncContextManager, nullcontext, suppress

import anyio
from anyio.abc import ByteStream, SocketAttribute

from penstock.aio.waiter import waker
from penstock.client.resolver import LONGEST_S, Target, resolver
from penstock.forks import Guard
from penstock.sansio.errors import ConnectionLost
from penstock.sansio.tls import reason

READ_SIZE = 65_536  # bytes
LAST_S = 0.1  # s; how long the last bytes may take, such as the alert after a TLS error
BROKEN = (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError, ssl.SSLError)


async def dial(address: str, timeout_s: float, limit: AbstractAsyncContextManager[object] | None = None) -> ByteStream:
    """Return a stream to host:port, [v6]:port or the path of a unix socket. Raises ConnectionLost.

    The name may take LONGEST_S; then `limit` is entered, and connecting may take `timeout_s`.
    """
    try:
        targets = await _targets_of(address)
        async with limit or nullcontext():
            with anyio.fail_after(timeout_s):
                return await _connect(targets, timeout_s)
    except TimeoutError as error:
        raise ConnectionLost(f"cannot connect to {address}: {str(error) or 'timed out'}") from None
    except OSError as error:
        raise ConnectionLost(f"cannot connect to {address}: {_reason(_cause(error))}") from error
    except ValueError as error:  # e.g. port 0 or a name of 70 characters: nsqlookupd passes on any address
        raise ConnectionLost(f"cannot connect to {address}: {error}") from None


async def _targets_of(address: str) -> list[Target]:
    """Return the addresses of a host. Its name is looked up in a thread of `resolver`: those of the event loop are few."""
    found = anyio.Event()
    resolution = resolver().begin(address, waker(found))
    if not resolution.is_done:
        with anyio.move_on_after(LONGEST_S):
            await found.wait()
    return resolution.targets(0)


async def _connect(targets: list[Target], timeout_s: float) -> ByteStream:
    """Connect to the first address that answers; each gets its part of the time. Raises OSError."""
    failure: OSError = OSError("no address was found for its name")
    for family, target in targets:
        try:
            with anyio.fail_after(timeout_s / len(targets)):
                if family is socket.AF_UNIX:
                    return await anyio.connect_unix(str(target))
                return await anyio.connect_tcp(str(target[0]), int(target[1]))
        except OSError as error:  # TimeoutError is one
            failure = error
    raise failure


def hold(stream: ByteStream) -> Guard:
    """Return the guard of a stream that `dial` has returned; its owner keeps it for as long as the stream."""
    return Guard(stream.extra(SocketAttribute.raw_socket).fileno())


async def receive(stream: ByteStream, address: str) -> bytes:
    """Return the next bytes, b"" at the end. Raises ConnectionLost."""
    try:
        return await stream.receive(READ_SIZE)
    except anyio.EndOfStream:
        return b""
    except BROKEN as error:
        raise ConnectionLost(f"{address}: {_reason(error)}") from error


async def send(stream: ByteStream, address: str, data: bytes, timeout_s: float) -> None:
    """Send all of `data`. Raises ConnectionLost, also if it takes more than `timeout_s`."""
    try:
        with anyio.fail_after(timeout_s):
            await stream.send(data)
    except TimeoutError:
        raise ConnectionLost(f"{address}: took no data in time") from None
    except BROKEN as error:
        raise ConnectionLost(f"{address}: {_reason(error)}") from error


async def end(stream: ByteStream, address: str) -> None:
    """Send the end of the stream. Raises ConnectionLost."""
    try:
        await stream.send_eof()
    except BROKEN as error:
        raise ConnectionLost(f"{address}: {_reason(error)}") from error


async def close(stream: ByteStream, last: bytes) -> None:
    """Send `last`, as far as that needs no waiting, and close, also while the task is being cancelled."""
    with anyio.move_on_after(LAST_S, shield=True), suppress(*BROKEN):  # either side closed it already
        if last:
            await stream.send(last)
    await anyio.aclose_forcefully(stream)


def _cause(error: OSError) -> OSError:
    """Return the system's error behind anyio's, which says only that all attempts failed."""
    cause = error.__cause__
    causes = cause.exceptions if isinstance(cause, BaseExceptionGroup) else (cause,)
    return next((one for one in causes if isinstance(one, OSError)), error)


def _reason(error: Exception) -> str:
    cause = error if isinstance(error, OSError) else error.__cause__
    if not isinstance(cause, OSError):
        return "the connection broke"
    if cause.errno is not None and not isinstance(cause, ssl.SSLError | socket.gaierror):
        return os.strerror(cause.errno)  # asyncio's own text repeats the address
    return reason(cause)
