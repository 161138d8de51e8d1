"""Real daemons and tools for tests: started on loopback and free ports, waited for, stopped, and held to their exit code.

    with Daemon("nsqlookupd") as lookupd, Daemon("nsqd", "-lookupd-tcp-address", lookupd.tcp) as nsqd:
        httpx.get(f"http://{nsqd.http}/ping")

Leaving the block sends SIGTERM and asserts exit code 0 and no traceback on standard error.
"""

import os
import re
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from penstock.client.consumer import Consumer
from tests import forkserver
from tests.forkserver import LAUNCH, ROOT, Popen

START_TIMEOUT = 120.0  # s; a start takes 0.3 s, but CI machines sleep at times, and other tests run beside this one
STOP_TIMEOUT = 60.0  # s
_LISTENING = re.compile(r"INFO: (?:(\w+): )?listening on (\S+)")


def our_command(program: str) -> list[str]:
    """Return the command that starts a program of this project."""
    return [*LAUNCH, program]


class Tool:
    """A process, ours or an original. Leaving the block sends SIGTERM, and asserts the exit code and no traceback."""

    ends_with: int | None = 0  # the exit code after SIGTERM; None: it is killed

    def __init__(
        self, command: Sequence[str], *flags: str, listens: Sequence[str] = (), tracebacks: bool = False, **options: Any
    ) -> None:
        """`listens`: names that say "listening on" before the block is entered; `tracebacks`: the test provokes one."""
        self.addresses: dict[str, str] = {}  # "TCP" -> "127.0.0.1:54321", as the log says; "": without a name
        self.out: list[str] = []  # lines of standard output so far
        self.lines: list[str] = []  # of standard error
        self._command, self._listens, self._tracebacks = [*command, *flags], {*listens}, tracebacks
        self._options = {"env": {**os.environ, "PYTHONPATH": str(ROOT)}, **options}  # of Popen
        self._changed = threading.Condition()  # guards lines, addresses and _ended
        self._ended = False  # standard error is closed

    def __enter__(self) -> Self:
        self.process = Popen(
            self._command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="backslashreplace",  # the log quotes what peers sent: an odd byte must not stop our reading it
            **self._options,
        )
        self._readers = [threading.Thread(target=read, daemon=True) for read in (self._read_output, self._read_errors)]
        for reader in self._readers:
            reader.start()
        try:
            self.wait_until(lambda: self._listens <= self.addresses.keys(), START_TIMEOUT)
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            if error is None and self.ends_with is not None and self.process.poll() is None:
                assert self.stop() == self.ends_with, self.stderr
        finally:
            self.kill()
        if error is not None:  # the test has failed already: its error is the one to show, with the log beside it
            error.add_note(f"--- {self._command} ---\n{self.stderr}")
        elif not self._tracebacks:
            assert "Traceback" not in self.stderr, self.stderr

    # Commands

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send the signal, wait for the end, return the exit code."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """Wait for the end of the process and of its output; return the exit code."""
        code = self.process.wait(STOP_TIMEOUT)
        for reader in self._readers:
            reader.join(STOP_TIMEOUT)
        return code

    def kill(self) -> None:
        """End the process whatever its state, and tidy up. May be called twice."""
        self.process.kill()
        self.wait()
        self.process.stdout.close()
        self.process.stderr.close()

    def wait_for_line(self, part: str, timeout: float = START_TIMEOUT, times: int = 1) -> str:
        """Wait until `times` lines of standard error contain `part`, and return the first of them."""
        self.wait_until(lambda: sum(part in line for line in self.lines) >= times, timeout)
        return next(line for line in self.lines if part in line)

    def wait_until(self, done: Callable[[], bool], timeout: float) -> None:
        """Wait for standard error to make `done` true. AssertionError if it ends or time runs out before."""
        with self._changed:
            self._changed.wait_for(lambda: done() or self._ended, timeout)
            assert done(), f"{self._command} did not say what was awaited; it said:\n" + "".join(self.lines)

    def connect(self, name: str = "TCP") -> socket.socket:
        """A new connection to one of its addresses."""
        address = self.addresses[name]
        if address.startswith("/"):
            unix = socket.socket(socket.AF_UNIX)
            unix.settimeout(STOP_TIMEOUT)
            unix.connect(address)
            return unix
        host, _, port = address.rpartition(":")
        return socket.create_connection((host.strip("[]"), int(port)), timeout=STOP_TIMEOUT)

    # Queries

    @property
    def tcp(self) -> str:
        """Return host:port of the NSQ protocol."""
        return self.addresses["TCP"]

    @property
    def http(self) -> str:
        """Return host:port of the HTTP API."""
        return self.addresses["HTTP"]

    @property
    def stderr(self) -> str:
        """Return what the process has written to standard error so far."""
        with self._changed:
            return "".join(self.lines)

    def _read_output(self) -> None:
        self.out.extend(self.process.stdout)

    def _read_errors(self) -> None:
        for line in self.process.stderr:
            with self._changed:
                self.lines.append(line)
                if match := _LISTENING.search(line):
                    self.addresses[match[1] or ""] = match[2]
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()


class Daemon(Tool):
    """One daemon of NSQ's. `flags` follow, and so override, port 0 on loopback for TCP, HTTP and HTTPS."""

    def __init__(
        self,
        program: str,
        *flags: str,
        listens: Sequence[str] = ("TCP", "HTTP"),
        command: Sequence[str] = (),
        **options: Any,
    ) -> None:
        self.program = program
        words = [*(command or our_command(program))]
        if not any(flag.startswith("-tcp-address") for flag in flags):  # it may be given several times
            words += ["-tcp-address", "127.0.0.1:0"]
        if any(flag.startswith("-tls-cert") for flag in flags):  # by default it would listen at a port that all have
            words += ["-https-address", "127.0.0.1:0"]
        super().__init__(words, "-http-address", "127.0.0.1:0", *flags, listens=listens, **options)


def run(
    program: str, *arguments: str, stdin: str = "", timeout: float = STOP_TIMEOUT
) -> subprocess.CompletedProcess[str]:
    """A program of this project run to its end."""
    return forkserver.run(
        [*LAUNCH, program, *arguments],
        input=stdin, capture_output=True, text=True, timeout=timeout, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def nsqd(directory: Path, *flags: str, **options: Any) -> Daemon:
    """An nsqd with its data in `directory`, which is made if it is not there."""
    directory.mkdir(parents=True, exist_ok=True)
    return Daemon("nsqd", "-data-path", str(directory), *flags, **options)


def post(node: Daemon, path: str, content: bytes | str = b"", **arguments: str) -> None:
    """Send a POST to the daemon's HTTP API. Raises httpx.HTTPStatusError unless the answer is a success."""
    httpx.post(f"http://{node.http}{path}", params=arguments, content=content).raise_for_status()


def publish(node: Daemon, topic: str, *bodies: bytes | str) -> None:
    """Publish the bodies, which hold no line break, with one /mpub."""
    lines = [body.encode() if isinstance(body, str) else body for body in bodies]
    post(node, "/mpub", b"\n".join(lines), topic=topic)


def drained(node: Daemon, topic: str, channel: str, count: int) -> list[bytes]:
    """Consume `count` messages of a channel, and return their bodies. AssertionError if there is another one."""
    found: list[bytes] = []
    with Consumer(topic, channel, [node.tcp]) as consumer:
        while len(found) < count:
            more = consumer.poll(10)
            assert more, f"only {len(found)} of {count} came"
            for message in more:
                found.append(message.body)
                message.finish()
        assert consumer.poll(0.2) == []
    return found


def eventually(done: Callable[[], object], timeout: float = START_TIMEOUT, what: str = "true") -> None:
    """Wait until `done` answers something true. For what no log line announces.

    It is asked 50 times a second, and 10 times once it has taken half a second: to ask costs more than what is waited for.
    """
    began = time.monotonic()
    while not done():
        waited = time.monotonic() - began
        assert waited < timeout, f"not {what} within {timeout} s"
        time.sleep(min(0.1, 0.02 + waited / 6))


MOST_HEARTBEATS = 20  # in a row: in virtual time they come as quickly as they are answered
RESPONSE, ERROR, MESSAGE = 0, 1, 2  # frame types
OK = (RESPONSE, b"OK")


@dataclass(frozen=True)
class Message:
    """A message as it came over the wire."""

    timestamp: int  # ns since the epoch
    attempts: int
    id: bytes
    body: bytes


class Conversation:
    """A connection of an NSQ client, byte for byte: the test spells out all that is sent."""

    def __init__(self, daemon: Daemon, data: bytes = b"", timeout: float = STOP_TIMEOUT) -> None:
        self.socket = daemon.connect()
        self.socket.settimeout(timeout)
        if self.socket.family != socket.AF_UNIX:  # two small sends in a row would wait 40 ms for an acknowledgement
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self.socket.makefile("rb")
        self.send(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def frame(self) -> tuple[int, bytes] | None:
        """The next frame (type, data) that is no heartbeat; some are answered. None when the daemon has closed."""
        for _ in range(MOST_HEARTBEATS):
            head = self._file.read(8)
            if not head:
                return None
            size, kind = struct.unpack(">ii", head)
            data = self._file.read(size - 4)
            assert len(data) == size - 4, "the daemon closed in the middle of a frame"
            if (kind, data) != (RESPONSE, b"_heartbeat_"):
                return kind, data
            self.send(b"NOP\n")
        raise AssertionError("nothing comes but heartbeats")

    def frames(self) -> list[tuple[int, bytes]]:
        """All that comes until the daemon closes."""
        return list(iter(self.frame, None))

    def message(self) -> Message:
        """The next frame, which must be a message."""
        frame = self.frame()
        assert frame is not None, "closed"
        assert frame[0] == MESSAGE, frame
        timestamp, attempts, message_id = struct.unpack_from(">qH16s", frame[1])
        return Message(timestamp, attempts, message_id, frame[1][26:])


def sized(body: bytes) -> bytes:
    """A body as it follows a command line: int32 length, bytes."""
    return struct.pack(">i", len(body)) + body


def several(*bodies: bytes) -> bytes:
    """What follows the line of an MPUB."""
    return sized(struct.pack(">i", len(bodies)) + b"".join(map(sized, bodies)))
