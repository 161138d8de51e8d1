"""The leader of each log: the greatest epoch that any node has reported, and the logs that nodes lead in this run.

Epochs are merged by maximum, so their order and number do not matter, and connected nodes agree. The leader is
the node of that epoch. Votes are kept apart: the candidates for which this node has voted. A vote changes no leader.

See docs/contributing/design/cluster-protocol.md#elections.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from nsqd.cluster.membership.leader_frames import MOST_LOGS, Closed, Hold, Leadership
from nsqd.core.message.epoch import Epoch

MOST_CLOSED = 1000  # closed logs that a node remembers


class Vote(NamedTuple):
    """The latest vote about a log: for no lower number, and with this number for no other node."""

    number: int
    node: int


class Leaders:
    """The leaders of logs, as one node knows them."""

    def __init__(
        self,
        known: Iterable[tuple[bytes, Epoch]] = (),
        votes: Iterable[tuple[bytes, Vote]] = (),
        closed: Iterable[Closed] = (),
    ) -> None:
        """`known`, `votes` and `closed`: the facts of an earlier run of this node, and its votes."""
        self.epochs: dict[bytes, Epoch] = dict(known)  # by log id, at most MOST_LOGS
        self.votes: dict[bytes, Vote] = dict(votes)  # by log id, at most MOST_LOGS
        self.closed = {record.log_id: record for record in closed}  # by log id, at most MOST_CLOSED
        self.held: dict[bytes, Epoch] = {}  # the logs that this node leads in this run, or of which it has stepped down
        # those of which it has stepped down, each with the number of the node that it asked to lead it; None: any
        self.stepped_down: dict[bytes, int | None] = {}
        # by node number: a run of the node, by its incarnation, and what that says of the logs that it leads
        self._said: dict[int, tuple[int, dict[bytes, tuple[Epoch, Hold]]]] = {}

    # the leader of a log

    def leader(self, log_id: bytes) -> Epoch | None:
        """Return the greatest epoch of a log that is known; its node leads the log."""
        return self.epochs.get(log_id)

    def learn(self, log_id: bytes, epoch: Epoch) -> bool:
        """Note an epoch. Returns True if it is news: greater than what was known."""
        known = self.epochs.get(log_id)
        if known is not None and known >= epoch:
            return False
        if known is None and len(self.epochs) >= MOST_LOGS:
            free = (one for one in self.epochs if one not in self.held and one not in self.votes)
            del self.epochs[next(free, next(iter(self.epochs)))]  # the log that was learned of first
        self.epochs[log_id] = epoch
        if log_id in self.closed and epoch > self.closed[log_id].epoch:
            del self.closed[log_id]  # the node that closed it did not lead it any longer
        return True

    def vote(self, log_id: bytes, vote: Vote) -> None:
        """Note a vote in place of the one before. It counts when it is durable."""
        if log_id not in self.votes and len(self.votes) >= MOST_LOGS:
            del self.votes[next(iter(self.votes))]
        self.votes[log_id] = vote

    def close(self, record: Closed) -> bool:
        """Record that the leader of a log has closed it: it is never promoted again. Returns True if that changes something."""
        known, leader = self.closed.get(record.log_id), self.epochs.get(record.log_id)
        if (known is not None and known.epoch >= record.epoch) or (leader is not None and leader > record.epoch):
            return False
        if known is None and len(self.closed) >= MOST_CLOSED:
            del self.closed[next(iter(self.closed))]
        self.closed[record.log_id] = record
        return True

    # the logs that nodes report to lead

    def hold(self, log_id: bytes, epoch: Epoch) -> None:
        """Note that this node leads a log by an epoch."""
        self.held[log_id] = epoch
        self.stepped_down.pop(log_id, None)

    def holds(self, log_id: bytes) -> bool:
        """Return True if this node leads a log and has not stepped down."""
        return log_id in self.held and log_id not in self.stepped_down

    def note_said(self, number: int, incarnation: int, records: Iterable[Leadership]) -> None:
        """Record the relation of a run of a node to the logs of which it leads, or has led, an epoch."""
        run, said = self._said.get(number, (0, {}))
        if run != incarnation:
            self._said[number] = incarnation, (said := {})
        for record in records:
            if record.epoch.node != number or (record.hold is Hold.KNOWS and record.log_id in said):
                continue  # a node that leads a log by an earlier epoch knows of the later one from others
            if record.log_id in said or len(said) < MOST_LOGS:
                said[record.log_id] = record.epoch, record.hold

    def said(self, number: int, incarnation: int, log_id: bytes) -> Hold | None:
        """Return the relation that a run of a node has reported to a log that it leads by the greatest epoch. None if none.

        If others have reported a later epoch of that node before it did, its report about the earlier epoch counts.
        """
        run, said = self._said.get(number, (0, {}))
        leader = self.epochs.get(log_id)
        if run != incarnation or log_id not in said or leader is None or leader.node != number:
            return None
        epoch, hold = said[log_id]
        return hold if epoch == leader else Hold.LEADS

    def is_without(self, number: int, incarnation: int, log_id: bytes) -> bool:
        """Return True if a run of a node, which leads a log by the greatest epoch, cannot continue as its leader.

        It has stepped down, or only knows that it leads the log: its disk was replaced.
        """
        return self.said(number, incarnation, log_id) in (Hold.KNOWS, Hold.STEPPED_DOWN)

    def leaderships(self) -> list[Leadership]:
        """Return all updates for a newly connected node."""
        return [self.leadership(log_id) for log_id in self.epochs]

    def leadership(self, log_id: bytes) -> Leadership:
        """Return the update about a log. Raises KeyError if it is not known."""
        epoch = self.epochs[log_id]
        if self.held.get(log_id) != epoch:
            return Leadership(log_id, epoch)
        return Leadership(log_id, epoch, Hold.STEPPED_DOWN if log_id in self.stepped_down else Hold.LEADS)

    def lost(self) -> list[tuple[bytes, Epoch]]:
        """Return the logs that this node held and another node leads, each with the greater epoch."""
        return [
            (log_id, greatest)
            for log_id, epoch in self.held.items()
            if (greatest := self.epochs.get(log_id, epoch)) != epoch
        ]
