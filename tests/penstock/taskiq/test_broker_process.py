"""The broker for taskiq in this process; tests/processes/test_taskiq.py has a real worker."""

import asyncio
from collections.abc import Iterator

import pytest
from taskiq import AckableMessage, BrokerMessage

from penstock.jobs import Jobs
from penstock.taskiq import PenstockBroker
from tests.daemons import Daemon
from tests.processes.test_jobs_client import beanstalk_node

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with beanstalk_node(tmp_path_factory.mktemp("taskiq")) as daemon:
        yield daemon


def message(name: str, **labels: object) -> BrokerMessage:
    return BrokerMessage(task_id=name, task_name="t", message=name.encode(), labels=labels)


async def acknowledge(delivered: AckableMessage) -> None:
    answer = delivered.ack()
    if answer is not None:
        await answer


def test_what_is_acknowledged_is_gone_and_the_rest_is_ready_again(node: Daemon) -> None:
    address = node.addresses["BEANSTALK"]

    async def main() -> list[bytes]:
        broker = PenstockBroker(address, "work", concurrency=2)
        for name in ("b", "c", "c"):  # the second one is the same task, tried again
            await broker.kick(message(name))
        await broker.kick(message("a", priority="7"))
        await broker.kick(message("d", delay="3600"))
        found = []
        tasks = broker.listen()
        async for delivered in tasks:
            found.append(delivered.data)
            if len(found) == 3:
                break
            if len(found) == 1:
                await acknowledge(delivered)
        await tasks.aclose()
        await broker.shutdown()
        return found

    found = asyncio.run(main())
    with Jobs(address) as jobs:
        stats = jobs.stats_tube("work")
    assert sorted(found) == [b"a", b"b", b"c"]
    assert (stats["current-jobs-ready"], stats["current-jobs-reserved"], stats["current-jobs-delayed"]) == (2, 0, 1)


@pytest.mark.parametrize("labels", [{"delay": "soon"}, {"priority": "high"}, {"delay": -1}])
def test_labels_that_mean_nothing_are_refused(node: Daemon, labels: dict[str, object]) -> None:
    async def main() -> None:
        broker = PenstockBroker(node.addresses["BEANSTALK"], "refused")
        await broker.kick(message("x", **labels))

    with pytest.raises(ValueError):
        asyncio.run(main())
