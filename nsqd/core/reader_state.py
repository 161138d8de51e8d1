"""The durable state of a topic's reader: the base class that each kind of reader implements.

Replay builds the state from the log's records, a checkpoint stores it, and a start makes a live reader from it. None of these
three knows the kinds of readers. Each kind defines its state in the package of its live class; topic_state.py lists the kinds.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from nsqd.core import records
from nsqd.core.reader import Reader, ReaderKind
from nsqd.core.records import RecordKind
from nsqd.core.sequence.finished import Span
from nsqd.core.sequence.put_batch import JobOptions
from nsqd.core.timing.deferred_pages import DeferredPages, Page
from nsqd.core.written_chunks import WrittenChunks

# A function from first..end to the parts of it that a topic still holds, ascending: (first, end, published with a delay).
Kinds = Callable[[int, int], Iterable[tuple[int, int, bool]]]


@dataclass(slots=True)
class ReaderState(ABC):
    """What survives a restart of one reader.

    Ordinals are places in the topic. All times are ns of one clock, which is the log's if the state comes from the log.
    """

    kind: ClassVar[ReaderKind]  # a byte in the log
    has_own_times: ClassVar[bool] = False  # True: delayed messages wait in the reader, not in the topic's delay queue

    number: int
    name: str
    start: int  # messages before this ordinal do not belong to the reader

    @abstractmethod
    def apply(self, kind: RecordKind, content: bytes) -> Iterable[Span]:
        """Apply a record that names the reader. Returns the spans (first, end) that the reader no longer references."""

    @abstractmethod
    def finish(self, first: int, end: int) -> None:
        """Note that the reader is done with messages first..end: they were finished, dropped, or never meant for it."""

    def _finish(self, content: bytes) -> list[Span]:
        """Apply a FINISH record, and return its spans (first, end)."""
        spans = records.spans_of(content)
        for first, end in spans:
            self.finish(first, end)
        return spans

    def expect(  # noqa: B027 (most kinds have no use for it)
        self, first: int, count: int, options: JobOptions, numbers: list[int], created: int
    ) -> None:
        """Note that `count` messages from `first` on were published with these options, at `created` (ns since the epoch).

        `numbers`: their ids as numbers, if they are jobs that the distributed offset passed at once; else [].
        """

    @abstractmethod
    def drop(self, distributed: int) -> list[Span]:
        """Return the spans that the reader references before `distributed`, the topic's; the reader is being dropped."""

    @abstractmethod
    def conclude(self, distributed: int, delayed: Mapping[int, int], kinds: Kinds) -> Iterable[Span]:
        """Draw the conclusions from what was applied, before the state is dumped, compared or made live.

        `distributed`: the topic's; `delayed`: messages that were published with a delay, ordinal to due. Returns the spans that
        the reader turns out not to reference. More records may be applied afterwards.
        """

    @property
    @abstractmethod
    def reached(self) -> int:
        """Return the ordinal after the last message that the reader knows of."""

    @abstractmethod
    def figures(self, distributed: int, plain: list[Span]) -> dict[str, int]:
        """Count the messages that a start will put into each state. The state is settled. `plain`: as in `revive`."""

    @abstractmethod
    def delivered(self) -> int:
        """Count the messages that were delivered, are not finished, and are ready after a start. The state is settled.

        They were in flight, or had come back at once: for messages, the log does not distinguish these.
        """

    def dues(self, ordinals: Collection[int], delayed: Mapping[int, int]) -> dict[int, int]:
        """Return, by ordinal, when those of `ordinals` are due that still wait here for the delay of their publish.

        Walks everything that waits. `delayed`: as in `conclude`.
        """
        return {}

    @abstractmethod
    def dump(self, queued: DeferredPages) -> list[Any]:
        """Return the array that a checkpoint holds, for msgpack. `queued`: the messages in the topic's delay queue."""

    def details(self, topic: int, offset: int) -> Iterator[tuple[RecordKind, bytes]]:
        """Yield the records that follow the topic's in a checkpoint. `offset`: ns from the state's clock to the log's."""
        return iter(())

    @staticmethod
    @abstractmethod
    def begin(number: int, name: str, start: int) -> list[Any]:
        """Return the array, as `dump` does, of a reader that was just made."""

    @classmethod
    @abstractmethod
    def load(cls, array: list[Any], offset: int, distributed: int, queued: list[Page], kinds: Kinds) -> Self:
        """Return the state that `dump` returned as `array`, with every time moved by `offset` (ns).

        `queued`: the messages before `distributed`, the topic's, that wait in the topic's delay queue.
        """

    def carry_over(self, before: Self) -> None:  # noqa: B027 (most kinds have no use for it)
        """Keep what is needed of `before`, the state before the checkpoint: the checkpoint may break off in the middle."""

    @abstractmethod
    def referenced_spans(self, distributed: int, kinds: Kinds) -> Iterator[Span]:
        """Yield the spans (first, end) that a state that was just loaded references, except for those that `flags` returns."""

    def flags(self, first: int, end: int) -> bytes:
        """Return a byte for each of messages first..end: 1 if the reader references it alone. b"" if it references none so."""
        return b""

    @classmethod
    @abstractmethod
    def from_reader(cls, reader: Reader, written: WrittenChunks) -> Self:
        """Return the part of a live reader of this kind that survives a restart, with monotonic times.

        `written`: chunks that the checkpoint has already, and that the state may name instead of holding them.
        """

    @abstractmethod
    def revive(self, reader: Reader, plain: list[Span], queued: DeferredPages, offset: int, now: int) -> None:
        """Fill a live reader of this kind, which was just made, with this state, which is settled.

        `plain`: the spans of the topic's remaining messages that were published without a delay, up to the distributed offset.
        `queued`: the messages that the topic's delay queue will release. The state's times are `offset` ns later than the
        monotonic clock's. `now`: monotonic ns.
        """
