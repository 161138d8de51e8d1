"""The health of a cluster, and whether one more node may stop. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from shared.cluster.state import (
    CLOSED,
    DOWN,
    LOST,
    NO_ANSWER,
    RESTARTING,
    SUSPECTED,
    UP,
    ClusterState,
    LogState,
    MemberState,
    shortage,
)
from shared.counted import counted

SERVING = "serving"
_MEMBERS = (UP, SUSPECTED, RESTARTING, NO_ANSWER, DOWN)  # states of a node that is a member


class Level(IntEnum):
    """How well a cluster is; also the exit code of `penstock cluster status`."""

    WHOLE = 0  # every node is up, every log has a leader, and all copies that are asked for are made
    DEGRADED = 1  # something is down or behind; no message is only in one place
    AT_RISK = 2  # a log has no leader, or no other node has all of it


@dataclass(frozen=True, slots=True)
class ClusterHealth:
    """The health of a cluster; each reason is a line for an operator."""

    level: Level
    at_risk: tuple[str, ...]
    degraded: tuple[str, ...]
    unsafe: tuple[str, ...]  # why one more node must not stop; (): it may

    @property
    def is_safe(self) -> bool:
        """Return True if one more node may stop: the others have all acknowledged messages, and deliver them."""
        return not self.unsafe


def health_of(cluster: ClusterState) -> ClusterHealth:
    """Return the health of a cluster, from the nodes that respond."""
    members = [one for one in cluster.nodes if one.state in _MEMBERS]
    at_risk = tuple(_at_risk(cluster, len(members)))
    degraded = tuple(_degraded(cluster))
    level = Level.AT_RISK if at_risk else Level.DEGRADED if degraded else Level.WHOLE
    return ClusterHealth(level, at_risk, degraded, tuple(_unsafe(cluster, members)))


def _name(log: LogState) -> str:
    of = "an unknown node" if log.node is None else f"node {log.node}"
    return f"the log of {of} ({log.log_id[:8]})"


def _at_risk(cluster: ClusterState, members: int) -> Iterator[str]:
    for log in cluster.logs:
        if log.state == LOST:
            takers = "; ".join(taker.words for taker in log.takers) or "no node that answers has a copy"
            yield f"{_name(log)} has no leader, node {log.leader} is lost: {takers}"
        elif log.state == "failed":
            yield f"{_name(log)} cannot be read by its leader, node {log.leader}"
        elif log.state != CLOSED and not log.replicas and members > 1:
            yield f"{_name(log)} is complete at its leader, node {log.leader}, alone"


def _degraded(cluster: ClusterState) -> Iterator[str]:
    for node in cluster.nodes:
        if node.state in _MEMBERS and node.state != UP:
            leader = f"; node {node.led_by} leads its log" if node.led_by is not None else ""
            by = f" by node {', '.join(map(str, node.suspected_by))}" if node.state == SUSPECTED else ""
            yield f"node {node.node} is {node.state}{by}{leader}"
    for node in cluster.nodes:
        if words := shortage(node):
            yield f"node {node.node}: {words}"
        if node.refusing:
            names = ", ".join(node.refusing[:3]) + (", ..." if node.refusing_count > 3 else "")
            yield f"node {node.node} refuses publishes to {counted(node.refusing_count, 'topic')} for want of copies: {names}"
        if not node.knows_configs:
            yield f"node {node.node} takes no messages: no other node has sent it the configurations of topics"
    for copy in cluster.copies:
        if copy.is_bad or copy.state == "catching up":
            behind = f", {counted(copy.behind, 'byte')} behind" if copy.behind else ""
            behind += (
                f", the oldest for {copy.lag_seconds:.0f} s" if copy.state == "lagging" and copy.lag_seconds else ""
            )
            why = f": {copy.failure}" if copy.failure else ""
            state = "has failed" if copy.state == "failed" else f"is {copy.state}"
            yield f"the replica of node {copy.leader}'s log at node {copy.follower} {state}{behind}{why}"
    for log in cluster.logs:
        if log.state not in (SERVING, LOST, CLOSED, "failed"):
            yield f"{_name(log)} is not served yet by node {log.leader}: {log.state}"
    for refusal in cluster.refused:
        yield f"nodes {refusal.by} and {refusal.node} are not connected: {refusal.reason}"
    yield from cluster.issues


def _unsafe(cluster: ClusterState, members: list[MemberState]) -> Iterator[str]:
    up = sum(one.state == UP for one in members)
    if len(members) < 2:
        yield "it has no other node"
        return
    if cluster.quorum == "none":
        yield "-failover-quorum is none: an operator must choose the new leader of a lost node's log"
    elif cluster.quorum != "any" and up - 1 < len(members) // 2 + 1:
        yield f"{up - 1} of {len(members)} nodes would be up, too few for a majority: no replica would be promoted"
    for log in cluster.logs:
        if log.state == LOST:
            yield f"{_name(log)} has no leader"
        elif log.state != CLOSED and not log.replicas:
            yield f"{_name(log)} is complete at node {log.leader} alone"
