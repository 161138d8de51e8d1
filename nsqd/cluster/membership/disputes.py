"""Updates that report another leader of a log: this node accepts them, or waits until enough nodes report the same.

A log changes its leader when a majority has voted for another node (elections.py), and nodes report only leaders that they
have accepted. So an update is refused while too many connected nodes do not report it: the others have no majority without
them. Members that cannot be reached may have voted; the leader that would lose the log has not. A node that has itself voted
for that number accepts the update at once, and so does a node that has voted for that leader in an election after the known
one: the leader may have started again since, in a greater epoch. So one false update changes no leader while the others are
connected.

Nodes that have left or were forgotten may have voted as well, as long as a member may report a leader that they elected: until
this node was connected to all members at a time.

If the leader is not connected, or does not report that it leads the log, the update is accepted.

A refused update is kept, and checked again until it is accepted or replaced by a greater one.

See docs/contributing/design/cluster-protocol.md#elections.
"""

from __future__ import annotations

from collections.abc import Mapping

from nsqd.cluster.membership.leader_frames import MOST_LOGS, Hold
from nsqd.cluster.membership.leaders import Leaders
from nsqd.cluster.membership.members import Membership
from nsqd.cluster.wire.link import Link
from nsqd.core.message.epoch import Epoch

# ns after which a connected node has reported the leaders that it knew when the connection began
REPORTED_WITHIN = 10_000_000_000
MOST_STEP = 1 << 20  # by which the number of an epoch may exceed the greatest that is known: ten thousand failovers


class Disputes:
    """The updates about leaders of logs that one node has not accepted yet."""

    def __init__(self, membership: Membership, leaders: Leaders, links: Mapping[int, Link]) -> None:
        """`links`: the connections to other nodes, by their numbers."""
        # False: every update is accepted, because the votes of a minority are enough (-failover-quorum=any)
        self.needs_majority = True
        self._membership, self._leaders, self._links = membership, leaders, links
        self._own = membership.own.number
        # by log id: the latest refused epoch that each node has reported, by its number
        self.refuted: dict[bytes, dict[int, Epoch]] = {}
        self._departed = membership.departed()  # whose votes all members would have reported by now

    def believes(self, number: int, log_id: bytes, epoch: Epoch, is_publisher: bool = False) -> bool:
        """Return True if the update of the node `number` about the leader of a log is to be accepted, or changes nothing.

        `is_publisher`: it publishes into the log, and began the epoch itself: a start needs no vote.
        """
        known = self._leaders.leader(log_id)
        if known is not None and known >= epoch:
            return True
        if epoch.number > (known.number if known is not None else 0) + MOST_STEP:
            return False
        if (
            known is None
            or is_publisher
            or not self.needs_majority
            or number == known.node
            or not self._is_there(known, log_id)
        ):
            return True
        records = self.refuted.get(log_id, {})
        if log_id in self.refuted or len(self.refuted) < MOST_LOGS:
            self.refuted[log_id] = records
        records[number] = epoch
        return not self._is_refuted(known, log_id, epoch)

    def _is_refuted(self, known: Epoch, log_id: bytes, epoch: Epoch) -> bool:
        """Return True if the nodes that do not report this leader leave no majority to the others."""
        leaders, own = self._leaders, self._own
        if known.node == own and not leaders.holds(log_id):
            return False  # this node has stepped down, or has not opened the log
        members = self._membership.proved_members() | (self._membership.departed() - self._departed)
        tellers = {number for number, records in self.refuted.get(log_id, {}).items() if records >= epoch}
        voted = leaders.votes.get(log_id)
        if known.node != own and voted is not None:
            has_voted_so = voted.node == epoch.node and voted.number > known.number
            if has_voted_so or voted.number >= epoch.number:
                return False
        silent = self._links.keys() - tellers - {known.node}
        if len(tellers) > max(1, len(silent)):
            return False  # the members may have been fewer when they voted
        against = {own, *(number for number in self._links if number not in tellers)}
        if known.node != epoch.node and not self._gave_up(known, log_id):
            against.add(known.node)
        return len(members - against) < len(members) // 2 + 1

    def _is_there(self, known: Epoch, log_id: bytes) -> bool:
        """Return True if the leader of a log is connected, and reports in this run that it leads the log."""
        if known.node == self._own:
            return self._leaders.holds(log_id)
        link = self._links.get(known.node)
        if link is None or link.peer is None:
            return False
        return self._leaders.said(known.node, link.peer.incarnation, log_id) is Hold.LEADS

    def _gave_up(self, known: Epoch, log_id: bytes) -> bool:
        """Return True if the leader of a log has stepped down, or is no longer a member."""
        record = self._membership.records.get(known.node)
        if record is None or known.node not in self._membership.proved_members():
            return True
        return self._leaders.said(known.node, record.node.incarnation, log_id) is Hold.STEPPED_DOWN

    def settled(self, now: int) -> list[tuple[bytes, Epoch]]:
        """Return the updates that are accepted at `now` (monotonic ns), each with the log, and forget those that are void."""
        links, others = self._links, self._membership.proved_members() - {self._own}
        if all(number in links and now - links[number].begun >= REPORTED_WITHIN for number in others):
            self._departed = self._membership.departed()
        found = []
        for log_id, records in list(self.refuted.items()):
            known = self._leaders.leader(log_id)
            for number, epoch in list(records.items()):
                if known is None or known >= epoch:
                    del records[number]
            epochs = sorted(set(records.values()), reverse=True)
            believed = next((one for one in epochs if known and not self._is_refuted(known, log_id, one)), None)
            if believed is not None:
                found.append((log_id, believed))
            if not records:
                del self.refuted[log_id]
        return found
