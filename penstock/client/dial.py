"""Sockets to an nsqd: made at once, or without waiting while other connections have messages."""

import errno
import os
import socket
from contextlib import suppress

from penstock.sansio.address import is_path, path_of, split_address

Target = tuple[socket.AddressFamily, tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes] | str]
_GOES_ON = (0, errno.EINPROGRESS)


def dial(address: str, timeout_s: float) -> socket.socket:
    """Return a connected, non-blocking socket to host:port, [v6]:port or the path of a unix socket.

    Raises OSError, also for an invalid address.
    """
    try:
        connected = _dial_unix(path_of(address), timeout_s) if is_path(address) else _dial_tcp(address, timeout_s)
    except ValueError as error:  # e.g. port 0 or a name of 70 characters: nsqlookupd passes on any address
        raise OSError(str(error)) from None
    connected.setblocking(False)
    return connected


class Dialing:
    """A connection that is being made. Only a host name's resolution waits.

    `socket` is writable when `finish` is to be called.
    """

    def __init__(self, address: str, until: float) -> None:
        """Begin. `until`: when its owner gives up, in s by the owner's clock. Raises OSError, also for an invalid address."""
        self.address = address
        self.until = until
        try:
            self._targets = _targets(address)
        except ValueError as error:
            raise OSError(str(error)) from None
        self.socket = self._next(OSError("no address was found for its name"))

    def finish(self) -> socket.socket | None:
        """Return the connected socket; None if `socket` is another one now, to the next address of the host.

        Raises OSError if all of them failed.
        """
        code = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if not code:
            return self.socket
        self.socket.close()
        self.socket = self._next(OSError(code, os.strerror(code)))
        return None

    def _next(self, error: OSError) -> socket.socket:
        """Return a socket that connects to the next address. `error`: why the last one failed, raised if there is no other."""
        while self._targets:
            family, target = self._targets.pop(0)
            connecting = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            with suppress(OSError):  # a unix socket has no such option
                connecting.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                code = connecting.connect_ex(target)
            except (OSError, ValueError) as failure:  # ValueError is for a NUL in a path
                code, error = errno.EINVAL, OSError(str(failure))
            else:
                error = OSError(code, os.strerror(code))
            if code in _GOES_ON:
                return connecting
            connecting.close()
        raise error


def _targets(address: str) -> list[Target]:
    if is_path(address):
        return [(socket.AF_UNIX, path_of(address))]
    try:
        found = socket.getaddrinfo(*split_address(address), type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise ValueError(str(error)) from None
    return [(family, target) for family, _, _, _, target in found]


def _dial_unix(path: str, timeout_s: float) -> socket.socket:
    unix = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        unix.settimeout(timeout_s)
        unix.connect(path)
    except BaseException:
        unix.close()
        raise
    return unix


def _dial_tcp(address: str, timeout_s: float) -> socket.socket:
    tcp = socket.create_connection(split_address(address), timeout_s)
    tcp.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return tcp
