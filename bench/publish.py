"""Publishers: connections that each keep `depth` requests outstanding, and send the next as replies come in.

The requests are the same bytes every time, and replies are counted by their length: the least that a client can do.
"""

from __future__ import annotations

import select
import time
from dataclasses import dataclass
from itertools import cycle
from struct import pack

from bench.outcome import Outcome, timed
from bench.upgrade import introduce, pack_for
from bench.wire import BATCH, BODY, MPUB_BODY, OK, Wire, connect, read_exactly, sized, varied_body

_READ = 65536  # bytes
BIG = 10 * BATCH  # messages of a big /mpub: 408 kB
_HTTP = "POST {path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Length: {length}\r\n\r\n"


@dataclass
class Publish:
    """A load of publishers (see bench.load). The fields are the plan; everything else is state."""

    host: str
    ports: dict[str, int]
    shape: str  # of a request: "pub", "mpub", "http-pub", "http-mpub" or "http-mpub-big"
    topic: str
    connections: int
    depth: int
    seconds: float
    warm_up: float  # s
    limit: int = 1 << 60  # requests, at most
    varied: bool = False  # whether an MPUB's bodies are those of varied_body
    upgrade: str = ""  # see bench.upgrade
    topics: int = 1  # number of topics, published to in turn: `topic`, then the same name with 1, 2, ... appended

    def prepare(self) -> None:
        request, self._each = self._request(self.topic)
        request = pack_for(self.upgrade, request)
        over_http = self.shape.startswith("http")
        self._port = self.ports["HTTP" if over_http else "TCP"]
        first = self._connect()
        self._prefix, self._reply_size = _http_reply(first, request) if over_http else (OK, len(OK))
        sockets = [first, *(self._connect() for _ in range(self.connections - 1))]
        self._sockets = {sock.fileno(): sock for sock in sockets}
        names = [self.topic, *(f"{self.topic}{number}" for number in range(1, self.topics))]
        self._bursts = [pack_for(self.upgrade, self._request(name)[0]) * self.depth for name in names]
        self._epoll = select.epoll()
        for fd in self._sockets:
            self._epoll.register(fd, select.EPOLLIN)
        if self.warm_up:
            self._loop(self.warm_up, self.limit)

    def run(self) -> Outcome:
        begin = time.perf_counter_ns()
        replies, times = self._loop(self.seconds, self.limit)
        seconds = (time.perf_counter_ns() - begin) / 1e9
        return timed(Outcome(replies * self._each, seconds), times if self.depth == 1 else [])

    def _loop(self, seconds: float, limit: int) -> tuple[int, list[int]]:
        """Publish for `seconds`, then wait for outstanding replies; return their number, and the times (ns) that they took."""
        clock, poll, sockets = time.perf_counter_ns, self._epoll.poll, self._sockets
        size, prefix = self._reply_size, self._prefix
        bursts = cycle([(memoryview(burst), len(burst) // self.depth) for burst in self._bursts])
        sent, rest, times = dict.fromkeys(sockets, 0), dict.fromkeys(sockets, 0), []
        end = clock() + int(seconds * 1e9)
        replies = 0
        issued = min(limit, self.depth * len(sockets))
        for sock in list(sockets.values())[: -(-issued // self.depth)]:
            sent[sock.fileno()] = clock()
            sock.sendall(next(bursts)[0])
        while replies < issued:
            for fd, _ in poll():
                try:
                    data = sockets[fd].recv(_READ)
                except BlockingIOError:
                    continue
                now = clock()
                had = rest[fd]
                if not data or (not had and not data.startswith(prefix)):
                    raise SystemExit(f"publisher: unexpected reply {data[:120]!r}")
                done, rest[fd] = divmod(had + len(data), size)
                if not done:
                    continue
                replies += done
                times.append(now - sent[fd])
                if now < end and issued + done <= limit:
                    issued += done
                    sent[fd] = now
                    burst, request_size = next(bursts)
                    sockets[fd].sendall(burst[: done * request_size])
        return replies, times

    def _connect(self) -> Wire:
        if self.shape.startswith("http"):
            return connect(self.host, self._port)
        return introduce(self.host, self._port, self.upgrade, heartbeat_interval=-1)

    def _request(self, topic: str) -> tuple[bytes, int]:
        """Return the bytes of a request, and how many messages it publishes."""
        if self.shape == "pub":
            return f"PUB {topic}\n".encode() + sized(BODY), 1
        if self.shape == "mpub":
            body = varied_body() if self.varied else MPUB_BODY
            return f"MPUB {topic}\n".encode() + sized(pack(">i", BATCH) + body), BATCH
        path, body, each = {
            "http-pub": (f"/pub?topic={topic}", BODY, 1),
            "http-mpub": (f"/mpub?topic={topic}&binary=true", pack(">i", BATCH) + MPUB_BODY, BATCH),
            "http-mpub-big": (f"/mpub?topic={topic}&binary=true", pack(">i", BIG) + MPUB_BODY * 10, BIG),
        }[self.shape]
        head = _HTTP.format(path=path, host=self.host, port=self.ports["HTTP"], length=len(body))
        return head.encode() + body, each


def _http_reply(sock: Wire, request: bytes) -> tuple[bytes, int]:
    """Send one request; return how a good reply begins, and the bytes of each reply. SystemExit if the reply is bad."""
    sock.sendall(request)
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += read_exactly(sock, 1)
    lengths = [line.partition(b":")[2] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    if not head.startswith(b"HTTP/1.1 200 ") or len(lengths) != 1:
        raise SystemExit(f"publisher: unexpected reply {head!r}")
    read_exactly(sock, int(lengths[0]))
    return b"HTTP/1.1 200 ", len(head) + int(lengths[0])
