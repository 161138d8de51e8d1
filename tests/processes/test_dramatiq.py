"""A real worker of Dramatiq over a tube: every message is done at least once over kills of node and worker."""

from pathlib import Path

import dramatiq
import pytest

from penstock.dramatiq import PenstockBroker
from tests.daemons import eventually
from tests.processes.task_workers import PATIENCE, is_empty, kill, lines, worker
from tests.processes.test_jobs_client import beanstalk_node

pytestmark = pytest.mark.process
DRAMATIQ = ("dramatiq", "tests.processes.dramatiq_app", "--processes", "1", "--threads", "2")


def send(address: str, numbers: range, seconds: float, delay_ms: int | None = None) -> None:
    """Publish messages as another program does, which knows the actor's name."""
    broker = PenstockBroker(address, middleware=[])
    broker.declare_queue("work")
    for number in numbers:
        message = dramatiq.Message(queue_name="work", actor_name="slow", args=(number, seconds), kwargs={}, options={})
        broker.enqueue(message, delay=delay_ms)
    broker.close()


def test_every_message_is_done_over_kills_of_the_node_and_of_the_worker(tmp_path: Path) -> None:
    with beanstalk_node(tmp_path) as node:
        address = node.addresses["BEANSTALK"]
        send(address, range(2), 2)
        send(address, range(2, 10), 0.01)
        send(address, range(10, 14), 0.01, delay_ms=1_000)
        with worker(tmp_path, address, *DRAMATIQ) as process:
            eventually(lambda: {"begin 0", "begin 1"} <= {*lines(tmp_path)}, PATIENCE)
            node.kill()
            with beanstalk_node(tmp_path, address):
                eventually(lambda: {str(number) for number in range(14)} <= {*lines(tmp_path)}, PATIENCE)
                eventually(lambda: is_empty(address, "dramatiq.work"), PATIENCE)
                assert sorted(map(str, range(14))) == sorted(line for line in lines(tmp_path) if line.isdigit())
                send(address, range(14, 15), 3)
                eventually(lambda: "begin 14" in lines(tmp_path), PATIENCE)
                kill(process)
                with worker(tmp_path, address, *DRAMATIQ):
                    eventually(lambda: "14" in lines(tmp_path), PATIENCE)
                    eventually(lambda: is_empty(address, "dramatiq.work"), PATIENCE)
    assert lines(tmp_path).count("begin 14") == 2
