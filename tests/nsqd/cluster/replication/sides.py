"""The surroundings of one side of copying: its connection, the members that it knows, and work that is done step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest

from nsqd.cluster.replication import leader, sending, stream
from nsqd.cluster.replication import replica as replica_module
from nsqd.cluster.replication import replicas as replicas_module
from nsqd.cluster.replication.copying import Copying
from nsqd.cluster.replication.follower import T
from nsqd.cluster.replication.replicas import Replicas
from nsqd.cluster.wire.frames import AFTER_PROOF, FrameKind, FrameReader, PeerError
from nsqd.cluster.wire.link import Link, Listener
from nsqd.cluster.wire.node_identity import Member, NodeIdentity
from nsqd.core.message import ids
from nsqd.storage.log import checkpoint, tidying
from tests.nsqd.core.node import SECOND

_SMALL: tuple[tuple[Any, str, tuple[int, ...]], ...] = (
    (ids, "LEASE", (64,)), (checkpoint, "SLICE", (0, 1000 * SECOND)), (tidying, "SLICE", (0, 1000 * SECOND)),
    (sending, "MOST_LIVE", (500, 5000)), (sending, "MOST_BEHIND", (3000, 20_000)),
    (sending, "CHUNK", (500, 4000)), (sending, "LAST", (100, 1000)),
    (leader, "OUT_OF_SYNC", (1, 5 * SECOND)), (sending, "HOLD", (1, SECOND, 30 * SECOND)),
    (replica_module, "MARK_EVERY", (500, 5000, 1 << 30)), (replicas_module, "RETRY_AFTER", (SECOND,)),
    (replicas_module, "REPORT_AFTER", (100, 1000)), (replicas_module, "QUICK", (0, 1_000_000)),
    (stream, "MOST_BYTES", (100, 700)),
)  # fmt: skip


@contextmanager
def small(random: Random) -> Iterator[None]:
    """Let everything happen that happens at large sizes, in a small log."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name, choices in _SMALL:
            patch.setattr(module, name, random.choice(choices))
        yield


class _Proved:
    """A handshake that is over."""

    is_done = True

    def receive(self, kind: FrameKind, content: bytes) -> bytes:
        raise PeerError(f"{kind.name}: {content.decode()}")


class FrameSink:
    """Passes the frames of a connection to one side of copying. Implements nsqd.cluster.wire.link.Listener."""

    lease = 0
    is_full = False

    def __init__(self, side: Copying | Replicas) -> None:
        self.side = side

    def words(self) -> list[Member]:
        return []

    def proved(self, link: Link, peer: NodeIdentity, now: int) -> None: ...
    def receive_members(self, link: Link, words: list[Member], now: int) -> None: ...
    def note_space(self, link: Link, is_full: bool) -> None: ...
    def note_contact(self, link: Link, lease: int | None, back_by: int | None, now: int) -> None: ...
    def receive(self, link: Link, kind: FrameKind, content: bytes, now: int) -> None:
        self.side.receive(link, kind, content, now)


def proved_link(listener: Listener, peer: NodeIdentity) -> Link:
    """Return one end of a connection after the handshake."""
    link = Link(listener, _Proved(), True, 0, 0, bytearray(), FrameReader(), peer)
    link.reader.limit = AFTER_PROOF
    return link


class SteppedWork:
    """Work that is done, and told to be done, when the test says so. Implements nsqd.cluster.replication.follower.Work."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Callable[[], Any], Callable[[Any], None]]] = []
        self._done: list[Callable[[], None]] = []

    def run(self, work: Callable[[], T], done: Callable[[T | OSError], None]) -> None:
        self._waiting.append((work, done))

    def step(self, random: Random) -> bool:
        """Do one thing, or report one result. Returns False if there is nothing."""
        if self._done and (not self._waiting or random.random() < 0.5):
            self._done.pop(0)()
            return True
        if not self._waiting:
            return False
        work, done = self._waiting.pop(random.randrange(len(self._waiting)))
        try:
            result = work()
        except OSError as error:
            self._done.append(lambda error=error: done(error))
        else:
            self._done.append(lambda: done(result))
        return True


class FakeMembers:
    """The part of a Cluster that a LeaderSide asks."""

    def __init__(self, own: NodeIdentity, *others: NodeIdentity) -> None:
        self.links: dict[int, Link] = {}
        self.own = own
        self.membership = self
        self.members = [own, *others]
        self.full: set[int] = set()
        self.suspected: set[int] = set()

    def is_going(self, number: int) -> bool:
        return False
