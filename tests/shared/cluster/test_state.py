"""What several nodes answer on /cluster, merged: nodes that are down, contradictions, and lies."""

import shlex
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from admin.pages.node_pages import copy_row
from shared.cluster.merge import MOST_CLUSTERS, MOST_COPIES, MOST_NODES, cluster_states
from shared.cluster.state import ClusterState, LogCopy, MemberState, Problem, shortage
from tests.cases import each

Raw = dict[str, Any]


def record(number: int, connected: bool = True, **more: Any) -> Raw:
    return {
        "node": number, "address": f"h{number}:4154", "http_address": f"h{number}:4151", "standing": "member",
        "connected": connected, "suspected": False, "restarting": False, "incarnation": 10, "log_id": f"log{number}",
    } | more  # fmt: skip


def follower(number: int, state: str = "in sync", behind: Any = 0, failure: str = "") -> Raw:
    return {"node": number, "state": state, "behind": behind, "written": 100, "durable": 90, "failure": failure}


def replica(number: int, written: int = 100, complete: bool = True, failure: str = "", log_id: str = "") -> Raw:
    log_id = log_id or f"log{number}"
    return {
        "node": number, "log_id": log_id, "connected": True, "complete": complete, "written": written,
        "durable": written, "failure": failure,
    }  # fmt: skip


def answer(number: int, *others: Raw, followers: Any = (), replicas: Any = (), **copies: Any) -> Raw:
    """The /cluster of a node; `others` are about the other nodes."""
    known = [record(number, connected=False), *others]
    given: Raw = {"available": 1 + len(followers), "away": [], "replies_given_up": 0}
    return {
        "name": "c", "node": number, "nodes": known, "copies": given | copies, "followers": list(followers),
        "replicas": list(replicas),
    }  # fmt: skip


def merged(*answers: Raw) -> ClusterState:
    """The only cluster in the answers of nodes at a:0, a:1 and so on."""
    found = cluster_states({f"a:{place}": one for place, one in enumerate(answers)})
    assert found.errors == []
    (cluster,) = found.clusters
    return cluster


def node(cluster: ClusterState, number: int) -> MemberState:
    (found,) = [one for one in cluster.nodes if one.node == number]
    return found


def copy(cluster: ClusterState, leader: int, at: int) -> LogCopy:
    (found,) = [one for one in cluster.copies if (one.leader, one.follower) == (leader, at)]
    return found


def test_no_answer_is_no_cluster_and_clusters_differ_by_name() -> None:
    assert cluster_states({}).clusters == []
    other = answer(0) | {"name": "b"}
    found = cluster_states({"x:1": answer(0), "x:2": other})
    assert [(one.name, len(one.nodes)) for one in found.clusters] == [("b", 1), ("c", 1)]


def test_two_nodes_that_are_well() -> None:
    cluster = merged(
        answer(0, record(1), followers=[follower(1)], replicas=[replica(1)]),
        answer(1, record(0), followers=[follower(0, "catching up", 70)], replicas=[replica(0)], available=1),
    )
    assert cluster.issues == []
    assert list(cluster.problems()) == [Problem("node 1 of cluster c", "few copies", ONE, False)]
    assert [(one.node, one.state, one.connected_to, one.others) for one in cluster.nodes] == [
        (0, "up", [1], 1), (1, "up", [0], 1),
    ]  # fmt: skip
    assert (copy(cluster, 0, 1).state, copy(cluster, 0, 1).behind) == ("in sync", 0)
    row = copy_row(copy(cluster, 1, 0))
    assert (row["state"], row["lag"], row["is_bad"]) == ("catching up", "70 B left", False)
    row = copy_row(LogCopy(0, 1, "log0", "lagging", 70, 5, 5, lag_seconds=7.25))
    assert (row["lag"], row["is_bad"]) == ("70 B, 7.2 s", True)
    assert (node(cluster, 0).copies_possible, node(cluster, 0).copies_wanted) == (2, 2)
    old = answer(0, followers=[follower(1), follower(2, "asked")])
    del old["copies"]  # a node without these counts: its followers are counted
    assert (node(merged(old), 0).copies_possible, node(merged(old), 0).copies_wanted) == (2, 3)


ONE = "only 1 copy possible now; topics that need 2 or more reject publishes"


def test_a_dead_node_is_what_the_others_know_of_it() -> None:
    cluster = merged(
        answer(
            0,
            record(1),
            record(2, False, suspected=True),
            replicas=[replica(2, 500)],
            followers=[follower(1)],
            away=[2],
        ),
        answer(1, record(0), record(2, False), replicas=[replica(2, 800), replica(0)]),
    )
    dead = node(cluster, 2)
    assert (dead.state, dead.is_bad, dead.connected_to, dead.suspected_by) == ("down", True, [], [0])
    assert (dead.asked, dead.http_address, dead.copies_possible) == ("", "h2:4151", None)
    assert (copy(cluster, 2, 0).state, copy(cluster, 2, 0).behind) == ("complete", 300)
    assert copy(cluster, 2, 1).behind == 0
    assert dead.last_position == 800
    assert dead.recover == "penstock recover DATA-PATH --node 2 --from a:1"
    assert (copy(cluster, 0, 2).state, copy(cluster, 0, 2).behind, copy(cluster, 0, 2).is_bad) == ("away", None, True)
    assert copy_row(copy(cluster, 0, 2))["written"] == "-"
    assert shortage(node(cluster, 0)) == ("only 2 copies possible now; topics that need 3 or more reject publishes")
    assert Problem("node 2 of cluster c", "down", "it is down") in list(cluster.problems())


@each("replicas, position", [
    ([], None), ([replica(2, 500, complete=False)], None), ([replica(2, 500, failure="no space left")], None),
    ([replica(2, 500, log_id="earlier")], None), ([replica(2, 500, log_id="earlier"), replica(2, 7)], 7),
])  # fmt: skip
def test_a_node_is_recovered_from_a_complete_copy_of_its_log_only(replicas: list[Raw], position: int | None) -> None:
    dead = node(merged(answer(0, record(2, False), replicas=replicas)), 2)
    assert dead.state == "down"
    assert (dead.last_position, bool(dead.recover)) == (position, position is not None)


def test_a_node_that_restarts_does_not_answer_or_has_left_is_not_down() -> None:
    gone = record(2, False, restarting=True)
    assert node(merged(answer(0, gone)), 2).state == "restarting"
    assert node(merged(answer(0, gone | {"suspected": True, "restarting": False})), 2).state == "down"
    unseen = node(merged(answer(0, record(1), record(2)), answer(1, record(0), record(2))), 2)
    assert (unseen.state, unseen.connected_to, unseen.recover) == ("no answer", [0, 1], "")
    cluster = merged(answer(0, record(1, False, standing="left"), record(2, False, standing="forgotten")))
    assert [one.state for one in cluster.nodes] == ["up", "left", "forgotten"]
    assert [one.others for one in cluster.nodes] == [0, 1, 1]
    assert list(cluster.problems()) == []


# Logs and failovers


def own(number: int) -> Raw:
    return {"log_id": f"log{number}", "node": number, "state": "serving"}


def elections(log_id: str, leader: int, lost: bool = True, quorum: str = "majority", **more: Any) -> Raw:
    one = {
        "log_id": log_id,
        "leader": leader,
        "epoch": 3,
        "leader_lost": lost,
        "clean": True,
        "state": "",
        "reason": "",
    }
    return {"quorum": quorum, "logs": [one | more]}


def test_each_log_has_its_leader_and_what_is_promoted_is_served_by_another_node() -> None:
    first = answer(0, record(1), record(2, False)) | {
        "led": [own(0), {"log_id": "log2", "node": 2, "state": "reading"}, {"log_id": "x", "node": 1, "state": "lost"}],
        "closed": [{"log_id": "old", "node": 1}], "elections": elections("log2", 0, lost=False),
        "refused": [{"node": 9, "address": "h:1", "reason": "its log holds ids"}],
    }  # fmt: skip
    cluster = merged(first, answer(1, record(0), record(2, False), replicas=[replica(2)]) | {"led": [own(1)]})
    assert [(one.log_id, one.node, one.leader, one.state) for one in cluster.logs] == [
        ("log0", 0, 0, "serving"), ("log1", 1, 1, "serving"), ("old", 1, None, "closed"), ("log2", 2, 0, "reading"),
    ]  # fmt: skip
    assert (node(cluster, 2).led_by, node(cluster, 2).recover, node(cluster, 1).led_by) == (0, "", None)
    assert [(one.by, one.node, one.reason) for one in cluster.refused] == [(0, 9, "its log holds ids")]
    assert cluster.issues == []


def test_a_lost_log_waits_for_nodes_with_a_copy() -> None:
    first = answer(0, record(1), record(2, False), replicas=[replica(2)])
    second = answer(1, record(0), record(2, False), replicas=[replica(2, complete=False)])
    first |= {"led": [own(0)], "elections": elections("log2", 2, clean=False, reason="node 1 is connected to it")}
    second |= {"led": [own(1)], "elections": elections("log2", 2, quorum="none")}
    cluster = merged(first, second)
    lost = cluster.logs[-1]
    assert (lost.log_id, lost.node, lost.leader, lost.state, lost.is_bad) == ("log2", 2, 2, "leader lost", True)
    assert [one.words for one in lost.takers] == [
        "node 0 waits, its copy may be incomplete: node 1 is connected to it",
        "node 1 waits: -failover-quorum is none",
    ]
    assert [one.node for one in lost.able] == [0]
    assert Problem("log of node 2", "not served", "it is not served: leader lost (node 2)") in list(cluster.problems())
    second["elections"] = elections("log2", 2, lost=False)
    assert [one.node for one in merged(first, second).logs[-1].takers] == [0]
    first["elections"] = elections("log2", 2, state="promoting")
    (taker,) = merged(first, second).logs[-1].takers
    assert (taker.words, taker.may_promote) == ("node 0 is promoting it", False)


def test_the_leader_by_the_latest_epoch_is_lost_and_two_that_own_one_log_are_an_issue() -> None:
    first = answer(0, record(1, False), record(2, False), replicas=[replica(2)]) | {"elections": elections("log2", 2)}
    other = answer(3, record(1, False), record(2, False)) | {"elections": elections("log2", 1, epoch=103)}
    (lost,) = merged(first, other).logs
    assert (lost.node, lost.leader, [one.node for one in lost.takers]) == (2, 1, [3])
    both = {"led": [{"log_id": "log2", "node": 2, "state": "serving"}]}
    cluster = merged(answer(0, record(1)) | both, answer(1, record(0)) | both)
    assert cluster.issues == ["Nodes 0, 1 all say that they lead the log log2 of node 2."]


# Contradictions


def test_nodes_that_are_gone_or_answer_as_another_are_issues() -> None:
    gone = record(1, False, standing="forgotten")
    cluster = merged(answer(0, gone, record(2)), answer(1, record(0, False)), answer(2, record(0), gone))
    assert cluster.issues == ["a:1 answers as node 1, which was forgotten: nodes 0, 2 refuse it with its log."]
    former = record(1, standing="forgotten", log_id="former")
    assert merged(answer(0, former), answer(1, record(0))).issues == []

    first, second = answer(3, record(1)), answer(3)
    second["nodes"][0]["incarnation"] = 11
    cluster = merged(first, second)
    assert cluster.issues == ["a:0 and a:1 both answer as node 3. Each node needs a -node-id of its own."]
    assert node(cluster, 3).asked == "a:1"

    cluster = merged(answer(0, record(1, incarnation=99, address="elsewhere:1")), answer(1))
    assert cluster.issues == ["a:1 answers as node 1, but a later run of this node is known to node 0."]
    assert node(cluster, 1).address == "h1:4154"  # it knows best where it is


def test_a_connection_counts_if_no_end_denies_it_and_who_answers_may_be_suspected() -> None:
    for denies in (answer(1, record(0, False)), answer(1)):
        cluster = merged(answer(0, record(1)), denies)
        assert [one.connected_to for one in cluster.nodes] == [[], []]
        assert node(cluster, 1).state == "up"
    cluster = merged(answer(0, record(1, False, suspected=True)), answer(1, record(0)))
    assert (node(cluster, 1).state, node(cluster, 1).suspected_by, node(cluster, 1).recover) == ("suspected", [0], "")
    assert node(cluster, 0).state == "up"


def test_of_two_reports_about_a_copy_the_worse_is_believed() -> None:
    cluster = merged(
        answer(0, record(1), followers=[follower(1)]),
        answer(1, record(0), replicas=[replica(0, 0, failure="cannot sync: no disk")]),
    )
    assert (copy(cluster, 0, 1).state, copy(cluster, 0, 1).failure) == ("failed", "cannot sync: no disk")
    assert Problem("copy of the log of node 0 at node 1", "failed", "cannot sync: no disk") in list(cluster.problems())

    cluster = merged(answer(0, record(1)), answer(1, record(0), replicas=[replica(0), replica(0, log_id="earlier")]))
    assert [(one.log_id, one.state) for one in cluster.copies] == [("earlier", "other log"), ("log0", "unused")]


# Lies


@each("data", [{}, {"name": "c"}, {"name": "", "node": 1}, {"name": "c", "node": True}])
def test_an_answer_without_a_name_or_a_number_is_an_error(data: Raw) -> None:
    found = cluster_states({"x:1": data})
    assert found.clusters == []
    assert found.errors == ["x:1/cluster: the answer has no name of a cluster or no number of a node"]


@each("number", [-1, 1024, 10**400, "1", 1.0, None, True])
def test_numbers_that_no_node_has_are_left_out(number: Any) -> None:
    lie = answer(0, record(number), followers=[follower(number)], replicas=[replica(number)], away=[number])
    cluster = merged(lie)
    assert [one.node for one in cluster.nodes] == [0]
    assert cluster.copies == []


def test_long_lists_are_cut_and_who_answers_stays() -> None:
    others = [record(number) for number in range(1023)] * 100
    followers = [follower(number) for number in range(1, 1023)] * 100
    replicas = [replica(number, log_id=f"x{number}") for number in range(1023)] * 100
    lie = answer(1023, *others, followers=followers, replicas=replicas, away=list(range(10_000)), available=10**9)
    cluster = merged(lie)
    assert (len(cluster.nodes), cluster.nodes_left_out) == (MOST_NODES, 1023 - MOST_NODES + 1)
    assert node(cluster, 1023).state == "up"
    assert len(cluster.copies) == MOST_COPIES
    assert cluster.copies_left_out > 0
    many = {f"x:{place}": answer(0) | {"name": f"c{place}"} for place in range(MOST_CLUSTERS + 5)}
    assert len(cluster_states(many).clusters) == MOST_CLUSTERS


def test_a_command_contains_nothing_that_a_node_wrote() -> None:
    evil = "h:1; rm -rf ~ #"
    lie = answer(0, record(2, False, address=evil, http_address=evil, log_id=evil), replicas=[replica(2, log_id=evil)])
    dead = node(merged(lie), 2)
    assert shlex.split(dead.recover) == ["penstock", "recover", "DATA-PATH", "--node", "2", "--from", "a:0"]


_ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["node", "state"]), inner, max_size=2),
)
_NUMBER = st.integers(-1, 3) | _ANY
_FIELDS = [
    "address", "http_address", "standing", "connected", "suspected", "restarting", "incarnation", "log_id", "state", "behind",
    "written", "durable", "failure", "complete", "leader", "leader_lost", "clean", "epoch", "reason",
]  # fmt: skip
_ENTRY = st.builds(
    lambda number, rest: {"node": number} | rest, _NUMBER, st.dictionaries(st.sampled_from(_FIELDS), _ANY, max_size=4)
)
_ENTRY |= st.builds(
    lambda log_id, leader, rest: {"log_id": log_id, "leader": leader, "node": leader, "leader_lost": True} | rest,
    st.sampled_from(["log1", "log2"]), _NUMBER, st.dictionaries(st.sampled_from(_FIELDS), _ANY, max_size=2),
)  # fmt: skip
_LIST = st.lists(_ENTRY | _ANY, max_size=4) | _ANY
_LIES = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(["c", "d"]) | _ANY, "node": _NUMBER, "nodes": _LIST, "followers": _LIST, "replicas": _LIST,
        "led": _LIST, "closed": _LIST, "refused": _LIST, "elections": st.fixed_dictionaries({"logs": _LIST}) | _ANY,
        "copies": st.dictionaries(st.sampled_from(["available", "away", "replies_given_up"]), _ANY | st.lists(_NUMBER)) | _ANY,
    },
)  # fmt: skip


@given(st.dictionaries(st.sampled_from(["a:1", "a:2", "a:3"]), _LIES))
def test_whatever_nodes_answer_is_merged(answers: dict[str, Any]) -> None:
    found = cluster_states(answers)
    asked = [one.asked for cluster in found.clusters for one in cluster.nodes if one.asked]
    assert len(asked) == len(set(asked))
    for cluster in found.clusters:
        cluster.json()
        list(cluster.problems())
        assert len({one.node for one in cluster.nodes}) == len(cluster.nodes)
        for one in cluster.nodes:
            assert one.node not in one.connected_to
            assert (one.state == "down") <= (not one.asked and not one.connected_to)
        for log in cluster.logs:
            assert set(log.able) <= set(log.takers)
            assert all(taker.words for taker in log.takers)
        for copy in cluster.copies:
            assert copy.leader != copy.follower
            copy_row(copy)
