"""A log that was promoted and owes nothing any more is closed: its copies go, and a node that returns with one is told."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.daemons import OK, Conversation, Daemon, eventually, post, publish
from tests.processes.test_cluster import node as node  # the fixture
from tests.processes.test_cluster_chaos import again, create
from tests.processes.test_failover import cluster_of, led, log_of, taken

pytestmark = pytest.mark.process

NodeMaker = Callable[..., Daemon]


def copies(directory: Path, log_id: str) -> list[str]:
    """The directories that nodes have of a log, whatever it is to them."""
    return sorted(str(path.relative_to(directory)) for path in directory.glob(f"*/*/{log_id}*"))


def closed(daemon: Daemon) -> set[str]:
    return {one["log_id"] for one in httpx.get(f"http://{daemon.http}/cluster").json()["closed"]}


def test_a_promoted_log_that_owes_nothing_is_closed_and_all_copies_of_it_go(node: NodeMaker, tmp_path: Path) -> None:
    flags = {"failover_quorum": "majority"}
    with ExitStack() as stack:
        nodes = cluster_of(stack, node, 3, **flags)
        first, others = nodes[0], nodes[1:]
        lost = log_of(first, 0)
        create(first, two=2)
        publish(first, "two", *(b"%d" % number for number in range(20)))
        first.process.send_signal(signal.SIGKILL)
        eventually(lambda: any(lost in led(daemon) for daemon in others))
        (new_leader,) = [daemon for daemon in others if lost in led(daemon)]
        (third,) = [daemon for daemon in others if daemon is not new_leader]
        back = again(stack, node, 0, first, new_leader, **flags)
        eventually(lambda: log_of(back, 0) not in ("", lost))
        eventually(lambda: len(copies(tmp_path, lost)) == 4)  # promoted, two replicas, and the old one
        number = others.index(third) + 1
        third.kill()  # it keeps its replica while the others forget the log
        with Conversation(new_leader, b"  V2SUB two c\nRDY 10\n") as consumer:
            assert consumer.frame() == OK
            assert len(taken(consumer, 20)) == 20
        eventually(lambda: copies(tmp_path, lost) == [f"{number}/replicas/{lost}"])
        assert lost in closed(new_leader) & closed(back)
        returned = again(stack, node, number, third, back, **flags)
        eventually(lambda: not copies(tmp_path, lost))
        assert lost in closed(returned)  # beside its own, where it was away for long enough to be taken over
        assert not any(lost in led(daemon) for daemon in (new_leader, back, returned))


def test_a_promoted_log_is_served_as_its_topics_were_configured_last(node: NodeMaker) -> None:
    flags = {"failover_quorum": "majority"}
    with ExitStack() as stack:
        first, second, third = cluster_of(stack, node, 3, **flags)
        lost = log_of(first, 0)
        create(first, two=2)
        publish(first, "two", b"one")
        post(third, "/topic/create", topic="two", retention="5m")  # node 1, which claims first, has no such topic
        first.process.send_signal(signal.SIGKILL)
        eventually(lambda: any(lost in led(daemon) for daemon in (second, third)))
        (new_leader,) = [daemon for daemon in (second, third) if lost in led(daemon)]
        config = httpx.get(f"http://{new_leader.http}/topic/config?topic=two").json()
        assert (config["retention"], config["of_its_own"][:1]) == ("5m0s", ["retention"])
