"""Fetch from other nodes, at a start, what this node has lost: the end of its log, corrupt bytes, or the ids it has issued.

After a power cut a node may have lost bytes that it had not synced, while its followers have them. In a mode that does not wait
for the node's own disk, these may be acknowledged. So the node asks the others before it continues its log, and appends the
bytes that follow the log's end in the same epoch.

The replies also show whether another node has promoted the log and leads it by now. Then the log is not continued.

See docs/contributing/design/cluster-protocol.md#the-return-of-a-node and
docs/contributing/design/cluster-protocol.md#return-after-a-failover.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby

from nsqd.cluster.replication.asking import NodeReplicas
from nsqd.cluster.replication.common_point import common_end, packed
from nsqd.cluster.replication.offers import Fetched, Offer, TransferError
from nsqd.cluster.replication.repair import replace_damage
from nsqd.cluster.replication.stream import Epochs
from nsqd.core.message.epoch import MOST_NUMBER
from nsqd.core.message.ids import ClockError, first_of_new_log
from nsqd.storage.log.disk import Disk
from nsqd.storage.log.epochs import NO_EPOCH, Epoch, unpack
from nsqd.storage.log.followers import Followers
from nsqd.storage.log.reading import LogReading
from nsqd.storage.log.records import HEADER_SIZE
from nsqd.storage.log.segments import LogError
from shared.log import log

NEVER_LEASED = 1  # the lease of a log that has issued no id


@dataclass(frozen=True, slots=True)
class Failover:
    """The failover of a log, as far as it is known."""

    epoch: Epoch  # the leader's, by which it is the leader
    address: str  # of the node that answered so; "": none did, and the leader may have any part
    epochs: tuple[tuple[bytes, int], ...]  # of the copy at that node, packed, with the position at which each begins
    end: int  # position at which that copy ends
    lease: int = 0  # the highest lease of message ids of this node that another node knows

    def common(self, epochs: Epochs, end: int) -> int:
        """Return the position up to which the leader has what a log with these epochs, which ends at `end`, has."""
        return common_end(epochs, end, self.epochs, self.end)


class FailedOverError(Exception):
    """Another node leads the log. This node makes another one."""

    def __init__(self, failover: Failover) -> None:
        super().__init__(f"node {failover.epoch.node} has promoted the log")
        self.failover = failover


class LeaderSilentError(Exception):
    """The leader of the log, or a node that may have the bytes that are corrupt here, does not reply."""


def failed_over(offers: Iterable[Offer], epochs: Iterable[Epoch], node: int) -> Failover | None:
    """Return the failover of a log that the replies of other nodes show. None if no node leads it by a greater epoch.

    `epochs`: those that the log knows; `node`: the number of this node, which leads it by the last of them. A node that says
    that it leads the log is believed, and so is a replica: if it holds an epoch of another node, that node led the log.
    """
    offers = list(offers)
    own = max(epochs, default=NO_EPOCH)
    greater = [(epoch, offer) for offer in offers if (epoch := _epoch_of_another(offer, own, node)) is not None]
    if not greater:
        return None
    epoch, best = max(greater, key=lambda one: (one[0], one[1].leader is not None, one[1].end))
    return Failover(epoch, best.address, best.epochs, best.end, max(offer.lease for offer in offers))


def _epoch_of_another(offer: Offer, own: Epoch, node: int) -> Epoch | None:
    """Return the epoch by which a node other than `node` leads the log, if the offer holds one that is later than `own`."""
    last = max((unpack(epoch) for epoch, _ in offer.epochs), default=NO_EPOCH)
    return last if last[:2] > own[:2] and last.node != node else None


def is_led_by_another(
    replicas: NodeReplicas,
    log_id: bytes,
    epochs: Iterable[Epoch],
    node: int,
    followers: Followers,
    known: Epoch | None = None,
) -> bool:
    """Return True if a node other than `node` leads a log by a greater epoch than these, as far as that can be found out.

    `followers`: the in-sync ones, as the log states them: as many replies are waited for as for this node's own log. `known`:
    the latest epoch of the log that this node knows, or None. See `failed_over`.
    """
    epochs = list(epochs)
    if known is not None and known.node != node and known[:2] > max(epochs, default=NO_EPOCH)[:2]:
        return True
    return failed_over(replicas.ask(log_id, followers), epochs, node) is not None


def repair_promoted(disk: Disk, reading: LogReading, replicas: NodeReplicas) -> bool:
    """Replace corrupt bytes of a log that another node has published into. Returns True if the log has changed.

    Asks other nodes only if bytes are corrupt. Raises OSError.
    """
    identity = reading.identity
    if identity is None or not reading.log_records.damage.spots:
        return False
    own, end = packed(reading.replay.epochs), reading.log_records.end
    offers = replicas.ask(identity.log_id, reading.replay.followers)
    common = {offer: common_end(own, end, offer.epochs, offer.end) for offer in offers}
    return replace_damage(disk, reading.log_records, replicas, common)[0] > 0


class Rejoin:
    """Asks the nodes that were known in the last run. Implements nsqd.storage.log.opening.Extend."""

    def __init__(
        self,
        replicas: NodeReplicas,
        node: int,
        lease: int,
        wall: Callable[[], int],
        leaders: Mapping[bytes, Epoch] | None = None,
        is_last_try: bool = False,
    ) -> None:
        """`node`: number of this node; `lease`: the greatest known lease of its message ids.

        `wall` returns ns since the epoch. `leaders`: the known epochs of logs, by log id. `is_last_try`: if no node says how
        much of the log its leader has, assume that it has nothing, and continue without the corrupt bytes.
        """
        self._leaders, self._is_last_try = leaders or {}, is_last_try
        self._replicas = replicas
        self._node = node
        self._lease = lease
        self._wall = wall
        # the lowest number of the epoch that begins: later runs of this node are known, if its disk is an old copy
        self.least_epoch = 0
        self.least_id = 0  # sequence below which no message id is issued, because an earlier log of the node may have

    def __call__(self, disk: Disk, reading: LogReading) -> bool:
        """Replace corrupt bytes by those of a replica, and append the bytes of a replica after the log's end.

        Returns True if the log may have changed. Raises LogError, OSError, FailedOverError, LeaderSilentError.
        """
        identity = reading.identity
        if identity is not None and identity.node != self._node:
            raise LogError(
                f"it is that of node {identity.node}, and --node-id is {self._node}: start it with its own number, or make a"
                f" directory of node {self._node} from it: penstock restore <this directory> <a new one> --node {self._node}"
            )
        if reading.start_results.leased <= NEVER_LEASED:
            self.least_id = self._first_id(self._replicas.leases())
        if identity is None:
            return False
        own, end = packed(reading.replay.epochs), reading.log_records.end
        offers = self._replicas.ask(identity.log_id, reading.replay.followers)
        learned = self._leaders.get(identity.log_id, NO_EPOCH)
        known_epochs = [*reading.epochs, *(epoch for epoch, _ in reading.replay.epochs), learned]
        leader = max(known_epochs)  # another node, if this is a copy that was made after a failover
        latest = max((epoch for epoch in known_epochs if epoch.node == self._node), default=NO_EPOCH)
        failover = failed_over(offers, [latest], self._node)
        if failover is not None:
            offers = [offer for offer in offers if _epoch_of_another(offer, latest, self._node) is None]
        self.least_epoch = self._above([leader, *(unpack(packed) for offer in offers for packed, _ in offer.epochs)])
        if failover is None and leader[:2] > latest[:2]:
            if self._is_last_try:
                raise FailedOverError(Failover(leader, "", (), 0))
            raise LeaderSilentError(f"no node says how much of this node's log node {leader.node} has")
        known = max((offer.lease for offer in offers), default=0)
        if known > reading.start_results.leased:  # the log is an old one: what it has leased since is not in it
            self.least_id = max(self.least_id, self._first_id([known]))
        common = {offer: common_end(own, end, offer.epochs, offer.end) for offer in offers}
        replaced, left = replace_damage(disk, reading.log_records, self._replicas, common)
        if left and failover is None and self._replicas.is_incomplete and not self._is_last_try:
            raise LeaderSilentError(
                f"{left} ranges of its log are corrupt, and a node that may have them does not reply"
            )
        longer = [offer for offer in offers if offer.end > end == common[offer]]
        for offer in sorted(longer, key=lambda offer: (offer.epochs[-1][0], offer.end), reverse=True):
            log.warning(
                "CLUSTER: fetching the last %d bytes of this node's log from %s", offer.end - end, offer.address
            )
            try:
                self._fetch_end(disk, offer, identity.log_id, end)
                break
            except TransferError as error:
                log.error("CLUSTER: cannot fetch the end of this node's log from %s: %s", offer.address, error)
        if failover is not None:  # what others had of the tail is in the log now
            raise FailedOverError(failover)
        return bool(longer) or replaced > 0

    def _above(self, epochs: list[Epoch]) -> int:
        """Return a number above those of epochs of this node, of which the log may know nothing."""
        return min(MOST_NUMBER, max((epoch.number for epoch in epochs if epoch.node == self._node), default=-1) + 1)

    def _first_id(self, leases: list[int]) -> int:
        """Return a sequence above the leases that other nodes know of this number, and above the time. Raises LogError."""
        try:
            return first_of_new_log(self._wall(), max([self._lease, *leases]))
        except ClockError as error:
            raise LogError(str(error)) from None

    def _fetch_end(self, disk: Disk, offer: Offer, log_id: bytes, end: int) -> None:
        """Append to the log what a replica has beyond `end`, durably. Raises OSError, TransferError."""
        for segment, found in groupby(self._replicas.fetch(offer, log_id, end), lambda fetched: fetched.segment):
            end = _append(disk, segment, found, end)
        disk.sync_directory()


def _append(disk: Disk, segment: str, found: Iterable[Fetched], end: int) -> int:
    """Append the bytes of a segment to the log, and return the log's new end. Raises OSError, TransferError."""
    file = None
    try:
        for base, offset, data in ((fetched.base, fetched.offset, fetched.data) for fetched in found):
            if base is None or base + max(0, offset - HEADER_SIZE) != end:
                raise TransferError("the bytes of the replica do not follow the end of the log")
            if file is None:
                file = disk.open(segment) if offset else disk.create(segment)
            file.append([data], offset)
            end = base + offset + len(data) - HEADER_SIZE
        if file is not None:
            file.sync()
    finally:
        if file is not None:
            file.close()
    return end
