"""At the start of a node: fetch the end of its log from a mirror that has more of it than the node itself.

After a power cut a node may have lost what it had not synced, while its followers have it. In a mode that does not wait for
the node's own disk, clients may have been told that it is kept. So the other nodes are asked before the log goes on: bytes that
follow the log's end, in the same epoch, are appended to it.

See docs/design/cluster.md#the-return-of-a-node.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import IO, Any

import httpx

from nsqd.protocols.peer.node_identity import EPOCH_SIZE
from nsqd.replication.common import common_end
from nsqd.storage.log.disk import Disk
from nsqd.storage.log.files import segment_name
from nsqd.storage.log.reading import LogReading
from nsqd.storage.log.records import HEADER_SIZE
from shared.log import log

CHUNK = 1024 * 1024  # bytes
MOST_NODES = 32  # that are asked
MOST_ANSWER = 16 * 1024 * 1024  # bytes of an answer of /cluster
TRANSFER = 30.0  # s without receiving a byte of a mirror
_PART = re.compile(r"log/(\d{20})\.0\.log(?:@(\d{1,12}))?")


@dataclass(frozen=True, slots=True)
class Offer:
    """A mirror that another node has of this node's log."""

    address: str  # host:port of that node's HTTP clients
    end: int
    epochs: list[tuple[bytes, int]]


class Rejoin:
    """Asks the nodes that were known in the last run. Implements nsqd.storage.log.opening.Extend."""

    def __init__(self, addresses: Iterable[str], timeout: float) -> None:
        """`addresses`: host:port of the HTTP clients of other nodes; `timeout`: s to wait for each."""
        self._addresses = list(dict.fromkeys(filter(None, addresses)))[:MOST_NODES]
        self._timeout = timeout

    def __call__(self, disk: Disk, reading: LogReading) -> bool:
        """Append to the log what a mirror has beyond its end. Returns True if it is longer now. Raises OSError."""
        identity = reading.identity
        if identity is None or not self._addresses:
            return False
        own = [(epoch.pack(), start) for epoch, start in reading.replay.epochs]
        end = reading.log_records.end
        with ThreadPoolExecutor(len(self._addresses)) as pool:
            found = pool.map(lambda address: ask(address, identity.log_id, self._timeout), self._addresses)
            offers = [offer for answers in found for offer in answers]
        longer = [offer for offer in offers if offer.end > end == common_end(own, end, offer.epochs, offer.end)]
        if not longer:
            return False
        best = max(longer, key=lambda offer: offer.end)
        log.warning("CLUSTER: fetching the last %d bytes of this node's log from %s", best.end - end, best.address)
        try:
            fetch_end(disk, best, identity.log_id, end)
        except (httpx.HTTPError, tarfile.TarError) as error:
            log.error("CLUSTER: cannot fetch the end of this node's log from %s: %s", best.address, error)
        return True


def ask(address: str, log_id: bytes, timeout: float) -> list[Offer]:
    """Return the mirror of a log that the node at `address` (host:port) has, or nothing. `timeout` is in s."""
    try:
        with httpx.stream("GET", f"http://{address}/cluster", timeout=timeout) as answer:
            content = b"".join(_bounded(answer.iter_bytes(CHUNK), MOST_ANSWER))
            answer.raise_for_status()
        figures = httpx.Response(200, content=content).json()
        return [_offer(address, mirror) for mirror in figures["mirrors"] if mirror["log_id"] == log_id.hex()]
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError) as error:
        log.info("CLUSTER: %s was asked for a mirror of this node's log: %s", address, error or type(error).__name__)
        return []


def _bounded(chunks: Iterable[bytes], most: int) -> Iterable[bytes]:
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size > most:
            raise ValueError("the answer is too long")
        yield chunk


def _offer(address: str, mirror: dict[str, Any]) -> Offer:
    epochs = [(bytes.fromhex(epoch), int(start)) for epoch, start in mirror["epochs"]]
    if any(len(epoch) != EPOCH_SIZE for epoch, _ in epochs):
        raise ValueError("an epoch is not one")
    return Offer(address, int(mirror["written"]) if mirror["complete"] else 0, epochs)


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
                    raise OSError(f"{offer.address} has sent an unexpected file {entry.name!r}")
                end = _append(disk, int(match[1]), int(match[2] or 0), end, content)
    disk.sync_directory()


def _append(disk: Disk, base: int, offset: int, end: int, content: IO[bytes]) -> int:
    """Write a part behind the log's end, and return the log's new end. Raises OSError."""
    if base + max(0, offset - HEADER_SIZE) != end:
        raise OSError("what the mirror has sent does not follow the end of the log")
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
