"""Ask other nodes over HTTP which replicas they have of this node's log, and fetch them."""

from __future__ import annotations

import tarfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import IO, Any, Protocol, TypeVar

import httpx

from nsqd.cluster.replication.node_http import get
from nsqd.cluster.wire.node_identity import EPOCH_SIZE, MOST_NUMBER
from nsqd.core.message.ids import MOST_LEASE
from nsqd.storage.log.followers import Followers
from shared.chunks import ChunkReader
from shared.http.bounded import AnswerError, read_whole
from shared.log import log

CHUNK = 1024 * 1024  # bytes
ASK_EVERY = 0.1  # s between two questions to nodes that do not answer
LEAST_PATIENCE = 0.2  # s for an answer
MOST_NODES = 32  # that are asked
MOST_LED = 10_000  # logs that a node says it leads
MOST_POSITION = (1 << 63) - 1  # in a log
MOST_ANSWER = 16 * 1024 * 1024  # bytes of an answer of /cluster
TRANSFER = 30.0  # s without receiving a byte of a replica

# what else an answer may raise that is not as it should be
_DAMAGED = (AnswerError, AttributeError, OverflowError, RecursionError)
T = TypeVar("T")
Part = tuple[str, IO[bytes]]  # name in the archive, log/SEGMENT or log/SEGMENT@OFFSET, and content


class TransferError(Exception):
    """A replica cannot be fetched. The text says why."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What another node has of a log: a replica, or the log itself, because it has taken it over."""

    address: str  # host:port of that node's HTTP clients
    end: int
    epochs: tuple[tuple[bytes, int], ...]
    lease: int = 0  # message id below which that node was told that this one may have issued ids
    leader: int | None = None  # number of that node, if it says that it leads the log; None: it has a replica


class OtherReplicas(Protocol):
    """The replicas that other nodes have."""

    def leases(self, node: int) -> list[int]:
        """Return the lease of the message ids of a node as each other node knows it; 0: it knows none."""

    def ask(self, log_id: bytes, followers: Followers) -> list[Offer]:
        """Return the replicas of a log that other nodes offer; `followers`: those that count, as the log states it."""

    @property
    def is_anybody_silent(self) -> bool:
        """Return True if a node has not answered what was asked last: it may have a replica, too."""

    def fetch(self, offer: Offer, log_id: bytes, start: int) -> AbstractContextManager[Iterator[Part]]:
        """Return the parts of a replica from the position `start` on. Raises TransferError, also while they are read."""


class HttpReplicas:
    """The replicas that other nodes serve over HTTP. Implements OtherReplicas."""

    def __init__(self, addresses: Mapping[int, str], timeout: float) -> None:
        """`addresses`: host:port of the HTTP clients of other nodes, by node number, "": not known.

        `timeout`: s to wait for those whose copies count, as far as they are needed.
        """
        self._addresses = dict(islice(((number, one) for number, one in addresses.items() if one), MOST_NODES))
        self._timeout = timeout
        self.is_anybody_silent = False

    def ask(self, log_id: bytes, followers: Followers) -> list[Offer]:
        """Return the replicas of a log that other nodes offer.

        Those that do not answer are asked again until as many have answered as are needed, or the time is over.
        """
        answers = self._ask_all(partial(ask, log_id), partial(is_enough, followers))
        return [offer for answer in answers for offer in answer]

    def leases(self, node: int) -> list[int]:
        """Return the lease of the message ids of a node as each other node knows it; 0: it knows none."""
        return self._ask_all(partial(ask_lease, node), lambda heard: False)

    def _ask_all(
        self, ask_one: Callable[[str, float], T | None], is_over: Callable[[Collection[int]], bool]
    ) -> list[T]:
        """Return what other nodes answer. Those that do not answer (None) are asked again until the time is over.

        `is_over` is given the numbers of those that have answered, and may end it earlier.
        """
        deadline = time.monotonic() + self._timeout
        found: list[T] = []
        waiting = dict(self._addresses)
        while waiting:
            left = max(LEAST_PATIENCE, deadline - time.monotonic())
            with ThreadPoolExecutor(len(waiting)) as pool:
                answers = list(pool.map(lambda address, left=left: ask_one(address, left), waiting.values()))
            found += [answer for answer in answers if answer is not None]
            waiting = {one: waiting[one] for one, answer in zip(waiting, answers, strict=True) if answer is None}
            if not waiting or is_over(self._addresses.keys() - waiting.keys()) or time.monotonic() > deadline:
                break
            time.sleep(ASK_EVERY)
        self.is_anybody_silent = bool(waiting)
        for address in waiting.values():
            log.info("CLUSTER: %s does not say what it knows of this node's log", address)
        return found

    @contextmanager
    def fetch(self, offer: Offer, log_id: bytes, start: int) -> Iterator[Iterator[Part]]:
        """Return the parts of a replica from the position `start` on. Raises TransferError, also while they are read."""
        target = f"/cluster/replica?log={log_id.hex()}&from={start}"
        try:
            with get(offer.address, target, TRANSFER) as answer:
                answer.raise_for_status()
                stream: Any = ChunkReader(answer.iter_raw(CHUNK))
                with tarfile.open(fileobj=stream, mode="r|") as archive:
                    yield _parts(archive)
        except (httpx.HTTPError, httpx.InvalidURL, tarfile.TarError) as error:
            raise TransferError(str(error)) from None


def is_enough(followers: Followers, heard: Collection[int]) -> bool:
    """Return True if one of those that have answered holds whatever clients were told that n nodes have, for every n in use.

    `heard`: numbers of the nodes that have answered. Of k followers, n - 1 have such a publish, so k - n + 2 answers contain
    one of them.
    """
    return len(set(followers.numbers) & set(heard)) >= len(followers.numbers) - max(0, followers.fewest - 2)


def ask(log_id: bytes, address: str, timeout: float) -> list[Offer] | None:
    """Return the replica of a log that the node at `address` (host:port) has, or nothing; None: it does not say now.

    `timeout` is in s.
    """
    try:
        return find_offers(address, _figures(address, timeout), log_id)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError, *_DAMAGED):
        return None


def ask_lease(node: int, address: str, timeout: float) -> int | None:
    """Return the lease of a node's message ids that the node at `address` (host:port) knows, 0: none; None: it does not say.

    `timeout` is in s.
    """
    try:
        return _lease(_figures(address, timeout)["nodes"], node)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError, *_DAMAGED):
        return None


def _figures(address: str, timeout: float) -> Any:
    """Return what a node answers to /cluster. Raises httpx.HTTPError, httpx.InvalidURL, ValueError, AnswerError."""
    with get(address, "/cluster", timeout) as answer:
        content = read_whole(answer.iter_bytes(CHUNK), MOST_ANSWER)
        answer.raise_for_status()
    return httpx.Response(200, content=content).json()


def find_offers(address: str, figures: Any, log_id: bytes) -> list[Offer] | None:
    """Return the replica of a log in what /cluster of a node answers, and the log itself if that node leads it.

    Of a log that is closed, the node tells how its leader had it.

    None: neither can be read now. Raises ValueError, KeyError, TypeError.
    """
    replicas = [replica for replica in figures["replicas"] if replica["log_id"] == log_id.hex()]
    if any(replica.get("opening") or replica["failure"] for replica in replicas):
        return None
    nodes = figures.get("nodes", ())  # none while that node starts
    led = [*_led(figures.get("led", ()), log_id), *_led(figures.get("closed", ()), log_id)]
    if any(one["opening"] for one in led):
        return None
    return [
        *(_offer(address, replica, _lease(nodes, replica["node"])) for replica in replicas),
        *(_offer(address, one, 0, one["node"]) for one in led),
    ]


def _led(entries: Any, log_id: bytes) -> Iterator[dict[str, Any]]:
    """Yield what a node says of a log that it leads. Raises ValueError, KeyError, TypeError."""
    if len(entries) > MOST_LED:
        raise ValueError("too many logs")
    for entry in entries:
        if entry["log_id"] != log_id.hex() or entry.get("state") in ("lost", "closed"):
            continue
        if entry.get("opening"):
            yield {"opening": True}
        else:
            if type(entry["node"]) is not int or not 0 <= entry["node"] <= MOST_NUMBER or not entry["epochs"]:
                raise ValueError("a leader is not one")
            yield entry | {"opening": False, "complete": True, "written": entry["end"]}


def _lease(nodes: Any, number: int) -> int:
    """Return what a node was told of the lease of another one; 0: nothing. Raises ValueError, KeyError, TypeError."""
    leases = [node["lease"] for node in nodes if node["node"] == number]
    return max([lease for lease in leases if type(lease) is int and 0 <= lease <= MOST_LEASE], default=0)


def _offer(address: str, replica: dict[str, Any], lease: int, leader: int | None = None) -> Offer:
    epochs = tuple((bytes.fromhex(epoch), int(start)) for epoch, start in replica["epochs"])
    starts, end = [start for _, start in epochs], int(replica["written"])
    if any(len(epoch) != EPOCH_SIZE for epoch, _ in epochs):
        raise ValueError("an epoch is not one")
    if starts != sorted(starts) or any(not 0 <= at <= MOST_POSITION for at in (end, *starts)):
        raise ValueError("a position is not one")
    return Offer(address, end if replica["complete"] else 0, epochs, lease, leader)


def _parts(archive: tarfile.TarFile) -> Iterator[Part]:
    for entry in archive:
        content = archive.extractfile(entry)
        if content is None:
            raise tarfile.TarError(f"unexpected: {entry.name!r}")
        yield entry.name, content
