"""Whether a cluster is whole, by what its nodes answer."""

from typing import Any

from shared.cluster.health import Level, health_of
from shared.cluster.state import ClusterState
from tests.cases import each
from tests.shared.cluster.test_state import Raw, answer, elections, follower, merged, record, replica

MAJORITY = {"quorum": "majority", "logs": []}


def led(node: int, log: str = "", state: str = "serving") -> Raw:
    return {"log_id": log or f"log{node}", "node": node, "state": state}


def node(number: int, others: list[Raw], followers: list[Raw], **more: Any) -> Raw:
    logs = more.pop("led", [led(number)])
    copies = {name: more.pop(name) for name in ("available", "away") if name in more}
    found = answer(number, *others, followers=followers, replicas=more.pop("replicas", ()), **copies)
    return found | {"led": logs, "elections": MAJORITY} | more


def three(**more: Any) -> list[Raw]:
    """Three nodes that are all right, except for what is said of node 0."""
    found = []
    for number in range(3):
        others = [one for one in range(3) if one != number]
        changes = more if number == 0 else {}
        followers = changes.pop("followers", [follower(one) for one in others])
        found.append(node(number, [record(one) for one in others], followers, **changes))
    return found


def without(number: int, **more: Any) -> list[Raw]:
    """Three nodes, of which one is down."""
    up = [one for one in range(3) if one != number]
    return [
        node(
            one, [record(up[1 - place]), record(number, False, suspected=True)], [follower(up[1 - place])], away=[number],
            replicas=[replica(number), replica(up[1 - place])], **{name: value[place] for name, value in more.items()},
        )
        for place, one in enumerate(up)
    ]  # fmt: skip


def test_three_nodes_a_single_one_and_nodes_that_left() -> None:
    found = health_of(merged(*three()))
    assert (found.level, found.at_risk, found.degraded, found.unsafe, found.is_safe) == (Level.WHOLE, (), (), (), True)
    found = health_of(merged(node(0, [], [])))
    assert (found.level, found.unsafe) == (Level.WHOLE, ("it has no other node",))
    assert health_of(ClusterState("c")).unsafe == ("it has no other node",)
    left = record(2, False, standing="left")
    pair = [node(one, [record(1 - one), left], [follower(1 - one)], elections={"quorum": "any"}) for one in range(2)]
    found = health_of(merged(*pair))
    assert (found.level, found.is_safe) == (Level.WHOLE, True)


@each("change, said", [
    ({"followers": [follower(1), follower(2, "catching up", 500)]}, "node 0's log at node 2 is catching up, 500 bytes"),
    ({"followers": [follower(1), follower(2, "lagging", 44) | {"lag_seconds": 7.4}]},
     "node 0's log at node 2 is lagging, 44 bytes behind, the oldest for 7 s"),
    ({"followers": [follower(1), follower(2, "failed", failure="disk full")]}, "has failed: disk full"),
    ({"refusing": {"count": 5, "topics": ["a", "b", "c", "d"]}}, "to 5 topics for want of copies: a, b, c, ..."),
    ({"knows_configs": False}, "node 0 takes no messages"),
    ({"led": [led(0, state="reading")]}, "the log of node 0 (log0) is not served yet by node 0: reading"),
    ({"refused": [{"node": 3, "address": "h3", "reason": "drain it first"}]}, "nodes 0 and 3 are not connected: drain it"),
    ({"available": 1}, "node 0: only 1 copy possible now"),
])  # fmt: skip
def test_what_is_behind_or_refused_is_degraded(change: dict[str, Any], said: str) -> None:
    found = health_of(merged(*three(**change)))
    assert found.level is Level.DEGRADED
    assert said in "\n".join(found.degraded)
    assert found.is_safe


def test_a_log_that_its_leader_alone_has_or_without_a_leader_is_at_risk() -> None:
    found = health_of(merged(*three(followers=[follower(1, "catching up", 9), follower(2, "catching up", 9)])))
    assert found.level is Level.AT_RISK
    assert found.at_risk == ("the log of node 0 (log0) is complete at its leader, node 0, alone",)
    assert "is complete at node 0 alone" in found.unsafe[0]
    lost = elections("log2", 2, clean=False, reason="no majority")
    found = health_of(merged(*without(2, elections=[lost, lost])))
    assert found.level is Level.AT_RISK
    assert "the log of node 2 (log2) has no leader, node 2 is lost: node 0 waits" in found.at_risk[0]
    assert "no majority" in found.at_risk[0]


def test_a_node_may_have_the_copy_of_an_earlier_log_of_its_own() -> None:
    nodes = three()
    nodes[0]["led"] = [*nodes[0]["led"], led(1, "old")]
    assert health_of(merged(*nodes)).level is Level.AT_RISK
    nodes[1]["replicas"] = [*nodes[1]["replicas"], replica(1, log_id="old")]
    assert health_of(merged(*nodes)).level is Level.WHOLE


def test_a_node_that_is_down_and_whose_log_is_led_elsewhere_is_degraded_and_no_other_may_go() -> None:
    cluster = merged(*without(2, led=[[led(0), led(2, "log2")], [led(1)]]))
    found = health_of(cluster)
    assert found.level is Level.DEGRADED
    assert "node 2 is down; node 0 leads its log" in found.degraded
    assert found.unsafe == ("1 of 3 nodes would be up, too few for a majority: no replica would be promoted",)
    (log,) = [one for one in cluster.logs if one.log_id == "log2"]
    assert (log.leader, log.replicas) == (0, [1])


@each("quorum, is_safe", [("majority", False), ("any", True), ("none", False)])
def test_of_two_nodes_one_may_stop_only_if_the_other_needs_no_votes(quorum: str, is_safe: bool) -> None:
    pair = [
        node(one, [record(1 - one)], [follower(1 - one)], elections={"quorum": quorum, "logs": []}) for one in range(2)
    ]
    found = health_of(merged(*pair))
    assert (found.level, found.is_safe) == (Level.WHOLE, is_safe)
