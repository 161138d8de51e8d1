"""A follower as the leader of a log sees it, and which nodes become followers. `Work` runs what takes time.

See docs/contributing/design/cluster-protocol.md#replicas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from hashlib import sha256
from typing import Protocol, TypeVar

from nsqd.cluster.replication import stream
from nsqd.cluster.wire.link import Link
from nsqd.storage.log.files import SegmentFile

T = TypeVar("T")


class Work(Protocol):
    """Where work is done that takes time."""

    def run(self, work: Callable[[], T], done: Callable[[T | OSError], None]) -> None:
        """Do `work`, perhaps in another thread, and later call `done`, in the reactor's thread, with its result or error."""


class AtOnce:
    """Does work when it is asked for. Implements Work."""

    def run(self, work: Callable[[], T], done: Callable[[T | OSError], None]) -> None:
        """Do `work` in this call, and give its result or its OSError to `done` before this returns."""
        result: T | OSError
        try:
            result = work()
        except OSError as error:
            result = error
        done(result)


class Phase(Enum):
    """How a follower gets the log."""

    ASKED = "asked"  # not at all: it has not said yet what it has
    RESYNCING = "resyncing"  # from the files, in a full resync: it writes the bytes apart, until SWITCH
    CATCHING_UP = "catching up"  # from the files
    LIVE = "live"  # it has everything, and gets each group when it is written


@dataclass(slots=True)
class Follower:
    """The state of one follower at the leader, over one connection."""

    number: int
    link: Link
    base: int = 0  # segment of the next byte that is read for it
    at: int = 0  # offset in that segment's file; 0: the segment's header comes next
    file: SegmentFile | None = None  # which was begun there
    asked: int = 0  # how often it was asked what it has
    phase: Phase = Phase.ASKED
    is_reading: bool = False  # bytes are being read for it
    is_caught_up: bool = False  # it has had everything since it was asked; it may lag since
    has_replica: bool = False  # what it says that it has counts
    written: int = 0  # position up to which it has written the log
    durable: int = 0
    ask_at: int = 0  # when it is asked once more what it has, monotonic ns; 0: not at all
    failure: str = ""  # why it cannot continue at present
    kept: list[int] = field(default_factory=list)  # the segments that it was last told to keep

    @property
    def is_live(self) -> bool:
        return self.phase is Phase.LIVE

    @property
    def is_resyncing(self) -> bool:
        return self.phase is Phase.RESYNCING

    @property
    def reads_files(self) -> bool:
        """Return True while the next bytes for it are those of the files."""
        return self.phase in (Phase.RESYNCING, Phase.CATCHING_UP)


class Batch:
    """Bytes of one segment that were written and not sent yet to the followers that keep up."""

    def __init__(self) -> None:
        self.segment = 0  # its base
        self.at = 0  # offset in its file at which the bytes begin
        self.size = 0
        self._buffers: list[bytes] = []

    def add(self, segment: int, at: int, buffers: list[bytes], size: int) -> None:
        """Add bytes that follow the others."""
        if not self.size:
            self.segment, self.at = segment, at
        self._buffers += buffers
        self.size += size

    def drain(self) -> list[bytes]:
        """Return the frames with the bytes, and forget them."""
        frames = stream.pack_bytes(self.segment, self.at, self._buffers, self.size)
        self._buffers, self.size = [], 0
        return frames


@dataclass(frozen=True, slots=True)
class KnownNode:
    """A node that may become a follower."""

    number: int  # of the node
    is_here: bool = True  # it has a connection, or had one lately
    has_room: bool = True  # there is space for another replica, or it has this log's already
    is_apart: bool = True  # it is in another zone than the leader, or no zone is known


def chosen(log_id: bytes, nodes: Iterable[KnownNode], count: int) -> list[int]:
    """Return the numbers of the `count` nodes to place a replica on, best first.

    Nodes that are here come first, of these those with room, then those in other zones. A hash of log and node decides the
    rest, so the logs of many nodes are spread.
    """

    def rank(one: KnownNode) -> tuple[bool, bool, bool, bytes]:
        order = sha256(log_id + one.number.to_bytes(2)).digest()
        return not one.is_here, not one.has_room, not one.is_apart, order

    return [one.number for one in sorted(nodes, key=rank)[:count]]
