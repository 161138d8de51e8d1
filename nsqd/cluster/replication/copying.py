"""Copies of logs, in both directions: the logs that this node leads, to their followers, and its replicas of others.

A frame is about the log that the latest frame LOG in the same direction has named. Before the first one, it is about the log
that its leader publishes into.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import trio

from nsqd.cluster.membership.leader_frames import NO_REPLICA, LogExtent
from nsqd.cluster.replication.leader import LeaderSide
from nsqd.cluster.replication.replicas import Replicas
from nsqd.cluster.replication.stream import unpack_log_id
from nsqd.cluster.wire.frames import OF_LOGS, FrameKind
from nsqd.cluster.wire.link import Link
from nsqd.cluster.wire.part import Part

TO_LEADER = FrameKind.HAVE, FrameKind.COPIED, FrameKind.GAVE_UP
TICK = 1_000_000_000  # ns between two checks of what replicas have not synced

T = TypeVar("T")


class Copying(Part):
    """Both sides of copying on one node."""

    takes = OF_LOGS

    def __init__(self, own: bytes, replicas: Replicas) -> None:
        """`own`: id of the log into which this node publishes."""
        self.own = own
        self.leader_sides: dict[bytes, LeaderSide] = {}  # of the logs that this node leads, by log id
        self.replicas = replicas
        self._ends: dict[bytes, LogExtent] = {}  # the extents of logs that are no longer copied, by log id
        self._tick_due = 0

    def receive(self, link: Link, kind: FrameKind, content: bytes, now: int) -> None:
        if kind is FrameKind.LOG:
            link.log_received = unpack_log_id(kind, content)
        elif kind not in TO_LEADER:
            self.replicas.receive(link, kind, content, now)
        elif (leader_side := self.leader_sides.get(link.log_received or self.own)) is not None:
            leader_side.receive(link, kind, content)

    def add(self, leader_side: LeaderSide) -> None:
        """Begin to copy a log that this node leads."""
        self.leader_sides[leader_side.log_id] = leader_side
        self._ends.pop(leader_side.log_id, None)

    def remove(self, log_id: bytes) -> None:
        """Stop copying a log. Raises KeyError if it is not copied."""
        leader_side = self.leader_sides.pop(log_id)
        self._ends[log_id] = leader_side.extent()
        leader_side.close()

    @property
    def leader_side(self) -> LeaderSide:
        """Return the leader's side of the log into which this node publishes."""
        return self.leader_sides[self.own]

    def extent(self, log_id: bytes) -> LogExtent:
        """Return the extent of a log that this node leads or led. NO_REPLICA if unknown in this run."""
        leader_side = self.leader_sides.get(log_id)
        return leader_side.extent() if leader_side is not None else self._ends.get(log_id, NO_REPLICA)

    def pump(self, now: int) -> None:
        self.replicas.turn(now)
        for leader_side in self.leader_sides.values():
            leader_side.sender.pump()

    def tick(self, now: int) -> None:
        for leader_side in list(self.leader_sides.values()):
            leader_side.tick(now)
        if now >= self._tick_due:
            self._tick_due = now + TICK
            self.replicas.tick(now)

    def closed(self, link: Link) -> None:
        self.replicas.closed(link)


class Threads:
    """Does work in threads. Implements nsqd.cluster.replication.follower.Work."""

    def __init__(self, nursery: trio.Nursery, after: Callable[[], None]) -> None:
        """`after` is called in the reactor's thread whenever something is done."""
        self._nursery = nursery
        self._after = after

    def run(self, work: Callable[[], T], done: Callable[[T | OSError], None]) -> None:
        self._nursery.start_soon(self._run, work, done)

    async def _run(self, work: Callable[[], T], done: Callable[[T | OSError], None]) -> None:
        result: T | OSError
        try:
            result = await trio.to_thread.run_sync(work)
        except OSError as error:
            result = error
        done(result)
        self._after()
