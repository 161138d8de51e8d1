"""Clients in programs that fork: every answer belongs to its asker, and a child takes nothing from its parent."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from penstock.forks import Guard
from tests.daemons import ROOT, Daemon, nsqd
from tests.processes.test_beanstalkd import Beanstalkd

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def jobs() -> Iterator[str]:
    with Beanstalkd() as daemon:
        yield ":".join(map(str, daemon.address))


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Daemon]:
    with nsqd(tmp_path) as daemon:
        yield daemon


def execute(program: str, address: str) -> None:
    """Run a program of tests/penstock/forking.py, which fails if anything is wrong."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.penstock.forking", program, address]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("program", ["jobs", "reservations", "async_jobs"])
def test_jobs(jobs: str, program: str) -> None:
    execute(program, jobs)


@pytest.mark.parametrize("program", ["consumer", "async_clients"])
def test_messages(node: Daemon, program: str) -> None:
    execute(program, node.tcp)


def test_no_publish_of_a_child_is_lost_or_doubled(node: Daemon) -> None:
    execute("producer", node.tcp)
    (topic,) = httpx.get(f"http://{node.http}/stats?format=json").json()["topics"]
    assert topic["message_count"] == 4 * 200 + 200 + 3


def test_a_child_keeps_no_connection_of_its_parent_open() -> None:
    near, far = socket.socketpair()
    held = Guard(near.fileno())
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:  # it waits until the test has closed the pipe
        os.close(writer)
        far.close()
        os.read(reader, 1)
        os._exit(0)
    os.close(reader)
    assert not held.is_inherited
    near.sendall(b"it is still the parent's")
    near.close()
    far.settimeout(30)
    assert far.recv(100) == b"it is still the parent's"
    assert far.recv(100) == b"", "the child would have kept it open"
    os.close(writer)
    os.waitpid(pid, 0)
