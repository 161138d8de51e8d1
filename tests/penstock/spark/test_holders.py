"""Whom a query asks for the log of a node that is gone: all members of the cluster, except for those that are gone, too."""

from typing import Any, cast

from penstock.spark.ask import Asker, Refused, Unreachable
from penstock.spark.holders import MOST_NODES, Holders
from penstock.spark.nodes import Nodes


class Cluster:
    """An Asker whose nodes answer as told; it notes the requests."""

    def __init__(self, nodes: list[dict[str, Any]]) -> None:
        self.nodes = nodes
        self.holders: dict[str, dict[str, Any]] = {}
        self.away: set[str] = set()
        self.busy: set[str] = set()
        self.asked: list[tuple[str, str]] = []

    def json(self, address: str, path: str, arguments: dict[str, str]) -> Any:
        self.asked.append((address, path))
        if address in self.away:
            raise Unreachable(f"{address} does not answer")
        if path == "/cluster":
            return {"nodes": self.nodes}
        if address in self.busy:
            raise Refused(address, path, 503, "LOG_OPENING")
        if address not in self.holders:
            raise Refused(address, path, 404, "TOPIC_NOT_FOUND")
        return self.holders[address]

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


def test_a_node_that_opens_the_log_may_have_it_later_and_a_single_node_that_is_gone_is_no_error() -> None:
    cluster = Cluster([member("a")])
    cluster.busy = {"a"}
    found, failures = cluster.of("a")
    assert (found, len(failures)) == ([], 1)
    cluster = Cluster([])
    cluster.away = {"a"}
    assert cluster.of("a") == ([], ["a does not answer"])
