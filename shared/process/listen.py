"""Listening sockets: from the text of an -address option to a bound, listening, non-blocking socket.

An address is "host:port", ":port" or "[ipv6]:port"; anything else is the path of a unix socket, which may also be written
"unix:/path", followed by a mode and an owner (shared/process/unix_sockets.py). As in Go, a wildcard (no host, 0.0.0.0 or ::)
listens on IPv6 and IPv4 with one socket, and a host name on its first address.
Every failure is a ListenError in NSQ's words. This file uses no event loop.

See docs/contributing/design/nsq-programs.md#addresses.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import resource
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field

from shared.process.unix_sockets import UnixAddress, bind_unix, is_unix_address, parse_unix_address

BACKLOG = 4096  # Linux's net.core.somaxconn, which Go also uses
# Errors of accept(): try again later.
OUT_OF_RESOURCES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
SPARE_FILES = 8  # descriptors that no client gets: the log opens files while it runs, and modules are imported late
WILDCARDS = ("", "0.0.0.0", "::")

_HOST_PORT = re.compile(r"(?:\[(?P<bracketed>[^\[\]]*)\]|(?P<plain>[^:\[\]/]*)):(?P<port>[^:/\[\]]*)")
_WHO_SHARES = "a port is shared only by processes of one user that all ask for it"
_LISTENING = "0A"  # the state of a listening socket in /proc/net/tcp


class ListenError(Exception):
    """The address cannot be used: `listen (<address>) failed - <why>`. The program exits with 1."""

    def __init__(self, address: str, why: str) -> None:
        super().__init__(f"listen ({address}) failed - {why}")
        self.why = why


@dataclass(frozen=True, slots=True)
class Address:
    """A parsed address: either host and port, or a path."""

    host: str = ""
    port: int = 0
    path: str = ""
    unix: UnixAddress | None = None  # not None: the path was written with unix:, and has a mode and an owner


@dataclass(slots=True)
class Listener:
    """A listening socket and the address that it is bound to."""

    socket: socket.socket
    address: str  # the bound address: "127.0.0.1:54321", "[::]:4160", or the path
    port: int  # the bound port; -1 for a unix socket, as in /info
    _unlink: tuple[str, int] | None = field(default=None, repr=False)  # path and inode of our socket file

    @property
    def is_loopback(self) -> bool:
        """True if only this machine can reach it."""
        return is_loopback(self.address)

    def close(self) -> None:
        """Stop listening, and remove the socket file if it is still ours. May be called twice."""
        if self._unlink is not None:
            path, inode = self._unlink
            self._unlink = None
            with contextlib.suppress(FileNotFoundError):  # it was removed already, as intended
                if os.stat(path).st_ino == inode:  # otherwise a later daemon has taken the name
                    os.unlink(path)
        self.socket.close()


def leave_spare() -> None:
    """Raise OSError EMFILE, as accept() does, if no more than SPARE_FILES descriptors are left. Connections wait then."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    os.close(lowest)
    if limit != resource.RLIM_INFINITY and lowest >= limit - SPARE_FILES:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def duplicate(listener: Listener) -> Listener:
    """Return a listener with another descriptor of the same socket. It leaves the socket file alone. Raises OSError."""
    return Listener(listener.socket.dup(), listener.address, listener.port)


def parse_address(text: str) -> Address:
    """Parse an address. Raises ListenError, also for an IP address without a port, which is surely no file name."""
    if is_unix_address(text):
        try:
            unix = parse_unix_address(text)
        except ValueError as error:
            raise ListenError(text, str(error)) from None
        return Address(path=unix.path, unix=unix)
    match = _HOST_PORT.fullmatch(text)
    if match:
        return Address(match["bracketed"] or match["plain"] or "", _port(text, match["port"]))
    if not text:
        raise ListenError(text, "missing address")
    if _is_ip(text.strip("[]")):
        hint = " (an IPv6 address is written [::1]:4160)" if ":" in text else ""
        raise ListenError(text, f"missing port in address{hint}")
    return Address(path=text)


def listen(text: str) -> Listener:
    """Bind to an address and listen. Raises ListenError."""
    address = parse_address(text)
    if address.path:
        return _listen_unix(text, address)
    listener = _bind_tcp(text, address)
    try:
        listener.socket.listen(BACKLOG)
    except OSError as error:  # another socket that had set SO_REUSEADDR was first
        listener.close()
        raise ListenError(text, _why(error, address.port)) from None
    return listener


def bind_shared(text: str) -> Listener:
    """Bind to a TCP address that processes of one user share, by SO_REUSEPORT, and do not listen yet. Raises ListenError.

    The kernel spreads new connections over the sockets whose `listen` was called, by the addresses and ports of both ends.
    """
    address = parse_address(text)
    if address.path:
        raise ListenError(text, "a unix socket cannot be shared: expected <addr>:<port>")
    if not hasattr(socket, "SO_REUSEPORT"):
        raise ListenError(text, "this platform has no SO_REUSEPORT: processes cannot share a port")
    return _bind_tcp(text, address, is_shared=True)


def is_loopback(text: str) -> bool:
    """Return whether only this machine can reach the address: a unix socket, localhost, 127.0.0.0/8 or ::1."""
    import ipaddress

    address = parse_address(text)
    if address.path or address.host.lower() == "localhost":
        return True
    return _is_ip(address.host) and ipaddress.ip_address(address.host).is_loopback


def display(host: str, port: int) -> str:
    """Return host:port as Go prints it: an IPv6 address in brackets, an IPv4 one inside IPv6 as IPv4."""
    host = host.removeprefix("::ffff:") if "." in host else host
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _port(text: str, port: str) -> int:
    try:
        number = int(port) if port.isdecimal() else socket.getservbyname(port, "tcp") if port else 0
    except (OSError, ValueError):  # ValueError: thousands of digits, or no possible name
        raise ListenError(text, f"unknown port {port}") from None
    if number > 65535:
        raise ListenError(text, f"invalid port {port}")
    return number


def _is_ip(text: str) -> bool:
    import ipaddress

    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


# TCP


def _bind_tcp(text: str, address: Address, is_shared: bool = False) -> Listener:
    family, host = _resolve(text, address.host)
    # asyncio sets TCP_NODELAY only if the protocol is given.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_shared:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if address.host in WILDCARDS else 1)
        sock.setblocking(False)
        sock.bind((host, address.port))
    except OSError as error:
        sock.close()
        hint = f"; {_WHO_SHARES}" if is_shared and error.errno == errno.EADDRINUSE else ""
        raise ListenError(text, _why(error, address.port) + hint) from None
    host, port = sock.getsockname()[:2]
    return Listener(sock, display(host, port), port)


def _resolve(text: str, host: str) -> tuple[socket.AddressFamily, str]:
    if host in WILDCARDS:
        return (socket.AF_INET6, "::") if _has_ipv6() else (socket.AF_INET, "0.0.0.0")
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:  # UnicodeError: a label is too long or empty for IDNA
        raise ListenError(text, f"lookup {host}: {getattr(error, 'strerror', None) or error}") from None
    found.sort(key=lambda entry: entry[0] != socket.AF_INET)  # IPv4 first, as in Go; the sort is stable
    return found[0][0], str(found[0][4][0])


def _has_ipv6() -> bool:
    if not socket.has_ipv6:
        return False
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::1", 0))
    except OSError:  # compiled in, but disabled on this machine
        return False
    return True


def _why(error: OSError, port: int) -> str:
    why = (error.strerror or str(error)).lower()
    if error.errno == errno.EADDRINUSE:
        holder = _holder(port)
        return f"{why}: held by {holder}" if holder else why
    if error.errno == errno.EACCES:
        return f"{why}: ports below 1024 are the superuser's" if port < 1024 else why
    return why


def _holder(port: int) -> str:
    """Return the process that listens on the port, as `command (pid 123)`, or "" if that is not visible. Linux only."""
    from pathlib import Path

    links = {f"socket:[{inode}]" for inode in _listening_inodes(port)}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # the process has ended, or belongs to another user
            if any(os.readlink(entry) in links for entry in (process / "fd").iterdir()):
                return f"{(process / 'comm').read_text().strip()} (pid {process.name})"
    return ""


def _listening_inodes(port: int) -> Iterator[str]:
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError), open(table) as lines:  # without such a table it is not Linux, or has no IPv6
            for columns in map(str.split, lines):
                if columns[3] == _LISTENING and int(columns[1].rpartition(":")[2], 16) == port:
                    yield columns[9]


# Unix sockets


def _listen_unix(text: str, address: Address) -> Listener:
    path = address.path
    sock: socket.socket | None = None
    try:
        sock = bind_unix(address.unix or UnixAddress(path))
        sock.listen(BACKLOG)
        return Listener(sock, path, -1, (path, os.stat(path).st_ino))
    except OSError as error:
        if sock is not None:
            sock.close()
        raise ListenError(text, (error.strerror or str(error)).lower()) from None
