"""Replace damaged bytes of this node's log by those of a replica: at a start, and when a read finds them.

Records have a CRC that is bound to log, segment, epoch and offset, so whatever passes it is what was written there.

See docs/design/cluster.md#the-return-of-a-node.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable
from functools import partial

from nsqd.cluster.replication.offers import Offer, OtherReplicas, TransferError
from nsqd.storage.log.disk import Disk
from nsqd.storage.log.files import SegmentFile
from nsqd.storage.log.followers import Followers
from nsqd.storage.log.records import HEADER_SIZE, decode
from shared.log import log

PART = re.compile(r"log/(\d{20})\.0\.log(?:@(\d{1,12}))?")  # name of a part of a replica: base, offset
WITHIN = 5.0  # s
TRY_AGAIN = 60_000_000_000  # ns after which bytes are looked for again that no replica had
MOST_FAILURES = 1000  # that are remembered


class Mending:
    """Replaces what a read of a log in use found damaged. Implements nsqd.storage.log.files.Mend; any thread may call it.

    Whoever asks waits for WITHIN at most: what comes later is there for the next read. While nodes do not answer, nobody waits.
    """

    def __init__(self, disk: Disk, log_id: bytes, find: Callable[[], OtherReplicas], clock: Callable[[], int]) -> None:
        """`find` returns the replicas that can be asked now; `clock`: monotonic ns."""
        self._disk = disk
        self._log_id = log_id
        self._find = find
        self._clock = clock
        self._failed: dict[tuple[str, int], int] = {}  # when it was tried in vain, by file and offset
        self._late_at = -TRY_AGAIN  # when nodes did not answer in time
        self._thread: threading.Thread | None = None  # the one that asks, also when nobody waits for it any more
        self._lock = threading.Lock()

    def __call__(self, base: int, file: SegmentFile, start: int, stop: int) -> bool:
        if file.generation:
            return False  # replicas have such a segment as it was before
        with self._lock:
            now, place = self._clock(), (file.name, start)
            if now - self._failed.get(place, -TRY_AGAIN) < TRY_AGAIN or now - self._late_at < TRY_AGAIN:
                return False
            if self._thread is not None and self._thread.is_alive():
                return False
            found: list[bool] = []
            asking = partial(self._ask, found, (base, file.name, file.seed), start, stop)
            self._thread = threading.Thread(target=asking, name="mend", daemon=True)
            self._thread.start()
            self._thread.join(WITHIN)
            if found == [True]:
                return True
            if not found:
                log.warning("CLUSTER: no node sends what is damaged in %s in time: trying again in a minute", file.name)
                self._late_at = self._clock()
            if len(self._failed) >= MOST_FAILURES:
                self._failed.clear()
            self._failed[place] = self._clock()
            return False

    def _ask(self, found: list[bool], segment: tuple[int, str, int], start: int, stop: int) -> None:
        try:
            replicas = self._find()
            offers = replicas.ask(self._log_id, Followers())
            found.append(replace_bytes(self._disk, replicas, offers, self._log_id, segment, start, stop))
        except (OSError, ValueError) as error:
            log.error("CLUSTER: cannot replace damaged bytes of %s: %s", segment[1], error)
            found.append(False)


def replace_bytes(
    disk: Disk,
    replicas: OtherReplicas,
    offers: Iterable[Offer],
    log_id: bytes,
    segment: tuple[int, str, int],
    start: int,
    stop: int,
) -> bool:
    """Replace the bytes of a segment (base, name, seed) from offset `start` to `stop`, durably. Raises OSError.

    Returns False if no replica has records that may stand there.
    """
    base, name, seed = segment
    for offer in offers:
        if base + stop - HEADER_SIZE > offer.end:
            continue
        try:
            data = _fetch_range(replicas, offer, log_id, base, start, stop)
        except TransferError as error:
            log.error("CLUSTER: cannot fetch damaged bytes from %s: %s", offer.address, error)
            continue
        if not _is_right(data, start, seed):
            continue
        file = disk.open(name)
        try:
            file.append([data], start)
            file.sync()
        finally:
            file.close()
        log.warning(
            "CLUSTER: %d damaged bytes of %s from %d on are replaced by those of %s",
            stop - start, name, start, offer.address,
        )  # fmt: skip
        return True
    return False


def _fetch_range(replicas: OtherReplicas, offer: Offer, log_id: bytes, base: int, start: int, stop: int) -> bytes:
    """Return the bytes of a segment from offset `start` to `stop` of a replica. Raises TransferError."""
    with replicas.fetch(offer, log_id, base + start - HEADER_SIZE) as parts:
        for name, content in parts:
            match = PART.fullmatch(name)
            if match is None:
                continue  # what is not of the log comes first
            place = int(match[1]), int(match[2] or 0)
            if place == (base, 0) and start == HEADER_SIZE:
                content.read(HEADER_SIZE)
            elif place != (base, start):
                break  # the replica has that segment otherwise
            return content.read(stop - start)
    return b""


def _is_right(data: bytes, start: int, seed: int) -> bool:
    """Return True if the bytes are records that may stand from offset `start` of a segment with this seed on."""
    at = 0
    while at < len(data) and (after := decode(data, at, seed, start)):
        at = after
    return 0 < at == len(data)
