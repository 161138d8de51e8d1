"""manage.py penstock_worker: every task is done at least once over kills of node and worker; SIGTERM lets tasks end."""

from pathlib import Path

import pytest

from penstock.django.backend import PenstockBackend
from tests.daemons import eventually
from tests.penstock.django import site
from tests.processes.task_workers import PATIENCE, is_empty, kill, lines, worker
from tests.processes.test_jobs_client import beanstalk_node

pytestmark = pytest.mark.process
MANAGE = ("tests.penstock.django.manage", "penstock_worker", "--threads", "2")


def enqueue(address: str, numbers: range, seconds: float) -> None:
    backend = PenstockBackend("default", {"OPTIONS": {"ADDRESS": address}})
    for number in numbers:
        backend.enqueue(site.add, (number,), {"seconds": seconds})
    backend.jobs.close()


def test_every_task_is_done_over_kills_of_the_node_and_of_the_worker(tmp_path: Path) -> None:
    with beanstalk_node(tmp_path) as node:
        address = node.addresses["BEANSTALK"]
        enqueue(address, range(2), 2)
        enqueue(address, range(2, 10), 0.01)
        with worker(tmp_path, address, *MANAGE) as process:
            eventually(lambda: {"begin 0", "begin 1"} <= {*lines(tmp_path)}, PATIENCE)
            node.kill()
            with beanstalk_node(tmp_path, address):
                eventually(lambda: is_empty(address, "django.default"), PATIENCE)
                assert sorted(map(str, range(10))) == sorted(line for line in lines(tmp_path) if line.isdigit())
                enqueue(address, range(10, 11), 3)
                eventually(lambda: "begin 10" in lines(tmp_path), PATIENCE)
                kill(process)
                with worker(tmp_path, address, *MANAGE) as second:
                    eventually(lambda: lines(tmp_path).count("begin 10") == 2, PATIENCE)
                    second.terminate()
                    assert second.wait(PATIENCE) == 0
                assert lines(tmp_path)[-1] == "10"
                assert is_empty(address, "django.default")
