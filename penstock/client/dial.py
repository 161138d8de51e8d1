"""Sockets to an nsqd: made at once, or without waiting while other connections have messages."""

import errno
import os
import socket
from contextlib import suppress

from penstock.client.resolver import LONGEST_S, Target, resolver

_GOES_ON = (0, errno.EINPROGRESS)


def dial(address: str, timeout_s: float) -> socket.socket:
    """Return a connected, non-blocking socket to host:port, [v6]:port or the path of a unix socket.

    `timeout_s` is for each address of the host; its name may take LONGEST_S. Raises OSError, also for an invalid address.
    """
    return dial_first(targets_of(address, LONGEST_S), timeout_s)


def targets_of(address: str, seconds: float) -> list[Target]:
    """Return the addresses of host:port, waiting so long at most. Raises OSError, also for an invalid address."""
    try:
        return resolver().begin(address).targets(seconds)
    except ValueError as error:  # e.g. port 0: nsqlookupd passes on any address
        raise OSError(str(error)) from None


def dial_first(targets: list[Target], timeout_s: float | None) -> socket.socket:
    """Return a non-blocking socket to the first of the addresses that answers, each in `timeout_s`. Raises OSError."""
    failure = OSError("no address was found for its name")
    for family, target in targets:
        try:
            connected = _connect(family, target, timeout_s)
        except (OSError, ValueError) as error:  # ValueError is for a NUL in a path
            failure = error if isinstance(error, OSError) else OSError(str(error))
        else:
            connected.setblocking(False)
            return connected
    raise failure


class Dialing:
    """A connection that is being made, to the first of the addresses of a host that answers.

    `socket` is writable when `finish` is to be called.
    """

    def __init__(self, address: str, targets: list[Target], until: float) -> None:
        """Begin. `until`: when its owner gives up, in s by the owner's clock. Raises OSError."""
        self.address = address
        self.until = until
        self._targets = targets
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


def _connect(family: socket.AddressFamily, target: object, timeout_s: float | None) -> socket.socket:
    connecting = socket.socket(family, socket.SOCK_STREAM)
    try:
        connecting.settimeout(timeout_s)
        connecting.connect(target)  # type: ignore[arg-type]
        with suppress(OSError):  # a unix socket has no such option
            connecting.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except BaseException:
        connecting.close()
        raise
    return connecting
