"""One life of the server under test: started, watched, killed."""

from __future__ import annotations

import re
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from bench.server import ROOT

START_TIMEOUT = 120.0  # s
_LISTENING = re.compile(r"\b(TCP|HTTP): listening on \S*:(\d+)\s*$")
_LINES = 60  # lines of standard error that are kept
_ASK_AGAIN = 0.005  # s between two checks whether it is ready


class CrashError(Exception):
    """The trial cannot continue, or has shown a fault that no count covers; the text says which."""


class Process:
    """A server process. `wait_until` it is ready; `kill` it in the end, whatever happens."""

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self.name = name
        self.log: deque[str] = deque(maxlen=_LINES)
        self.ports: dict[str, int] = {}  # "TCP" and "HTTP", read from the log
        self.alarms: list[str] = []  # lines that a crash must never cause
        self.killed = False
        self.disk_fails = False  # True: from now on the server may report corruption
        self._process = subprocess.Popen(
            command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, cwd=ROOT, text=True, errors="backslashreplace"
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_until(self, ready: Callable[[], bool]) -> None:
        """Wait until the server is `ready`. Raises CrashError if it ends before that, or time runs out."""
        deadline = time.monotonic() + START_TIMEOUT
        while not ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise CrashError(f"{self.name} did not start (exit code {self._process.poll()}):\n{self.text()}")
            time.sleep(_ASK_AGAIN)

    def stop(self) -> None:
        """Stop the process by SIGSTOP: it does nothing more until it is killed."""
        self.killed = True
        self._process.send_signal(signal.SIGSTOP)

    def kill(self) -> None:
        """Kill the process by SIGKILL and wait for its end; a second call does nothing.

        Raises CrashError if the process does not end.
        """
        self.killed = True
        self._process.kill()
        try:
            self._process.wait(START_TIMEOUT)
        except subprocess.TimeoutExpired:
            raise CrashError(f"{self.name} does not end, though killed") from None
        self._reader.join(START_TIMEOUT)

    def close(self) -> None:
        """Kill the process and close its standard error."""
        self.kill()
        if self._process.stderr is not None:
            self._process.stderr.close()

    def check(self) -> None:
        """Raise CrashError if the process has ended by itself."""
        if not self.killed and self._process.poll() is not None:
            self.kill()
            raise CrashError(f"{self.name} ended by itself (exit code {self._process.poll()}):\n{self.text()}")

    def text(self) -> str:
        """Return the last lines of its standard error."""
        return "".join(self.log)

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.log.append(line)
            if match := _LISTENING.search(line):
                self.ports[match[1]] = int(match[2])
            if line.startswith("Traceback") or ("DAMAGE" in line and not self.disk_fails):
                self.alarms.append(line.strip())
