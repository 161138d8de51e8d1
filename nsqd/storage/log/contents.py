"""What of the log is whose: counted when somebody asks, never while messages come and go, so that these cost nothing more.

A message's bytes are not noted one by one: an extent of which half the messages are wanted counts as half its records, and one
that lies among others' records as its frames and what a record takes beside them.
"""

from collections.abc import Iterator
from itertools import chain, islice

from nsqd.core.retention.contents import FileContent, TopicContent
from nsqd.storage.held import Held
from nsqd.storage.log.disk import Disk
from nsqd.storage.log.records import HEADER_SIZE
from nsqd.storage.log.store import LogStore
from nsqd.storage.log.tidying import Tidying
from nsqd.storage.log.writer import Writer
from nsqd.storage.sequence import Sequence

RECORD = 16  # bytes that a message takes beside its frame, about: more in a record of its own, less among many


class LogCount:
    """Implements nsqd.core.retention.contents.Count."""

    def __init__(self, store: LogStore, tidying: Tidying, writer: Writer, topics: list[int]) -> None:
        self._store = store
        self._tidying = tidying
        self._writer = writer
        self._walk = self._all(topics)
        self._topics: list[TopicContent] = []
        self._live: dict[int, float] = {}  # by segment: bytes
        self._first: dict[int, int] = {}  # likewise: when the first message was published

    def go_on(self, most: int) -> bool:
        return any(True for _ in islice(self._walk, most - 1, most))

    def topics(self) -> list[TopicContent]:
        return self._topics

    def files(self, most: int) -> list[FileContent]:
        bases = dict.fromkeys([*self._tidying.segments, self._writer.base])
        begun = [base for base in bases if self._writer.number_of(base)]
        return [self._file(base) for base in begun[-most:]]

    def _file(self, base: int) -> FileContent:
        newest = base == self._writer.base
        size = HEADER_SIZE + self._writer.written.position - base if newest else self._tidying.sizes.get(base, 0)
        number, name = self._writer.number_of(base), self._tidying.file_name(base)
        live = min(size, round(self._live.get(base, 0)))
        return FileContent(number, name, size, live, self._first.get(base, 0))

    def _all(self, topics: list[int]) -> Iterator[None]:
        """A step for each extent and each topic."""
        for topic in topics:
            sequence = self._store.known_sequence(topic)
            if sequence is not None:
                yield from self._of(topic, sequence)
            yield

    def _of(self, topic: int, sequence: Sequence) -> Iterator[None]:
        live, owed = 0.0, 0
        for held in chain(sequence.kept, sequence.held):
            live += self._count(sequence, held)
            owed += held.count - held.freed
            yield
        first = sequence.end if sequence.first is None else sequence.first
        retained = max(0, sequence.end - first)
        if live or owed or retained:
            self._topics.append(TopicContent(topic, round(live), owed, retained))

    def _count(self, sequence: Sequence, held: Held) -> float:
        """Bytes of an extent that are wanted."""
        part = sequence.wanted(held)
        live = 0.0
        reach = sum(end - start for _, _, start, end in held.pieces)  # records of others may lie in between
        share = part * min(1.0, (held.size + RECORD * held.count) / reach) if reach else 0.0
        for base, _, start, end in held.pieces if share > 0 else ():
            size = (end - start) * share
            live += size
            self._live[base] = self._live.get(base, 0) + size
            first = self._first.get(base)
            if held.oldest and (first is None or held.oldest < first):
                self._first[base] = held.oldest
        return live


class LogContents:
    """Implements nsqd.core.retention.contents.Contents."""

    def __init__(self, store: LogStore, tidying: Tidying, writer: Writer, disk: Disk) -> None:
        self._store = store
        self._tidying = tidying
        self._writer = writer
        self._disk = disk

    def count(self, topics: list[int]) -> LogCount:
        return LogCount(self._store, self._tidying, self._writer, topics)

    def room(self) -> tuple[int, int]:
        return self._disk.free(), self._disk.total()
