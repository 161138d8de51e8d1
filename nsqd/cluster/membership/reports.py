"""Which records of nodes are accepted that another node reports: at once, later, or never.

A connection to a node is better evidence than a record of it. A record of another run waits until the connection ends, and the
record that a connected node is gone until it is suspected.

See docs/contributing/design/cluster-protocol.md#membership.
"""

from __future__ import annotations

from collections.abc import Mapping

from nsqd.cluster.membership.members import Membership
from nsqd.cluster.wire.link import Link
from nsqd.cluster.wire.node_identity import Member, NodeIdentity, Standing
from nsqd.core.message.id_ranges import common_number

# by which the incarnation of a run may exceed those that are known: that of a node without a file is the time in s
MOST_RUNS_AHEAD = 1 << 33


class Reports:
    """The records that other nodes have reported to one node."""

    def __init__(self, own: NodeIdentity, membership: Membership, links: Mapping[int, Link]) -> None:
        """`membership` has the nodes of an earlier run of `own`; `links`: the connection to each node, by its number."""
        self._own, self._membership, self._links = own, membership, links
        # records of another run of a node, by its number, while the known run has a connection here
        self._withheld: dict[int, Member] = {}
        # by node number: records that a connected node has left or was forgotten
        self._doubted: dict[int, Member] = {}
        # numbers of nodes that have closed their connection, or have not had one since this node started
        self._ended = membership.records.keys() - {own.number}

    def connected(self, number: int) -> None:
        """Note that a node has proved its identity."""
        self._doubted.pop(number, None)
        self._ended.discard(number)

    def disconnected(self, number: int, by_peer: bool) -> list[Member]:
        """Note that the connection to a node ended. Return the record of another run of it, if one was reported meanwhile."""
        if by_peer:
            self._ended.add(number)
        record = self._withheld.pop(number, None)
        return [record] if record is not None else []

    def forget(self, number: int) -> None:
        """Drop the record of another run of a node that is forgotten."""
        self._withheld.pop(number, None)

    def suspected(self) -> list[Member]:
        """Return the records that nodes are gone which were connected then, and are suspected now; each of them once."""
        return [self._doubted.pop(number) for number in self._doubted.keys() & self._membership.suspected]

    def has_ended(self, known: NodeIdentity, other: NodeIdentity) -> bool:
        """Return True if the known run of a node is over, so that another run may have its number."""
        number = known.number
        return self._membership.is_going(number) or (number in self._ended and known.address == other.address)

    def possible(self, link: Link, records: list[Member]) -> list[Member]:
        """Return those of the records of another node that are possible, and for which there is room."""
        records = [record for record in records if self._is_possible(link, record)]
        room, known = self._membership.room(), self._membership.records
        new = [record for record in records if record.standing is Standing.MEMBER and record.node.number not in known]
        return [record for record in records if record not in new[room:]] if len(new) > room else records

    def _is_possible(self, link: Link, record: Member) -> bool:
        """Return False if a node's record of another one is impossible, or only that node may send it."""
        node, known = record.node, self._membership.records.get(record.node.number)
        latest = max(self._own.incarnation, known.node.incarnation if known is not None else 0)
        if node.incarnation > latest + MOST_RUNS_AHEAD:
            return False
        other = self._links.get(node.number)
        if other is None or other is link or record.standing is Standing.MEMBER:
            return True
        if self._membership.is_going(node.number) or other.peer is None or other.peer.log_id != node.log_id:
            return True
        self._doubted[node.number] = record
        return False

    def accepted(self, records: list[Member]) -> list[Member]:
        """Return those of possible records that are accepted now. One of another run of a connected node is withheld."""
        logs = {node.log_id: node.number for node in self._membership.members}
        accepted = []
        for record in records:
            number, is_member = record.node.number, record.standing is Standing.MEMBER
            if logs.get(record.node.log_id, number) != number or (is_member and clash(self._membership, record.node)):
                continue
            other = self._links.get(number)
            if other is None or other.peer == record.node or self._ends(record, other.peer):
                accepted.append(record)
            elif number not in self._withheld or record.is_later_than(self._withheld[number]):
                self._withheld[number] = record
        return accepted

    def _ends(self, record: Member, connected: NodeIdentity | None) -> bool:
        """Return True if a record holds though another run of its node is `connected`: that run ends, or is not meant."""
        if self._membership.is_going(record.node.number):
            return True
        is_of_log = connected is not None and connected.log_id == record.node.log_id
        is_older = connected is not None and record.node.incarnation < connected.incarnation
        return record.standing is Standing.FORGOTTEN and (is_of_log or is_older)


def clash(membership: Membership, node: NodeIdentity) -> str:
    """Return the reason why the message ids in a node's log exclude it from the cluster, or ""."""
    for other in membership.members:
        number = common_number(node.ids, other.ids) if other.number != node.number else None
        if number is not None:
            guest, host = (other, node) if number == node.number else (node, other)
            return (
                f"node {guest.number} must first be drained: its log has messages with ids of node number {number}, and so"
                f" has that of node {host.number}. Consume them on node {guest.number}, or publish them again with"
                f" nsq_to_nsq, and start it again; it is at {guest.address}, the other at {host.address}"
            )
    return ""
