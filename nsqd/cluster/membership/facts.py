"""The facts about its cluster that a node has at its start, from cluster.json (nsqd/cluster/membership/cluster_json.py)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from nsqd.cluster.membership.leader_frames import Closed
from nsqd.cluster.membership.leaders import Vote
from nsqd.cluster.membership.salvaged import SalvagedTail
from nsqd.cluster.membership.topic_configs import VersionedConfig
from nsqd.cluster.wire.node_identity import Member
from nsqd.core.message.deletion import LogDeletions
from nsqd.core.message.epoch import Epoch

# writes what the node knows of its cluster durably, and then says whether that has succeeded
Keep = Callable[[Callable[[bool], None]], None]


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """The facts about its cluster that the last run of a node has kept."""

    incarnation: int = 0  # of the last run that began; 0: none
    members: tuple[Member, ...] = ()
    leases: tuple[tuple[int, int], ...] = ()  # the message id below which each node may have issued ids, by node number
    leaders: tuple[tuple[bytes, Epoch], ...] = ()  # the greatest epoch of each log, by log id
    votes: tuple[tuple[bytes, Vote], ...] = ()  # by log id
    closed: tuple[Closed, ...] = ()
    configs: tuple[VersionedConfig, ...] = ()  # of topics
    knows_configs: bool = False  # `configs` are all that the cluster had when this node received them
    deletions: tuple[tuple[bytes, LogDeletions], ...] = ()  # from logs that this node has lost, by log id
    salvaged: tuple[SalvagedTail, ...] = ()  # of logs that this node led


NO_FACTS = ClusterFacts()
