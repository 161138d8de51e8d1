"""`penstock up` with real processes: a dead daemon comes back, or stays dead, and a rolling restart loses nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from penstock.client import Producer, PublishError
from tests.daemons import ROOT, STOP_TIMEOUT, Conversation, Daemon, eventually
from tests.processes.test_penstock_up import child, free_offset

pytestmark = pytest.mark.process

READY = "Press Ctrl-C to stop all daemons."


class Set:
    """A running `penstock up` with two nodes, whose output goes to a file."""

    def __init__(self, process: subprocess.Popen[bytes], output: Path, offset: int) -> None:
        self.process, self._output, self.offset = process, output, offset

    def said(self, text: str) -> bool:
        return text in self._output.read_text(errors="replace")

    def wait_for(self, text: str) -> None:
        eventually(lambda: self.said(text) or self.process.poll() is not None, 120)
        assert self.said(text), self._output.read_text(errors="replace")

    def node(self, number: int) -> str:
        """The HTTP address of a node, from 0."""
        return f"http://127.0.0.1:{4151 + 100 * number + self.offset}"

    def child(self, name: str) -> int:
        return child(self.process.pid, name)

    def kill_node(self, name: str) -> None:
        os.kill(self.child(f"{name}] "), signal.SIGKILL)  # the name is in -log-prefix

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_TIMEOUT)


@contextmanager
def running(tmp_path: Path, *arguments: str, shared: bool = False) -> Iterator[Set]:
    offset, output = free_offset(2), tmp_path / "output"
    flags = ["--nodes", "2", "--logs", "--port-offset", str(offset), *arguments]
    if shared:
        flags += ["--shared-port", str(4149 + offset)]
    command = [sys.executable, "-m", "penstock.launch", "penstock", "up", *flags]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    with (
        output.open("wb") as file,
        subprocess.Popen(command, cwd=tmp_path, env=environ, stdout=file, stderr=subprocess.STDOUT) as process,
    ):
        try:
            daemons = Set(process, output, offset)
            daemons.wait_for(READY)
            yield daemons
        finally:
            process.terminate()
    assert "Traceback" not in output.read_text(errors="replace")


class Publisher(threading.Thread):
    """Publishes numbered messages at the shared port one by one, and sends each again until it is acknowledged."""

    def __init__(self, port: int, name: str) -> None:
        super().__init__()
        self._address, self._word = f"127.0.0.1:{port}", name
        self.acknowledged: list[str] = []
        self.retries = 0
        self._ends = threading.Event()

    def stop(self) -> None:
        self._ends.set()
        self.join(STOP_TIMEOUT)

    def run(self) -> None:
        with Producer(self._address) as producer:
            while not self._ends.wait(0.005):  # as many as the nodes can take would only cost
                body = f"{self._word}{len(self.acknowledged)}"
                try:
                    producer.publish("t", body.encode())
                    self.acknowledged.append(body)
                except PublishError:
                    self.retries += 1


def drained(daemons: Set, number: int) -> set[str]:
    """The bodies of all messages that a node has for the channel c of t."""
    stats = httpx.get(f"{daemons.node(number)}/stats?format=json&topic=t&channel=c").json()
    depth = stats["topics"][0]["channels"][0]["depth"]
    node = Daemon("nsqd")
    node.addresses["TCP"] = f"127.0.0.1:{4150 + 100 * number + daemons.offset}"
    with Conversation(node, b"  V2SUB t c\nRDY 2500\n") as consumer:
        consumer.frame()
        found = set()
        for _ in range(depth):
            message = consumer.message()
            found.add(message.body.decode())
            consumer.send(b"FIN " + message.id + b"\n")
    return found


def known(daemons: Set) -> int:
    """How many nodes nsqlookupd knows. Raises HTTPError if it does not answer."""
    return len(httpx.get(f"http://127.0.0.1:{4161 + daemons.offset}/nodes").json()["producers"])


def test_kills_and_a_rolling_restart_lose_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    with running(tmp_path, "--restart", shared=True) as daemons:
        for number in (0, 1):
            for path in ("/topic/create?topic=t", "/channel/create?topic=t&channel=c"):
                httpx.post(f"{daemons.node(number)}{path}").raise_for_status()
        producers = [Publisher(4149 + daemons.offset, name) for name in "abcd"]
        for producer in producers:
            producer.start()
        try:
            eventually(lambda: all(producer.acknowledged for producer in producers))
            daemons.kill_node("nsqd-2")
            daemons.wait_for("nsqd-2 was killed by SIGKILL: starting it again in 0.")
            daemons.wait_for("nsqd-2 runs again")
            os.kill(daemons.child("launch.py\0nsqlookupd"), signal.SIGKILL)
            daemons.wait_for("nsqlookupd was killed by SIGKILL: starting it again in 0.")
            daemons.wait_for("nsqlookupd runs again")
            daemons.process.send_signal(signal.SIGUSR2)
            daemons.wait_for("rolling restart: done")
            eventually(lambda: known(daemons) == 2)
            before = [len(producer.acknowledged) for producer in producers]
            eventually(lambda: all(len(p.acknowledged) > n for p, n in zip(producers, before, strict=True)))
        finally:
            for producer in producers:
                producer.stop()
        assert sum(producer.retries for producer in producers) >= 2  # each node went away with connections
        everything = drained(daemons, 0) | drained(daemons, 1)
        assert [body for producer in producers for body in producer.acknowledged if body not in everything] == []
        assert daemons.stop() == 0
