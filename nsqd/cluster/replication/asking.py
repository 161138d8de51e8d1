"""Ask other nodes, on visits, which replicas they have of a log, and fetch them. It blocks its thread.

See docs/contributing/design/cluster-protocol.md#visits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import TypeVar

from nsqd.cluster.replication.offers import (
    Fetched,
    Offer,
    TransferError,
    following,
    is_enough,
    pack_ask,
    pack_fetch,
    unpack_fetched,
    unpack_offers,
)
from nsqd.cluster.wire.frames import FrameKind, PeerError
from nsqd.cluster.wire.node_identity import NO_LOG
from nsqd.cluster.wire.visit import Visits
from nsqd.storage.log.followers import Followers
from shared.log import log

ASK_EVERY = 0.1  # s between two requests to nodes that do not reply
LEAST_PATIENCE = 0.2  # s for an answer
MOST_NODES = 32  # that are asked
TRANSFER = 30.0  # s without receiving a byte of a replica
T = TypeVar("T")


class NodeReplicas:
    """The replicas that other nodes keep of a log, as these nodes report them."""

    def __init__(self, visits: Visits, addresses: Mapping[int, str], timeout: float) -> None:
        """`addresses`: host:port of the -cluster-address of other nodes, by node number.

        `timeout`: s to wait for those whose copies count, as far as they are needed.
        """
        self._visits, self._addresses = visits, dict(islice(addresses.items(), MOST_NODES))
        self._timeout = timeout
        self.is_incomplete = False  # a node has not answered the last request: it may have a replica, too

    def ask(self, log_id: bytes, followers: Followers) -> list[Offer]:
        """Return the replicas of a log that other nodes offer. `followers`: the in-sync ones, as the log states them.

        Nodes that do not answer are asked again until as many have answered as are needed, or the time is over.
        """
        answers = self._ask_all(lambda *at: self._answer(log_id, *at)[1], partial(is_enough, followers))
        return [offer for answer in answers for offer in answer]

    def leases(self) -> list[int]:
        """Return the lease of this node's message ids as each other node knows it; 0: it knows none."""
        return self._ask_all(lambda *at: self._answer(NO_LOG, *at)[0], lambda answered: False)

    def _answer(self, log_id: bytes, address: str, timeout: float) -> tuple[int | None, list[Offer] | None]:
        try:
            with self._visits.dial(address, timeout) as visit:
                return unpack_offers(address, visit.ask(pack_ask(log_id), FrameKind.OFFERS))
        except (OSError, PeerError, UnicodeError):
            return None, None

    def _ask_all(
        self, ask_one: Callable[[str, float], T | None], is_over: Callable[[Collection[int]], bool]
    ) -> list[T]:
        """Return the replies of other nodes. Nodes without one (None) are asked again until the time is over.

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
        self.is_incomplete = bool(waiting)
        for address in waiting.values():
            log.info("CLUSTER: %s does not answer what it has of this node's log", address)
        return found

    def fetch(self, offer: Offer, log_id: bytes, start: int) -> Iterator[Fetched]:
        """Yield the bytes of a replica from the position `start` on. Raises TransferError."""
        position = start
        try:
            with self._visits.dial(offer.address, TRANSFER) as visit:
                while True:
                    fetched = unpack_fetched(visit.ask(pack_fetch(log_id, position), FrameKind.FETCHED))
                    if fetched is None:
                        raise TransferError("it has no replica that can be read")
                    if not fetched.data:
                        return
                    yield fetched
                    before, position = position, following(fetched)
                    if position <= before:
                        return  # a segment without records
        except (OSError, PeerError, UnicodeError) as error:
            raise TransferError(str(error)) from None
