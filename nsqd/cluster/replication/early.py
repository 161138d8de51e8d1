"""Before a node has read its own log: its replicas are served to nodes that start at the same time.

Each of them asks the others for the end of its log, and a node that waited for its own end first would let all others wait. So
a thread answers /cluster and /cluster/replica at the sockets of HTTP and HTTPS, as nsqd/http/cluster.py does later, to whoever
has the right to that, and 503 to the rest.
"""

from __future__ import annotations

import json
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import parse_qs, urlsplit

from nsqd.cluster.membership.cluster_json import NAME as FACTS
from nsqd.cluster.membership.cluster_json import content_of, describe_closed, for_another, read_facts
from nsqd.cluster.replication.directory import ReplicaDirectory
from nsqd.cluster.replication.early_led import EarlyLed
from nsqd.cluster.replication.replicas import Replicas
from nsqd.http.archive import archive_chunks, archive_size
from shared.auth.verbs import Verb
from shared.http.api import tls_required
from shared.http.errors import HttpError

if TYPE_CHECKING:
    from starlette.types import Scope

    from shared.auth.keyring import Keyring

MOST_AT_ONCE = 32  # requests
HEAD_WITHIN = (
    2.0  # s for the handshake of TLS and the head of a request, as long as nodes wait for each other at a start
)
LOOK_AFTER = 0.5  # s between two looks at the auth file
LOOK_EVERY = 0.05  # s between two looks at whether the start is over

T = TypeVar("T")


class AtOnce:
    """Does work when it is asked for. Implements nsqd.cluster.replication.follower.Work."""

    def run(self, work: Callable[[], T], done: Callable[[T | OSError], None]) -> None:
        """Do `work` in this call, and give its result or its OSError to `done` before this returns."""
        result: T | OSError
        try:
            result = work()
        except OSError as error:
            result = error
        done(result)


@dataclass(frozen=True, slots=True)
class Early:
    """How a node that starts is asked."""

    http: socket.socket  # listens
    https: socket.socket | None = None  # likewise
    tls: ssl.SSLContext | None = None  # of connections there; None: nothing is served there
    https_port: int = 0
    is_tls_required: bool = False  # True: nothing but `https_port` is told at `http`
    keyring: Keyring | None = None  # the auth file; None: everybody may ask everything
    check_host: Callable[[Scope], None] = lambda scope: None  # raises HttpError, as shared.http.hosts.Hosts.check does

    def may(self, authorization: str, verb: Verb) -> bool:
        """Return whether who sends this header may do that."""
        if self.keyring is None:
            return True
        kind, _, token = authorization.partition(" ")
        identity = (
            self.keyring.with_token(token.strip().encode("utf-8", "replace")) if kind.lower() == "bearer" else None
        )
        return identity is not None and identity.rights.may(verb)


class EarlyReplicas:
    """A context manager in which the replicas of a data directory are served at listening sockets."""

    def __init__(self, early: Early, data_path: Path) -> None:
        self.early = early
        self.replicas = Replicas(ReplicaDirectory(data_path), AtOnce(), time.monotonic_ns)
        self.led = EarlyLed(data_path)
        self.facts = read_facts(data_path)
        self.closed = [describe_closed(word) for word in self.facts.closed]
        self._deadlines: dict[int, threading.Timer] = {}  # by thread: when its client is given up
        self._over = threading.Event()
        self._free = threading.BoundedSemaphore(MOST_AT_ONCE)
        self._thread = threading.Thread(target=self._serve, name="early replicas", daemon=True)
        reading = partial(self.led.read_all, self._over.is_set)
        self._reader = threading.Thread(target=reading, name="early promoted logs", daemon=True)

    def __enter__(self) -> EarlyReplicas:
        self.replicas.open_all()
        self._reader.start()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Accept no more requests; those that are being answered go on, for they only read."""
        self._over.set()
        self._thread.join()
        self._reader.join()  # it ends with the records at hand
        self.replicas.close()

    def _serve(self) -> None:
        early, looked = self.early, time.monotonic()
        sockets = [early.http, *([early.https] if early.https is not None and early.tls is not None else [])]
        while not self._over.is_set():
            for sock in select.select(sockets, [], [], LOOK_EVERY)[0]:
                self._accept(sock)
            if early.keyring is not None and time.monotonic() - looked > LOOK_AFTER:
                looked = time.monotonic()
                early.keyring.look_after()

    def _accept(self, sock: socket.socket) -> None:
        if not self._free.acquire(timeout=LOOK_EVERY):
            return
        try:
            connection, address = sock.accept()
        except OSError:
            self._free.release()
            return
        connection.setblocking(True)
        tls = self.early.tls if sock is self.early.https else None
        threading.Thread(target=self._answer, args=(connection, address, tls), daemon=True).start()

    def _answer(self, connection: socket.socket, address: Any, tls: ssl.SSLContext | None) -> None:
        handler = _Handler if tls is not None or not self.early.is_tls_required else _TlsRequired
        # a client that dribbles would keep a place that another node needs
        deadline = threading.Timer(HEAD_WITHIN, partial(_cut, connection))
        deadline.daemon = True
        deadline.start()
        self._deadlines[threading.get_ident()] = deadline
        try:
            with connection:
                connection.settimeout(handler.timeout)
                with (
                    tls.wrap_socket(connection, server_side=True)
                    if tls is not None
                    else nullcontext(connection) as open_
                ):
                    handler(open_, address, cast("Any", self))
        except (OSError, ValueError):  # the client has gone, or a replica cannot be read: it asks somebody else
            pass
        finally:
            deadline.cancel()
            self._deadlines.pop(threading.get_ident(), None)
            self._free.release()

    def head_came(self) -> None:
        """Take note that the head of this thread's request is complete."""
        self._deadlines[threading.get_ident()].cancel()


def _cut(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    """Answers one request. `server` is the EarlyReplicas."""

    timeout = 5.0  # s without a byte

    def parse_request(self) -> bool:
        """Parse the head, and refuse what a page of another site has sent."""
        if not super().parse_request():
            return False
        early = cast("EarlyReplicas", self.server)
        early.head_came()
        headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in self.headers.items()]
        scope = {"headers": headers, "http_version": "1.1", "method": self.command}
        try:
            early.early.check_host(scope)
        except HttpError as error:
            self._send(error.status, b'{"message":"%s"}' % error.text.encode())
            return False
        return True

    def do_GET(self) -> None:
        """Answer /cluster with the replicas, and /cluster/replica with one as a tar stream; anything else with 503 STARTING.

        Raises OSError if the client goes or the replica cannot be read, which ends this connection only.
        """
        early = cast("EarlyReplicas", self.server)
        replicas = early.replicas
        url = urlsplit(self.path)
        needed = {"/cluster": Verb.STATS, "/cluster/replica": Verb.REPLICATE}.get(url.path)
        if needed is not None and not early.early.may(self.headers.get("Authorization", ""), needed):
            self._send(401, b'{"message":"UNAUTHORIZED"}')
            return
        if url.path == "/cluster":
            figures = {"replicas": replicas.states(), "led": early.led.states(), "closed": early.closed}
            self._send(200, json.dumps(figures).encode())
            return
        if url.path != "/cluster/replica":
            self.do_POST()
            return
        asked = {key: values[0] for key, values in parse_qs(url.query).items()}
        try:
            kept = replicas.kept[bytes.fromhex(asked["log"])]
            start = int(asked.get("from", "0"))
            parts = replicas.parts(kept, start)
        except (KeyError, ValueError):
            self._send(404, b'{"message":"NO_REPLICA"}')
            return
        self.send_response(200)
        beside = {} if start else {FACTS: content_of(for_another(early.facts, kept.node))}
        self.send_header("Content-Length", str(archive_size(parts, beside)))
        self.end_headers()
        for chunk in archive_chunks(parts, beside):
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


class _TlsRequired(_Handler):
    """Answers one request in clear, where TLS is required, as shared.http.api.TlsRequired does later."""

    def do_GET(self) -> None:
        """Answer any request with the port of HTTPS."""
        self._send(403, tls_required(cast("EarlyReplicas", self.server).early.https_port))

    do_POST = do_PUT = do_DELETE = do_GET
