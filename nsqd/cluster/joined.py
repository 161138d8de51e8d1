"""A node that has joined its cluster, as its HTTP API, its clients of Disque and the daemon see it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import trio

from nsqd.cluster.membership.cluster import Cluster
from nsqd.cluster.membership.cluster_json import NAME as FACTS
from nsqd.cluster.membership.cluster_json import content_of, describe_closed, facts_of, for_another
from nsqd.cluster.membership.facts_file import FactsFile
from nsqd.cluster.ownership.elections import Elections
from nsqd.cluster.ownership.leaving import Leaving
from nsqd.cluster.port import ClusterPort
from nsqd.cluster.promotion.promoted_log import CLOSED, LOST, SERVING
from nsqd.cluster.promotion.promotions import Promotions
from nsqd.cluster.replication.copying import Copying
from nsqd.cluster.replication.past import read_replica
from nsqd.cluster.wire.node_identity import Standing
from nsqd.core.cluster_view import ReadableReplica, ServedLog
from nsqd.core.message.ids import LEASE, SAFE_LEASES, ClockError, first_of_new_log
from nsqd.core.retention.backup import METADATA, BackupPart
from nsqd.storage.directory import Metadata, encode
from shared.log import log
from shared.topic_config import TopicConfig


class Stop:
    """Whether the node stops. Any thread may ask."""

    is_begun = False

    def interrupt(self) -> None:
        """Raise OSError if this node stops: no thread that reads a copy is waited for."""
        if self.is_begun:
            raise OSError("this node stops")


class Joined:
    """The node. Implements nsqd.core.cluster_view.ClusterView. All methods are for the trio thread."""

    def __init__(
        self,
        port: ClusterPort,
        facts: FactsFile,
        copying: Copying,
        elections: Elections,
        promotions: Promotions,
        leaving: Leaving,
        stop: Stop,
    ) -> None:
        self.cluster, self.port, self.copying = port.cluster, port, copying
        self._facts, self._elections, self._promotions = facts, elections, promotions
        self._leaving, self._stop = leaving, stop

    async def run(self, nursery: trio.Nursery) -> None:
        """Take part in the cluster, until cancelled."""
        nursery.start_soon(self._facts.run)
        await self.port.run(nursery)

    # events

    def leave(self, limit: int) -> None:
        self._leaving.begin(limit, time.monotonic_ns())
        self.port.wake()

    def leaving_state(self) -> dict[str, Any]:
        return self._leaving.figures()

    def configured(self, topic: str, config: TopicConfig) -> None:
        self.cluster.configs.configure(topic, config, time.time_ns() // 1_000_000, self.cluster.own.number)
        self.port.flush()

    def config_of(self, topic: str) -> TopicConfig | None:
        known = self.cluster.configs.known.get(topic)
        return known.config if known is not None else None

    def forget(self, number: int, then: Callable[[bool], None]) -> None:
        self.cluster.forget(number, time.monotonic_ns())
        self._facts.keep(then)
        self.port.events()

    def promote(self, log_id: bytes) -> None:
        self._elections.promote(log_id)

    def cut_off(self, number: int, duration: int) -> list[int]:
        return self.port.cut_off(number, duration)

    def heal(self, number: int | None) -> list[int]:
        return self.port.heal(number)

    def announce_restart(self, grace: int) -> None:
        """Announce to the other nodes that this one stops, and will be back within `grace` ns."""
        self.cluster.announce_restart(grace // 1_000_000)
        self.port.wake()

    def stop_promoting(self) -> None:
        """Promote no more logs: this node stops. Threads that promote one end after their current step."""
        self._stop.is_begun = True
        self._promotions.stop()

    def close(self) -> None:
        """Sync and close what this node keeps of other nodes' logs, when the reactor has closed all connections."""
        self._promotions.close()
        self.copying.replicas.close()

    # state

    def figures(self) -> dict[str, object]:
        """Return the state of the nodes and of the replicas, for /cluster."""
        refusals = sorted(self.cluster.refusals.items())
        figures: dict[str, object] = {
            "nodes": self._nodes(),
            "refused": [{"node": node, "address": address, "reason": why} for node, (address, why) in refusals],
            **self.offered(),
            **{part.shown_as: part.figures() for part in self.cluster.parts if part.shown_as},
        }
        leader_side, replicas = self.copying.leader_side, self.copying.replicas
        figures |= {"copies": leader_side.figures(), "followers": leader_side.states()}
        figures["replica_failures"] = replicas.failures
        figures["failovers"] = self._promotions.failovers.figures()
        return figures

    def offered(self) -> dict[str, Any]:
        """Return the entries of /cluster about logs and replicas of this node. Visitors ask for them."""
        closed = [describe_closed(record) for record in self.cluster.leaders.closed.values()]
        return {"replicas": self.copying.replicas.states(), "led": self._led(), "closed": closed}

    def _led(self) -> list[dict[str, object]]:
        """Return the entries of the logs that this node leads: first the one into which it publishes."""
        own = {"node": self.cluster.own.number, "state": SERVING, **self.copying.leader_side.led()}
        promoted = self._promotions.figures()
        begun = {log_id.hex(): leader_side.led() for log_id, leader_side in self.copying.leader_sides.items()}
        return [own, *(promoted_log_status(one, begun.get(str(one["log_id"]))) for one in promoted)]

    def replica(self, log_id: bytes) -> tuple[Sequence[BackupPart], Mapping[str, bytes]]:
        kept = self.copying.replicas.kept[log_id]
        parts = self.copying.replicas.parts(kept, 0)
        metadata = Metadata(ids=safe_id(self.cluster, kept.node, time.time_ns()))
        known = for_another(facts_of(self.cluster), kept.node)
        return parts, {METADATA: encode(metadata), FACTS: content_of(known)}

    def readable_replica(self, log_id: bytes) -> ReadableReplica:
        kept = self.copying.replicas.kept[log_id]
        replica, disk = kept.replica, kept.disk
        if replica is None or disk is None or not replica.durable:
            raise KeyError(log_id)
        manifest, durable = replica.manifest, replica.durable
        return ReadableReplica(
            manifest.files, durable, lambda: read_replica(disk, manifest, durable, self._stop.interrupt)
        )

    def promoted_logs(self) -> dict[bytes, tuple[int, ServedLog]]:
        led = self._promotions.logs.values()
        return {one.log_id: (one.node, one.log) for one in led if one.state == SERVING and one.log is not None}

    def is_opening(self, log_id: bytes) -> bool:
        kept = self.copying.replicas.kept.get(log_id)
        return kept.replica is None if kept is not None else self._promotions.leads(log_id)

    def _nodes(self) -> list[dict[str, object]]:
        """Return the state of each node, by its number."""
        cluster = self.cluster
        suspected = cluster.membership.suspected
        return [
            {
                "node": number,
                "address": record.node.address,
                "http_address": record.node.http,
                "standing": Standing(record.standing).name.lower(),
                "connected": number in cluster.links,
                "suspected": number in suspected,
                "restarting": cluster.membership.is_going(number) and number not in suspected,
                "incarnation": record.node.incarnation,
                "log_id": record.node.log_id.hex(),
                "lease": cluster.lease if record.node is cluster.own else cluster.leases.get(number, 0),
            }
            for number, record in sorted(cluster.membership.records.items())
        ]


def safe_id(cluster: Cluster, number: int, wall: int) -> int:
    """Return the message id with which a lost node is to continue at `wall` (ns since the epoch).

    It is above all leases that other nodes know, and above the time: the node may have been lost before, and have issued ids
    since that no other node knows.
    """
    lease = cluster.leases.get(number, 0)
    try:
        return first_of_new_log(wall, lease)
    except ClockError as error:
        log.error("CLUSTER: message ids of the lost node %d depend on its last report: %s", number, error)
        return lease + SAFE_LEASES * LEASE


def promoted_log_status(promoted: dict[str, Any], begun: dict[str, Any] | None) -> dict[str, object]:
    """Return the entry of a promoted log in /cluster. `begun`: its epochs and its end, or None if it is not open."""
    if begun is not None:
        return {"opening": False, **begun, **promoted}
    return {"epochs": [], "end": 0, "opening": promoted["state"] not in (LOST, CLOSED), **promoted}
