"""Replies to visitors: the replicas and logs of this node, and the bytes of its replicas.

See docs/contributing/design/cluster-protocol.md#visits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from nsqd.cluster.replication.follower import Work
from nsqd.cluster.replication.offers import MOST_FETCHED, Fetched, find_offers, pack_fetched, pack_offers, unpack_fetch
from nsqd.cluster.replication.replicas import Replicas
from nsqd.cluster.replication.stream import unpack_log_id
from nsqd.cluster.wire.frames import FrameKind, PeerError
from nsqd.cluster.wire.link import Link
from nsqd.cluster.wire.node_identity import NO_LOG
from nsqd.cluster.wire.part import Part


class Answers(Part):
    """The part that replies. Implements nsqd.cluster.wire.visit.Receiver, too."""

    takes = FrameKind.ASK_OFFERS, FrameKind.FETCH

    def __init__(
        self, replicas: Replicas, figures: Callable[[], dict[str, Any]], lease: Callable[[int], int | None], work: Work
    ) -> None:
        """`figures` returns what /cluster shows of logs and replicas.

        `lease`: that of a node's message ids, 0: none is known, None: not yet.
        """
        self._replicas, self._figures, self._lease, self._work = replicas, figures, lease, work

    def receive(self, link: Link, kind: FrameKind, content: bytes, now: int) -> None:
        if link.is_answering or link.queued or link.unsent > 2 * MOST_FETCHED:
            raise PeerError("a request came before the reply to the last one was read")
        if kind is FrameKind.FETCH:
            link.is_answering = True
            self._work.run(partial(self._read, *unpack_fetch(content)), partial(_send_fetched, link))
        elif kind is FrameKind.ASK_OFFERS:
            link.send(self._offers(link, unpack_log_id(kind, content)))
        else:
            raise PeerError(f"{kind.name} is not a request")

    def _offers(self, link: Link, log_id: bytes) -> bytes:
        assert link.handshake.peer is not None
        lease = self._lease(link.handshake.peer.number)
        return pack_offers(lease, [] if log_id == NO_LOG else find_offers("", self._figures(), log_id))

    def _read(self, log_id: bytes, position: int) -> Fetched | None:
        """Return the bytes of a replica from a position on; None: there is no replica. Raises OSError."""
        kept = self._replicas.kept.get(log_id)
        if kept is None or kept.replica is None or not kept.replica.end:
            return None
        parts = self._replicas.parts(kept, position) if position <= kept.replica.end else []
        if not parts:
            return Fetched("", 0, b"")
        name, _, offset = parts[0].name.partition("@")
        return Fetched(name, int(offset or 0), parts[0].read(0, min(MOST_FETCHED, parts[0].size)))


def _send_fetched(link: Link, fetched: Fetched | OSError | None) -> None:
    link.is_answering = False
    link.send(pack_fetched(None if isinstance(fetched, OSError) else fetched))
