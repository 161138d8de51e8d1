"""Make a peer for each connection of a client of Disque, and describe the process and the cluster to these clients."""

from __future__ import annotations

import os
import platform
import random
import re
import resource
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from ipaddress import ip_address
from typing import TYPE_CHECKING

from nsqd.cluster.wire.node_identity import Standing
from nsqd.core.broker import Broker
from nsqd.core.queues import Queues
from nsqd.protocols.conversation import Conversation
from nsqd.protocols.disque.client import DisqueContext
from nsqd.protocols.disque.context import Alone, DisqueCluster, NodeFacts, Priority, ServerFigures
from nsqd.protocols.disque.ids import JobIds
from nsqd.protocols.disque.peer import Peer
from nsqd.protocols.transport import Transport, with_tls
from shared.process.listen import display, parse_address
from shared.values import MILLISECOND

if TYPE_CHECKING:
    from nsqd.cluster.joined import Joined

_VERSION = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+")
HEARTBEAT_EVERY = 1_000_000_000  # ns, as nodes send them
LEAVE_WITHIN = 60_000_000_000  # ns, as `penstock leave` gives by default


class FrontEnd:
    """The front end for clients of Disque."""

    def __init__(
        self,
        broker: Broker,
        job_ids: JobIds,
        cluster: DisqueCluster,
        most_bytes: int,
        peers: Callable[[], Iterable[Conversation]],
    ) -> None:
        """Set up the front end. `most_bytes`: of a job. `peers` returns those of all connections."""
        self._broker = broker
        self._peers = peers
        self._started = time.monotonic()
        self._looked = self._started, 0, 0  # when commands were counted last, how many, and how many a second then
        self.context = DisqueContext(Queues(broker.tubes), job_ids, cluster, most_bytes)
        self.context.clients = self._clients
        self.context.is_ip = _is_ip
        self.context.figures = self._figures
        self._run_id = random.SystemRandom().randbytes(20).hex()
        self.port = 0  # for clients of Disque
        self.is_durable = True

    def make_peer(self, transport: Transport, ip: str, port: str, now: int, wall: int) -> Conversation:
        """Return a peer for a new connection from `ip`; see nsqd.net.reactor.MakePeer."""
        return Peer(self._broker, self.context, transport, ip, port, now)

    def make_tls_peer(self, transport: Transport, ip: str, port: str, now: int, wall: int) -> Conversation:
        """Return a peer for a new connection that speaks TLS from the first byte on."""
        return with_tls(self.make_peer(transport, ip, port, now, wall), transport)

    def _figures(self) -> ServerFigures:
        usage, system = resource.getrusage(resource.RUSAGE_SELF), os.uname()
        return ServerFigures(
            os=f"{system.sysname} {system.release} {system.machine}",
            pid=os.getpid(),
            run_id=self._run_id,
            port=self.port,
            uptime=int(time.monotonic() - self._started),
            executable=sys.argv[0],
            config_file="",
            resident=usage.ru_maxrss * 1024,
            peak=usage.ru_maxrss * 1024,
            cpu_system=usage.ru_stime,
            cpu_user=usage.ru_utime,
            is_durable=self.is_durable,
            gcc=compiler[0] if (compiler := _VERSION.search(platform.python_compiler())) else "0.0.0",
            operations=self._rate(time.monotonic()),
            rejected=sum(count for reason, count in self._broker.refused.items() if "connections" in reason),
        )

    def _rate(self, now: float) -> int:
        """Return the number of commands a second since the last call that was a second ago or more. `now`: monotonic s."""
        count = sum(self.context.counts.values())
        at, before, rate = self._looked
        if now - at >= 1:
            rate = round(max(0, count - before) / (now - at))
            self._looked = now, count, rate
        return rate

    def _clients(self) -> list[Peer]:
        return [peer for peer in self._peers() if isinstance(peer, Peer) and not peer.is_gone]


class Members:
    """The cluster as clients of Disque see it. Implements ClusterFacts."""

    def __init__(self, joined: Joined, disque_port: int) -> None:
        """`disque_port`: of this node, for clients of Disque."""
        self._joined = joined
        self._disque_port = disque_port
        self.number = joined.cluster.own.number

    def nodes(self) -> Sequence[NodeFacts]:
        cluster = self._joined.cluster
        words = cluster.membership.records
        others = [number for number in sorted(words) if words[number].standing is not Standing.FORGOTTEN]
        numbers = [self.number, *(number for number in others if number != self.number)]
        return [self._facts(number) for number in numbers]

    def size(self) -> int:
        words = self._joined.cluster.membership.records
        others = (word.standing is not Standing.FORGOTTEN for number, word in words.items() if number != self.number)
        return 1 + sum(others)

    def _facts(self, number: int) -> NodeFacts:
        cluster = self._joined.cluster
        word = cluster.membership.records[number]
        is_leaving = word.standing is Standing.LEFT
        if number == self.number:
            is_leaving = is_leaving or self._joined.cluster.is_leaving
            priority = Priority.GONE if is_leaving else Priority.GOOD
        elif is_leaving or self._has_failed(number):
            priority = Priority.GONE
        elif number in cluster.membership.suspected:
            priority = Priority.SUSPECTED
        else:
            priority = Priority.GOOD if number in cluster.links else Priority.NO_LINK
        address = parse_address(word.node.disque) if word.node.disque else None
        host, port = (address.host, address.port) if address is not None else ("", 0)
        if number == self.number:
            return NodeFacts(number, host, self._disque_port, priority, is_leaving)
        contact = cluster.membership.last_contact(number)
        contact_ms = 0 if contact is None else int(time.time() * 1000) - (time.monotonic_ns() - contact) // MILLISECOND
        silent_ms = 0 if number in cluster.links else contact_ms + HEARTBEAT_EVERY // MILLISECOND
        return NodeFacts(number, host, port, priority, is_leaving, silent_ms, contact_ms)

    def _has_failed(self, number: int) -> bool:
        """Return True if a node is unreachable for twice -failover-after, and this node is connected to a majority.

        Disque asks the majority whether they suspect it, too.
        """
        membership, links = self._joined.cluster.membership, self._joined.cluster.links
        members = [member.number for member in membership.members]
        reached = 1 + sum(one in links for one in members)
        contact = membership.last_contact(number)
        if number not in membership.suspected or contact is None or reached <= len(members) // 2:
            return False
        return time.monotonic_ns() - contact >= 2 * membership.suspect_after

    def meet(self, ip: str, port: int) -> bool:
        self._joined.cluster.dials.meet(display(ip, port))
        return True

    def forget(self, number: int) -> str:
        try:
            self._joined.forget(number, lambda kept: None)
        except (KeyError, ValueError) as error:
            return str(error)
        return ""

    def leave(self) -> str:
        self._joined.leave(LEAVE_WITHIN)
        return ""

    def stay(self) -> str:
        is_leaving = self._joined.cluster.is_leaving
        return (
            "A node that leaves hands its log over, and cannot stay: let it end, and start it again"
            if is_leaving
            else ""
        )


def _is_ip(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def cluster_facts(number: int, port: int, cluster: Joined | None, drain: Callable[[bool], object]) -> DisqueCluster:
    """Return the view of the cluster that commands use. `number`: of this node; `port`: its one for clients of Disque.

    `drain`: begins or ends that the node takes no jobs.
    """
    return Members(cluster, port) if cluster is not None else Alone(number, port, drain)
