"""Checkpoints: all state is written once more, so that replay can begin there, and old segments can be removed.

A checkpoint begins a segment with a STATE record. Then follow, some topics in each turn, the state of each topic and, in parts,
the topic's deduplication memory; then STATE_END. A checkpoint is fuzzy: records of a topic between STATE and the topic's own
state are included in that state, and replay skips them. The two newest complete checkpoints are kept: if the newest is corrupt,
replay uses the one before it. `Tidying` removes the segments older than both.

Under load, a checkpoint follows after a number of bytes or records. A quiet node writes one if that frees more bytes than are
live: a finished backlog is removed once two checkpoints follow it.

See docs/contributing/design/log.md#checkpoints.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from nsqd.core import records
from nsqd.core.records import RecordKind
from nsqd.storage.log.followers import Followers
from nsqd.storage.log.sources import LiveSource, StateSource, contents
from nsqd.storage.log.syncer import Syncer
from nsqd.storage.log.tidying import Tidying
from nsqd.storage.log.writer import SEGMENT_SIZE, Writer

SLICE = 1_000_000  # ns of a turn for describing topics; only messages outside of the sequence, publishers and jobs are divided
SLICE_BYTES = 256 * 1024  # bytes of records in a turn: to write them takes about a millisecond
SHARE = 20  # checkpoints that are not urgent may take one part in this many of the time
FULL_PAUSE = 2_000_000_000  # ns between checkpoints that are to free space on a full disk
OVERDUE_PAUSE = 60_000_000_000  # ns between checkpoints that are to release messages whose retention is over
SHORT_TAIL = 256 * 1024  # bytes: a shorter tail is left to the replay of the next start
# ns between scans for finished messages, while the node is quiet. It does not depend on the duration of a scan: on a busy
# machine other processes take most of that time.
SCAN_EVERY = 15_000_000_000
INSPECT_EVERY = 100_000_000  # ns between checks of conditions that depend on time alone, while nothing else is due
QUIET = 4  # the node is quiet if it writes less than one part in this many of Tail.cheap in SCAN_EVERY


@dataclass(frozen=True, slots=True)
class Tail:
    """Limits for the part of the log after the last checkpoint."""

    records: int = 200_000  # number of records; replaying them takes a second
    most: int = 256 * 1024 * 1024  # bytes; reading through them takes time as well
    # bytes, if checkpoints cost little: finished messages take space until two checkpoints follow them
    cheap: int = SEGMENT_SIZE


class Checkpoints:
    """Decides when to write a checkpoint, and writes it in parts. `turn` is called after the commit of a turn."""

    def __init__(
        self, source: LiveSource, writer: Writer, syncer: Syncer, tidying: Tidying, roots: list[int], tail: Tail,
        monotonic: Callable[[], int], wake: Callable[[], None],
    ) -> None:  # fmt: skip
        """`roots`: bases of segments that begin with a complete checkpoint, ascending; `wake`: requests another turn soon."""
        self.written = 0  # number of checkpoints written
        self._source, self._writer, self._syncer, self._tidying = source, writer, syncer, tidying
        self._tail, self._monotonic, self._wake = tail, monotonic, wake
        self._roots = roots[-2:]
        # records still to be written; None: no checkpoint is in progress
        self._contents: Iterator[tuple[RecordKind, bytes]] | None = None
        self._root = 0  # base of the segment with which the current checkpoint begins
        self._ended = 0  # position that must be durable before the written checkpoint counts; 0: none
        # log position of the last checkpoint, or of the log's beginning
        self._since = [writer.written.position, *tidying.segments[:1], *roots][-1]
        self._size = self._size_before = 0  # bytes of the last checkpoint, and of the one before it
        self._quiet = False  # True: little was written between the last two times when a scan was due
        self._scan_at = 0  # when the next scan is due (monotonic ns)
        self._end_then = writer.written.position  # the log's end when a scan was due last
        self._counted = -1  # number of records outside of checkpoints at the last scan
        self._records = writer.records  # records written up to the last checkpoint, its own included
        self._own = 0  # number of records that belong to checkpoints
        self._others = (-1, -1)  # numbers of other records when each of the last two checkpoints began
        self._began = 0  # when the last checkpoint began (monotonic ns)
        self._took = 0  # ns that the last checkpoint has taken of turns
        self._now = 0  # time of the last call of `turn` (monotonic ns)

    def turn(self, now: int) -> tuple[int, int, int]:
        """Continue a checkpoint, or begin one if it is time. `now`: time of the turn, monotonic ns.

        Returns until when there is nothing more to do (monotonic ns; 0: it continues in the next turn), unless the log's end
        or its number of records exceeds the other two numbers, or a segment was begun.
        """
        self._now = now
        writer = self._writer
        if writer.failure:
            return 0, 0, 0
        self._tidying.turn()
        if self._ended:
            if writer.durable.position >= self._ended:
                self._complete()
        elif self._contents is not None:
            self._continue(self._contents)
        elif self._is_time():
            self._begin()
        elif self._now >= self._scan_at:
            self._request_scan()
        if self._contents is not None or self._tidying.active:
            self._wake()
        tail, is_busy = self._tail, self._contents is not None or self._ended or self._tidying.busy
        end = self._since + self._size + min(tail.cheap, tail.most)
        return 0 if is_busy else now + INSPECT_EVERY, end, self._records + tail.records

    def finish(self) -> bool:
        """Leave a checkpoint when the node stops, so that the next start is quick. Returns False if there is no need."""
        if self._writer.failure:
            return False
        if self._contents is None:
            if self._behind < SHORT_TAIL or not self._source.store.is_whole:
                return False
            self._begin()
        while self._contents is not None:
            self._continue(self._contents)
        return True

    @property
    def _behind(self) -> int:
        """Return the bytes of the log after the last checkpoint."""
        return self._writer.written.position - self._since - self._size

    def _is_time(self) -> bool:
        if not self._source.store.is_whole:  # a checkpoint that misses a topic would lose it
            return False
        writer, tail, since = self._writer, self._tail, self._now - self._began
        if self._behind > tail.most or writer.records - self._records > tail.records:
            return True
        # most of the log after the older checkpoint is finished, according to the last scan
        is_worth_it = self._tidying.finished - self._own_bytes > self._tidying.live_recent + tail.cheap
        if since > self._took * SHARE and (self._behind > tail.cheap or (self._quiet and is_worth_it)):
            return True
        if since > OVERDUE_PAUSE and self._source.store.overdue:
            return True
        if not self._syncer.space.full or since < FULL_PAUSE:
            return False
        # a checkpoint frees messages that were finished since the older checkpoint began
        return writer.records - self._own > self._others[0]

    @property
    def _own_bytes(self) -> int:
        """Return the size of the two checkpoints that are kept, in bytes."""
        return self._size + self._size_before

    def _request_scan(self) -> None:
        """Request a count of finished messages, if the node is quiet, and it can have changed by enough to matter."""
        tidying, writer = self._tidying, self._writer
        others = writer.records - self._own
        self._quiet = writer.written.position - self._end_then < self._tail.cheap // QUIET
        self._end_then = writer.written.position
        self._scan_at = self._now + SCAN_EVERY
        if self._quiet and others != self._counted and tidying.size - self._own_bytes > self._tail.cheap:
            self._counted = others
            tidying.request_scan()

    def _begin(self) -> None:
        self._began, self._took = self._now, 0
        self._tidying.finished = 0  # until the next scan
        self._others = self._others[1], self._writer.records - self._own
        self._writer.epochs.forget_before(self._tidying.segments[0] if self._tidying.segments else 0)
        self._own += begin_state(self._writer, self._source)
        self._writer.write()
        self._root = self._writer.base
        self._since, self._records = self._writer.written.position, self._writer.records
        self._size_before, self._size = self._size, 0
        self._contents = contents(self._source)

    def _continue(self, left: Iterator[tuple[RecordKind, bytes]]) -> None:
        began, before, size = self._monotonic(), self._writer.written.position, 0
        for kind, content in left:
            self._own += 1
            self._records += 1  # it is no reason for another checkpoint
            self._writer.append(kind, content)
            size += len(content)
            is_enough = size >= SLICE_BYTES or self._monotonic() >= began + SLICE
            if is_enough and kind is not RecordKind.STATE_END:
                self._writer.write()
                break
        else:
            self._contents = None
            self._ended = self._writer.write()
            self._syncer.want()
            self.written += 1
        self._took += self._monotonic() - began
        self._size += self._writer.written.position - before

    def _complete(self) -> None:
        """Note that the checkpoint is durable, so that segments which only older checkpoints need can be removed."""
        self._ended = 0
        self._roots = [*self._roots, self._root][-2:]
        self._tidying.finished = 0  # a scan meanwhile has counted a part of this checkpoint
        if len(self._roots) == 2:
            self._tidying.begin(self._roots[0])


def begin_state(writer: Writer, source: StateSource) -> int:
    """Begin a checkpoint with the records of the log as a whole, in the next group. Returns the number of records."""
    writer.begin_state(records.STATE.pack(source.highest, source.leased))
    writer.append_anchor()  # replay may begin here, and needs the clocks
    for epoch, start in writer.epochs:
        writer.append(RecordKind.EPOCH, records.EPOCH.pack(*epoch, start))
    if writer.followers != Followers():
        writer.append(RecordKind.FOLLOWERS, writer.followers.pack())
    for parent in writer.parents:
        writer.append(RecordKind.PARENT, parent.pack())
    return len(writer.group)
