"""Ports for servers that cannot choose one and report it, such as the originals.

A port from `lease_port` is outside the range from which the kernel gives ports to connections, and belongs to this process
until it ends: other processes that lease ports here leave it alone.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path

FIRST, END = 12_000, 22_000  # Disque also listens at the port 10,000 above its own, which must be below 32,768
BUS = 10_000
_held: list[int] = []  # descriptors of the locked files


def lease_port(host: str = "127.0.0.1") -> int:
    """Return a port that is free, as is the one BUS above it. Raises OSError if no file can be made for the lease."""
    directory = Path(tempfile.gettempdir(), f"penstock-ports-{os.getuid()}")
    directory.mkdir(mode=0o700, exist_ok=True)
    while True:
        port = random.randrange(FIRST, END)
        file = os.open(directory / str(port), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for each in (port, port + BUS):
                with socket.create_server((host, each)):
                    pass
        except OSError:
            os.close(file)
        else:
            _held.append(file)
            return port
