"""Batches of a real nsqd and of `beanstalkd`: a kill in between loses neither members nor what follows them."""

from pathlib import Path

import httpx
import pytest

from penstock.client import Producer
from penstock.jobs import Jobs
from tests.daemons import drained, eventually, nsqd, post
from tests.processes.test_beanstalkd import Beanstalkd

pytestmark = pytest.mark.process


def test_a_follow_up_is_published_when_the_members_are_finished_over_a_kill(tmp_path: Path) -> None:
    with nsqd(tmp_path) as node:
        for topic in ("t", "done"):
            post(node, "/topic/create", topic=topic)
            post(node, "/channel/create", topic=topic, channel="c")
        with Producer([node.tcp]) as producer:
            producer.publish_many("t", [b"1", b"2"], headers={"batch": "b"})
            producer.publish("done", b"bye", headers={"after": "b"})
        post(node, "/batch/close", batch="b")
        node.kill()
    with nsqd(tmp_path) as node:
        assert sorted(drained(node, "t", "c", 2)) == [b"1", b"2"]
        assert drained(node, "done", "c", 1) == [b"bye"]
        found = httpx.get(f"http://{node.http}/batch?batch=b").json()
        assert (found["state"], found["finished"]) == ("done", 2)
        eventually(lambda: not httpx.get(f"http://{node.http}/batch?batch=b").json()["follow_ups"])


def test_jobs_of_a_batch() -> None:
    with Beanstalkd() as daemon, Jobs(":".join(map(str, daemon.address))) as jobs:
        jobs.put(b"x", batch="b")
        jobs.close_batch("b")
        assert not jobs.wait_for_batch("b", timeout_s=0)
        job = jobs.reserve()
        assert job is not None
        job.delete()
        assert jobs.wait_for_batch("b", timeout_s=20)
