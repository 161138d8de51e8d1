"""An archive and the nodes of a cluster, one of which is lost before its messages were archived."""

import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

from penstock.spark.options import OptionError
from tests.daemons import Daemon, eventually, post, publish
from tests.pipeline.test_archiver_process import archiver, numbers, texts
from tests.processes.test_cluster import in_sync
from tests.processes.test_cluster import node as node  # the fixture
from tests.processes.test_cluster_chaos import again
from tests.processes.test_failover import NodeMaker, cluster_of, figures, log_of, new_leader

pytestmark = pytest.mark.process


@pytest.mark.parametrize("is_known", [False, True], ids=["never seen", "seen while it was empty"])
def test_a_node_that_was_lost_before_it_was_archived(
    node: NodeMaker, tmp_path: Path, is_known: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    flags = {"failover_quorum": "majority", "retention": "1h"}
    with ExitStack() as stack:
        first, *others = nodes = cluster_of(stack, node, 3, **flags)
        post(first, "/topic/create", topic="t", replicate="2")
        running = archiver(first, tmp_path / "lake", nsqd=",".join(one.http for one in nodes)) if is_known else None
        publish(first, "t", *texts(0, 9))
        lost = log_of(first, 0)
        first.process.send_signal(signal.SIGKILL)
        eventually(lambda: log_of(others[0], 0) == lost and any(is_suspected(one, 0) for one in others))
        alive = ",".join(one.http for one in others)
        if running is None:
            with pytest.raises(OptionError, match="no node has the topic 't'"):
                archiver(others[0], tmp_path / "lake", nsqd=alive, topic="t")
        leader = new_leader(lost, *others)
        made = running or archiver(others[0], tmp_path / "lake", nsqd=alive)
        for _ in range(2):
            made.follower.looked = 0.0  # it would look for nodes after a while
            made.batch()
        assert numbers(tmp_path / "lake") == texts(0, 9)
        assert f"node 0 was lost: its log {lost} is at {leader.http}" in capfd.readouterr().err
        back = again(stack, node, 0, first, others[0], **flags)
        eventually(lambda: log_of(back, 0) not in ("", lost))
        eventually(lambda: len(in_sync(back)) == 2)
        publish(back, "t", *texts(9, 12))
        for where in ("lake", "new"):
            archiver(back, tmp_path / where, nsqd=f"{back.http},{alive}").archive_all()
            assert numbers(tmp_path / where) == texts(0, 12)


def is_suspected(daemon: Daemon, number: int) -> bool:
    return any(one["node"] == number and one["suspected"] for one in figures(daemon)["nodes"])
