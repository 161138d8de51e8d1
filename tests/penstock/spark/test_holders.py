"""Whom a query asks for the log of a node that is gone: all members of the cluster, except for those that are gone, too."""

from dataclasses import replace
from typing import Any, cast

import pytest

from penstock.spark.ask import Asker, Refused, Unreachable
from penstock.spark.follower import REMEMBERED, Follower
from penstock.spark.holders import MOST_NODES, Holders, Lost, find_lost
from penstock.spark.nodes import Nodes
from penstock.spark.offsets import LogPosition, NodeTopic
from penstock.spark.options import read_options
from penstock.spark.reading import DataLoss


class Cluster:
    """An Asker whose nodes answer as told; it notes the requests."""

    def __init__(self, nodes: list[dict[str, Any]]) -> None:
        self.nodes = nodes
        self.led: list[Any] = []
        self.holders: dict[str, dict[str, Any]] = {}
        self.lists: dict[str, Any] = {}
        self.refusing: dict[str, int] = {}
        self.numbers: dict[str, str] = {}
        self.away: set[str] = set()
        self.busy: set[str] = set()
        self.asked: list[tuple[str, str]] = []

    def json(self, address: str, path: str, arguments: dict[str, str]) -> Any:
        self.asked.append((address, path))
        if address in self.away:
            raise Unreachable(f"{address} does not answer")
        if address in self.refusing:
            raise Refused(address, path, self.refusing[address], "no")
        if path == "/topics/offsets":
            return self.lists.get(address, {})
        if path == "/cluster":
            return {"nodes": self.nodes, "led": self.led}
        if address in self.busy:
            raise Refused(address, path, 503, "LOG_OPENING")
        found = self.holders.get(f"{address}/{arguments.get('log', '')}") or self.holders.get(address)
        if found is None:
            raise Refused(address, path, 404, "TOPIC_NOT_FOUND", {"x-nsq-node": self.numbers.get(address, "")})
        return found

    def of(self, *named: str) -> tuple[list[str], list[str]]:
        found, failures = Holders(cast(Asker, self), Nodes(named, ())).of("t", "log")
        return [one.address for one in found], failures


def member(address: str, **changes: Any) -> dict[str, Any]:
    return {"http_address": address, "standing": "member", "suspected": False} | changes


PROMOTED = {"log": "log", "kind": "promoted", "first": 0, "next": 9, "bytes": 100}


def test_who_is_asked() -> None:
    cluster = Cluster([member("a"), member("b"), member("c", standing="left"), {"http_address": "d"}, cast(Any, "x")])
    cluster.holders["b"] = cluster.holders["c"] = PROMOTED
    assert cluster.of("a") == (["b"], [])
    cluster = Cluster([member(f"n{number}") for number in range(1000)])
    cluster.of("a")
    assert len(cluster.asked) == 1 + MOST_NODES


def test_a_machine_that_is_gone_is_not_asked_and_a_node_that_is_not_there_only_once() -> None:
    cluster = Cluster([member("a"), member("b", suspected=True), member("c")])
    cluster.away = {"b", "c"}
    holders = Holders(cast(Asker, cluster), Nodes(("a",), ()))
    for topic in ("t", "u"):
        found, failures = holders.of(topic, "log")
        assert (found, len(failures)) == ([], 2), "both may have it"
    assert [address for address, _ in cluster.asked].count("b") == 0
    assert [address for address, _ in cluster.asked].count("c") == 1


def test_a_node_that_is_gone_for_good_had_published_into_logs_that_a_reader_has_not_seen() -> None:
    """Node 0 was lost with log x1 at 9, returned, published 9 to 12 into x2, was lost, and published 12 to 15 into x3."""
    cluster = Cluster([member("a", node=0, suspected=True), member("b", node=1)])
    cluster.away = {"a"}
    cluster.led = [{"log_id": log, "node": 0} for log in ("x1", "x2", "x3")] + [{"log_id": "own", "node": 1}, "odd", {}]
    parents = [{"log": "x1-1", "next": 9}, {"log": "x2-1", "next": 12}]
    cluster.holders = {
        "b/": PROMOTED | {"node": 1, "log": "own-1", "kind": "own"}, "b/x1": PROMOTED | {"log": "x1-1"},
        "b/x1-1": PROMOTED | {"log": "x1-1"},
        **dict.fromkeys(["b/x2", "b/x2-1"], PROMOTED | {"log": "x2-1", "first": 9, "next": 12, "parents": parents[:1]}),
        **dict.fromkeys(["b/x3", "b/x3-1"], PROMOTED | {"log": "x3-1", "first": 12, "next": 15, "parents": parents}),
    }  # fmt: skip
    follower = Follower(read_options({"nsqd": "a:1,b:1", "topic": "t"}), cast(Asker, cluster))
    follower.options = replace(follower.options, nsqd=("a", "b"))
    place, at, seen = NodeTopic("t", "0"), LogPosition("x1-1", 9), []
    for _ in range(3):
        follower.looked = -REMEMBERED  # it would look again after a while
        before, at = at, follower.end_after({place: at})[place]
        seen += follower.plan({place: before}, {place: at})
    assert [(span.log, span.first, span.end) for (span,) in seen] == [("x2-1", 9, 12), ("x3-1", 12, 15)]


def test_a_node_that_opens_the_log_may_have_it_later_and_a_single_node_that_is_gone_is_no_error() -> None:
    cluster = Cluster([member("a")])
    cluster.busy = {"a"}
    found, failures = cluster.of("a")
    assert (found, len(failures)) == ([], 1)
    cluster = Cluster([])
    cluster.away = {"a"}
    assert cluster.of("a") == ([], ["a does not answer"])


def test_a_lost_node_waits_for_a_leader_of_its_log() -> None:
    cluster = Cluster([member("a", node=0, log_id="x"), member("b", node=1, log_id="y", suspected=True),
                       member("c", node=2, log_id="z", suspected=True, standing="forgotten")])  # fmt: skip
    cluster.away, cluster.refusing = {"gone"}, {"secret": 403, "single": 404}
    cluster.led = [{"log_id": "x", "node": 0}, {"log_id": "an older one", "node": 1}]
    lost = find_lost(cast(Asker, cluster), ["gone", "secret", "single", "a"], bool)
    assert (lost.nodes, lost.failures) == ({"1": "b"}, ["secret answered /topics/offsets with 403 no"])
    cluster.led.append({"log_id": "y", "node": 1})
    assert find_lost(cast(Asker, cluster), ["a"], bool) == Lost()


def test_promoted_logs_are_listed_with_the_oldest_first() -> None:
    cluster = Cluster([])
    old = {"topic": "t", "log": "x1", "first": 0, "next": 9, "retained": True}
    new = old | {"log": "x2", "first": 9, "next": 12, "parents": [{"log": "x1", "next": 9}]}
    others = [old | {"topic": "other"}, old | {"log": "x0", "retained": False}]
    cluster.lists = {"a": {"promoted": [{"node": 3, "topics": [new, *others]}]},
                     "b": {"promoted": [{"node": 3, "topics": [old]}]}}  # fmt: skip
    ((place, logs),) = find_lost(cast(Asker, cluster), ["a", "b", "c"], "t".__eq__).logs.items()
    assert (place, [(one.address, one.log, one.kind) for one in logs]) == (
        NodeTopic("t", "3"), [("b", "x1", "promoted"), ("a", "x2", "promoted")]
    )  # fmt: skip


@pytest.mark.parametrize("wait", [60.0, 0.0])
def test_a_topic_is_not_deleted_while_the_leader_of_its_old_log_may_return(wait: float) -> None:
    """Node 0 has returned without the topic, and node 1, which leads its log, does not answer."""
    cluster = Cluster([member("a", node=0), member("b", node=1)])
    cluster.away, cluster.numbers = {"b"}, {"a": "0"}
    follower = Follower(read_options({"nsqd": "a:1,b:1", "topic": "t"}), cast(Asker, cluster))
    follower.options = replace(follower.options, nsqd=("a", "b"), node_wait=wait)
    begin = {NodeTopic("t", "0"): LogPosition("x-1", 9)}
    if wait:
        assert follower.end_after(begin) == begin
    else:
        with pytest.raises(DataLoss, match="topic 't' was deleted on node 0, at a; it was read up to offset 9"):
            follower.end_after(begin)
