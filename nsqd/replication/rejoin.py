"""At the start of a node: fetch from mirrors what its log has lost: its end, and bytes that are damaged.

After a power cut a node may have lost what it had not synced, while its followers have it. In a mode that does not wait for
the node's own disk, clients may have been told that it is kept. So the other nodes are asked before the log goes on: bytes that
follow the log's end, in the same epoch, are appended to it.

See docs/design/cluster.md#the-return-of-a-node.
"""

from __future__ import annotations

import re
import tarfile
import time
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import IO, Any

import httpx

from nsqd.protocols.peer.node_identity import EPOCH_SIZE
from nsqd.replication.common import common_end
from nsqd.storage.log.disk import Disk
from nsqd.storage.log.files import segment_name
from nsqd.storage.log.followers import Followers
from nsqd.storage.log.reader import LogRecords
from nsqd.storage.log.reading import LogReading
from nsqd.storage.log.records import HEADER_SIZE, SegmentHeader, decode
from shared.log import log

CHUNK = 1024 * 1024  # bytes
ASK_EVERY = 0.1  # s between two questions to nodes that do not answer
LEAST_PATIENCE = 0.2  # s for an answer
MOST_NODES = 32  # that are asked
MOST_ANSWER = 16 * 1024 * 1024  # bytes of an answer of /cluster
TRANSFER = 30.0  # s without receiving a byte of a mirror
_PART = re.compile(r"log/(\d{20})\.0\.log(?:@(\d{1,12}))?")


@dataclass(frozen=True, slots=True)
class Offer:
    """A mirror that another node has of this node's log."""

    address: str  # host:port of that node's HTTP clients
    end: int
    epochs: tuple[tuple[bytes, int], ...]


class Rejoin:
    """Asks the nodes that were known in the last run. Implements nsqd.storage.log.opening.Extend."""

    def __init__(self, addresses: Mapping[int, str], timeout: float) -> None:
        """`addresses`: host:port of the HTTP clients of other nodes, by node number, "": not known.

        `timeout`: s to wait for those whose copies count, as far as they are needed.
        """
        self._addresses = dict(islice(((number, one) for number, one in addresses.items() if one), MOST_NODES))
        self._timeout = timeout

    def __call__(self, disk: Disk, reading: LogReading) -> bool:
        """Replace damaged bytes by those of a mirror, and append what a mirror has beyond the log's end.

        Returns True if the log may have changed. Raises OSError.
        """
        identity = reading.identity
        if identity is None or not self._addresses:
            return False
        own = [(epoch.pack(), start) for epoch, start in reading.replay.epochs]
        end = reading.log_records.end
        offers = self._ask_all(identity.log_id, reading.replay.followers)
        common = {offer: common_end(own, end, offer.epochs, offer.end) for offer in offers}
        mended = [self._is_mended(disk, reading.log_records, spot, common) for spot in reading.log_records.damage.spots]
        longer = [offer for offer in offers if offer.end > end == common[offer]]
        for offer in sorted(longer, key=lambda offer: offer.end, reverse=True):
            log.warning(
                "CLUSTER: fetching the last %d bytes of this node's log from %s", offer.end - end, offer.address
            )
            try:
                fetch_end(disk, offer, identity.log_id, end)
                break
            except (httpx.HTTPError, tarfile.TarError) as error:
                log.error("CLUSTER: cannot fetch the end of this node's log from %s: %s", offer.address, error)
        return bool(longer) or any(mended)

    def _is_mended(self, disk: Disk, records: LogRecords, spot: tuple[str, int, int], common: dict[Offer, int]) -> bool:
        """Replace a damaged range of a segment, if a mirror has its bytes. Returns False if none has. Raises OSError.

        `common`: the position up to which each mirror holds the same as the log. A mirror has a segment that was rewritten here
        as it was before.
        """
        name, start, stop = spot
        header = next(segment.header for segment in records.segments if segment.name == name)
        for offer, end in common.items():
            if header.generation or header.base + stop - HEADER_SIZE > end:
                continue
            try:
                data = fetch_range(offer, header, start, stop)
            except (httpx.HTTPError, tarfile.TarError) as error:
                log.error("CLUSTER: cannot fetch damaged bytes from %s: %s", offer.address, error)
                continue
            if _is_right(data, start, header.seed):
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

    def _ask_all(self, log_id: bytes, followers: Followers) -> list[Offer]:
        """Return the mirrors that other nodes offer.

        Those that do not answer are asked again until as many have answered as are needed, or the time is over.
        """
        deadline = time.monotonic() + self._timeout
        offers: list[Offer] = []
        waiting = dict(self._addresses)
        with ThreadPoolExecutor(len(waiting)) as pool:
            while waiting:
                left = max(LEAST_PATIENCE, deadline - time.monotonic())
                answers = list(pool.map(lambda address, left=left: ask(address, log_id, left), waiting.values()))
                offers += [offer for answer in answers for offer in answer or ()]
                waiting = {one: waiting[one] for one, answer in zip(waiting, answers, strict=True) if answer is None}
                if not waiting or is_enough(followers, waiting) or time.monotonic() > deadline:
                    break
                time.sleep(ASK_EVERY)
        for address in waiting.values():
            log.info("CLUSTER: %s does not say whether it has a mirror of this node's log", address)
        return offers


def is_enough(followers: Followers, silent: Collection[int]) -> bool:
    """Return True if one of those that have answered holds whatever clients were told that n nodes have, for every n in use.

    `silent`: numbers of the nodes that have not answered. Of k followers, n - 1 have such a publish, so k - n + 2 answers
    contain one of them.
    """
    heard = len(set(followers.numbers) - set(silent))
    return heard >= len(followers.numbers) - max(0, followers.fewest - 2)


def ask(address: str, log_id: bytes, timeout: float) -> list[Offer] | None:
    """Return the mirror of a log that the node at `address` (host:port) has, or nothing; None: it does not say.

    `timeout` is in s.
    """
    try:
        with httpx.stream("GET", f"http://{address}/cluster", timeout=timeout) as answer:
            content = b"".join(_bounded(answer.iter_bytes(CHUNK), MOST_ANSWER))
            answer.raise_for_status()
        figures = httpx.Response(200, content=content).json()
        return [_offer(address, mirror) for mirror in figures["mirrors"] if mirror["log_id"] == log_id.hex()]
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError):
        return None


def _bounded(chunks: Iterable[bytes], most: int) -> Iterable[bytes]:
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size > most:
            raise ValueError("the answer is too long")
        yield chunk


def _offer(address: str, mirror: dict[str, Any]) -> Offer:
    epochs = tuple((bytes.fromhex(epoch), int(start)) for epoch, start in mirror["epochs"])
    if any(len(epoch) != EPOCH_SIZE for epoch, _ in epochs):
        raise ValueError("an epoch is not one")
    return Offer(address, int(mirror["written"]) if mirror["complete"] else 0, epochs)


def fetch_range(offer: Offer, header: SegmentHeader, start: int, stop: int) -> bytes:
    """Return the bytes of a segment from offset `start` to `stop` of a mirror. Raises httpx.HTTPError, tarfile.TarError."""
    position = header.base + start - HEADER_SIZE
    url = f"http://{offer.address}/cluster/mirror?log={header.log_id.hex()}&from={position}"
    with httpx.stream("GET", url, timeout=TRANSFER) as answer:
        answer.raise_for_status()
        stream: Any = _Readable(answer.iter_raw(CHUNK))
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            entry = archive.next()
            match = _PART.fullmatch(entry.name) if entry is not None else None
            content = archive.extractfile(entry) if entry is not None and match is not None else None
            if match is None or content is None or (int(match[1]), int(match[2] or 0)) != (header.base, start):
                return b""  # the mirror has that segment otherwise
            return content.read(stop - start)


def _is_right(data: bytes, start: int, seed: int) -> bool:
    """Return True if the bytes are records that may stand from offset `start` of a segment with this seed on."""
    at = 0
    while at < len(data) and (after := decode(data, at, seed, start)):
        at = after
    return 0 < at == len(data)


def fetch_end(disk: Disk, offer: Offer, log_id: bytes, end: int) -> None:
    """Append to the log what a mirror has beyond `end`, durably. Raises OSError, httpx.HTTPError, tarfile.TarError."""
    url = f"http://{offer.address}/cluster/mirror?log={log_id.hex()}&from={end}"
    with httpx.stream("GET", url, timeout=TRANSFER) as answer:
        answer.raise_for_status()
        stream: Any = _Readable(answer.iter_raw(CHUNK))
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            for entry in archive:
                content = archive.extractfile(entry)
                match = _PART.fullmatch(entry.name)
                if match is None or content is None:
                    raise tarfile.TarError(f"{offer.address} has sent an unexpected file {entry.name!r}")
                end = _append(disk, int(match[1]), int(match[2] or 0), end, content)
    disk.sync_directory()


def _append(disk: Disk, base: int, offset: int, end: int, content: IO[bytes]) -> int:
    """Write a part behind the log's end, and return the log's new end. Raises OSError."""
    if base + max(0, offset - HEADER_SIZE) != end:
        raise tarfile.TarError("what the mirror has sent does not follow the end of the log")
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


class _Readable:
    """The file object that tarfile reads from: the chunks of an HTTP response."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._held = b""

    def read(self, size: int) -> bytes:
        """Return the next `size` bytes, or fewer at the end."""
        while len(self._held) < size and (chunk := next(self._chunks, b"")):
            self._held += chunk
        part, self._held = self._held[:size], self._held[size:]
        return part
