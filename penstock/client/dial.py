"""Sockets to an nsqd."""

import socket

from penstock.sansio.address import is_path, split_address


def dial(address: str, timeout_s: float) -> socket.socket:
    """Return a connected, non-blocking socket to host:port, [v6]:port or the path of a unix socket.

    Raises OSError, also for an invalid address.
    """
    try:
        connected = _dial_unix(address, timeout_s) if is_path(address) else _dial_tcp(address, timeout_s)
    except ValueError as error:  # e.g. port 0 or a name of 70 characters: nsqlookupd passes on any address
        raise OSError(str(error)) from None
    connected.setblocking(False)
    return connected


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
