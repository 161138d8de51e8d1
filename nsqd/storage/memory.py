"""The Store in memory, of which only the lease of ids survives the process. Ephemeral topics and channels use it, too."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from nsqd.core.retention.cursors import Cursor
from nsqd.core.retention.policy import StoragePolicy
from nsqd.core.sequence.extent import Extent
from nsqd.core.sequence.gate import Gate
from nsqd.core.sequence.mark import Mark, Promise
from nsqd.core.timing.pause import Pause
from nsqd.storage.sequence import Sequence
from shared.topic_config import TopicConfig


class RetainedExtents:
    """The messages of a topic, read from its sequence. Implements Extents of nsqd/core/sequence/journal.py."""

    __slots__ = ("sequence",)

    def __init__(self, sequence: Sequence) -> None:
        self.sequence = sequence

    def read(self, ordinal: int) -> Extent | None:
        return self.sequence.extent_at(ordinal)

    def extents(self, first: int, end: int) -> Iterable[tuple[int, int, bool]]:
        return self.sequence.kinds(first, end)

    def next_with_headers(self, first: int, end: int) -> int:
        return self.sequence.next_with_headers(first, end)

    def expired_before(self, first: int, end: int, wall: int, ttl: int) -> int:
        return self.sequence.expired_before(first, end, wall, ttl)

    def cold(self, first: int, end: int) -> int:
        return self.sequence.cold(first, end)

    def mean_size(self) -> int:
        return self.sequence.mean_size()

    def frame_in_memory(self, ordinal: int, attributes: bool = True) -> bytes:
        stored = self.sequence.extent_of(ordinal)
        if stored is None or stored.extent is None or (attributes and stored.attributed):
            return b""
        return stored.extent.frames[ordinal - stored.first]

    def copied_end(self) -> int:
        return self.sequence.end

    def published(self, ordinal: int) -> int:
        stored = self.sequence.extent_of(ordinal)
        return stored.published_at(ordinal - stored.first) if stored is not None else 0

    def published_plain(self, ordinal: int) -> int:
        stored = self.sequence.next_plain(ordinal)
        return stored.published_at(max(0, ordinal - stored.first)) if stored is not None else 0

    def references(self, ordinal: int) -> int:
        return self.sequence.references(ordinal)

    def is_pending(self, ordinal: int) -> bool:
        return self.sequence.is_pending(ordinal)

    def file_number(self, ordinal: int) -> int:
        return 0


class MemoryReader:
    """The journal of a reader that only memory knows. Implements ReaderJournal."""

    __slots__ = ("_sequence",)

    def __init__(self, sequence: Sequence) -> None:
        self._sequence = sequence

    def promise(self) -> tuple[Mark, ...]:
        return ()

    def finish(self, first: int, count: int) -> None:
        self._sequence.drop_references(first, first + count)

    def finish_each(self, ordinals: list[int]) -> None:
        self._sequence.drop_each(ordinals)

    def release(self, first: int, end: int) -> None:
        self._sequence.drop_present_references(first, end)

    # Nothing is recorded

    def finish_all(self, end: int) -> None: ...
    def advance(self, cursor: int) -> None: ...
    def requeue(self, ordinals: Collection[int], attempts: int, failures: int, due: int) -> None: ...
    def bury(self, ordinal: int, message_id: bytes, attempts: int, failures: int, reason: str) -> None: ...
    def job(self, ordinal: int, row: bytes) -> None: ...
    def pause(self, paused: Pause | None) -> None: ...
    def drop(self) -> None: ...
    def resume(self, cursor: int, holes: list[tuple[int, int]]) -> None: ...
    def detach(self) -> None: ...


class MemoryTopic(RetainedExtents):
    """The journal of a topic that only memory knows. Implements TopicJournal."""

    __slots__ = ()
    gate: Gate | None = None  # no other node gets a copy

    def publish(
        self, first: int, frames: list[bytes], ids: bytes, largest: int, due: int, attributes: bytes, references: int,
        owners: Collection[int] | None = None,
    ) -> None:  # fmt: skip
        counted = references if owners is None else len(owners)
        touched = self.sequence.append(first, frames, ids, largest, due != 0, counted)
        if attributes:
            for stored in touched:
                stored.keep_headers(first, first + len(frames), attributes)

    def ask_for_copies(self, count: int, has_limit: bool = False) -> tuple[Mark, ...]:
        return ()

    def await_copies(self, count: int) -> tuple[Mark, ...]:
        return ()

    def distribute(self, first: int, end: int, references: int) -> None:
        self.sequence.distribute(first, end, references)

    def add_references(self, first: int, end: int) -> list[tuple[int, int, bool]]:
        self.sequence.add_references(first, end)
        return list(self.sequence.kinds(first, end))

    def hole(self, first: int, end: int) -> None:
        self.sequence.remove_from(first)

    def reader(self, number: int, name: str, kind: int, start: int) -> MemoryReader:
        return MemoryReader(self.sequence)

    def set_policy(self, policy: StoragePolicy) -> tuple[Mark, ...]:
        return ()

    def reclaim(self) -> Iterator[None]:
        for _ in self.sequence.take_apart():
            yield

    # Nothing is recorded

    def promise(self) -> None: ...
    def pause(self, paused: Pause | None) -> None: ...
    def configure(self, config: TopicConfig) -> None: ...
    def hold(self, cursors: Mapping[str, Cursor]) -> None: ...
    def set_cursor(self, name: str, cursor: Cursor | None) -> None: ...
    def drop(self) -> None: ...


class MemoryStore:
    """A Store whose replies wait for nothing. Implements nsqd.core.sequence.store.Store."""

    refusal = ""

    def __init__(self, write_lease: Callable[[int], bool]) -> None:
        self.lease = write_lease

    def begin(self, now: int, wall: int) -> str:
        return self.refusal

    def commit(self) -> tuple[Promise, ...]:
        return ()

    def record(self, kind: int, content: bytes) -> tuple[Mark, ...]:
        return ()

    def topic(self, number: int, name: str) -> MemoryTopic:
        return MemoryTopic(Sequence())
