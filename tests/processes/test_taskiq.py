"""A real worker of taskiq over a tube: every task is done at least once, whatever is killed."""

import asyncio
from pathlib import Path

import pytest

from penstock.jobs import Jobs
from penstock.taskiq import PenstockBroker
from tests.daemons import eventually
from tests.processes.task_workers import PATIENCE, is_empty, kill, lines, worker
from tests.processes.test_jobs_client import beanstalk_node

pytestmark = [pytest.mark.process, pytest.mark.campaign]  # two workers start; tests/penstock/taskiq is cheaper
TASKIQ = ("taskiq", "worker", "tests.processes.taskiq_app:broker", "--workers", "1")


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


def test_every_task_is_done_over_kills_of_the_worker_and_of_the_beanstalk_node(tmp_path: Path) -> None:
    with beanstalk_node(tmp_path) as first:
        address = first.addresses["BEANSTALK"]
        kiq(address, range(8), 0.05)
        kiq(address, range(8, 12), 0.05, delay=1)
        kiq(address, range(12, 16), 3600, priority=0)  # they come first, and take the worker's four places
        with worker(tmp_path, address, *TASKIQ) as process:
            eventually(lambda: {"begin 12", "begin 13", "begin 14", "begin 15"} <= {*lines(tmp_path)}, PATIENCE)
            kill(process)
            first.kill()
    assert not {"0", "12"} & {*lines(tmp_path)}
    with beanstalk_node(tmp_path, address) as second:
        with Jobs(address, watch=["work"]) as jobs:
            for _ in range(4):  # those that were at work are ready again: without them the others have a place
                job = jobs.reserve(timeout_s=20)
                assert b"3600" in job.body
                job.delete()
        with worker(tmp_path, address, *TASKIQ):
            eventually(lambda: {str(number) for number in range(12)} <= {*lines(tmp_path)}, PATIENCE)
            eventually(lambda: is_empty(address, "work"), PATIENCE)
        assert second.http
