"""The thread that holds jobs: over kill -9 of the node nothing is lost, and nothing is delivered twice."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.celery.envelope import Envelope, pack_job, read_job
from penstock.jobs import ConnectionLost, Jobs, JobsSettings
from penstock.jobs.holder import HeldJob, JobHolder
from tests.daemons import Daemon, eventually
from tests.processes.test_jobs_client import beanstalk_node

pytestmark = pytest.mark.process


@contextmanager
def holding(
    address: str, limit: int = 0, retry_s: float = 30
) -> Iterator[tuple[JobHolder[Envelope], list[HeldJob[Envelope]], list[Exception]]]:
    delivered: list[HeldJob[Envelope]] = []
    failures: list[Exception] = []
    holder = JobHolder(Jobs(address, JobsSettings(retry_s=retry_s)), read_job, delivered.append, failures.append, limit)
    holder.consume(("t",))
    try:
        yield holder, delivered, failures
    finally:
        holder.stop()


def put(address: str, *names: str, ttr: int = 60) -> None:
    with Jobs(address, use="t") as jobs:
        for name in names:
            jobs.put(pack_job("t", ttr, {"body": name, "properties": {}}), ttr=ttr)


def counts(address: str) -> dict[str, Any]:
    with Jobs(address) as jobs:
        return jobs.stats_tube("t")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Daemon]:
    with beanstalk_node(tmp_path) as daemon:
        yield daemon


@pytest.fixture
def address(node: Daemon) -> str:
    return node.addresses["BEANSTALK"]


def test_held_jobs_over_kill_9_of_the_node(node: Daemon, address: str, tmp_path: Path) -> None:
    put(address, "a", "b", "c")
    with holding(address) as (holder, delivered, failures):
        eventually(lambda: len(delivered) == 3)
        node.kill()
        holder.acknowledge(delivered[0].job.id)  # done while no node is there
        time.sleep(0.5)
        with beanstalk_node(tmp_path, address):
            eventually(lambda: counts(address)["current-jobs-reserved"] == 2)
            assert counts(address)["current-jobs-ready"] == 0
            holder.acknowledge(delivered[1].job.id)
            eventually(lambda: counts(address)["current-jobs-reserved"] == 1)
            assert len(delivered) == 3
            assert failures == []
            holder.stop()
            assert counts(address)["current-jobs-ready"] == 1  # the third was given back


def test_a_job_that_failed_while_no_node_was_there_is_delayed_or_buried(
    node: Daemon, address: str, tmp_path: Path
) -> None:
    put(address, "a", "b")
    with holding(address) as (holder, delivered, failures):
        eventually(lambda: len(delivered) == 2)
        node.kill()
        holder.bury(delivered[0].job.id)
        holder.release(delivered[1].job.id, delay_s=3600)
        with beanstalk_node(tmp_path, address):
            eventually(lambda: counts(address)["current-jobs-buried"] == counts(address)["current-jobs-delayed"] == 1)
            assert (len(delivered), failures) == (2, [])
            holder.stop()


def test_a_job_is_touched_as_long_as_it_is_held(address: str) -> None:
    put(address, "a", ttr=2)
    with holding(address, limit=1) as (holder, delivered, _):
        eventually(lambda: delivered)
        time.sleep(3)  # longer than the time to run
        with Jobs(address) as jobs:
            assert jobs.stats_job(delivered[0].job.id)["timeouts"] == 0
        holder.release(delivered[0].job.id)
        eventually(lambda: len(delivered) == 2)  # it is redelivered


def test_a_job_that_is_no_task_is_buried(address: str) -> None:
    with Jobs(address, use="t") as jobs:
        jobs.put(b"from somewhere else")
    put(address, "a")
    with holding(address) as (_, delivered, failures):
        eventually(lambda: len(delivered) == 1)
        assert counts(address)["current-jobs-buried"] == 1
        assert failures == []


def test_the_limit_is_kept_and_fetch_takes_one_from_any_tube(address: str) -> None:
    put(address, "a", "b", "c")
    with Jobs(address, use="other") as jobs:
        jobs.put(pack_job("other", 60, {"body": "x", "properties": {}}))
    with holding(address, limit=2) as (holder, delivered, _):
        eventually(lambda: len(delivered) == 2)
        found = holder.fetch("other", 10)
        assert found.content.queue == "other"
        assert holder.fetch("nothing", 10) is None
        assert len(delivered) == 2
        for held in (found, *delivered[:2]):
            holder.acknowledge(held.job.id)
        eventually(lambda: len(delivered) == 3)


def test_a_node_that_stays_away_is_an_error(node: Daemon, address: str) -> None:
    with holding(address, retry_s=0.5) as (_, _, failures):
        eventually(lambda: "t" in Jobs(address).list_tubes())
        node.kill()
        eventually(lambda: failures)
        assert isinstance(failures[0], ConnectionLost)
