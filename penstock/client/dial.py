"""Addresses of nsqd and sockets to them: host:port, [v6]:port, or the path of a unix socket (with a slash)."""

import socket


def dial(address: str, timeout_s: float) -> socket.socket:
    """Return a connected, non-blocking socket. Raises OSError, also for an invalid address."""
    try:
        connected = _dial_unix(address, timeout_s) if "/" in address else _dial_tcp(address, timeout_s)
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


def split_address(address: str) -> tuple[str, int]:
    """Split host:port or [v6]:port. Raises ValueError with a reason."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"not an address, expected host:port or the path of a socket: {address!r}")
    return host.removeprefix("[").removesuffix("]"), int(port)


def check_address(address: str) -> str:
    """Return the address itself if it is well formed. Raises ValueError with a reason."""
    if "/" not in address:
        split_address(address)
    return address


def server_name(address: str) -> str:
    """Return the name that the server's certificate must have: the host, or localhost for a unix socket."""
    return "localhost" if "/" in address else split_address(address)[0]
