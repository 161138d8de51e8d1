"""Ask other nodes over HTTP which mirrors they have of this node's log, and fetch them."""

from __future__ import annotations

import tarfile
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import IO, Any

import httpx

from nsqd.protocols.peer.node_identity import EPOCH_SIZE
from nsqd.storage.log.followers import Followers
from shared.chunks import ChunkReader
from shared.log import log

CHUNK = 1024 * 1024  # bytes
ASK_EVERY = 0.1  # s between two questions to nodes that do not answer
LEAST_PATIENCE = 0.2  # s for an answer
MOST_NODES = 32  # that are asked
MOST_ANSWER = 16 * 1024 * 1024  # bytes of an answer of /cluster
TRANSFER = 30.0  # s without receiving a byte of a mirror

Part = tuple[str, IO[bytes]]  # name in the archive, log/SEGMENT or log/SEGMENT@OFFSET, and content


class TransferError(Exception):
    """A mirror cannot be fetched. The text says why."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A mirror that another node has of this node's log."""

    address: str  # host:port of that node's HTTP clients
    end: int
    epochs: tuple[tuple[bytes, int], ...]


class HttpMirrors:
    """The mirrors that other nodes serve over HTTP. Implements nsqd.replication.rejoin.OtherMirrors."""

    def __init__(self, addresses: Mapping[int, str], timeout: float) -> None:
        """`addresses`: host:port of the HTTP clients of other nodes, by node number, "": not known.

        `timeout`: s to wait for those whose copies count, as far as they are needed.
        """
        self._addresses = dict(islice(((number, one) for number, one in addresses.items() if one), MOST_NODES))
        self._timeout = timeout

    def ask(self, log_id: bytes, followers: Followers) -> list[Offer]:
        """Return the mirrors that other nodes offer.

        Those that do not answer are asked again until as many have answered as are needed, or the time is over.
        """
        if not self._addresses:
            return []
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

    @contextmanager
    def fetch(self, offer: Offer, log_id: bytes, start: int) -> Iterator[Iterator[Part]]:
        """Return the parts of a mirror from the position `start` on. Raises TransferError, also while they are read."""
        url = f"http://{offer.address}/cluster/mirror?log={log_id.hex()}&from={start}"
        try:
            with httpx.stream("GET", url, timeout=TRANSFER) as answer:
                answer.raise_for_status()
                stream: Any = ChunkReader(answer.iter_raw(CHUNK))
                with tarfile.open(fileobj=stream, mode="r|") as archive:
                    yield _parts(archive)
        except (httpx.HTTPError, tarfile.TarError) as error:
            raise TransferError(str(error)) from None


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


def _parts(archive: tarfile.TarFile) -> Iterator[Part]:
    for entry in archive:
        content = archive.extractfile(entry)
        if content is None:
            raise tarfile.TarError(f"unexpected: {entry.name!r}")
        yield entry.name, content
