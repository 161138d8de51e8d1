"""Where the logs of a topic are read in a cluster: each once, at its leader, or at a replica if it has none."""

from typing import Any

from apps.past import LogAt, find_log, log_at, logs_of, members

A, B, C = "a:1", "b:1", "c:1"


class Cluster:
    """What nodes answer, by address: their own log and those that they have of others, by id."""

    def __init__(self) -> None:
        self.logs: dict[str, dict[str, dict[str, Any]]] = {A: {}, B: {}, C: {}}

    def has(self, address: str, log: str, kind: str, first: int, following: int, parents: tuple[str, ...] = ()) -> None:
        reported = {"log": f"{log}-2", "kind": kind, "origin": 7, "first": first, "next": following}
        reported["parents"] = [{"log": f"{parent}-2", "next": 99} for parent in parents]
        self.logs[address][log] = reported

    def ask(self, address: str, path: str, query: dict[str, str]) -> Any:
        known = self.logs.get(address)
        if known is None:
            return None
        if path == "/cluster":
            nodes = [
                {"node": place, "http_address": one, "standing": "left" if one == C else "member"}
                for place, one in enumerate(self.logs)
            ]
            led = [{"log_id": log} for log, reported in known.items() if reported["kind"] != "replica"]
            replicas = [{"log_id": log} for log, reported in known.items() if reported["kind"] == "replica"]
            return {"node": list(self.logs).index(address), "nodes": nodes, "led": led, "replicas": replicas}
        log = query.get("log", "")
        found = [reported for reported in known.values() if log in (reported["log"], reported["log"][:-2])]
        own = [reported for reported in known.values() if reported["kind"] == "own" and not log]
        return next(iter(own + found), None)


def test_members_are_nodes_that_have_not_left_and_a_wrong_answer_counts_as_none() -> None:
    cluster = Cluster()
    assert members(cluster.ask, A) == [A, B]
    assert members(cluster.ask, "nobody:1") == ["nobody:1"]
    assert members(lambda *_: {"nodes": ["x", {"standing": "member"}], "node": 1}, A) == [A]
    lost = {"standing": "member", "http_address": B, "node": 2, "suspected": True}
    assert members(lambda *_: {"nodes": [lost], "node": 1}, A) == [A], "it would be waited for"
    for reported in ("text", [], {"log": "x"}, {"log": "x", "kind": "own", "origin": 1, "first": "?", "next": 2}):
        assert log_at(lambda *_, reported=reported: reported, A, "t") is None


def test_each_log_is_read_once_at_its_leader_or_at_the_longest_replica() -> None:
    cluster = Cluster()
    cluster.has(A, "x", "own", 0, 10)
    cluster.has(B, "y", "own", 0, 5)
    cluster.has(B, "x", "replica", 0, 12)
    cluster.has(A, "dead", "replica", 0, 3)
    cluster.has(B, "dead", "replica", 0, 4)
    found = {one.log_id: (one.address, one.next) for one in logs_of(cluster.ask, [A, B, "nobody:1"], "t")}
    assert found == {"x": (A, 10), "y": (B, 5), "dead": (B, 4)}
    cluster.has(A, "dead", "promoted", 0, 3)
    assert find_log(cluster.ask, [A, B], "t", "dead") == LogAt(A, "dead-2", "promoted", 7, 0, 3)
    assert find_log(cluster.ask, [A, B], "t", "nobody") is None


def test_what_a_log_continues_is_read_up_to_where_it_begins() -> None:
    cluster = Cluster()
    cluster.has(A, "new", "own", 8, 20, ("old",))
    cluster.has(B, "old", "promoted", 0, 8)
    found = {one.log_id: (one.first, one.next) for one in logs_of(cluster.ask, [A, B], "t")}
    assert found == {"new": (8, 20), "old": (0, 8)}
    cluster.has(B, "old", "replica", 0, 11)
    found = {one.log_id: (one.first, one.next) for one in logs_of(cluster.ask, [A, B], "t")}
    assert found == {"new": (8, 20), "old": (0, 8)}, "no message twice"
