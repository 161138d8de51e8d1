"""Checkpoints: all state is written once more, so that replay can begin there, and old segments can be removed.

A checkpoint begins a segment with a STATE record. Then follow, some topics in each turn, the state of each topic and, in parts,
what the topic remembers of publishers; then STATE_END. A checkpoint is fuzzy: records of a topic between STATE and the topic's
own state are included in that state, and replay skips them. The two newest complete checkpoints are kept: if the newest is
damaged, replay uses the one before it. Segments older than both are the business of Tidying.

Under load, a checkpoint follows after a number of bytes or records. A quiet node writes one if that frees more bytes than are
still wanted: a finished backlog is removed once two checkpoints follow it, even if nothing is published after it. With no
traffic at all there are only these two checkpoints, because then nothing but checkpoints stands after the older one.

See docs/design/log.md#checkpoints.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from nsqd.core import records
from nsqd.core.records import RecordKind
from nsqd.storage.log.followers import Followers
from nsqd.storage.log.sources import StateSource, contents
from nsqd.storage.log.syncer import Syncer
from nsqd.storage.log.tidying import Tidying
from nsqd.storage.log.writer import SEGMENT_SIZE, Writer

# ns of a turn for describing topics; one topic is never divided, except for its chunks of waiting messages, publishers and jobs
SLICE = 1_000_000
SLICE_BYTES = 256 * 1024  # bytes of records in a turn: to write them takes about a millisecond
SHARE = 20  # checkpoints that are not urgent may take one part in this many of the time
FULL_PAUSE = 2_000_000_000  # ns between checkpoints that are to free space on a full disk
OVERDUE_PAUSE = 60_000_000_000  # ns between checkpoints that are to release messages whose retention is over
SHORT_TAIL = 256 * 1024  # bytes: a shorter tail is left to the replay of the next start
# ns between looks at how much of the log is finished, while the node is quiet. It does not depend on how long
# a look takes: on a busy machine other processes take most of that time.
LOOK_EVERY = 15_000_000_000
INSPECT_EVERY = 100_000_000  # ns between looks at conditions that depend on time alone, while nothing else is due
QUIET = 4  # the node is quiet if it writes less than one part in this many of Tail.cheap between two looks


@dataclass(frozen=True, slots=True)
class Tail:
    """Limits for the part of the log after the last checkpoint."""

    records: int = 200_000  # number of records; replaying them takes a second
    most: int = 256 * 1024 * 1024  # bytes; reading through them takes time as well
    # bytes, if checkpoints cost little: finished messages take space until two checkpoints follow them
    cheap: int = SEGMENT_SIZE


class Checkpoints:
    """Decides when to write a checkpoint, and writes it in parts. `turn` is called once a turn, after the commit."""

    def __init__(
        self,
        source: StateSource,
        writer: Writer,
        syncer: Syncer,
        tidying: Tidying,
        roots: list[int],
        tail: Tail,
        monotonic: Callable[[], int],
        wake: Callable[[], None],
    ) -> None:
        """Prepare for checkpoints of the state in `source`.

        `roots`: bases of segments that begin with a complete checkpoint, ascending; `wake`: requests another turn soon.
        """
        self.written = 0  # number of checkpoints written
        self._source = source
        self._writer = writer
        self._syncer = syncer
        self._tidying = tidying
        self._tail = tail
        self._monotonic = monotonic
        self._wake = wake
        self._roots = roots[-2:]
        # records still to be written; None: no checkpoint is in progress
        self._contents: Iterator[tuple[RecordKind, bytes]] | None = None
        self._root = 0  # base of the segment with which the current checkpoint begins
        self._ended = 0  # position that must be durable before the written checkpoint counts; 0: none
        before = [*tidying.segments[:1], *roots]
        # log position of the last checkpoint, or of the log's beginning
        self._since = before[-1] if before else writer.written.position
        self._size = 0  # bytes of the last checkpoint
        self._size_before = 0  # bytes of the checkpoint before the last one
        self._quiet = False  # True: little was written between the last two looks
        self._look_at = 0  # time of the next look (monotonic ns)
        self._looked = writer.written.position  # the log's end at the last look
        self._counted = -1  # number of records outside of checkpoints at the last count of finished messages
        self._records = writer.records  # records written up to the last checkpoint, its own included
        self._own = 0  # number of records that belong to checkpoints
        self._others = (-1, -1)  # numbers of other records when each of the last two checkpoints began
        self._began = 0  # when the last checkpoint began (monotonic ns)
        self._took = 0  # ns that the last checkpoint has taken of turns
        self._now = 0  # time of the last turn that had something to do (monotonic ns)
        self._due = 0  # until this time (monotonic ns) `turn` has nothing to do ...
        self._due_end = self._due_records = 0  # ... unless the log's end or its number of records exceeds these

    def turn(self, now: int) -> bool:
        """Continue a checkpoint, or begin one if it is time. Most turns end with the first comparisons: nothing is due.

        `now`: time of the turn, monotonic ns. Returns True if it goes on in the next turn, which it has asked for.
        """
        writer = self._writer
        if (
            now < self._due
            and writer.written.position <= self._due_end
            and writer.records <= self._due_records
            and not writer.begun
        ):
            return False
        self._now = now
        if writer.failure:
            return False
        self._tidying.turn()
        if self._ended:
            if writer.durable.position >= self._ended:
                self._complete()
        elif self._contents is not None:
            self._continue(self._contents)
        elif self._is_time():
            self._begin()
        elif self._now >= self._look_at:
            self._request_census()
        goes_on = self._contents is not None or self._tidying.active
        if goes_on:
            self._wake()
        self._plan()
        return goes_on

    def _plan(self) -> None:
        """Set the time, the position and the number of records up to which `turn` has nothing to do."""
        tail = self._tail
        busy = self._contents is not None or self._ended or self._tidying.busy
        self._due = 0 if busy else self._now + INSPECT_EVERY
        self._due_end = self._since + self._size + min(tail.cheap, tail.most)
        self._due_records = self._records + tail.records

    def finish(self) -> bool:
        """Leave a checkpoint when the node stops, so that the next start is quick. Returns False if there is no need."""
        writer = self._writer
        if writer.failure or (
            self._contents is None and writer.written.position - self._since - self._size < SHORT_TAIL
        ):
            return False
        if self._contents is None:
            if not self._source.is_whole:
                return False
            self._begin()
        while self._contents is not None:
            self._continue(self._contents)
        return True

    def _is_time(self) -> bool:
        if not self._source.is_whole:
            return False
        writer = self._writer
        behind, since = writer.written.position - self._since - self._size, self._now - self._began
        if behind > self._tail.most or writer.records - self._records > self._tail.records:
            return True
        if behind > self._tail.cheap and since > self._took * SHARE:
            return True
        if since > OVERDUE_PAUSE and self._source.overdue:
            return True
        if self._quiet and since > self._took * SHARE and self._is_worth_it():
            return True
        if not self._syncer.space.full or since < FULL_PAUSE:
            return False
        return writer.records - self._own > self._others[0]  # messages finished since the older checkpoint began may go

    def _is_worth_it(self) -> bool:
        """Return True if most of the log after the older checkpoint is finished, according to the last census."""
        tidying = self._tidying
        return tidying.finished - self._own_bytes > tidying.wanted_recent + self._tail.cheap

    @property
    def _own_bytes(self) -> int:
        """Return the size of the two checkpoints that are kept, in bytes."""
        return self._size + self._size_before

    def _request_census(self) -> None:
        """Have the finished messages counted, if the node is quiet, something has changed, and it may be enough to matter."""
        tidying, writer = self._tidying, self._writer
        others = writer.records - self._own
        self._quiet = writer.written.position - self._looked < self._tail.cheap // QUIET
        self._looked = writer.written.position
        self._look_at = self._now + LOOK_EVERY
        if self._quiet and others != self._counted and tidying.size - self._own_bytes > self._tail.cheap:
            self._counted = others
            tidying.request_census()

    def _begin(self) -> None:
        self._began, self._took = self._now, 0
        self._due = 0
        self._tidying.finished = 0  # until the next census counts anew
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
        """Note that the checkpoint is durable. Segments that only older checkpoints need can go."""
        self._ended = 0
        self._roots = [*self._roots, self._root][-2:]
        self._tidying.finished = 0  # a census meanwhile has counted a part of this checkpoint
        if len(self._roots) == 2:
            self._tidying.begin(self._roots[0])


def begin_state(writer: Writer, source: StateSource) -> int:
    """Begin a checkpoint with what concerns the log as a whole, in the next group. Returns the number of records."""
    epochs, followers, parents = list(writer.epochs), writer.followers, writer.parents
    writer.begin_state(records.STATE.pack(source.highest, source.leased))
    writer.append_anchor()  # replay may begin here, and needs the clocks
    for epoch, start in epochs:
        writer.append(RecordKind.EPOCH, records.EPOCH.pack(*epoch, start))
    if followers != Followers():
        writer.append(RecordKind.FOLLOWERS, followers.pack())
    for parent in parents:
        writer.append(RecordKind.PARENT, parent.pack())
    return 2 + len(epochs) + (followers != Followers()) + len(parents)
