"""At the start of a node: ask others what it has lost: the end of its log, bytes that are damaged, or which ids it has issued.

After a power cut a node may have lost what it had not synced, while its followers have it. In a mode that does not wait for
the node's own disk, clients may have been told that it is kept. So the other nodes are asked before the log goes on: bytes that
follow the log's end, in the same epoch, are appended to it.

See docs/design/cluster.md#the-return-of-a-node.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import IO

from nsqd.core.message.ids import ClockError, first_of_new_log
from nsqd.replication.common import common_end
from nsqd.replication.mending import PART, replace_bytes
from nsqd.replication.offers import CHUNK, Offer, OtherMirrors, TransferError
from nsqd.storage.log.disk import Disk
from nsqd.storage.log.files import segment_name
from nsqd.storage.log.reader import LogRecords
from nsqd.storage.log.reading import LogReading
from nsqd.storage.log.records import HEADER_SIZE
from nsqd.storage.log.segments import LogError
from shared.log import log

NEVER_LEASED = 1  # the lease of a log that has issued no id


class Rejoin:
    """Asks the nodes that were known in the last run. Implements nsqd.storage.log.opening.Extend."""

    def __init__(self, mirrors: OtherMirrors, node: int, lease: int, wall: Callable[[], int]) -> None:
        """`node`: number of this node; `lease`: what is known of the message ids that it has leased.

        `wall` returns ns since the epoch.
        """
        self._mirrors = mirrors
        self._node = node
        self._lease = lease
        self._wall = wall
        self.least_id = 0  # sequence below which no message id is issued, because an earlier log of the node may have

    def __call__(self, disk: Disk, reading: LogReading) -> bool:
        """Replace damaged bytes by those of a mirror, and append what a mirror has beyond the log's end.

        Returns True if the log may have changed. Raises LogError, OSError.
        """
        identity = reading.identity
        if identity is not None and identity.node != self._node:
            raise LogError(
                f"it is that of node {identity.node}, and --node-id is {self._node}: start it with its own number, or make a"
                f" directory of node {self._node} from it: penstock restore <this directory> <a new one> --node {self._node}"
            )
        if reading.start_results.leased <= NEVER_LEASED:
            self.least_id = self._first_id(self._mirrors.leases(self._node))
        if identity is None:
            return False
        own = [(epoch.pack(), start) for epoch, start in reading.replay.epochs]
        end = reading.log_records.end
        offers = self._mirrors.ask(identity.log_id, reading.replay.followers)
        known = max((offer.lease for offer in offers), default=0)
        if known > reading.start_results.leased:  # the log is an old one: what it has leased since is not in it
            self.least_id = max(self.least_id, self._first_id([known]))
        common = {offer: common_end(own, end, offer.epochs, offer.end) for offer in offers}
        mended = [self._is_mended(disk, reading.log_records, spot, common) for spot in reading.log_records.damage.spots]
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
        return bool(longer) or any(mended)

    def _first_id(self, leases: list[int]) -> int:
        """Return a sequence above the leases that other nodes know of this number, and above the time. Raises LogError."""
        try:
            return first_of_new_log(self._wall(), max([self._lease, *leases]))
        except ClockError as error:
            raise LogError(str(error)) from None

    def _is_mended(self, disk: Disk, records: LogRecords, spot: tuple[str, int, int], common: dict[Offer, int]) -> bool:
        """Replace a damaged range of a segment, if a mirror has its bytes. Returns False if none has. Raises OSError.

        `common`: the position up to which each mirror holds the same as the log.
        """
        name, start, stop = spot
        header = next(segment.header for segment in records.segments if segment.name == name)
        offers = [offer for offer, end in common.items() if header.base + stop - HEADER_SIZE <= end]
        if header.generation:
            return False  # mirrors have such a segment as it was before
        segment = header.base, name, header.seed
        return replace_bytes(disk, self._mirrors, offers, header.log_id, segment, start, stop)

    def _fetch_end(self, disk: Disk, offer: Offer, log_id: bytes, end: int) -> None:
        """Append to the log what a mirror has beyond `end`, durably. Raises OSError, TransferError."""
        with self._mirrors.fetch(offer, log_id, end) as parts:
            for name, content in parts:
                match = PART.fullmatch(name)
                if match is None:
                    raise TransferError(f"{offer.address} has sent an unexpected file {name!r}")
                end = _append(disk, int(match[1]), int(match[2] or 0), end, content)
        disk.sync_directory()


def _append(disk: Disk, base: int, offset: int, end: int, content: IO[bytes]) -> int:
    """Write a part behind the log's end, and return the log's new end. Raises OSError."""
    if base + max(0, offset - HEADER_SIZE) != end:
        raise TransferError("what the mirror has sent does not follow the end of the log")
    name = segment_name(base, 0)
    file = disk.open(name) if offset else disk.create(name)
    try:
        while chunk := content.read(CHUNK):
            file.append([chunk], offset)
            offset += len(chunk)
        file.sync()
    finally:
        file.close()
    return base + offset - HEADER_SIZE
