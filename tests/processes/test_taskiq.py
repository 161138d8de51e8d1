"""A real worker of taskiq over a tube: every task is done at least once, whatever is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.jobs import Jobs
from penstock.taskiq import PenstockBroker
from tests.daemons import ROOT, Daemon, eventually, nsqd

pytestmark = [pytest.mark.process, pytest.mark.campaign]  # two workers start; tests/penstock/taskiq is cheaper
PATIENCE = 60.0  # s


def node(directory: Path, address: str = "127.0.0.1:0") -> Daemon:
    return nsqd(directory / "data", "-beanstalk-address", address, listens=("TCP", "HTTP", "BEANSTALK"))


@contextmanager
def worker(directory: Path, address: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run taskiq's worker, and kill its processes at the end."""
    environ = {**os.environ, "BROKER": address, "DONE": str(directory / "done"), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "taskiq", "worker", "tests.processes.taskiq_app:broker", "--workers", "1"]
    process = subprocess.Popen(command, env=environ, cwd=ROOT, start_new_session=True, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def kiq(address: str, numbers: range, seconds: float, **labels: float) -> None:
    """Publish tasks as another program does, which knows their name."""

    async def main() -> None:
        broker = PenstockBroker(address, "work")
        await broker.startup()
        task = broker.register_task(lambda number, seconds: None, "tests.processes.taskiq_app:slow")
        for number in numbers:
            await task.kicker().with_labels(**labels).kiq(number, seconds)
        await broker.shutdown()

    asyncio.run(main())


def lines(directory: Path) -> list[str]:
    done = directory / "done"
    return done.read_text().splitlines() if done.exists() else []


def is_empty(address: str) -> bool:
    with Jobs(address) as jobs:
        stats = jobs.stats_tube("work")
    return not any(stats[f"current-jobs-{state}"] for state in ("ready", "reserved", "delayed", "buried"))


def test_every_task_is_done_over_kills_of_the_worker_and_of_the_node(tmp_path: Path) -> None:
    with node(tmp_path) as first:
        address = first.addresses["BEANSTALK"]
        kiq(address, range(8), 0.05)
        kiq(address, range(8, 12), 0.05, delay=1)
        kiq(address, range(12, 16), 3600, priority=0)  # they come first, and take the worker's four places
        with worker(tmp_path, address) as process:
            eventually(lambda: {"begin 12", "begin 13", "begin 14", "begin 15"} <= {*lines(tmp_path)}, PATIENCE)
            kill(process)
            first.kill()
    assert not {"0", "12"} & {*lines(tmp_path)}
    with node(tmp_path, address) as second:
        with Jobs(address, watch=["work"]) as jobs:
            for _ in range(4):  # those that were at work are ready again: without them the others have a place
                job = jobs.reserve(timeout_s=20)
                assert job is not None
                assert b"3600" in job.body
                job.delete()
        with worker(tmp_path, address):
            eventually(lambda: {str(number) for number in range(12)} <= {*lines(tmp_path)}, PATIENCE)
            eventually(lambda: is_empty(address), PATIENCE)
        assert second.http
