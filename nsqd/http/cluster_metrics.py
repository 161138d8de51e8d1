"""The metrics of a node's cluster: the other nodes, the followers of its log, and its replicas of other logs. Pure."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

NODE_STATES = ("connected", "suspected", "restarting", "away")
PROMOTED_STATES = (
    "starting", "waiting", "reading", "filling", "attaching", "serving", "closing", "failed", "lost", "closed",
)  # fmt: skip
_NODE = ["node"]


def cluster_families(own: int, figures: Mapping[str, Any]) -> Iterator[Metric]:
    """Yield the families of a node. `own` is its number, `figures` is the result of ClusterView.figures."""
    members = [one for one in figures["nodes"] if one["node"] != own and one["standing"] == "member"]
    counts = Counter(map(_state, members))
    nodes = GaugeMetricFamily("nsqd_cluster_nodes", "Other nodes of the cluster, by state", labels=["state"])
    for state in NODE_STATES:
        nodes.add_metric([state], counts[state])
    yield nodes
    if "copies" in figures:
        yield from _copies(figures)
        yield from _replicas(figures["replicas"])
        yield CounterMetricFamily(
            "nsqd_cluster_replica_failures",
            "How often this node stopped a replica of another node's log for a while: its disk failed, or has too little space",
            figures["replica_failures"],
        )
        yield from _failovers(figures)
    if figures.get("lending"):
        yield from _lending(figures["lending"])


def _state(node: Mapping[str, Any]) -> str:
    for state in ("suspected", "restarting", "connected"):
        if node[state]:
            return state
    return "away"


def _copies(figures: Mapping[str, Any]) -> Iterator[Metric]:
    """Yield how far the copies of this node's log are. A follower without a connection is not in sync."""
    copies = figures["copies"]
    behind = GaugeMetricFamily(
        "nsqd_cluster_follower_behind_bytes", "Bytes of this node's log that a connected follower lacks", labels=_NODE
    )
    lag = GaugeMetricFamily(
        "nsqd_cluster_follower_lag_seconds",
        "Age of the oldest byte of this node's log that a connected follower has not confirmed",
        labels=_NODE,
    )
    in_sync = GaugeMetricFamily(
        "nsqd_cluster_follower_in_sync", "1 if a follower has all of this node's log and keeps up, else 0", labels=_NODE
    )
    known = {one["node"]: one for one in figures["followers"]}
    for number, one in known.items():
        behind.add_metric([str(number)], one["behind"])
        if one["lag_seconds"] is not None:
            lag.add_metric([str(number)], one["lag_seconds"])
    for number in sorted({*known, *copies["away"]}):
        is_in_sync = number in known and known[number]["state"] == "in sync"
        in_sync.add_metric([str(number)], int(is_in_sync))
    yield behind
    yield lag
    yield in_sync
    yield GaugeMetricFamily(
        "nsqd_cluster_copies_available", "Copies of a message that are possible now, this node's one included",
        copies["available"],
    )  # fmt: skip
    yield CounterMetricFamily(
        "nsqd_cluster_replies_given_up", "Replies to publishes that failed because no copy was made in time",
        copies["replies_given_up"],
    )  # fmt: skip


def _lending(lending: Mapping[str, int]) -> Iterator[Metric]:
    """Yield how many jobs went to clients of other nodes, and what is kept for other nodes."""
    for name, text, key in (
        ("jobs_lent", "Jobs that clients of other nodes got", "lent"),
        ("jobs_borrowed", "Jobs of other nodes that clients got here", "borrowed"),
        ("jobs_returned", "Jobs of other nodes that came when clients no longer waited", "returned"),
    ):
        yield CounterMetricFamily(f"nsqd_cluster_{name}", text, lending[key])
    yield GaugeMetricFamily(
        "nsqd_cluster_kept_acknowledgements",
        "Acknowledgements that wait for the leaders of their jobs",
        lending["kept"],
    )
    yield CounterMetricFamily(
        "nsqd_cluster_dropped_acknowledgements",
        "Acknowledgements that were dropped because too many waited: their jobs are delivered again",
        lending["dropped"],
    )


def _replicas(replicas: list[Mapping[str, Any]]) -> Iterator[Metric]:
    """Yield how far this node's replicas are. Of several of one node, the connected one or else the longest is shown."""
    position = GaugeMetricFamily(
        "nsqd_cluster_replica_position_bytes",
        "Position up to which this node has written its copy of another node's log",
        labels=_NODE,
    )
    failed = GaugeMetricFamily(
        "nsqd_cluster_replica_failed",
        "1 if this node cannot continue its copy of another node's log, else 0",
        labels=_NODE,
    )
    shown = {one["node"]: one for one in sorted(replicas, key=lambda one: (one["connected"], one["written"]))}
    for number, one in sorted(shown.items()):
        position.add_metric([str(number)], one["written"])
        failed.add_metric([str(number)], int(bool(one["failure"])))
    yield position
    yield failed


def _failovers(figures: Mapping[str, Any]) -> Iterator[Metric]:
    """Yield the results of elections for the logs of lost nodes, and the logs that this node has promoted."""
    elections, failovers = figures["elections"], figures["failovers"]
    results = {f"won_{copy}": count for copy, count in elections["won"].items()}
    results |= {result: elections[result] for result in ("failed", "called_off", "postponed")}
    counted = CounterMetricFamily(
        "nsqd_cluster_elections",
        "Elections of this node on the logs of lost nodes, by what became of them",
        labels=["result"],
    )
    for result, count in results.items():
        counted.add_metric([result], count)
    yield counted
    yield GaugeMetricFamily(
        "nsqd_cluster_lost_logs", "Copies on this node of logs whose leader is lost, and that no node has promoted yet",
        sum(one["leader_lost"] for one in elections["logs"]),
    )  # fmt: skip
    states = Counter(one["state"] for one in figures["led"][1:])  # the first one is its own
    promoted = GaugeMetricFamily(
        "nsqd_cluster_promoted_logs", "Logs of other nodes that this node has promoted, by state", labels=["state"]
    )
    for state in PROMOTED_STATES:
        promoted.add_metric([state], states[state])
    yield promoted
    yield GaugeMetricFamily(
        "nsqd_cluster_closed_logs", "Closed logs: all their messages are finished, and this node remembers them",
        len(figures["closed"]),
    )  # fmt: skip
    seconds = failovers["last_seconds"]
    yield GaugeMetricFamily(
        "nsqd_cluster_failover_seconds", "Duration of this node's last failover: until it delivered the log's messages", seconds
    )  # fmt: skip
    twice = CounterMetricFamily(
        "nsqd_cluster_possible_duplicates", "Messages that may be delivered twice because a log has changed its leader",
        labels=["reason"],
    )  # fmt: skip
    for reason, count in failovers["possible_duplicates"].items():
        twice.add_metric([reason], count)
    yield twice
