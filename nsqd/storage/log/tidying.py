"""What becomes of old segments: empty ones are removed, sparse ones are rewritten with only the messages that are wanted.

A segment is old if it stands before both checkpoints that are kept. A census counts what is wanted of old segments, some topics
a turn. What it decides is carried out when the records by which messages became unwanted are durable. A census is taken when a
checkpoint is complete, and now and then while the node is quiet.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from nsqd.storage.log.cleaner import Cleaner, Wanted
from nsqd.storage.log.disk import Disk
from nsqd.storage.log.syncer import Syncer
from nsqd.storage.log.writer import Writer, segment_name
from nsqd.storage.sequence import Sequence
from shared.log import log

SLICE = 1_000_000  # ns of a turn for the census; one topic is never cut
SPARSE = 0.5  # of a segment is wanted: less, and it is written again
UNKNOWN = -1.0  # density of a segment that was cleaned after the last census


class Messages(Protocol):
    """The messages of a log, as a census asks for them. A broker may live on them or not."""

    @property
    def reshaped(self) -> int:
        """How often extents that are older than the newest were replaced by others."""

    def logged(self) -> list[int]:
        """The topics whose messages are in the log."""

    def known_sequence(self, topic: int) -> Sequence | None:
        """The extents of a topic; None: it has none."""

    def retire(self) -> bool:
        """Give up what was retained for long enough, by records that are to be written. True if there was something."""


@dataclass(slots=True)
class Census:
    """What is wanted of the old segments, as far as topics were asked."""

    topics: list[int]  # to be asked still
    old: frozenset[int]  # bases
    reshaped: int  # Messages.reshaped when it began: should that change, it begins anew
    total: float = 0.0  # bytes wanted, of all segments
    share: dict[int, float] = field(default_factory=dict)  # old base -> bytes wanted
    wanted: dict[int, list[Wanted]] = field(default_factory=dict)  # old base -> whose they are

    def ask(self, topic: int, sequence: Sequence) -> None:
        """Count one topic's extents."""
        for held in (*sequence.live(), *sequence.retained()):
            part = sequence.wanted(held)
            self.total += held.disk_bytes * part
            bases = set()
            for base, _, start, end in held.pieces:
                if base in self.old:
                    self.share[base] = self.share.get(base, 0.0) + (end - start) * part
                    bases.add(base)
            for base in sorted(bases):
                self.wanted.setdefault(base, []).append(Wanted(topic, sequence, held))


class Tidying:
    """Removes and rewrites old segments. `turn` is called once a turn, `begin` when a checkpoint has made segments old."""

    def __init__(
        self,
        messages: Messages,
        writer: Writer,
        syncer: Syncer,
        disk: Disk,
        cleaner: Cleaner,
        generations: dict[int, int],
        segments: list[int],
        monotonic: Callable[[], int],
    ) -> None:
        """`segments`: where those begin that there are; `generations`: how often each was rewritten, if it was."""
        self.segments = segments
        self.wanted_bytes = 0  # at the last census
        self.wanted_recent = 0  # likewise, of segments that are not old
        # Bytes of those segments that nobody wants, at the last census. 0 while a checkpoint is written.
        self.finished = 0
        self._held_until = 0  # monotonic ns: until then a copy is made, and no file is removed or renamed
        self._messages = messages
        self._writer = writer
        self._syncer = syncer
        self._disk = disk
        self._cleaner = cleaner
        self._monotonic = monotonic
        self._generations = generations
        self._census: Census | None = None  # under way
        self._again = False  # another census is due
        self._oldest_root = 0  # segments before it are old
        self._decided = 0  # position that must be durable before anything is removed; 0: nothing is to be removed
        self._unneeded: list[int] = []  # segments to be removed then
        self.sizes = {base: self._file_size(base) for base in segments}  # bytes
        self._dense: dict[int, float] = {}  # of segments that were cleaned: what the next census took for their density

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return self._size_from(0)

    def _size_from(self, first: int) -> int:
        """Bytes of the segments that begin at that position or behind it."""
        newest = self.segments[-1] if self.segments else 0
        full = sum(self.sizes.get(base, 0) for base in self.segments[:-1] if base >= first)
        return full + self._writer.written.position - newest

    @property
    def active(self) -> bool:
        """True if there is something to be done that waits for nothing."""
        waits = self._cleaner.busy or self._decided
        return not self.held and (self._census is not None or (self._again and not waits))

    @property
    def held(self) -> bool:
        """True while no file may be removed or renamed."""
        return self._held_until > 0 and self._monotonic() < self._held_until

    def hold_for(self, ns: int) -> None:
        """Remove and rename no file for so long from now on. 0: it may be done again."""
        self._held_until = self._monotonic() + ns if ns else 0

    @property
    def moved(self) -> int:
        """How many records were rewritten since the start."""
        return self._cleaner.records

    def file_name(self, base: int) -> str:
        """Return the name of a segment's file."""
        return segment_name(base, self._generations.get(base, 0))

    def begin(self, oldest_root: int) -> None:
        """Segments before that one are old: no checkpoint needs them."""
        self._oldest_root = oldest_root
        self._again = True

    def look_again(self) -> None:
        """Messages were finished since the last census: take another one."""
        self._again = True

    @property
    def busy(self) -> bool:
        """True while something is to be done, or waits for the disk or the cleaner."""
        return self._census is not None or self._again or self._decided > 0 or self._cleaner.busy

    def turn(self) -> None:
        """Do a part of what is to be done."""
        self.note_segments()
        if self.held:
            return
        if self._cleaner.busy:
            cleaned = self._cleaner.finish()
            if cleaned is not None:
                self.sizes[cleaned], self._dense[cleaned] = self._cleaner.size, UNKNOWN
                self._again = True  # there may be more
        if self._decided and self._writer.durable.position >= self._decided:
            self._carry_out()
        elif self._census is not None:
            self._go_on(self._census)
        elif self.active:
            self._again = False
            self._take_census()

    def note_segments(self) -> None:
        """Add the segments that the writer has begun. There may be several in one turn."""
        begun, self._writer.begun = self._writer.begun, []
        for base in begun:
            if self.segments:
                last = self.segments[-1]
                self.sizes[last] = self._file_size(last)
            self.segments.append(base)

    def _file_size(self, base: int) -> int:
        try:
            return self._disk.size(self.file_name(base))
        except OSError as error:  # somebody has removed it: whoever reads it says what is lost
            log.error("LOG: cannot look at a segment: %s", error)
            return 0

    def _take_census(self) -> None:
        if self._messages.retire():
            self._writer.write()
        old = frozenset(base for base in self.segments if base < self._oldest_root)
        self._census = Census(self._messages.logged(), old, self._messages.reshaped)

    def _go_on(self, census: Census) -> None:
        if census.reshaped != self._messages.reshaped:
            self._census, self._again = None, True
            return
        until = self._monotonic() + SLICE
        while census.topics:
            topic = census.topics.pop()
            sequence = self._messages.known_sequence(topic)
            if sequence is not None:
                census.ask(topic, sequence)
            if self._monotonic() >= until:
                break
        if not census.topics:
            self._census = None
            self._decide(census)

    def _decide(self, census: Census) -> None:
        self.wanted_bytes = round(census.total)
        self.wanted_recent = round(max(0.0, census.total - sum(census.share.values())))
        self.finished = max(0, self._size_from(self._oldest_root) - self.wanted_recent)
        self._unneeded = [base for base in self.segments if base in census.old and base not in census.wanted]
        sparse = [(self._density(census, base), base) for base in census.wanted if base not in self._cleaner.refused]
        if sparse and min(sparse)[0] < SPARSE:
            base = min(sparse)[1]
            self._cleaner.take(base, census.wanted[base])
        if self._unneeded or self._cleaner.busy:  # the FINs by which they became so must not be lost behind them
            self._decided = self._writer.written.position
            self._syncer.want()

    def _density(self, census: Census, base: int) -> float:
        """Return the part (0 to 1) of a segment that a census found wanted. One that was just cleaned is wanted as a whole."""
        density = census.share[base] / max(1, self.sizes[base])
        if self._dense.get(base) == UNKNOWN:
            self._dense[base] = density
        when_cleaned = self._dense.get(base, 1.0)
        return density / when_cleaned if when_cleaned else 1.0

    def _carry_out(self) -> None:
        """What made messages unwanted is durable: remove segments, and have the sparsest one rewritten."""
        self._decided = 0
        for base in self._unneeded:
            self._remove(base)
        self._unneeded = []
        self._cleaner.start()

    def _remove(self, base: int) -> None:
        try:
            self._disk.remove(self.file_name(base))
        except OSError as error:
            log.error("LOG: cannot remove a segment: %s", error)
            return
        self.segments.remove(base)
        self.sizes.pop(base, None)
        self._dense.pop(base, None)
