"""A server under measurement: a process of its own on loopback with free ports, its CPU time and memory.

It is killed at the end, never stopped: its messages are not needed, and the original would write them all to disk first.
"""

from __future__ import annotations

import http.client
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

import trustme

ROOT = Path(__file__).resolve().parent.parent
START_TIMEOUT = 60.0  # s; the server may read a log of ten million messages first
STOP_TIMEOUT = 60.0  # s
REQUEST_TIMEOUT = 60.0  # s; /stats of 10,000 topics takes seconds
ALL_IN_MEMORY = 20_000_000  # messages: more than any row publishes
_LISTENING = re.compile(r"\b(TCP|HTTP|BEANSTALK|DISQUE|CLUSTER): listening on \S*:(\d+)\b")
_TICK = 1_000_000_000 // os.sysconf("SC_CLK_TCK")  # ns in a unit of /proc/PID/stat
_UTIME, _STIME = 11, 12  # fields of /proc/PID/stat after the one in parentheses


class BenchError(Exception):
    """A row could not be measured; the text says why."""


@dataclass(frozen=True, slots=True)
class Program:
    """The command that starts an nsqd or another daemon, and what the daemon is like."""

    name: str  # the name in the table
    command: tuple[str, ...]
    original: bool  # the Go nsqd: beyond --mem-queue-size it writes to disk, for each topic and channel
    listens: tuple[str, ...] = ("TCP", "HTTP")
    keeps: bool = True  # it has a -data-path

    def start(self, mem_queue: int = ALL_IN_MEMORY, tls: bool = False, data: Path | None = None) -> Server:
        """Start a server, with a certificate if it is to speak TLS. Use it as a context manager.

        `data` is its data directory, which is kept; without it the server gets a temporary one.
        """
        flags = ("-mem-queue-size", str(mem_queue)) if self.original else ()
        return Server(self, flags, tls, data)

    def with_flags(self, name: str, *flags: str) -> Program:
        """Return the same program under another name and with more flags."""
        return replace(self, name=name, command=(*self.command, *flags))


def with_port(program: Program, name: str) -> Program:
    """Return this project's nsqd with another port, too: BEANSTALK, DISQUE or CLUSTER."""
    return replace(program, listens=(*program.listens, name))


def penstock() -> Program:
    """Return the program of this project's nsqd."""
    return Program("penstock", _launching("nsqd"), original=False)


def go_nsqd(path: str) -> Program:
    """Return the program of the Go nsqd at this path."""
    return Program("Go nsqd", (str(Path(path).resolve()),), original=True)


def nsqlookupd() -> Program:
    """Return the program of this project's nsqlookupd."""
    return Program("nsqlookupd", _launching("nsqlookupd"), original=False, keeps=False)


def nsqadmin() -> Program:
    """Return the program of this project's nsqadmin, which has no TCP port."""
    return Program("nsqadmin", _launching("nsqadmin"), original=False, listens=("HTTP",), keeps=False)


def _launching(program: str) -> tuple[str, ...]:
    return sys.executable, "-m", "penstock.launch", program


class Server:
    """A running daemon. Leaving the context kills it, and raises BenchError if it ended by itself or logged a traceback."""

    host = "127.0.0.1"

    def __init__(self, program: Program, flags: tuple[str, ...], tls: bool, data: Path | None = None) -> None:
        self.program = program
        self.ports: dict[str, int] = {}  # "TCP" and "HTTP", read from the log
        self.log: deque[str] = deque(maxlen=40)  # the last lines of standard error
        self.tracebacks = 0  # number of tracebacks in all of standard error
        self._ended = False  # `end` ended it
        self._data = tempfile.TemporaryDirectory(prefix="penstock-bench-")
        if tls:
            flags += (*_certified(Path(self._data.name)), "-https-address", f"{self.host}:0")
        self._listening = threading.Event()  # set once all ports are known or standard error has ended
        addresses = [f"-{name.lower()}-address={self.host}:0" for name in program.listens]
        self.data = data or Path(self._data.name)
        addresses += ["-data-path", str(self.data)] if program.keeps else []
        self._process = subprocess.Popen(
            [*program.command, *addresses, *flags], stderr=subprocess.PIPE, text=True, cwd=ROOT
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Server:
        self._listening.wait(START_TIMEOUT)
        if len(self.ports) < len(self.program.listens):
            self.close()
            raise BenchError(f"{self.program.name} did not start: {' '.join(self.log)}")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        code = self._process.poll()
        self.close()
        if (code is not None and not self._ended) or self.tracebacks:
            tail = "".join(self.log)
            raise BenchError(f"{self.program.name} failed while measured (exit code {code}):\n{tail}") from error

    def end(self, number: signal.Signals) -> None:
        """Send the signal that ends the process, and wait for its end; the exit code is not checked."""
        self._process.send_signal(number)
        self._process.wait(STOP_TIMEOUT)
        self._ended = True

    def close(self) -> None:
        """Kill the process and remove its temporary files."""
        self._process.kill()
        self._process.wait()
        self._reader.join(START_TIMEOUT)
        if self._process.stderr is not None:
            self._process.stderr.close()
        self._data.cleanup()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.log.append(line)
            self.tracebacks += line.startswith("Traceback")
            if match := _LISTENING.search(line):
                self.ports[match[1]] = int(match[2])
                if len(self.ports) == len(self.program.listens):
                    self._listening.set()
        self._listening.set()

    # ---- commands

    def create(self, topic: str, channels: Iterable[str] = ()) -> None:
        """Create a topic with channels. Raises BenchError."""
        paths = [f"/channel/create?topic={topic}&channel={channel}" for channel in channels]
        self.create_all([f"/topic/create?topic={topic}", *paths])

    def create_all(self, paths: Iterable[str]) -> None:
        """POST each of the paths, over one connection. Raises BenchError."""
        with closing(self._connect()) as connection:
            for path in paths:
                self._exchange(connection, "POST", path)

    def post(self, path: str, body: bytes) -> None:
        """POST the body to the path. Raises BenchError."""
        with closing(self._connect()) as connection:
            self._exchange(connection, "POST", path, body)

    # ---- queries

    def get(self, path: str) -> bytes:
        """Return the body of a GET. Raises BenchError."""
        with closing(self._connect()) as connection:
            return self._exchange(connection, "GET", path)

    def cpu(self) -> int:
        """Return the CPU time (user and system) of the process, its threads and its children, in ns."""
        return sum(time.clock_gettime_ns(cpu_clock(pid)) for pid in self._pids())

    def rss(self) -> int:
        """Return the resident memory of the process and its children in bytes."""
        return sum(resident(Path(f"/proc/{pid}/status").read_text()) for pid in self._pids())

    def _pids(self) -> list[int]:
        pids = [self._process.pid]
        for pid in pids:  # the list grows on the way, by the children of children
            for task in Path(f"/proc/{pid}/task").iterdir():
                pids += map(int, (task / "children").read_text().split())
        return pids

    def _exchange(self, connection: http.client.HTTPConnection, method: str, path: str, body: bytes = b"") -> bytes:
        connection.request(method, path, body)
        reply = connection.getresponse()
        content = reply.read()
        if reply.status != 200:
            raise BenchError(f"{self.program.name} answered {reply.status} to {method} {path}")
        return content

    def _connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.host, self.ports["HTTP"], timeout=REQUEST_TIMEOUT)


def _certified(directory: Path) -> tuple[str, ...]:
    """Make a new certificate in `directory`, and return the flags that name it."""
    cert, key = directory / "cert.pem", directory / "key.pem"
    leaf = trustme.CA().issue_cert(Server.host)
    leaf.cert_chain_pems[0].write_to_path(cert)
    leaf.private_key_pem.write_to_path(key)
    return "-tls-cert", str(cert), "-tls-key", str(key)


def cpu_clock(pid: int) -> int:
    """Return the CPU-time clock of a process as in clock_getcpuclockid(3) on Linux: /proc/PID/stat has steps of 10 ms."""
    return (~pid << 3) | 2


def cpu_time(stat: str) -> int:
    """Return the ns of CPU time, user and system, in the text of /proc/PID/stat.

    The name in parentheses may contain anything.
    """
    fields = stat.rpartition(")")[2].split()
    return (int(fields[_UTIME]) + int(fields[_STIME])) * _TICK


def resident(status: str) -> int:
    """Return the bytes of VmRSS in the text of /proc/PID/status, or 0 without one."""
    match = re.search(r"^VmRSS:\s+(\d+) kB$", status, re.MULTILINE)
    return int(match[1]) * 1024 if match else 0
