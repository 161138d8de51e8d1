"""The series of a node's cluster in /metrics: one for each state and node, never two of one name and labels."""

from typing import Any

from nsqd.http.cluster_metrics import cluster_families


def node(number: int, **more: Any) -> dict[str, Any]:
    flags = dict.fromkeys(("connected", "suspected", "restarting"), False)
    return {"node": number, "standing": "member", **flags, **more}


def replica(number: int, written: int, connected: bool, failure: str = "") -> dict[str, Any]:
    return {"node": number, "written": written, "connected": connected, "failure": failure}


def failover_figures(**more: Any) -> dict[str, Any]:
    elections = {"won": {"clean": 0, "unclean": 0}, "failed": 0, "called_off": 0, "postponed": 0, "logs": []}
    failovers = {"last_seconds": None, "possible_duplicates": {}}
    return {"led": [{"state": "serving"}], "elections": elections, "closed": [], "failovers": failovers} | more


def series(figures: dict[str, Any]) -> dict[str, float]:
    found: dict[str, float] = {}
    for family in cluster_families(0, figures):
        for sample in family.samples:
            name = " ".join([sample.name, *sample.labels.values()])
            assert name not in found
            found[name] = sample.value
    return found


def test_each_other_member_is_in_one_state() -> None:
    nodes = [
        node(0), node(1, connected=True), node(2, connected=True, suspected=True), node(3, restarting=True), node(4),
        node(5, standing="left"), node(6, standing="forgotten"),
    ]  # fmt: skip
    assert series({"nodes": nodes}) == {
        "nsqd_cluster_nodes connected": 1, "nsqd_cluster_nodes suspected": 1, "nsqd_cluster_nodes restarting": 1,
        "nsqd_cluster_nodes away": 1,
    }  # fmt: skip


def test_a_follower_without_a_connection_is_not_in_sync() -> None:
    followers: list[dict[str, Any]] = [
        {"node": 1, "state": "in sync", "behind": 7, "lag_seconds": 0.25},
        {"node": 2, "state": "catching up", "behind": 900, "lag_seconds": None},
    ]
    copies = {"available": 2, "away": [3], "replies_given_up": 4}
    replicas: dict[str, Any] = {"replicas": [], "replica_failures": 3}
    found = series({"nodes": [node(0)], "copies": copies, "followers": followers} | replicas | failover_figures())
    of_copies = ("follower_", "copies_", "replies_", "replica_")
    assert {name: value for name, value in found.items() if any(one in name for one in of_copies)} == {
        "nsqd_cluster_follower_behind_bytes 1": 7, "nsqd_cluster_follower_behind_bytes 2": 900,
        "nsqd_cluster_follower_lag_seconds 1": 0.25, "nsqd_cluster_follower_in_sync 1": 1, "nsqd_cluster_follower_in_sync 2": 0,
        "nsqd_cluster_follower_in_sync 3": 0, "nsqd_cluster_copies_available": 2,
        "nsqd_cluster_replies_given_up_total": 4, "nsqd_cluster_replica_failures_total": 3,
    }  # fmt: skip


def test_of_two_replicas_of_one_node_the_one_that_is_written_is_shown() -> None:
    copies = {"available": 1, "away": [], "replies_given_up": 0}
    replicas = [replica(1, 5, True), replica(1, 900, False, "disk"), replica(2, 8, False, "no space")]
    held: dict[str, Any] = {"replicas": replicas, "replica_failures": 0}
    found = series({"nodes": [node(0)], "copies": copies, "followers": []} | held | failover_figures())
    assert {name: value for name, value in found.items() if "replica" in name} == {
        "nsqd_cluster_replica_position_bytes 1": 5, "nsqd_cluster_replica_failed 1": 0,
        "nsqd_cluster_replica_position_bytes 2": 8, "nsqd_cluster_replica_failed 2": 1,
        "nsqd_cluster_replica_failures_total": 0,
    }  # fmt: skip


def test_elections_promoted_logs_and_possible_duplicates_are_counted() -> None:
    elections = {
        "won": {"clean": 3, "unclean": 1}, "failed": 7, "called_off": 2, "postponed": 5,
        "logs": [{"leader_lost": True}, {"leader_lost": False}, {"leader_lost": True}],
    }  # fmt: skip
    led = [{"state": "serving"}, {"state": "serving"}, {"state": "failed"}, {"state": "serving"}]
    failovers = {"last_seconds": 1.5, "possible_duplicates": {"ready_again": 9, "unclean": 0}}
    shown = failover_figures(led=led, elections=elections, closed=[{}, {}], failovers=failovers)
    copies = {"copies": {"available": 1, "away": [], "replies_given_up": 0}, "replicas": [], "replica_failures": 0}
    found = series({"nodes": [node(0)], "followers": []} | copies | shown)
    assert {name: value for name, value in found.items() if "promoted_logs" in name and value} == {
        "nsqd_cluster_promoted_logs serving": 2,  # its own log is not counted
        "nsqd_cluster_promoted_logs failed": 1,
    }
    others = ("elections", "lost_logs", "closed_logs", "failover", "duplicates")
    assert {name: value for name, value in found.items() if any(one in name for one in others)} == {
        "nsqd_cluster_elections_total won_clean": 3, "nsqd_cluster_elections_total won_unclean": 1,
        "nsqd_cluster_elections_total failed": 7, "nsqd_cluster_elections_total called_off": 2,
        "nsqd_cluster_elections_total postponed": 5, "nsqd_cluster_lost_logs": 2, "nsqd_cluster_closed_logs": 2,
        "nsqd_cluster_failover_seconds": 1.5, "nsqd_cluster_possible_duplicates_total ready_again": 9,
        "nsqd_cluster_possible_duplicates_total unclean": 0,
    }  # fmt: skip
    assert not any(
        "failover_seconds" in name for name in series(copies | {"nodes": [], "followers": []} | failover_figures())
    )
