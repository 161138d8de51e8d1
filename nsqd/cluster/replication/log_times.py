"""The times of logs: the leader of a log sends its followers the log's own time, and each stores it with its own clocks.

Due times are in the log's time. The node that promotes the log continues from the stored time, by its own clocks. With the
log's last anchor, which has the clocks of another machine, a difference between two wall clocks would move every delay.

See docs/contributing/design/log.md#clocks.
"""

from __future__ import annotations

from functools import partial
from struct import Struct

from nsqd.cluster.membership.cluster import Cluster
from nsqd.cluster.replication.copying import Copying
from nsqd.cluster.replication.follower import Work
from nsqd.cluster.wire.fields import checked_int, unpack_struct
from nsqd.cluster.wire.frames import FrameKind, encode
from nsqd.cluster.wire.link import Link
from nsqd.cluster.wire.part import Part
from nsqd.storage.log.clocks import Anchor, Clocks, note_of, write_note
from shared.log import log

SEND_EVERY = 5_000_000_000  # ns
WRITE_EVERY = 60_000_000_000  # ns: a follower that is killed has what it noted by then
MOST_NOTES = 1000
MOST_TIME = (1 << 63) - 1
_TIME = Struct(">16sQ")


class LogTimes(Part):
    """The times of logs on one node. All methods but `noted` are for the reactor's thread."""

    takes = (FrameKind.TIME,)

    def __init__(self, cluster: Cluster, copying: Copying, clocks: Clocks, work: Work) -> None:
        self._notes: dict[bytes, Anchor] = {}  # by log id, at most MOST_NOTES
        self._cluster, self._copying, self._clocks, self._work = cluster, copying, clocks, work
        self._sent: dict[tuple[bytes, int], tuple[Link, int]] = {}  # by log and node: over which connection, and when
        self._write_due = 0

    def receive(self, link: Link, kind: FrameKind, content: bytes, now: int) -> None:
        log_id, steady = unpack_struct(kind, _TIME, content)
        checked_int(steady, MOST_TIME)
        if log_id not in self._copying.replicas.kept or not self._cluster.may_write_replica(link.node.number, log_id):
            return
        self._notes.pop(log_id, None)
        if len(self._notes) >= MOST_NOTES:
            del self._notes[next(iter(self._notes))]
        self._notes[log_id] = note_of(self._clocks, steady)

    def noted(self, log_id: bytes) -> Anchor | None:
        """Return the time of a log that was stored in this run, or None. Any thread may call this."""
        return self._notes.get(log_id)

    def tick(self, now: int) -> None:
        """Send and write the times that are due. Call it several times a second; `now` in monotonic ns."""
        leader_sides = self._copying.leader_sides
        for log_id, leader_side in leader_sides.items():
            for follower in leader_side.followers.values():
                known, at = self._sent.get((log_id, follower.number), (None, 0))
                if follower.has_replica and (known is not follower.link or now - at >= SEND_EVERY):
                    self._sent[log_id, follower.number] = follower.link, now
                    follower.link.send_first(encode(FrameKind.TIME, _TIME.pack(log_id, leader_side.source.time())))
        self._sent = {key: at for key, at in self._sent.items() if key[0] in leader_sides}
        if now >= self._write_due:
            self._write_due = now + WRITE_EVERY
            for kept in self._copying.replicas.kept.values():
                note = self._notes.get(kept.log_id)
                if note is not None and kept.disk is not None and not kept.failure:
                    self._work.run(partial(write_note, kept.disk, note), _written)


def _written(result: OSError | None) -> None:
    if result is not None:  # the replica was removed meanwhile, or its disk fails, which its own syncs report
        log.debug("REPLICA: cannot note the time of a log: %s", result)
