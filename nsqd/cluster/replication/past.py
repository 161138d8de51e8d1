"""Read topics back from a replica, with or without a leader of its log: a read-only view of what was durable at one moment.

The replica is replayed as its promotion would replay it. Only data that can be read back is kept: the extents of
topics that retain messages, and cursors. Any thread may read a replica; the result is for one thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from nsqd.cluster.replication.manifest import Manifest, ReplicaDisk, ReplicaFile
from nsqd.cluster.replication.replica_to_log import ReplicaRefused, check_replay
from nsqd.core.retention.history import History, PastTopic
from nsqd.storage.log.disk import Disk
from nsqd.storage.log.files import SegmentFiles
from nsqd.storage.log.frozen import FrozenDisk
from nsqd.storage.log.history import LogHistory
from nsqd.storage.log.long_polls import LongPolls
from nsqd.storage.log.parent import Parent
from nsqd.storage.log.reading import LogReading
from nsqd.storage.log.records import HEADER_SIZE
from nsqd.storage.log.segments import LogError
from nsqd.storage.sequence import Sequence


class _EndedDisk(FrozenDisk):
    """The directory of a replica as if nothing had been written to it after a position. It is never changed."""

    def __init__(self, disk: Disk, newest: ReplicaFile, end: int) -> None:
        super().__init__(disk)
        self._newest, self._size = newest.name, HEADER_SIZE + end - newest.base

    def size(self, name: str) -> int:
        size = super().size(name)
        return min(size, self._size) if name == self._newest else size


class _PastStore:
    """The messages of a replica by topic number. Implements nsqd.storage.log.history.Readable."""

    def __init__(self, sequences: dict[int, Sequence]) -> None:
        self._ends = {number: sequence.end for number, sequence in sequences.items()}
        self._sequences = {number: one for number, one in sequences.items() if one.first is not None}
        self.long_polls = LongPolls()
        self.long_polls.end()  # nothing will be added

    def find_sequence(self, topic: int) -> Sequence | None:
        return self._sequences.get(topic)

    def durable_end(self, topic: int) -> int:
        return self._ends.get(topic, 0)


class _PastWriter:
    """The part of the log's writer that a history needs."""

    def __init__(self, files: SegmentFiles, parents: list[Parent]) -> None:
        self.files, self.parents = files, parents


class ReplicaPast:
    """What can be read back from a replica. Implements nsqd.core.retention.history.PastLog."""

    def __init__(self, disk: Disk, manifest: Manifest, reading: LogReading) -> None:
        replay = reading.replay
        writer = _PastWriter(SegmentFiles(reading.headers), list(replay.parents.values()))
        self.log_id, self.node = manifest.log_id, manifest.node
        self.history: History = LogHistory(_PastStore(replay.sequences), disk, manifest.log_id, writer)
        self._topics = {state.name: PastTopic(state.number, dict(state.cursors)) for state in replay.topics.values()}

    def topic(self, name: str) -> PastTopic | None:
        return self._topics.get(name)


def read_replica(disk: Disk, manifest: Manifest, end: int, interrupt: Callable[[], None] = lambda: None) -> ReplicaPast:
    """Read the replica in the directory `disk`, which has the files of `manifest` and is durable up to the position `end`.

    `interrupt` is called now and then; what it raises ends the reading. Raises OSError if the replica cannot be read, or replay
    cannot begin in it.
    """
    files = [file for place, file in enumerate(manifest.files) if not place or file.base < end]
    if not files:
        raise OSError("the replica is empty")
    durable = replace(manifest, files=tuple(files), mark=end)
    ended = _EndedDisk(disk, files[-1], end)
    try:
        check_replay(ended, durable, interrupt)
        frozen = ReplicaDisk(ended, durable)
        reading = LogReading(frozen, end, interrupt)
    except (ReplicaRefused, LogError) as error:
        raise OSError(str(error)) from None
    return ReplicaPast(frozen, durable, reading)
