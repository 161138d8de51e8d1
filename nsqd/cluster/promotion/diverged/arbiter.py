"""The leader's decisions about copies with bytes that its log lacks: which node salvages them, and when copies are removed.

Each request has the epochs of the copy, so the common point is always the one with the log as it is now. A tail that another
node has salvaged counts as the leader's, too, once it has its copies: a node with the same tail does not deliver it again, and
a node with a longer one salvages the rest. Until then a second node waits, and keeps its copy: the first may be lost before.

The node that published into the log may have copied the same tail into its new one. So while it is connected and has not
asked, others wait for some seconds.

The node that has closed a log continues to reply about it: it knows which tails were salvaged.

See docs/contributing/design/cluster-protocol.md#diverged-copies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from nsqd.cluster.membership.cluster import Cluster
from nsqd.cluster.membership.facts import Keep
from nsqd.cluster.membership.salvaged import tail_of
from nsqd.cluster.promotion.diverged.salvage_frames import Decision, SalvageReply, SalvageRequest
from nsqd.cluster.replication.common_point import common_end, packed
from nsqd.cluster.replication.leader import LeaderSide
from nsqd.cluster.replication.stream import Epochs
from nsqd.storage.log.epochs import unpack

PATIENCE = 60_000_000_000  # ns for which others wait for a node that may salvage a tail, after its last progress
PUBLISHER_WITHIN = 10_000_000_000  # ns within which the node that published into a log asks about its own tail


class Pending(NamedTuple):
    """A tail that a node is salvaging."""

    node: int
    request: SalvageRequest
    until: int  # monotonic ns


class Arbiter:
    """The answers of one node about the logs that it leads, and about those that it has closed."""

    def __init__(
        self, cluster: Cluster, leader_sides: Mapping[bytes, LeaderSide], keep: Keep, clock: Callable[[], int]
    ) -> None:
        """`leader_sides`: by log id; `clock` returns monotonic ns."""
        self._cluster, self._leader_sides, self._keep, self._clock = cluster, leader_sides, keep, clock
        self._pending: dict[bytes, Pending] = {}  # by log id
        self._asked: set[bytes] = set()  # logs about which the nodes that published into them have asked
        self._waited: dict[bytes, int] = {}  # since when others wait for that, monotonic ns, by log id

    def answer(self, number: int, request: SalvageRequest, then: Callable[[SalvageReply], None]) -> None:
        """Pass the reply to a request of the node `number` to `then`, at once or later.

        There is none if the log is not open here, and this node has not closed it.
        """
        log_id = request.log_id
        extent = self._extent(log_id)
        if extent is None:
            return
        own, end = extent
        common = common_end(own, end, packed(request.epochs), request.end)
        had = self._had(request, common)
        publisher = unpack(own[0][0]).node if own else None
        taken = request.salvaged_from
        if number == publisher and taken is not None:
            self._asked.add(log_id)

        def decide(decision: Decision) -> None:
            then(SalvageReply(request.serial, log_id, decision, had))

        if had < request.end:
            if taken is None or taken > had:
                decide(Decision.WAIT if self._must_wait_for(publisher, number, log_id) else self._take(number, request))
                return
            if not request.is_copied:
                self._pending[log_id] = Pending(number, request, self._clock() + PATIENCE)
                decide(Decision.WAIT)
                return
            self._cluster.salvaged.add(tail_of(log_id, number, taken, request.end, request.epochs))
        if self._is_pending_of(number, request):
            del self._pending[log_id]
        leader_side = self._leader_sides.get(log_id)
        # a closed log has no unfinished messages of it
        if leader_side is None or is_copied(leader_side, common, self._cluster):
            self._keep(lambda is_kept: decide(Decision.LET_GO if is_kept else Decision.WAIT))
        else:
            decide(Decision.WAIT)

    def _extent(self, log_id: bytes) -> tuple[Epochs, int] | None:
        """Return the epochs and the end of a log that is open here, or that this node has closed. None otherwise."""
        leader_side = self._leader_sides.get(log_id)
        if leader_side is not None:
            return None if leader_side.source.is_broken else (leader_side.source.epochs(), leader_side.source.end)
        record = self._cluster.leaders.closed.get(log_id)
        if record is None or record.epoch.node != self._cluster.own.number:
            return None
        return packed(record.epochs), record.end

    def _had(self, request: SalvageRequest, common: int) -> int:
        """Return the position up to which the copy's bytes are in the log, or in salvaged tails that adjoin it."""
        had = common
        for tail in self._cluster.salvaged.of_log(request.log_id):
            if tail.start <= had:
                had = max(had, common_end(packed(tail.epochs), tail.end, packed(request.epochs), request.end))
        return had

    def _must_wait_for(self, publisher: int | None, number: int, log_id: bytes) -> bool:
        """Return True if a node must wait until the node that published into the log has asked about the same tail."""
        if publisher == number or publisher not in self._cluster.links or log_id in self._asked:
            return False
        now = self._clock()
        return now - self._waited.setdefault(log_id, now) < PUBLISHER_WITHIN

    def _take(self, number: int, request: SalvageRequest) -> Decision:
        """Return whether a node salvages its copy, or waits because another tail of the log is being salvaged."""
        now, pending = self._clock(), self._pending.get(request.log_id)
        if pending is not None and now < pending.until and not self._is_pending_of(number, request):
            return Decision.WAIT
        if pending is None or not self._is_pending_of(number, request):
            self._pending[request.log_id] = Pending(number, request, now + PATIENCE)
        return Decision.SALVAGE

    def _is_pending_of(self, number: int, request: SalvageRequest) -> bool:
        """Return True if it is this copy that is being salvaged."""
        pending = self._pending.get(request.log_id)
        if pending is None:
            return False
        other = pending.request
        return (pending.node, other.end, other.epochs) == (number, request.end, request.epochs)


def is_copied(leader_side: LeaderSide, position: int, cluster: Cluster) -> bool:
    """Return True if a log is durable up to a position in as many copies as its publishes asked for, this node's included.

    If the cluster has fewer members: in all of them.
    """
    others = min(max(leader_side.in_sync.stated.most, leader_side.copies.asked[1]), len(cluster.membership.members)) - 1
    having = sum(
        one.has_replica and one.durable >= position and number in leader_side.in_sync.counting
        for number, one in leader_side.followers.items()
    )
    return having >= others
