"""What nsqadmin's pages cost with ten thousand topics on ten nodes: when requested once, and when held open.

A page is just a URL here, so that any nsqadmin can be measured. CPU is the time that the daemons take from the request until
two seconds after the answer, so that work that the request starts is included, less the time that they use in a period of
the same length without requests.
"""

from __future__ import annotations

import gzip
import http.client
import re
import socket
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median

from bench.admin_cluster import AdminCluster, Cpu, admin_cluster, say
from bench.rows import Effort
from bench.server import BenchError, Program, Server
from bench.table import Line, share

NODES, TOPICS = 10, 10_000
_QUICK = (2, 500)  # nodes and topics
_LOOKS = 5  # requests of each page
_PAUSE = 2.0  # s between two requests
_IDLE = 30.0  # s of idling without requests
_HELD = 30.0  # s for which pages are held open
_TOGETHER = 5  # pages held open at once
_FIRST = 60.0  # s within which the first update of a page must come
_TIMEOUT = 120.0  # s without a byte
_LOOK = 0.05  # s between two checks of what has come
_ACCEPT = {"Accept-Encoding": "gzip"}  # as every browser sends
_NAME = re.compile(rb"bench_\d{5}")
_ROW = re.compile(rb'id="t-(bench_\d{5})"')
_MS = 1e6  # ns in a ms


@dataclass(frozen=True, slots=True)
class PageRequest:
    """One request of a page: times, sizes and CPU time."""

    status: int
    first: float  # ms until the first byte
    last: float
    sent: int  # bytes of the body on the wire
    body: bytes
    cpu: Cpu  # ns


@dataclass(frozen=True, slots=True)
class Listing:
    """The row of `make bench` that requests the list of topics."""

    name: str

    def measure(self, program: Program, go: Program | None, effort: Effort) -> list[Line]:
        full = effort.scale == 1
        with admin_cluster(program, *((NODES, TOPICS) if full else _QUICK)) as cluster:
            idle = cluster.cpu_during(_IDLE if full else _PAUSE)
            cold = _look(cluster, "/", idle)
            say("cold")
            lines = [_idle_line(self.name, cluster, idle), self._line(cluster, "/", "first of all", [cold])]
            paths = ("/", "/?sort=depth", "/?sort=rate_in", "/?q=77&page=2", f"/topics/{cluster.deepest}", "/nodes")
            for path in paths:
                looks = [_look(cluster, path, idle) for _ in range(_LOOKS if full else 1)]
                lines.append(self._line(cluster, path, "", looks))
                say(path)
            return lines

    def _line(self, cluster: AdminCluster, path: str, which: str, looks: Sequence[PageRequest]) -> Line:
        """Make a line of the requests that got the page, or of all requests if none did."""
        wrong = {one: complaint for one in looks if (complaint := _complaint(cluster, path, one))}
        seen = [one for one in looks if one not in wrong] or looks
        size = (
            f"{median(len(one.body) for one in seen) / 1e3:.1f} kB, {median(one.sent for one in seen) / 1e3:.1f} sent"
        )
        first, last = median(one.first for one in seen), median(one.last for one in seen)
        cpu = ", ".join(
            f"{who} {max(0.0, median(getattr(one.cpu, field) for one in seen) / _MS):.1f}"
            for who, field in (("nsqadmin", "admin"), ("a node", "node"), ("nsqlookupd", "lookupd"))
        )
        warning = f"({len(wrong)} of {len(looks)} WRONG: {next(iter(wrong.values()))})" if wrong else ""
        return Line(
            self.name,
            " ".join(filter(None, ("GET", path, which, warning))),
            f"first byte {first:.0f} ms, last {last:.0f} ms; {size}",
            f"CPU ms: {cpu}",
            "first <= 300 ms, <= 100 kB",
        )


def _look(cluster: AdminCluster, path: str, idle: Cpu) -> PageRequest:
    """Request the page once, and wait _PAUSE for the work that follows."""
    connection = http.client.HTTPConnection(cluster.admin.host, cluster.admin.ports["HTTP"], timeout=_TIMEOUT)
    cpu, began = cluster.cpu(), time.perf_counter()
    connection.request("GET", path, headers=_ACCEPT)
    connection.sock.recv(1, socket.MSG_PEEK)
    first = time.perf_counter()
    answer = connection.getresponse()
    content, last = answer.read(), time.perf_counter()
    connection.close()
    time.sleep(_PAUSE)
    spent = cluster.cpu().less(cpu).less(idle, time.perf_counter() - began)
    body = gzip.decompress(content) if answer.headers.get("content-encoding") == "gzip" else content
    return PageRequest(answer.status, (first - began) * 1e3, (last - began) * 1e3, len(content), body, spent)


def _complaint(cluster: AdminCluster, path: str, look: PageRequest) -> str:
    """Return the reason why this answer is not the page that was requested, or "" if it is."""
    if look.status != 200:
        return str(look.status)
    if not path.startswith("/?") and path != "/":
        return ""
    names = _ROW.findall(look.body)
    if not names:
        return "no topic"
    if "sort=depth" in path and names[0].decode() != cluster.deepest:
        return "not by depth"
    warnings = look.body.count(b"Stale:") + look.body.count(b'class="banner wrong" role="status">http')
    return f"{warnings} warnings of nodes" if warnings else ""


def _idle_line(name: str, cluster: AdminCluster, idle: Cpu) -> Line:
    what = f"{len(cluster.nodes)} nodes, {len(cluster.topics)} topics, no page open"
    measured = f"a node {_share(idle.node)} of a core"
    return Line(name, what, measured, f"nsqadmin {_share(idle.admin)}, nsqlookupd {_share(idle.lookupd)}")


def _share(cpu: float) -> str:
    """Format a share of a core; `cpu` is in ns per second."""
    return share(max(0.0, cpu) / 1e9)


@dataclass(frozen=True, slots=True)
class OpenPages:
    """The row of `make bench` that keeps pages open while they are updated."""

    name: str

    def measure(self, program: Program, go: Program | None, effort: Effort) -> list[Line]:
        full = effort.scale == 1
        with admin_cluster(program, *((NODES, TOPICS) if full else _QUICK)) as cluster:
            idle = cluster.cpu_during(_IDLE if full else _PAUSE)
            return [
                _idle_line(self.name, cluster, idle),
                *self._held(cluster, 1, idle, min(_HELD, effort.window)),
                *self._held(cluster, _TOGETHER, idle, min(_HELD, effort.window)),
            ]

    def _held(self, cluster: AdminCluster, pages: int, idle: Cpu, seconds: float) -> list[Line]:
        with _streams(cluster.admin, pages) as streams:
            before = [one.come for one in streams]
            spent = cluster.cpu_during(seconds).less(idle)
            come = sum((one.come.less(earlier) for one, earlier in zip(streams, before, strict=True)), StreamCounts())
        say(f"{pages} held open")
        if not come.updates:
            raise BenchError(f"no update of {pages} pages within {seconds:g} s")
        what = f"/?live=1, {pages} open for {seconds:g} s"
        empty = f" ({come.empty} of {come.updates} without a topic)" if come.empty else ""
        times = come.updates / pages
        return [
            *(
                Line(
                    self.name, f"{what}: {who}", f"{_share(cpu)} of a core more",
                    f"{max(0.0, cpu * seconds / times / _MS):.1f} ms for each time that they come", aim,
                )
                for who, cpu, aim in (
                    ("a node", spent.node, "<= 2 %"), ("nsqadmin", spent.admin, ""), ("nsqlookupd", spent.lookupd, ""),
                )
            ),
            Line(
                self.name, f"{what}: an update{empty}",
                f"{come.size / come.updates / 1e3:.1f} kB, {come.sent / come.updates / 1e3:.1f} sent",
                f"one in {seconds / times:.1f} s",
            ),
        ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class StreamCounts:
    """Updates that have come through a stream so far."""

    updates: int = 0
    empty: int = 0  # updates among them without a topic
    size: int = 0  # bytes of the updates
    sent: int = 0  # bytes on the wire

    def __add__(self, other: StreamCounts) -> StreamCounts:
        return StreamCounts(
            self.updates + other.updates, self.empty + other.empty, self.size + other.size, self.sent + other.sent
        )

    def less(self, other: StreamCounts) -> StreamCounts:
        """Return the difference to `other`, an earlier count."""
        return self + StreamCounts(-other.updates, -other.empty, -other.size, -other.sent)


class _Stream(threading.Thread):
    """A thread that reads the updates of an open page."""

    def __init__(self, admin: Server) -> None:
        super().__init__(daemon=True)
        self.come = StreamCounts()
        self.failure = ""
        self._connection = http.client.HTTPConnection(admin.host, admin.ports["HTTP"], timeout=_TIMEOUT)
        self._connection.connect()
        self._socket = self._connection.sock

    def run(self) -> None:
        """Read until the stream is closed or fails."""
        try:
            self._connection.request("GET", "/?live=1", headers={**_ACCEPT, "Accept": "text/event-stream"})
            self._read(self._connection.getresponse())
        except (OSError, http.client.HTTPException) as error:
            self.failure = repr(error)
        else:
            self.failure = self.failure or "the stream ended"

    def close(self) -> str:
        """Close the stream; return why it had ended before, or "" if it had not."""
        failure = self.failure
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # nsqadmin closed the connection, which is the reported failure
        self.join()
        self._connection.close()
        return failure

    def _read(self, answer: http.client.HTTPResponse) -> None:
        if answer.status != 200:
            self.failure = f"answered {answer.status}"
            return
        unpack = zlib.decompressobj(31) if answer.headers.get("content-encoding") == "gzip" else None
        part, sent = b"", 0  # bytes of the next update: decoded, and on the wire
        while data := answer.read1(1 << 16):
            part, sent = part + (unpack.decompress(data) if unpack else data), sent + len(data)
            *whole, part = part.split(b"\n\n")
            if whole:
                empty = sum(_NAME.search(one) is None for one in whole)
                self.come += StreamCounts(len(whole), empty, sum(len(one) + 2 for one in whole), sent)
                sent = 0


@contextmanager
def _streams(admin: Server, pages: int) -> Iterator[list[_Stream]]:
    """Open streams, and wait until each has had its first update. Raises BenchError if one ends."""
    streams = [_Stream(admin) for _ in range(pages)]
    for one in streams:
        one.start()
    try:
        deadline = time.monotonic() + _FIRST
        while not all(one.come.updates or one.failure for one in streams):
            if time.monotonic() > deadline:
                raise BenchError(f"/?live=1 sent nothing within {_FIRST:g} s")
            time.sleep(_LOOK)
        yield streams
    finally:
        failures = [failure for one in streams if (failure := one.close())]
    if failures:
        raise BenchError(f"/?live=1: {failures[0]}")
