"""A log or an output that is not read: daemons and tools continue, and end at SIGTERM."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import httpx
import pytest

from tests.daemons import ROOT, STOP_TIMEOUT, Daemon, eventually, nsqd
from tests.forkserver import LAUNCH, Popen
from tests.processes.test_penstock_up import free_offset

pytestmark = pytest.mark.process

LINE = b"x" * 1499


class Stuck:
    """A program whose standard error, or output, is a pipe that this test reads only when it says so."""

    def __init__(self, command: Sequence[str], stream: str = "stderr") -> None:
        self.text = ""  # read so far
        self._reader, self._writer = os.pipe()
        streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, stream: self._writer}
        self.process = Popen(
            [sys.executable, *command] if command[0] == "-c" else [*LAUNCH, *command],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            **streams,
        )

    def __enter__(self) -> Stuck:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._reader)
        os.close(self._writer)

    def read(self, size: int = 65536) -> None:
        """Read once, when there is something."""
        assert select.select([self._reader], [], [], STOP_TIMEOUT)[0], self.text
        self.text += os.read(self._reader, size).decode()

    def read_all(self) -> str:
        """Read what an ended program has left in the pipe."""
        os.close(self._writer)
        self._writer = os.open(os.devnull, os.O_WRONLY)  # for __exit__
        while part := os.read(self._reader, 65536):
            self.text += part.decode()
        return self.text

    def read_until(self, pattern: str | re.Pattern[str]) -> re.Match[str]:
        """Read until the pattern was found."""
        while not (match := re.search(pattern, self.text)):
            self.read()
        return match

    def address(self, name: str = "") -> tuple[str, int]:
        """Read until the program says where it listens."""
        match = self.read_until(
            rf"{name}: listening on ([0-9.]+):([0-9]+)\D" if name else r"listening on ([0-9.]+):([0-9]+)\D"
        )
        return match[1], int(match[2])

    def fill(self) -> None:
        """Fill the pipe, by an open file description of the test's own."""
        own = os.open(f"/proc/self/fd/{self._writer}", os.O_WRONLY | os.O_NONBLOCK)
        for size in (4096, 1):
            with contextlib.suppress(BlockingIOError):
                while True:
                    os.write(own, b"." * size)
        os.close(own)

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(STOP_TIMEOUT)


def test_a_bug_ends_nsqd_while_its_log_is_not_read(tmp_path: Path) -> None:
    """Its traceback, which is the last that is written, does not wait either."""
    code = (
        "import sys; from nsqd import main; from nsqd.core import topic; topic.Topic.seal = None; sys.exit(main.main())"
    )
    flags = ["-data-path", str(tmp_path), "-tcp-address=127.0.0.1:0", "-http-address=127.0.0.1:0"]
    with Stuck(["-c", code, *flags]) as node:
        address = node.address("HTTP")
        node.fill()
        with socket.create_connection(address, STOP_TIMEOUT) as client:
            client.sendall(b"POST /pub?topic=t HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx")
            assert node.process.wait(STOP_TIMEOUT) == 1


DAEMONS = {
    "nsqd": ["-tcp-address=127.0.0.1:0", "-http-address=127.0.0.1:0"],
    "nsqlookupd": ["-tcp-address=127.0.0.1:0", "-http-address=127.0.0.1:0"],
    "nsqadmin": ["-http-address=127.0.0.1:0", "-lookupd-http-address=127.0.0.1:1"],
    "beanstalkd": ["-V", "-l", "127.0.0.1", "-p", "0"],
    "disque-server": ["--bind", "127.0.0.1", "--port", "0"],
}
ASKS = {"beanstalkd": (b"stats\r\n", b"OK "), "disque-server": (b"PING\r\n", b"+PONG")}


@pytest.mark.parametrize("program", DAEMONS)
def test_every_daemon_goes_on_and_ends(program: str, tmp_path: Path) -> None:
    directory = {"nsqd": ["-data-path", str(tmp_path)], "disque-server": ["--dir", str(tmp_path)]}.get(program, [])
    command = [program, *DAEMONS[program], *directory]
    with Stuck(command) as daemon:
        address = daemon.address("HTTP" if program.startswith("nsq") else "")
        daemon.fill()
        asks, answer = ASKS.get(program, (b"GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n", b"HTTP/1.1 200"))
        for _ in range(3):
            with socket.create_connection(
                address, STOP_TIMEOUT
            ) as client:  # each is a line of the log, or a request is
                client.sendall(b"  V1\r\n" if program in ASKS else b"GET /nix HTTP/1.1\r\nHost: localhost\r\n\r\n")
                client.recv(100)
        with socket.create_connection(address, STOP_TIMEOUT) as client:
            client.sendall(asks)
            assert client.recv(100).startswith(answer)
        assert daemon.stop() == (-signal.SIGTERM if program == "beanstalkd" else 0)  # as the original


@pytest.mark.parametrize("program", ["nsq_tail", "nsq_stat"])
def test_a_tool_whose_output_is_not_read_ends(program: str, tmp_path: Path) -> None:
    with nsqd(tmp_path / "node") as node:
        httpx.post(f"http://{node.http}/topic/create?topic=t")
        httpx.post(f"http://{node.http}/channel/create?topic=t&channel=c")
        httpx.post(f"http://{node.http}/mpub?topic=t", content=b"\n".join([LINE] * 100))
        flags = {
            "nsq_tail": [f"-nsqd-tcp-address={node.tcp}", "-max-in-flight=8"],
            "nsq_stat": [f"-nsqd-http-address={node.http}", "-interval=10ms"],
        }
        with Stuck([program, "-topic=t", "-channel=c", *flags[program]], "stdout") as tool:
            tool.read()
            tool.fill()
            httpx.post(f"http://{node.http}/mpub?topic=t", content=b"\n".join([LINE] * 100))
            while stats_of(node)["message_count"] < 200 and tool.process.poll() is None:
                time.sleep(0.01)
            assert tool.stop() == 0
            # the dots of `fill` may stand within a line that the pipe got in two parts
            printed = tool.read_all().replace(".", "").count(LINE.decode().replace(".", ""))
        if program == "nsq_tail":  # messages that were not printed were requeued
            eventually(lambda: sum(map(stats_of(node).get, OWED)) == 200 - printed)


OWED = ("depth", "in_flight_count", "deferred_count")


def stats_of(node: Daemon) -> dict[str, int]:
    found = httpx.get(f"http://{node.http}/stats?format=json&topic=t").json()["topics"][0]["channels"][0]
    return cast("dict[str, int]", found)


@pytest.mark.parametrize("stream", [pytest.param("stdout", marks=pytest.mark.campaign), "stderr"])
def test_penstock_up_watches_its_daemons_while_its_terminal_is_stuck(stream: str, tmp_path: Path) -> None:
    offset = free_offset(1)
    with Stuck(["penstock", "up", "--data", str(tmp_path), "--port-offset", str(offset), "--restart"], stream) as up:
        up.fill()
        http = f"http://127.0.0.1:{4151 + offset}"
        while True:
            with contextlib.suppress(httpx.HTTPError):
                httpx.get(f"{http}/ping")
                break
            assert up.process.poll() is None
        assert httpx.post(f"{http}/pub?topic=t", content=b"x").text == "OK"
        assert up.stop() == 0
