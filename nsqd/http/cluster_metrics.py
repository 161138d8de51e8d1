"""The metrics of a node's cluster: the other nodes, the followers of its log, and its mirrors of other logs. Pure."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

NODE_STATES = ("connected", "suspected", "restarting", "away")
_NODE = ["node"]


def cluster_families(own: int, figures: Mapping[str, Any]) -> Iterator[Metric]:
    """Yield the families of a node. `own` is its number, `figures` is what ClusterView.figures returns."""
    members = [one for one in figures["nodes"] if one["node"] != own and one["standing"] == "member"]
    counts = Counter(map(_state, members))
    nodes = GaugeMetricFamily("nsqd_cluster_nodes", "Other nodes of the cluster, by state", labels=["state"])
    for state in NODE_STATES:
        nodes.add_metric([state], counts[state])
    yield nodes
    if "copies" in figures:
        yield from _copies(figures)
        yield from _mirrors(figures["mirrors"])
        yield CounterMetricFamily(
            "nsqd_cluster_mirror_failures",
            "How often this node gave up a copy of another node's log for a while: its disk failed, or has too little space",
            figures["mirror_failures"],
        )


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
    in_sync = GaugeMetricFamily(
        "nsqd_cluster_follower_in_sync", "1 if a follower has all of this node's log and keeps up, else 0", labels=_NODE
    )
    known = {one["node"]: one for one in figures["followers"]}
    for number, one in known.items():
        behind.add_metric([str(number)], one["behind"])
    for number in sorted({*known, *copies["away"]}):
        is_in_sync = number in known and known[number]["state"] == "in sync"
        in_sync.add_metric([str(number)], int(is_in_sync))
    yield behind
    yield in_sync
    yield GaugeMetricFamily(
        "nsqd_cluster_copies_available", "Copies of a message that are possible now, this node's one included",
        copies["available"],
    )  # fmt: skip
    yield CounterMetricFamily(
        "nsqd_cluster_replies_given_up", "Replies to publishes that failed because no copy was made in time",
        copies["replies_given_up"],
    )  # fmt: skip


def _mirrors(mirrors: list[Mapping[str, Any]]) -> Iterator[Metric]:
    """Yield how far this node's mirrors are. Of several mirrors of one node, the connected one or else the longest is shown."""
    position = GaugeMetricFamily(
        "nsqd_cluster_mirror_position_bytes",
        "Position up to which this node has written its copy of another node's log",
        labels=_NODE,
    )
    failed = GaugeMetricFamily(
        "nsqd_cluster_mirror_failed",
        "1 if this node cannot continue its copy of another node's log, else 0",
        labels=_NODE,
    )
    shown = {one["node"]: one for one in sorted(mirrors, key=lambda one: (one["connected"], one["written"]))}
    for number, one in sorted(shown.items()):
        position.add_metric([str(number)], one["written"])
        failed.add_metric([str(number)], int(bool(one["failure"])))
    yield position
    yield failed
