"""What tests of nsq_to_nsq and nsq_to_http share: the running tool, ours or the original, and what is in a topic."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import httpx
import pytest

from penstock.client import Consumer
from tests.daemons import ROOT, START_TIMEOUT, STOP_TIMEOUT, Daemon, eventually, post
from tests.forkserver import LAUNCH, Popen

SOON = (
    "-consumer-opt=default_requeue_delay,50ms",
    "-consumer-opt=lookupd_poll_interval,300ms",
    "-consumer-opt=backoff_multiplier,20ms",
    "-consumer-opt=max_backoff_duration,500ms",
)


def original(program: str) -> str:
    """Return the path of an NSQ program, in the directory that PENSTOCK_NSQ names; skip the test without it."""
    path = Path(os.environ.get("PENSTOCK_NSQ", "") or "/nowhere") / program
    if not path.exists():
        pytest.skip(f"PENSTOCK_NSQ names no directory with NSQ's {program}")
    return str(path)


class Tool:
    """A running tool. Leaving the block sends SIGTERM and asserts exit code 0 and no traceback."""

    def __init__(self, *command: str) -> None:
        self._command = command if "/" in command[0] else (*LAUNCH, *command)
        self.lines: list[str] = []  # standard error so far

    def __enter__(self) -> Tool:
        environ = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.process = Popen(self._command, stderr=subprocess.PIPE, text=True, errors="replace", env=environ)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            if error is None and self.process.poll() is None:
                assert self.stop() == 0, self.lines
        finally:
            self.kill()
        if error is not None:
            error.add_note("--- the tool ---\n" + "".join(self.lines))
        assert "Traceback" not in "".join(self.lines), self.lines

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send the signal and return the exit code."""
        self.process.send_signal(number)
        code = self.process.wait(STOP_TIMEOUT)
        self._reader.join(STOP_TIMEOUT)
        return code

    def kill(self) -> None:
        """End it at once. May be called twice."""
        self.process.kill()
        self.process.wait(STOP_TIMEOUT)
        self._reader.join(STOP_TIMEOUT)
        if self.process.stderr is not None:
            self.process.stderr.close()

    def wait_for_line(self, part: str) -> str:
        """The first line that contains `part`."""
        eventually(lambda: any(part in line for line in [*self.lines]))
        return next(line for line in self.lines if part in line)

    def cpu_s(self) -> float:
        """CPU time that the process has taken, in seconds."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def make_channel(node: Daemon, topic: str, channel: str) -> None:
    """Make a topic and a channel, so that what is published from now on waits for it."""
    post(node, "/topic/create", topic=topic)
    post(node, "/channel/create", topic=topic, channel=channel)


def state(node: Daemon, topic: str, channel: str) -> tuple[int, int, int]:
    """Return the numbers of messages of a channel that are queued, in flight, and deferred."""
    stats = httpx.get(f"http://{node.http}/stats?format=json&topic={topic}&channel={channel}").json()
    found = [one for each in stats["topics"] or [] for one in each["channels"] if one["channel_name"] == channel]
    return (found[0]["depth"], found[0]["in_flight_count"], found[0]["deferred_count"]) if found else (0, 0, 0)


def drained(node: Daemon, topic: str, channel: str) -> bool:
    """Whether every message of the channel is finished."""
    return state(node, topic, channel) == (0, 0, 0)


def consume(
    nodes: Sequence[Daemon], topic: str, count: int, channel: str = "check", timeout: float = START_TIMEOUT
) -> list[bytes]:
    """Finish messages of a topic until `count` different bodies were read. Return all bodies, duplicates included."""
    bodies: list[bytes] = []
    seen: set[bytes] = set()
    deadline = time.monotonic() + timeout
    with Consumer(topic, channel, [node.tcp for node in nodes], max_in_flight=1000) as consumer:
        while len(seen) < count:
            assert time.monotonic() < deadline, f"{len(seen)} of {count} bodies came: {sorted(seen)[:20]}"
            for message in consumer.poll(0.2):
                bodies.append(message.body)
                seen.add(message.body)
                message.finish()
    return bodies
