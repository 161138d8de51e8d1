"""A client of Disque: a connection over which a test sends commands and reads replies."""

from __future__ import annotations

import socket
from typing import Any

from tests.daemons import STOP_TIMEOUT
from tests.local_node import MemorySocket
from tests.nsqd.protocols.disque.wire import Reply, read_reply, request


class Client:
    """A connection to an address, or by a socket that is connected."""

    def __init__(self, where: tuple[str, int] | str | MemorySocket) -> None:
        if isinstance(where, MemorySocket):
            self._socket = where
        else:
            self._socket = socket.socket(socket.AF_UNIX if isinstance(where, str) else socket.AF_INET)
            self._socket.settimeout(STOP_TIMEOUT)
            self._socket.connect(where)
        self._said = b""

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def do(self, *words: bytes | str | int) -> Reply:
        """Send a command, and return its reply. Raises EOFError."""
        self.send(*words)
        return self.reply()

    def send(self, *words: bytes | str | int) -> None:
        """Send a command."""
        self._socket.sendall(request(*words))

    def reply(self) -> Reply:
        """Return the next reply. Raises EOFError."""
        while True:
            try:
                reply, end = read_reply(self._said)
            except (ValueError, AssertionError, IndexError):
                part = self._socket.recv(1 << 16)
                if not part:
                    raise EOFError from None
                self._said += part
                continue
            self._said = self._said[end:]
            return reply

    def get(self, queue: str, count: int = 10) -> list[bytes]:
        """Fetch the bodies of jobs, without waiting."""
        return [body for _, _, body in self.do("GETJOB", "NOHANG", "COUNT", count, "FROM", queue) or []]

    def show(self, job_id: str | bytes) -> dict[str, Any]:
        found = self.do("SHOW", job_id)
        return dict(zip([one.decode() for one in found[::2]], found[1::2], strict=True))
