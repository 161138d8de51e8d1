"""Checkpoints: all state written once more, so that replay need not begin at the beginning, and old segments can go.

A checkpoint begins a segment with a STATE record; then, some topics a turn, each topic's state, and what it remembers of
publishers in parts; then STATE_END. It is fuzzy: what is recorded of a topic before its own state is in that state already,
and replay passes over it. The two newest complete
ones are kept: should the newest be damaged, the one before it will do. What is older than both is Tidying's.

Under load a checkpoint follows upon so many bytes or records. A quiet node writes one if it gives back more space than is
wanted: a finished backlog goes behind two checkpoints, whether anything is published after it or not. With no traffic at all
there are no more than these two, for then only they themselves are behind the older one.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from nsqd.core import records
from nsqd.core.records import Kind
from nsqd.storage.log.sources import Source, contents
from nsqd.storage.log.syncer import Syncer
from nsqd.storage.log.tidying import Tidying
from nsqd.storage.log.writer import SEGMENT_SIZE, Writer

SLICE = 1_000_000  # ns of a turn for describing topics; but for its publishers one topic is never cut
SHARE = 20  # of the time, one part in so many may go into checkpoints that are not urgent
FULL_PAUSE = 2_000_000_000  # ns between checkpoints that shall make space on a full disk
OVERDUE_PAUSE = 60_000_000_000  # ns between those for the sake of messages that were retained long enough
SHORT_TAIL = 256 * 1024  # bytes that a start may as well replay
# ns between looks at how much of the log is finished, while the node is quiet. It is the same whatever a look takes: on a busy
# machine that is mostly the time of others.
LOOK_EVERY = 15_000_000_000
INSPECT_EVERY = 100_000_000  # ns between looks at what depends on time alone, while nothing else is to be done
QUIET = 4  # the node is quiet if it writes less than this part of Tail.cheap between two looks


@dataclass(frozen=True, slots=True)
class Tail:
    """How much may stand behind the last checkpoint."""

    records: int = 200_000  # replaying them takes a second
    most: int = 256 * 1024 * 1024  # bytes; likewise: they are read through
    cheap: int = SEGMENT_SIZE  # bytes, if checkpoints cost little: what is finished takes space until two are behind it


class Checkpoints:
    """See above. Called once a turn, after the commit."""

    def __init__(
        self,
        source: Source,
        writer: Writer,
        syncer: Syncer,
        tidying: Tidying,
        roots: list[int],
        tail: Tail,
        monotonic: Callable[[], int],
        wake: Callable[[], None],
    ) -> None:
        """`roots`: bases of segments that begin with a complete checkpoint, ascending; `wake`: have another turn soon."""
        self.written = 0  # checkpoints
        self._source = source
        self._writer = writer
        self._syncer = syncer
        self._tidying = tidying
        self._tail = tail
        self._monotonic = monotonic
        self._wake = wake
        self._roots = roots[-2:]
        self._contents: Iterator[tuple[Kind, bytes]] | None = None  # what is still to be written; None: nothing is
        self._root = 0  # of the one being written
        self._ended = 0  # position that must be durable before the one that was written counts; 0: none
        before = [*tidying.segments[:1], *roots]
        # position of the last one, or of the log's beginning
        self._since = before[-1] if before else writer.written.position
        self._size = 0  # bytes of the last one
        self._size_before = 0  # likewise, of the one before it
        self._quiet = False  # little was written between the last two looks
        self._look_at = 0  # time of the next look (monotonic ns)
        self._looked = writer.written.position  # the log's end at the last look
        self._counted = -1  # records that are not of checkpoints, when what is finished was counted last
        self._records = writer.records  # written before it
        self._own = 0  # records of checkpoints
        self._others = (-1, -1)  # records of all else there were when each of the last two began
        self._began = 0  # when the last one did (monotonic ns)
        self._took = 0  # ns of turns that it has taken
        self._now = 0  # of the last turn that had something to do
        self._due = 0  # until then (monotonic ns) `turn` has nothing to do ...
        self._due_end = self._due_records = 0  # ... unless the log ends behind that, or has more records

    def turn(self, now: int) -> None:
        """Go on with a checkpoint, or begin one if it is time. Most turns end with the first comparisons: nothing is due.

        `now`: monotonic ns, of the turn.
        """
        writer = self._writer
        if (
            now < self._due
            and writer.written.position <= self._due_end
            and writer.records <= self._due_records
            and not writer.begun
        ):
            return
        self._now = now
        if writer.failure:
            return
        self._tidying.turn()
        if self._ended:
            if writer.durable.position >= self._ended:
                self._complete()
        elif self._contents is not None:
            self._go_on(self._contents)
        elif self._is_time():
            self._begin()
        elif self._now >= self._look_at:
            self._look()
        if self._contents is not None or self._tidying.active:
            self._wake()
        self._plan()

    def _plan(self) -> None:
        """Note until when, and up to which position and number of records, `turn` has nothing to do."""
        tail = self._tail
        busy = self._contents is not None or self._ended or self._tidying.busy
        self._due = 0 if busy else self._now + INSPECT_EVERY
        self._due_end = self._since + self._size + min(tail.cheap, tail.most)
        self._due_records = self._records + tail.records

    def finish(self) -> bool:
        """The node stops: leave a checkpoint behind from which the next start is quick. False if there is no need."""
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
            self._go_on(self._contents)
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
        return writer.records - self._own > self._others[0]  # what was finished since the older of the two began may go

    def _is_worth_it(self) -> bool:
        """Most of what stands behind the older checkpoint is finished, as far as the last census tells."""
        tidying = self._tidying
        return tidying.finished - self._own_bytes > tidying.wanted_recent + self._tail.cheap

    @property
    def _own_bytes(self) -> int:
        """Of the two checkpoints that are kept."""
        return self._size + self._size_before

    def _look(self) -> None:
        """Have what is finished counted, if the node is quiet, something has changed, and it may be enough to matter."""
        tidying, writer = self._tidying, self._writer
        others = writer.records - self._own
        self._quiet = writer.written.position - self._looked < self._tail.cheap // QUIET
        self._looked = writer.written.position
        self._look_at = self._now + LOOK_EVERY
        if self._quiet and others != self._counted and tidying.size - self._own_bytes > self._tail.cheap:
            self._counted = others
            tidying.look_again()

    def _begin(self) -> None:
        self._began, self._took = self._now, 0
        self._due = 0
        self._tidying.finished = 0  # until it is counted anew
        self._others = self._others[1], self._writer.records - self._own
        self._own += 2
        self._writer.begin_state(records.STATE.pack(self._source.highest, self._source.leased))
        self._writer.append_anchor()  # replay may begin here
        self._writer.write()
        self._root = self._writer.base
        self._since, self._records = self._writer.written.position, self._writer.records
        self._size_before, self._size = self._size, 0
        self._contents = contents(self._source)

    def _go_on(self, left: Iterator[tuple[Kind, bytes]]) -> None:
        began, before = self._monotonic(), self._writer.written.position
        for kind, content in left:
            self._own += 1
            self._writer.append(kind, content)
            if self._monotonic() >= began + SLICE and kind is not Kind.STATE_END:
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
        """It is durable: what only older checkpoints need can go."""
        self._ended = 0
        self._roots = [*self._roots, self._root][-2:]
        if len(self._roots) == 2:
            self._tidying.begin(self._roots[0])
