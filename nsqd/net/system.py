"""The functions of the operating system that a simulator replaces."""

import select
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from shared.process.listen import leave_spare


class Poller(Protocol):
    """A level-triggered poller with the interface of select.epoll."""

    def register(self, fd: int, eventmask: int) -> None: ...
    def modify(self, fd: int, eventmask: int) -> None: ...
    def unregister(self, fd: int) -> None: ...
    def poll(self, timeout: float, maxevents: int) -> list[tuple[int, int]]:
        """Return (file descriptor, events) for those that are ready, waiting at most `timeout` s."""

    def fileno(self) -> int: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class System:
    """The functions that give the reactor its poller and its pair of connected sockets, and look after descriptors."""

    poller: Callable[[], Poller] = select.epoll
    pair: Callable[[], tuple[socket.socket, socket.socket]] = socket.socketpair
    # raises OSError EMFILE if too few descriptors are left for the node itself
    leave_spare: Callable[[], None] = leave_spare
