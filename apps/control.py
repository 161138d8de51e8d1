"""The connection of `penstock chaos` to `penstock up`: one request and one response, JSON objects, over loopback.

`penstock up --chaos` writes DATA/up.json, which only its user can read: the port where it listens, and a token that each
request must have. A thread receives the requests, and the main loop answers them between two events.
"""

import json
import os
import queue
import secrets
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from apps.daemon_set import HOST
from shared.files import replace_file
from shared.terminal.commands import CommandError

FILE = "up.json"  # in the directory for the data of all daemons
MOST_REQUEST = 1000  # bytes
MOST_RESPONSE = 1 << 20  # bytes
MOST_SECONDS = 24 * 3600  # of a request's duration
REQUEST_TIMEOUT = 1.0  # s for a whole request to arrive
RESPONSE_TIMEOUT = 10.0  # s for the main loop to answer
START_ONE = "start one with `penstock up --nodes 3 --chaos`, or name the directory of the one that runs with --data"


@dataclass(frozen=True, slots=True)
class Request:
    """A request of `penstock chaos`. The main loop must put one response into `responses`; another thread waits for it."""

    command: str
    name: str  # of the daemon
    seconds: float  # duration of the effect; 0: until it is undone
    responses: "queue.SimpleQueue[dict[str, Any]]" = field(default_factory=queue.SimpleQueue)


class Control:
    """The server in `penstock up`. A context manager; requests arrive after `open`."""

    def __init__(self, data: Path, wake: Callable[[], None]) -> None:
        """Begin without a port. `data`: the directory for the data of all daemons.

        `wake`: called in another thread when a request has arrived.
        """
        self.data = data
        self._path = data / FILE
        self._wake = wake
        self._token = secrets.token_hex(16)
        self._requests: queue.SimpleQueue[Request] = queue.SimpleQueue()
        self._listener: socket.socket | None = None

    def __enter__(self) -> "Control":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._listener is not None:
            self._path.unlink(missing_ok=True)
            self._listener.close()

    def open(self) -> None:
        """Listen, and write the file with the port and the token. Raises OSError."""
        listener = socket.create_server((HOST, 0))
        try:
            about = {"pid": os.getpid(), "port": listener.getsockname()[1], "token": self._token}
            replace_file(self._path, json.dumps(about).encode() + b"\n")
        except OSError:
            listener.close()
            raise
        self._listener = listener
        threading.Thread(target=self._serve, args=(listener,), name="control", daemon=True).start()

    def requests(self) -> list[Request]:
        """Return the requests that arrived since the last call."""
        return [self._requests.get() for _ in range(self._requests.qsize())]

    def _serve(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:  # the set has ended
                return
            with connection:
                try:
                    self._serve_one(connection)
                except (OSError, ValueError, queue.Empty):
                    pass  # the client is gone, or is not `penstock chaos`; or the main loop did not answer in time

    def _serve_one(self, connection: socket.socket) -> None:
        """Receive one request and send its response. Raises OSError, ValueError, queue.Empty."""
        request = _parse(_read_line(connection, MOST_REQUEST, REQUEST_TIMEOUT), self._token)
        self._requests.put(request)
        self._wake()
        response = request.responses.get(timeout=RESPONSE_TIMEOUT)
        connection.settimeout(REQUEST_TIMEOUT)
        connection.sendall(json.dumps(response).encode() + b"\n")


def ask(data: Path, command: str, name: str = "", seconds: float = 0) -> dict[str, Any]:
    """Return the response of the set that runs with this directory. Raises CommandError if there is none."""
    try:
        about = json.loads((data / FILE).read_bytes())
        address, token = (HOST, int(about["port"])), str(about["token"])
    except (OSError, ValueError, KeyError, TypeError):
        why = f"no set that allows it runs with its data in {data.absolute()}"
        raise CommandError(f"{why}: {START_ONE}") from None
    content = {"token": token, "command": command, "name": name, "seconds": seconds}
    try:
        with socket.create_connection(address, REQUEST_TIMEOUT) as connection:
            connection.sendall(json.dumps(content).encode() + b"\n")
            response = json.loads(_read_line(connection, MOST_RESPONSE, RESPONSE_TIMEOUT))
        if isinstance(response, dict):
            return response
        why = "gives an answer that is not one of penstock up"
    except ConnectionRefusedError:
        why = "has ended without removing its file up.json"
    except (OSError, ValueError) as error:
        why = f"does not answer: {error}"
    raise CommandError(f"the set with its data in {data.absolute()} {why}: {START_ONE}")


def _parse(line: bytes, token: str) -> Request:
    """Return the request in a line. Raises ValueError if it is invalid, or does not have the token."""
    content = json.loads(line)
    if not isinstance(content, dict) or not secrets.compare_digest(str(content.get("token")).encode(), token.encode()):
        raise ValueError("the token is wrong")
    command, name, seconds = (content.get(key) for key in ("command", "name", "seconds"))
    if not (isinstance(command, str) and isinstance(name, str) and isinstance(seconds, int | float)):
        raise ValueError("invalid request")
    if not 0 <= seconds <= MOST_SECONDS:  # also false for NaN
        raise ValueError("invalid duration")
    return Request(command, name, seconds)


def _read_line(connection: socket.socket, most: int, timeout: float) -> bytes:
    """Return a line of `most` bytes at most, which arrives within `timeout` seconds. Raises OSError, ValueError."""
    deadline, line = time.monotonic() + timeout, b""
    while not line.endswith(b"\n"):
        connection.settimeout(max(deadline - time.monotonic(), 0.001))
        more = connection.recv(most + 1 - len(line))
        line += more
        if not more or len(line) > most:
            raise ValueError("the line is not complete")
    return line
