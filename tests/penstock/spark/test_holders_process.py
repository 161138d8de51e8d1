"""The readers over the loss of a node: its log is read on, from a replica, from its new leader, and then from its new log."""

import signal
from collections.abc import Callable
from contextlib import ExitStack

import httpx
import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from penstock.spark.ask import Asker, Unreachable
from penstock.spark.holders import Holders
from penstock.spark.nodes import Nodes
from tests.daemons import Daemon, eventually, publish, run
from tests.penstock.spark.test_readers_process import ALL, between, rows, stream
from tests.processes.test_cluster import in_sync
from tests.processes.test_cluster import node as node  # the fixture
from tests.processes.test_cluster_chaos import again
from tests.processes.test_failover import cluster_of, led, log_of

pytestmark = pytest.mark.process

NodeMaker = Callable[..., Daemon]


def test_a_query_goes_on_over_a_failover_and_the_return_of_the_node(node: NodeMaker) -> None:
    flags = {"failover_quorum": "majority", "retention": "1h"}
    with ExitStack() as stack:
        nodes = cluster_of(stack, node, 3, **flags)
        first, others = nodes[0], nodes[1:]
        httpx.post(f"http://{first.http}/topic/create?topic=t&replicate=2").raise_for_status()
        publish(first, "t", *map(str, range(20)))
        addresses = ",".join(daemon.http for daemon in nodes)
        reader = stream(addresses, startingOffsets="earliest", cursorName="lake")
        start = reader.initialOffset()
        middle = reader.latestOffset(start, ReadMaxRows(7))
        end = reader.latestOffset(middle, ALL)
        planned = reader.partitions(middle, end)
        lost = log_of(first, 0)
        first.process.send_signal(signal.SIGKILL)
        eventually(lambda: any(lost in led(daemon) for daemon in others))
        (new_leader,) = [daemon for daemon in others if lost in led(daemon)]
        wanted = [str(number) for number in range(7, 20)]
        assert [row for part in planned for row in rows(reader, part)] == wanted, "they name the node that is gone"
        named = others[0].http if new_leader is others[1] else others[1].http
        fresh = stream(named)  # the query was started again, and names neither the node nor its new leader
        found = fresh.latestOffset(middle, ALL)
        assert found["t/0"] == end["t/0"]
        assert between(fresh, middle, found) == wanted
        fresh = stream(new_leader, cursorName="lake")
        assert fresh.latestOffset(middle, ALL)["t/0"] == end["t/0"]
        fresh.commit(end)
        log = end["t/0"]["log"]
        response = httpx.get(f"http://{new_leader.http}/topic/cursors?topic=t&log={log}").json()["cursors"]
        assert [(one["name"], one["offset"]) for one in response] == [("lake", 20)]

        back = again(stack, node, 0, first, new_leader, **flags)
        eventually(lambda: log_of(back, 0) not in ("", lost))
        eventually(lambda: len(in_sync(back)) == 2)
        publish(back, "t", "after")
        where = {"topic": "t", "name": "lake", "to": "17", "log": log}
        httpx.post(f"http://{new_leader.http}/topic/cursor", params=where).raise_for_status()
        command = ("penstock", "read", "t", "--cursor", "lake", "--nsqd-http-address", back.http)
        assert run(*command, "--limit", "2").stdout.split() == ["17", "18"]
        assert run(*command).stdout.split() == ["19", "after"], "first what is left of the old log"
        assert run(*command).stdout == ""
        addresses = ",".join(daemon.http for daemon in (back, *others))
        assert [row for part in planned for row in rows(stream(addresses), part)] == wanted
        reader = stream(addresses)
        seen, at = list[str](), middle
        while len(seen) < 14:
            reader._follower.looked = 0.0
            after = reader.latestOffset(at, ReadMaxRows(5))
            assert after != at
            seen += between(stream(addresses), at, after)
            at = after
        assert seen == [*wanted, "after"]
        assert at["t/0"]["log"] != log


def test_the_log_of_a_dead_node_is_read_from_a_replica_before_its_promotion(node: NodeMaker) -> None:
    with ExitStack() as stack:
        first = stack.enter_context(node(0, retention="1h"))
        second = stack.enter_context(node(1, first, retention="1h"))
        eventually(lambda: in_sync(first) == {1})
        httpx.post(f"http://{first.http}/topic/create?topic=t&replicate=2").raise_for_status()
        publish(first, "t", "a", "b", "c")
        reader = stream(f"{first.http},{second.http}", startingOffsets="earliest")
        start = reader.initialOffset()
        middle, end = reader.latestOffset(start, ReadMaxRows(1)), reader.latestOffset(start, ALL)
        log = end["t/0"]["log"]

        def is_copied() -> bool:
            with Asker() as asker:
                holders, _ = Holders(asker, Nodes((second.http,), ())).of("t", log)
            return {(one.kind, one.next) for one in holders} == {("own", 3), ("replica", 3)}

        eventually(is_copied)
        first.process.send_signal(signal.SIGKILL)
        fresh = stream(second)
        assert fresh.latestOffset(middle, ALL)["t/0"] == end["t/0"]
        assert between(fresh, middle, end) == ["b", "c"]
        beyond = {**end, "t/0": {"log": log, "next": 4}}
        with pytest.raises(Unreachable, match="node 0 did not answer"):
            between(stream(second), end, beyond)
