"""Words that a log has another leader: whether this node believes them, or waits until enough nodes say so.

A log changes its leader when a majority has voted for another node (elections.py), and nodes tell each other only of
leaders that they believe in. So a word is refuted as long as the nodes that are heard, and do not say the same, are so many
that the others have no majority. Members that cannot be reached may have voted; the leader that would lose the log has not.
A node that has itself voted for as much believes at once. So one node with a false word, whatever it says, changes no leader
while the others hear each other.

Where the leader is not heard, or does not say that it leads the log, there is nobody to dispute a word, and it is believed.

A refuted word is kept, and looked at again until it is believed or a greater one takes its place.

See docs/design/cluster.md#elections.
"""

from __future__ import annotations

from collections.abc import Mapping

from nsqd.cluster.membership.leader_frames import MOST_LOGS, Hold
from nsqd.cluster.membership.leaders import Leaders
from nsqd.cluster.membership.members import Membership
from nsqd.cluster.wire.link import Link
from nsqd.core.message.epoch import Epoch

MOST_STEP = 1 << 20  # by which the number of an epoch may exceed the greatest that is known: ten thousand failovers


class Disputes:
    """The words about leaders of logs that one node does not believe yet."""

    def __init__(self, membership: Membership, leaders: Leaders, links: Mapping[int, Link]) -> None:
        """`links`: the connections to other nodes, by their numbers."""
        # False: every word is believed, because the votes of a minority are enough (-failover-quorum=any)
        self.needs_majority = True
        self._membership, self._leaders, self._links = membership, leaders, links
        self._own = membership.own.number
        # by log id: the epoch that each node has said last of those that are not believed, by its number
        self.refuted: dict[bytes, dict[int, Epoch]] = {}

    def believes(self, number: int, log_id: bytes, epoch: Epoch, is_publisher: bool = False) -> bool:
        """Return True if the word of the node `number` about the leader of a log is to be believed, or is no news.

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
        words = self.refuted.get(log_id, {})
        if log_id in self.refuted or len(self.refuted) < MOST_LOGS:
            self.refuted[log_id] = words
        words[number] = epoch
        return not self._is_refuted(known, log_id, epoch)

    def _is_refuted(self, known: Epoch, log_id: bytes, epoch: Epoch) -> bool:
        """Return True if those who do not say that a log has this leader leave no majority to those who may."""
        leaders, own = self._leaders, self._own
        if known.node == own and not leaders.holds(log_id):
            return False  # this node gave the log up, or has not opened it
        members = self._membership.proved_members()
        tellers = {number for number, words in self.refuted.get(log_id, {}).items() if words >= epoch}
        voted = leaders.votes.get(log_id)
        if known.node != own and voted is not None and voted.number >= epoch.number:
            return False
        silent = self._links.keys() - tellers - {known.node}
        if len(tellers) > max(1, len(silent)):
            return False  # the members may have been fewer when they voted
        against = {own, *(number for number in self._links if number not in tellers)}
        if known.node != epoch.node and not self._gave_up(known, log_id):
            against.add(known.node)
        return len(members - against) < len(members) // 2 + 1

    def _is_there(self, known: Epoch, log_id: bytes) -> bool:
        """Return True if the leader of a log is heard, and says in this run that it leads the log."""
        if known.node == self._own:
            return self._leaders.holds(log_id)
        link = self._links.get(known.node)
        if link is None or link.peer is None:
            return False
        return self._leaders.said(known.node, link.peer.incarnation, log_id) is Hold.LEADS

    def _gave_up(self, known: Epoch, log_id: bytes) -> bool:
        """Return True if the leader of a log has said that it gave the log up, or is not a member any more."""
        word = self._membership.words.get(known.node)
        if word is None or known.node not in self._membership.proved_members():
            return True
        return self._leaders.said(known.node, word.node.incarnation, log_id) is Hold.STEPPED_DOWN

    def settled(self) -> list[tuple[bytes, Epoch]]:
        """Return the words that are believed by now, each with the log, and forget those that are void."""
        found = []
        for log_id, words in list(self.refuted.items()):
            known = self._leaders.leader(log_id)
            for number, epoch in list(words.items()):
                if known is None or known >= epoch:
                    del words[number]
            epochs = sorted(set(words.values()), reverse=True)
            believed = next((one for one in epochs if known and not self._is_refuted(known, log_id, one)), None)
            if believed is not None:
                found.append((log_id, believed))
            if not words:
                del self.refuted[log_id]
        return found
