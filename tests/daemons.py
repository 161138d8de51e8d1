"""Real daemons for tests: started on loopback and free ports, waited for, stopped, and held to their exit code.

    with Daemon("nsqlookupd") as lookupd, Daemon("nsqd", "-lookupd-tcp-address", lookupd.tcp) as nsqd:
        httpx.get(f"http://{nsqd.http}/ping")

Leaving the block sends SIGTERM and asserts exit code 0 and no traceback on standard error.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

ROOT = Path(__file__).resolve().parent.parent
START_TIMEOUT = 20.0  # s; a start takes 0.3 s, but CI machines sleep at times
STOP_TIMEOUT = 20.0  # s
_LISTENING = re.compile(r"INFO: (\w+): listening on (\S+)")


class Daemon:
    """One process of this project. `flags` follow, and so override, port 0 on loopback for TCP and HTTP."""

    def __init__(
        self,
        program: str,
        *flags: str,
        listens: Sequence[str] = ("TCP", "HTTP"),
        command: Sequence[str] = (),
        cwd: Path | None = None,
        preexec: Callable[[], None] | None = None,
        tracebacks: bool = False,
    ) -> None:
        self.program = program
        self.addresses: dict[str, str] = {}  # "TCP" -> "127.0.0.1:54321", as the log says
        self.lines: list[str] = []  # standard error so far
        self._command = [*(command or (sys.executable, "-m", "penstock.launch", program))]
        self._command += ["-tcp-address", "127.0.0.1:0", "-http-address", "127.0.0.1:0", *flags]
        self._listens = set(listens)  # the names that must have said "listening on" before the block is entered
        self._cwd = cwd
        self._preexec = preexec
        self._tracebacks = tracebacks  # True: the test provokes one
        self._changed = threading.Condition()  # guards lines, addresses and _ended
        self._ended = False  # standard error is closed

    def __enter__(self) -> Daemon:
        environ = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(
            self._command, stderr=subprocess.PIPE, text=True, cwd=self._cwd, env=environ, preexec_fn=self._preexec
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            self.wait_until(lambda: self._listens <= self.addresses.keys(), START_TIMEOUT)
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            if error is None and self.process.poll() is None:
                assert self.stop() == 0, self.stderr
        finally:
            self.kill()
        if error is not None:  # the test has failed already: its error is the one to show, with the log beside it
            error.add_note(f"--- {self.program} ---\n{self.stderr}")
        elif not self._tracebacks:
            assert "Traceback" not in self.stderr, self.stderr

    # Commands

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send the signal, wait for the end, return the exit code."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """Wait for the end of the process and of its standard error; return the exit code."""
        code = self.process.wait(STOP_TIMEOUT)
        self._reader.join(STOP_TIMEOUT)
        return code

    def kill(self) -> None:
        """End the process whatever its state, and tidy up. May be called twice."""
        self.process.kill()
        self.wait()
        if self.process.stderr is not None:
            self.process.stderr.close()

    def wait_for_line(self, part: str, timeout: float = START_TIMEOUT) -> str:
        """The first line on standard error that contains `part`."""
        self.wait_until(lambda: any(part in line for line in self.lines), timeout)
        return next(line for line in self.lines if part in line)

    def wait_until(self, done: Callable[[], bool], timeout: float) -> None:
        """Wait for standard error to make `done` true. AssertionError if it ends or time runs out before."""
        with self._changed:
            self._changed.wait_for(lambda: done() or self._ended, timeout)
            assert done(), f"{self.program} did not say what was awaited; it said:\n" + "".join(self.lines)

    def connect(self, name: str = "TCP") -> socket.socket:
        """A new connection to one of its addresses."""
        host, _, port = self.addresses[name].rpartition(":")
        return socket.create_connection((host.strip("[]"), int(port)), timeout=STOP_TIMEOUT)

    # Queries

    @property
    def tcp(self) -> str:
        """host:port of the NSQ protocol."""
        return self.addresses["TCP"]

    @property
    def http(self) -> str:
        """host:port of the HTTP API."""
        return self.addresses["HTTP"]

    @property
    def stderr(self) -> str:
        """Standard error so far."""
        with self._changed:
            return "".join(self.lines)

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._changed:
                self.lines.append(line)
                if match := _LISTENING.search(line):
                    self.addresses[match[1]] = match[2]
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()


def run(
    program: str, *arguments: str, stdin: str = "", timeout: float = STOP_TIMEOUT
) -> subprocess.CompletedProcess[str]:
    """A program of this project run to its end."""
    return subprocess.run(
        [sys.executable, "-m", "penstock.launch", program, *arguments],
        input=stdin, capture_output=True, text=True, timeout=timeout, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
