"""The addresses of host names, found in threads: getaddrinfo may take half a minute, and cannot be interrupted.

* At most MOST_THREADS names are looked up at a time. A name that is looked up already is not looked up a second time.
* An address that is numeric, or the path of a unix socket, needs no thread.
"""

import os
import socket
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from penstock.sansio.address import is_path, path_of, split_address

MOST_THREADS = 16
LONGEST_S = 10.0  # for which a client waits for the address of a name; the next attempt may find it
Target = tuple[socket.AddressFamily, tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes] | str]
LookUp = Callable[..., Any]


class Resolution:
    """The addresses of one name, once they are found."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port
        self._found: list[Target] | OSError = []
        self._done = threading.Event()
        self._wakes: list[Callable[[], None]] = []

    @property
    def is_done(self) -> bool:
        """Return True if `targets` does not wait."""
        return self._done.is_set()

    def targets(self, seconds: float) -> list[Target]:
        """Return the addresses, for which it waits so long. Raises OSError, also if they are not found in time."""
        if not self._done.wait(max(0.0, seconds)):
            raise TimeoutError("its name is not resolved in time")
        if isinstance(self._found, OSError):
            raise self._found
        return [*self._found]

    def finish(self, found: list[Target] | OSError) -> None:
        """Note the outcome, and wake those that wait."""
        self._found = found
        self._done.set()
        for wake in self._wakes:
            wake()

    def add(self, wake: Callable[[], None]) -> None:
        """Let `wake` be called at the end, in another thread."""
        if wake not in self._wakes:
            self._wakes.append(wake)


class Resolver:
    """Looks names up. `look_up` has the arguments and the result of socket.getaddrinfo."""

    def __init__(self, look_up: LookUp = socket.getaddrinfo) -> None:
        self._look_up = look_up
        self._lock = threading.Lock()
        self._pending: dict[tuple[str, int], Resolution] = {}
        self._queue: SimpleQueue[Resolution] = SimpleQueue()
        self._threads = 0

    def begin(self, address: str, wake: Callable[[], None] | None = None) -> Resolution:
        """Begin to find the addresses of host:port, [v6]:port or a path.

        `wake`, which raises nothing, is called in another thread at the end, unless the addresses are known at once. Raises
        ValueError for an invalid address.
        """
        host, port = (address, 0) if is_path(address) else split_address(address)
        known: list[Target] | None
        known = [(socket.AF_UNIX, path_of(address))] if is_path(address) else _numeric(host, port)
        if known is not None:
            done = Resolution(host, port)
            done.finish(known)
            return done
        with self._lock:
            resolution = self._pending.get((host, port))
            if resolution is None:
                resolution = self._pending[host, port] = Resolution(host, port)
                self._submit(resolution)
            if wake is not None:
                resolution.add(wake)
        return resolution

    def _submit(self, resolution: Resolution) -> None:
        self._queue.put(resolution)
        if self._threads < min(len(self._pending), MOST_THREADS):
            self._threads += 1
            # A daemon thread: a name that does not resolve must not keep the program from ending.
            threading.Thread(target=self._run, name=f"resolver {self._threads}", daemon=True).start()

    def _run(self) -> None:
        while True:
            resolution = self._queue.get()
            found: list[Target] | OSError
            try:
                infos = self._look_up(resolution.host, resolution.port, type=socket.SOCK_STREAM)
                found = [(family, target) for family, _, _, _, target in infos]
            except Exception as error:  # e.g. UnicodeError for a name of 70 characters: nsqlookupd passes any address
                found = error if isinstance(error, OSError) else OSError(str(error))
            with self._lock:
                del self._pending[resolution.host, resolution.port]
                resolution.finish(found)


def _numeric(host: str, port: int) -> list[Target] | None:
    """Return the address of a host that is one, or None for a name."""
    try:
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return None
    return [(family, target) for family, _, _, _, target in infos]


_shared = Resolver()


def resolver() -> Resolver:
    """Return the resolver of this process."""
    return _shared


def _renew() -> None:
    """Replace the resolver in a forked process, in which the threads do not exist."""
    global _shared
    _shared = Resolver()


os.register_at_fork(after_in_child=_renew)
