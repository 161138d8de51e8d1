"""How much of the log belongs to which topic. This is counted on request, so that publishing and finishing cost no more.

Bytes are not counted message by message: an extent of which half the messages are live counts as half its records. An extent
whose records lie among others' counts as its frames plus the rest of its records.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice

from nsqd.core.retention.contents import FileContent, TopicContent
from nsqd.storage.log.disk import Disk
from nsqd.storage.log.records import HEADER_SIZE
from nsqd.storage.log.store import LogStore
from nsqd.storage.log.tidying import Tidying
from nsqd.storage.log.writer import Writer
from nsqd.storage.sequence import Sequence
from nsqd.storage.stored_extent import StoredExtent

RECORD = 16  # bytes of a message in addition to its frame, about: more in a record of its own, less among many


class LogCount:
    """A count of the log's space, made in steps. Implements nsqd.core.retention.contents.Count."""

    def __init__(self, store: LogStore, tidying: Tidying, writer: Writer, topics: list[int]) -> None:
        self._store, self._tidying, self._writer = store, tidying, writer
        self._walk = self._all(topics)
        self._topics: list[TopicContent] = []
        self._live: dict[int, float] = {}  # live bytes, by the segment's base
        self._first: dict[
            int, int
        ] = {}  # when the first message was published (ns since the epoch), by the segment's base

    def count_batch(self, most: int) -> bool:
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
        """Count all topics. Yields after each extent and each topic, so that the caller can pause."""
        for topic in topics:
            sequence = self._store.find_sequence(topic)
            if sequence is not None:
                yield from self._count_topic(topic, sequence)
            yield

    def _count_topic(self, topic: int, sequence: Sequence) -> Iterator[None]:
        live, unfinished = 0.0, 0
        for stored in chain(sequence.retained, sequence.extents):
            live += self._count_extent(sequence, stored)
            unfinished += stored.count - stored.released
            yield
        first = sequence.end if sequence.first is None else sequence.first
        retained = max(0, sequence.end - first)
        if live or unfinished or retained:
            self._topics.append(TopicContent(topic, round(live), unfinished, retained))

    def _count_extent(self, sequence: Sequence, stored: StoredExtent) -> float:
        """Add an extent to the counts. Returns its live bytes."""
        live, reach = 0.0, stored.disk_bytes  # records of others may lie in between
        share = sequence.live_part(stored) * min(1.0, (stored.size + RECORD * stored.count) / reach) if reach else 0.0
        for base, _, start, end in stored.locations if share > 0 else ():
            size = (end - start) * share
            live += size
            self._live[base] = self._live.get(base, 0) + size
            if stored.oldest:
                self._first[base] = min(stored.oldest, self._first.get(base, stored.oldest))
        return live


@dataclass(frozen=True, slots=True)
class LogContents:
    """The use of the log's space. Implements nsqd.core.retention.contents.Contents."""

    _store: LogStore
    _tidying: Tidying
    _writer: Writer
    _disk: Disk

    def count(self, topics: list[int]) -> LogCount:
        return LogCount(self._store, self._tidying, self._writer, topics)

    def room(self) -> tuple[int, int]:
        return self._disk.free(), self._disk.total()
