"""A socket to one nsqd that sends and receives whole buffers; the session interprets them.

Only `open`, `send` (a full socket) and `wait_readable` wait; `receive` takes what has arrived. Every failure of the network is
a ConnectionLost whose text names the address.
"""

import select
import socket
from contextlib import suppress

from penstock.client.dial import dial
from penstock.forks import Guard
from penstock.sansio.errors import ConnectionLost
from penstock.sansio.tls import reason

READ_SIZE = 65536  # bytes; below malloc's mmap threshold, above which each recv pays page faults


class Connection:
    """A connected socket. `address` is as in `dial`."""

    __slots__ = ("_guard", "_socket", "_write_timeout_s", "address")

    def __init__(self, address: str, connected: socket.socket, write_timeout_s: float) -> None:
        """Take over a non-blocking socket. `write_timeout_s`: how long `send` waits without progress."""
        self.address = address
        self._write_timeout_s = write_timeout_s
        self._socket = connected
        self._guard = Guard(connected.fileno())

    @property
    def is_inherited(self) -> bool:
        """Return True in a process that was forked since: the connection belongs to the parent, and here it is only closed."""
        return self._guard.is_inherited

    @classmethod
    def open(cls, address: str, dial_timeout_s: float, write_timeout_s: float) -> "Connection":
        """Connect to host:port or to the path of a unix socket. Raises ConnectionLost, also after `dial_timeout_s`."""
        try:
            return cls(address, dial(address, dial_timeout_s), write_timeout_s)
        except OSError as error:
            raise cannot_connect(address, error) from error

    def send(self, data: bytes) -> None:
        """Send all of `data`, waiting for the socket as long as it makes progress. Raises ConnectionLost."""
        view = memoryview(data)
        try:
            while view:
                try:
                    view = view[self._socket.send(view) :]
                except BlockingIOError:
                    if not self._wait(select.POLLOUT, self._write_timeout_s):
                        raise TimeoutError("took no data in time") from None
        except OSError as error:
            raise self._lost(error) from error

    def receive(self) -> bytes | None:
        """Return the bytes that have arrived, b"" at the end of the stream, or None if none have. Raises ConnectionLost."""
        try:
            return self._socket.recv(READ_SIZE)
        except BlockingIOError:
            return None
        except OSError as error:
            raise self._lost(error) from error

    def wait_readable(self, seconds: float) -> bool:
        """Wait for at most `seconds` until `receive` would not return None; return False after that time."""
        return self._wait(select.POLLIN, seconds)

    def finish_sending(self) -> None:
        """Send the end of the stream; the server closes the connection when it has handled all that was sent."""
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError as error:
            raise self._lost(error) from error

    def close(self, last: bytes = b"") -> None:
        """Send `last`, as far as that needs no waiting, and close. Closing again does nothing."""
        with suppress(OSError):  # either side closed it already
            if not self.is_inherited:
                self._socket.send(last)
        self._socket.close()

    def fileno(self) -> int:
        """Return the socket's file descriptor, for selectors."""
        return self._socket.fileno()

    def _wait(self, event: int, seconds: float) -> bool:
        poll = select.poll()
        poll.register(self._socket, event)
        return bool(poll.poll(seconds * 1000))

    def _lost(self, error: OSError) -> ConnectionLost:
        return ConnectionLost(f"{self.address}: {reason(error)}")


def cannot_connect(address: str, error: OSError) -> ConnectionLost:
    """Return the error of an address that could not be dialed."""
    return ConnectionLost(f"cannot connect to {address}: {reason(error)}")
