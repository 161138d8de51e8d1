"""Before a node has read its own log: its mirrors are served to nodes that start at the same time.

Each of them asks the others for the end of its log, and a node that waited for its own end first would let all others wait. So
a thread answers /cluster and /cluster/mirror at the socket of HTTP, as nsqd/http/cluster.py does later, and 503 to the rest.
"""

from __future__ import annotations

import json
import select
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar, cast
from urllib.parse import parse_qs, urlsplit

from nsqd.http.archive import archive_chunks, archive_size
from nsqd.replication.directory import MirrorDirectory
from nsqd.replication.early_owned import EarlyOwned
from nsqd.replication.facts import describe_closed, read_facts
from nsqd.replication.mirrors import Mirrors

MOST_AT_ONCE = 32  # requests
LOOK_EVERY = 0.05  # s between two looks at whether the start is over

T = TypeVar("T")


class AtOnce:
    """Does work when it is asked for. Implements nsqd.replication.follower.Work."""

    def run(self, work: Callable[[], T], done: Callable[[T | OSError], None]) -> None:
        """Do `work` in this call, and give its result or its OSError to `done` before this returns."""
        result: T | OSError
        try:
            result = work()
        except OSError as error:
            result = error
        done(result)


class EarlyMirrors:
    """A context manager in which the mirrors of a data directory are served at a listening socket."""

    def __init__(self, sock: socket.socket, data_path: Path) -> None:
        self._socket = sock
        self.mirrors = Mirrors(MirrorDirectory(data_path), AtOnce(), time.monotonic_ns)
        self.owned = EarlyOwned(data_path)
        self.closed = [describe_closed(word) for word in read_facts(data_path).closed]
        self._over = threading.Event()
        self._free = threading.BoundedSemaphore(MOST_AT_ONCE)
        self._thread = threading.Thread(target=self._serve, name="early mirrors", daemon=True)
        reading = partial(self.owned.read_all, self._over.is_set)
        self._reader = threading.Thread(target=reading, name="early adopted logs", daemon=True)

    def __enter__(self) -> EarlyMirrors:
        self.mirrors.open_all()
        self._reader.start()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Accept no more requests; those that are being answered go on, for they only read."""
        self._over.set()
        self._thread.join()
        self._reader.join()  # it ends with the records at hand
        self.mirrors.close()

    def _serve(self) -> None:
        while not self._over.is_set():
            if not select.select([self._socket], [], [], LOOK_EVERY)[0] or not self._free.acquire(timeout=LOOK_EVERY):
                continue
            try:
                connection, address = self._socket.accept()
            except OSError:
                self._free.release()
                continue
            connection.setblocking(True)
            threading.Thread(target=self._answer, args=(connection, address), daemon=True).start()

    def _answer(self, connection: socket.socket, address: Any) -> None:
        try:
            with connection:
                _Handler(connection, address, cast("Any", self))
        except (OSError, ValueError):  # the client has gone, or a mirror cannot be read: it asks somebody else
            pass
        finally:
            self._free.release()


class _Handler(BaseHTTPRequestHandler):
    """Answers one request. `server` is the EarlyMirrors."""

    timeout = 5.0  # s without a byte

    def do_GET(self) -> None:
        """Answer /cluster with the mirrors, and /cluster/mirror with one as a tar stream; anything else with 503 STARTING.

        Raises OSError if the client goes or the mirror cannot be read, which ends this connection only.
        """
        early = cast("EarlyMirrors", self.server)
        mirrors = early.mirrors
        url = urlsplit(self.path)
        if url.path == "/cluster":
            figures = {"mirrors": mirrors.states(), "owned": early.owned.states(), "closed": early.closed}
            self._send(200, json.dumps(figures).encode())
            return
        if url.path != "/cluster/mirror":
            self.do_POST()
            return
        asked = {key: values[0] for key, values in parse_qs(url.query).items()}
        try:
            kept = mirrors.kept[bytes.fromhex(asked["log"])]
            parts = mirrors.parts(kept, int(asked.get("from", "0")))
        except (KeyError, ValueError):
            self._send(404, b'{"message":"NO_MIRROR"}')
            return
        self.send_response(200)
        self.send_header("Content-Length", str(archive_size(parts, b"")))
        self.end_headers()
        for chunk in archive_chunks(parts, b""):
            self.wfile.write(chunk())

    def do_POST(self) -> None:
        """Refuse a request that only a node can answer that has started."""
        self._send(503, b'{"message":"STARTING"}')

    do_PUT = do_DELETE = do_POST

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Write nothing: the log of a node that starts has its own lines about this."""
