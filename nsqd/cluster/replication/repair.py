"""Replace corrupt bytes of a log by those of a replica: when the log is opened, and when a read finds them.

Records have a CRC that is bound to log, segment, epoch and offset, so whatever passes it is what was written there.

See docs/contributing/design/cluster-protocol.md#the-return-of-a-node.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import TypeVar

from nsqd.cluster.replication.asking import NodeReplicas
from nsqd.cluster.replication.offers import Offer, TransferError
from nsqd.core.message.epoch import Epoch
from nsqd.storage.log.disk import Disk, read_from
from nsqd.storage.log.files import SegmentFile, segment_name
from nsqd.storage.log.followers import Followers
from nsqd.storage.log.reader import LogRecords
from nsqd.storage.log.records import HEADER_SIZE, NotASegment, WrongVersion, decode, decode_header, seed_of
from nsqd.storage.log.scan import wrong_ranges
from shared.log import log

WITHIN = 5.0  # s
TRY_AGAIN = 60_000_000_000  # ns after which bytes are looked for again that no replica had
MOST_FAILURES = 1000  # that are remembered
PATIENCE = 600_000_000_000  # ns for which a message that is corrupt here waits for a replica that cannot be reached
T = TypeVar("T")
Ask = Callable[["OfferedReplicas"], T | bool | None]


class LogRepair:
    """Replaces bytes that a read of a log in use found corrupt. Implements ByteRepair; any thread may call it.

    A caller waits for WITHIN at most: later replies serve the next read. While nodes do not reply, no caller waits.
    """

    def __init__(
        self,
        disk: Disk,
        log_id: bytes,
        find: Callable[[], NodeReplicas],
        clock: Callable[[], int],
        epoch_at: Callable[[int], Epoch],
        may_be_more: Callable[[int], bool] = lambda offered: False,
    ) -> None:
        """`find` returns the replicas that can be asked now; `clock`: monotonic ns; `epoch_at`: that of a log position.

        `may_be_more` is given how many nodes have offered a replica, and returns True if another one may have one.
        """
        self._may_be_more = may_be_more
        self._awaited: set[tuple[str, int]] = set()  # bytes that a node may have that could not be asked: file, offset
        self._awaited_since = 0  # when the first of these was asked for, since some bytes were replaced last
        self._disk = disk
        self._log_id = log_id
        self._find = find
        self._clock = clock
        self._epoch_at = epoch_at
        self._failed: dict[tuple[str, int], int] = {}  # when it was tried in vain, by file and offset
        self._late_at = -TRY_AGAIN  # when nodes did not answer in time
        self._thread: threading.Thread | None = None  # the one that asks, also when no caller waits for it any longer
        self._lock = threading.Lock()

    def __call__(self, base: int, file: SegmentFile, start: int, stop: int) -> bool:
        if file.generation:
            return False  # replicas may have such a segment as it was before
        segment = base, file.name, file.seed
        return bool(self._ask((file.name, start), lambda offered: offered.replace_wrong(segment, start, stop)))

    def fetch(self, base: int, file: SegmentFile, start: int) -> tuple[bytes, int] | None:
        if not file.generation:
            return None
        seeds = file.seed, seed_of(self._log_id, base, 0, self._epoch_at(base))
        fetched = self._ask((file.name, start), lambda offered: offered.fetch_records(base, seeds))
        return fetched if isinstance(fetched, tuple) else None

    def _ask(self, place: tuple[str, int], ask: Ask[T]) -> T | bool | None:
        """Return the result of `ask`, unless that takes too long; None: nothing was found, or no node can be asked now."""
        with self._lock:
            now = self._clock()
            if now - self._failed.get(place, -TRY_AGAIN) < TRY_AGAIN:
                return None
            if now - self._late_at < TRY_AGAIN or (self._thread is not None and self._thread.is_alive()):
                self._note(place, None)
                return None
            found: list[T | bool | None] = []
            asking = partial(self._try, place[0], ask, found)
            self._thread = threading.Thread(target=asking, name="repair", daemon=True)
            self._thread.start()
            self._thread.join(WITHIN)
            result = found[0] if found else None
            self._note(place, result)
            if result:
                return result
            if not found:
                log.warning(
                    "CLUSTER: no node sends the corrupt bytes of %s in time: trying again in a minute", place[0]
                )
                self._late_at = self._clock()
            if len(self._failed) >= MOST_FAILURES:
                self._failed.clear()
            self._failed[place] = self._clock()
            return None

    def is_awaited(self, file: SegmentFile, start: int) -> bool:
        return (file.name, start) in self._awaited and self._clock() - self._awaited_since < PATIENCE

    def _note(self, place: tuple[str, int], result: object) -> None:
        """Note whether bytes were found; None: a node that may have them could not be asked."""
        if result is not None:
            self._awaited.discard(place)
        if result or not self._awaited:
            self._awaited_since = self._clock()
        if result is None and len(self._awaited) < MOST_FAILURES:
            self._awaited.add(place)

    def _try(self, name: str, ask: Ask[T], found: list[T | bool | None]) -> None:
        """Add to `found` the result of `ask`: False, if no node has the bytes; None: one that may could not be asked."""
        try:
            replicas = self._find()
            offers = replicas.ask(self._log_id, Followers())
            result = ask(OfferedReplicas(self._disk, self._log_id, replicas, offers))
            may_be_more = self._may_be_more(len({one.address for one in offers}))
            found.append(None if result is False and may_be_more else result)
        except (OSError, ValueError) as error:
            log.error("CLUSTER: cannot replace corrupt bytes of %s: %s", name, error)
            found.append(None)


@dataclass(frozen=True, slots=True)
class OfferedReplicas:
    """The replicas of a log that other nodes offer, and the disk with the log, whose bytes they replace.

    Methods return False if no replica has the bytes, None if a replica that may have them does not send them. What they write
    is durable. They raise OSError.
    """

    disk: Disk
    log_id: bytes
    replicas: NodeReplicas
    offers: Sequence[Offer]

    def _first(self, fetch: Callable[[Offer], T | None], part: str = "corrupt bytes") -> T | bool | None:
        """Return the first result of `fetch`, which may raise TransferError. `part` is for the log."""
        is_failed = False
        for offer in self.offers:
            try:
                found = fetch(offer)
            except TransferError as error:
                log.error("CLUSTER: cannot fetch %s from %s: %s", part, offer.address, error)
                is_failed = True
                continue
            if found is not None:
                return found
        return None if is_failed else False

    def replace_wrong(self, segment: tuple[int, str, int], start: int, stop: int) -> bool | None:
        """Replace the wrong bytes of a segment (base, name, seed) from offset `start` to `stop`, or write it if it is gone."""
        is_there = segment[1] in self.disk.names()
        data = read_from(self.disk, segment[1], start, stop - start) if is_there else b""
        wrong = wrong_ranges(data, start, stop, segment[2])
        replaced = [self.replace(segment, begin, end, is_there) for begin, end in wrong]
        return None if None in replaced else all(replaced)

    def replace(self, segment: tuple[int, str, int], start: int, stop: int, is_there: bool = True) -> bool | None:
        """Replace the bytes of a segment (base, name, seed) from offset `start` to `stop`.

        If the file is not there, the segment is written again up to `stop`; and if the range ends after the end of the segment,
        so are the next ones.
        """
        base, name, seed = segment
        place = base - HEADER_SIZE

        def replace_by(offer: Offer) -> bool | None:
            if place + stop > offer.end:
                return None
            data = self._range(offer, base, start, stop) if is_there else b""
            end = start + len(data) if is_there else HEADER_SIZE
            missing = self._next_segments(offer, place + end, place + stop) if end < stop else []
            if any(wrong_ranges(data, start, start + len(data), seed)) or (end < stop and not missing):
                return None
            if data:
                _overwrite(self.disk, name, start, data, offer)
            if missing:
                _restore_segments(self.disk, missing, offer)
            return True

        return self._first(replace_by)

    def restore(self, first: int, end: int) -> bool | None:
        """Write the segments between two positions again, as a replica has them, rewritten or not."""

        def restore_by(offer: Offer) -> bool | None:
            missing = self._whole_segments(offer, first, end)
            if not missing:
                return None
            names = self.disk.names()  # others were written with a range before
            _restore_segments(self.disk, [one for one in missing if one[0] not in names], offer)
            return True

        return self._first(restore_by, "a missing segment")

    def fetch_records(self, base: int, seeds: Container[int]) -> tuple[bytes, int] | bool | None:
        """Return the records of a segment of a replica that have one of these initial CRC values, and that value."""

        def fetch(offer: Offer) -> tuple[bytes, int] | None:
            for _, data in self._whole_segments(offer, base, base + 1):
                if (seed := decode_header(data).seed) in seeds:
                    return data[HEADER_SIZE:], seed
            return None

        return self._first(fetch)

    # bytes of one replica; each raises TransferError

    def _range(self, offer: Offer, base: int, start: int, stop: int) -> bytes:
        """Return the bytes of a segment from offset `start` to `stop`, as far as the replica has them."""
        data = b""
        for fetched in self.replicas.fetch(offer, self.log_id, base + start - HEADER_SIZE):
            skipped = HEADER_SIZE - fetched.offset if start == HEADER_SIZE and not fetched.offset else 0
            if fetched.base != base or fetched.offset + skipped != start + len(data):
                break  # the replica has that segment otherwise, or no more of it
            data += fetched.data[skipped:]
            if len(data) >= stop - start:
                break
        return data[: stop - start]

    def _next_segments(self, offer: Offer, position: int, stop: int) -> list[tuple[str, bytes]]:
        """Return the segments between two positions, by file name; none if the replica does not have them all."""
        found: list[tuple[str, bytes]] = []
        for segment, data in self._segments(offer, position, stop):
            data = data[: HEADER_SIZE + stop - position]
            end = _end_of(data, self.log_id, segment) if segment == segment_name(position, 0) else 0
            if not end:
                return []
            found.append((segment, data[:end]))
            position += end - HEADER_SIZE
            if position == stop:
                return found
        return []

    def _whole_segments(self, offer: Offer, first: int, end: int) -> list[tuple[str, bytes]]:
        """Return the segments that begin between two positions, by file name; none if one is not intact."""
        found: list[tuple[str, bytes]] = []
        for name, data in self._segments(offer, first, end):
            if _end_of(data, self.log_id, name) != len(data):
                return []
            found.append((name, data))
        return found

    def _segments(self, offer: Offer, first: int, end: int) -> Iterator[tuple[str, bytes]]:
        """Yield the segments that begin between two positions, by file name, as far as the replica has them.

        The first one begins at `first`, unless that is 0: leaders remove old segments.
        """
        for name, parts in groupby(self.replicas.fetch(offer, self.log_id, first), lambda fetched: fetched.segment):
            base = int(name.split(".")[0])
            if base >= end or (first and base != first):
                return
            first = 0
            yield name, b"".join(fetched.data for fetched in parts)


def replace_damage(
    disk: Disk, records: LogRecords, replicas: NodeReplicas, common: Mapping[Offer, int]
) -> tuple[int, int]:
    """Replace, durably, the bytes that the reading of a log has found corrupt. Raises OSError.

    Returns how many ranges were replaced, and how many are left that a replica may have. `common`: the position up to which
    each replica holds the same as the log.
    """
    replaced = left = 0
    identity, seeds = records.files.identity, {segment.name: segment.header.seed for segment in records.segments}
    assert identity is not None
    for name, start, stop in records.damage.spots:
        base, generation = map(int, name.split(".")[:2])
        if generation:
            continue  # replicas have such a segment as it was before
        end = base + stop - HEADER_SIZE
        offers = [offer for offer, common_end in common.items() if end <= common_end]
        offered = OfferedReplicas(disk, identity.log_id, replicas, offers)
        done = offered.replace((base, name, seeds[name]), start, stop) if name in seeds else offered.restore(base, end)
        replaced, left = replaced + bool(done), left + (not done)
    return replaced, left


def _overwrite(disk: Disk, name: str, start: int, data: bytes, offer: Offer) -> None:
    """Replace bytes of a segment, durably. Raises OSError."""
    with closing(disk.open(name)) as file:
        file.append([data], start)
        file.sync()
    log.warning(
        "CLUSTER: %d corrupt bytes of %s from %d on are replaced by those of %s", len(data), name, start, offer.address
    )


def _restore_segments(disk: Disk, missing: list[tuple[str, bytes]], offer: Offer) -> None:
    """Write segments that are missing, by file name, durably. Raises OSError."""
    for name, data in missing:
        with closing(disk.create(name)) as file:
            file.append([data], 0)
            file.sync()
        log.warning("CLUSTER: the segment %s was missing, and is that of %s", name, offer.address)
    disk.sync_directory()


def _end_of(data: bytes, log_id: bytes, name: str) -> int:
    """Return the offset at which the records of a segment end; 0 if it is not that of the log with this name, or has none."""
    try:
        header = decode_header(data)
    except (NotASegment, WrongVersion):
        return 0
    if (header.log_id, segment_name(header.base, header.generation)) != (log_id, name):
        return 0
    end = HEADER_SIZE
    while after := decode(data, end, header.seed):
        end = after
    return end if end > HEADER_SIZE else 0
