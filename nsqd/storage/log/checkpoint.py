"""Checkpoints: all state written once more, so that replay need not begin at the beginning, and old segments can go.

A checkpoint begins a segment with a STATE record; then, some topics a turn, each topic's state; then STATE_END. It is fuzzy:
what is recorded of a topic before its own state is in that state already, and replay passes over it. The two newest complete
ones are kept: should the newest be damaged, the one before it will do. Segments older than both go when no message that is
owed stands in them.
"""

import time
from collections.abc import Callable

from nsqd.core.broker import Broker
from nsqd.core.topic import Topic
from nsqd.storage.log import records
from nsqd.storage.log.cleaner import Cleaner
from nsqd.storage.log.disk import Disk
from nsqd.storage.log.records import Kind
from nsqd.storage.log.state import encode_topic
from nsqd.storage.log.store import LogStore
from nsqd.storage.log.syncer import Syncer
from nsqd.storage.log.writer import Writer, segment_name
from shared.log import log

SLICE = 0.001  # s of a turn for describing topics; one topic is never cut
TAIL_RECORDS = 200_000  # behind the last checkpoint: replaying them takes a second
TAIL_BYTES = 256 * 1024 * 1024  # likewise; they are read through
FULL_PAUSE = 2_000_000_000  # ns between checkpoints that shall make space on a full disk


class Checkpoints:
    """See above. Called once a turn, after the commit."""

    def __init__(
        self,
        broker: Broker,
        store: LogStore,
        writer: Writer,
        syncer: Syncer,
        disk: Disk,
        cleaner: Cleaner,
        generations: dict[int, int],
        segments: list[int],
        roots: list[int],
    ) -> None:
        """`segments`: bases of those there are; `roots`: of those that begin with a complete checkpoint, ascending."""
        self.written = 0  # checkpoints
        self.removed = 0  # segments
        self.tail_records = TAIL_RECORDS
        self.segments = segments
        self._broker = broker
        self._store = store
        self._writer = writer
        self._syncer = syncer
        self._disk = disk
        self._cleaner = cleaner
        self._generations = generations  # of segments that were cleaned
        self._roots = roots[-2:]
        self._waiting: list[str] | None = None  # topics to be described still; None: no checkpoint is being written
        self._root = 0  # of the one being written
        self._decided = 0  # position that must be durable before segments go; 0: none are to go
        self._unneeded: list[int] = []  # these
        self._ended = 0  # position that must be durable before the one that was written counts; 0: none
        self._since = writer.written  # position of the last one
        self._records = writer.records  # written before it
        self._own = 0  # records of checkpoints
        self._others = (-1, -1)  # records of all else there were when each of the last two began
        self._began = 0  # when the last one did (monotonic ns)

    def turn(self) -> None:
        """Go on with a checkpoint, or begin one if it is time."""
        writer = self._writer
        if writer.failure:
            return
        if writer.base not in self.segments[-1:]:
            self.segments.append(writer.base)
        if self._cleaner.busy:
            self._cleaner.finish()
        if self._decided and writer.durable >= self._decided:
            self._carry_out()
        if self._ended:
            if writer.durable >= self._ended:
                self._complete()
        elif self._waiting is not None:
            self._go_on(self._waiting)
        elif self._is_time():
            self._begin()

    def _is_time(self) -> bool:
        """The tail is long; or the disk is full, and what was finished before the older of two checkpoints begins may go."""
        writer = self._writer
        if writer.written - self._since > TAIL_BYTES or writer.records - self._records > self.tail_records:
            return True
        if not self._syncer.full or self._broker.now - self._began < FULL_PAUSE:
            return False
        return writer.records - self._own > self._others[0]

    def _begin(self) -> None:
        self._began = self._broker.now
        self._others = self._others[1], self._writer.records - self._own
        self._own += 1
        self._writer.begin_state(records.STATE.pack(self._broker.highest_number, self._store.leased))
        self._writer.write()
        self._root = self._writer.base
        self._since, self._records = self._writer.written, self._writer.records
        self._waiting = list(self._broker.topics)

    def _go_on(self, waiting: list[str]) -> None:
        until = time.perf_counter() + SLICE
        while waiting:
            topic = self._broker.topics.get(waiting.pop())
            if topic is not None and not topic.ephemeral:
                self._describe(topic)
            if time.perf_counter() >= until:
                break
        if not waiting:
            self._own += 1
            self._writer.append(Kind.STATE_END, b"")
            self._waiting = None
            self._ended = self._writer.write()
            self._syncer.want()
            self.written += 1
            return
        self._writer.write()

    def _describe(self, topic: Topic) -> None:
        broker = self._broker
        to_wall: Callable[[int], int] = lambda due: broker.wall + due - broker.now if due else 0  # noqa: E731
        state = encode_topic(topic, self._store.known_sequence(topic.number), to_wall)
        self._own += 1
        self._writer.append(Kind.STATE_TOPIC, state)

    def _complete(self) -> None:
        """It is durable: what only older checkpoints need can go."""
        self._ended = 0
        self._roots = [*self._roots, self._root][-2:]
        if len(self._roots) < 2:
            return
        if self._cleaner.busy or self._decided:  # it knows places in segments that seem to be needed no more
            return
        live, edges = self._store.live()
        needed = {base for _, held in live for base, *_ in held.pieces}
        old = [base for base in self.segments if base < self._roots[0]]
        self._unneeded = [base for base in old if base not in needed]
        self._cleaner.choose([base for base in old if base in needed], live, edges)
        if self._unneeded or self._cleaner.busy:  # the FINs by which they became so must not be lost behind them
            self._decided = self._writer.written
            self._syncer.want()

    def _carry_out(self) -> None:
        """What made segments old is durable."""
        self._decided = 0
        for base in self._unneeded:
            self._remove(base)
        self._cleaner.start()

    def _remove(self, base: int) -> None:
        try:
            self._disk.remove(segment_name(base, self._generations.get(base, 0)))
        except OSError as error:
            log.error("LOG: cannot remove a segment: %s", error)
            return
        self.segments.remove(base)
        self.removed += 1
