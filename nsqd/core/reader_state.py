"""The durable state of a reader of a topic: what each kind of reader brings along.

Replay makes it from the log's records, a checkpoint holds it, a start makes a live reader of it; none of them knows a kind. The
state of a kind stands beside its live class; nsqd/core/topic_state.py has the list of kinds.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from nsqd.core import records
from nsqd.core.reader import Kind as ReaderKind
from nsqd.core.reader import Reader
from nsqd.core.records import Kind
from nsqd.core.sequence.finished import Span
from nsqd.core.sequence.puts import Terms
from nsqd.core.timing.pages import Page

# What there is of the messages first..end of a topic: (first, end, whether it was published with a delay), ascending.
Kinds = Callable[[int, int], Iterable[tuple[int, int, bool]]]


@dataclass(slots=True)
class ReaderState(ABC):
    """See above. Ordinals are places in the topic; times are ns of one clock, the log's for what comes from the log."""

    kind: ClassVar[ReaderKind]  # a byte in the log
    has_own_times: ClassVar[bool] = False  # what is published with a delay waits in the reader, not in the topic

    number: int
    name: str
    start: int  # messages before it are not the reader's

    @abstractmethod
    def apply(self, kind: Kind, content: bytes) -> Iterable[Span]:
        """A record that names the reader. Returns what it does not owe any more because of that, as (first, end)."""

    @abstractmethod
    def finish(self, first: int, end: int) -> None:
        """The reader is done with messages first..end: finished, dropped, or never meant for it."""

    def _finish(self, content: bytes) -> list[Span]:
        """A FINISH record. Returns what it says."""
        spans = [(first, first + count) for first, count in records.RUN.iter_unpack(content[records.CHANNEL_OF.size :])]
        for first, end in spans:
            self.finish(first, end)
        return spans

    def expect(  # noqa: B027 (most kinds have no use for it)
        self, first: int, count: int, terms: Terms, numbers: list[int], created: int
    ) -> None:
        """Messages `first`.. were published on these terms. `numbers`: their ids, if the edge passed them at once; else []."""

    @abstractmethod
    def drop(self, edge: int) -> list[Span]:
        """Everything it owes of what is before `edge`, the topic's."""

    @abstractmethod
    def settle(self, edge: int, delayed: Mapping[int, int], kinds: Kinds) -> Iterable[Span]:
        """Draw the conclusions from what was applied, before the state is dumped, compared or made live.

        `edge`: the topic's; `delayed`: messages that were published with a delay, ordinal to due. Returns what is not owed.
        Applying may go on afterwards.
        """

    @property
    @abstractmethod
    def reached(self) -> int:
        """The ordinal behind the last message that the reader knows of."""

    @abstractmethod
    def figures(self, edge: int, plain: list[Span]) -> dict[str, int]:
        """How many messages of a settled state are in which state after a start. `plain`: as in `revive`."""

    def dues(self, ordinals: Collection[int], delayed: Mapping[int, int]) -> dict[int, int]:
        """When those of the ordinals are due that still wait here for the delay they were published with.

        Walks what waits. `delayed`: as in `settle`.
        """
        return {}

    @abstractmethod
    def dump(self) -> list[Any]:
        """What a checkpoint holds, for msgpack."""

    def details(self, topic: int, offset: int) -> Iterator[tuple[Kind, bytes]]:
        """The records that follow the topic's in a checkpoint. `offset`: from the state's clock to the log's."""
        return iter(())

    @staticmethod
    @abstractmethod
    def begin(number: int, name: str, start: int) -> list[Any]:
        """The same of a reader that was just made."""

    @classmethod
    @abstractmethod
    def load(cls, array: list[Any], offset: int, edge: int, lane: Page, kinds: Kinds) -> Self:
        """What was dumped, with every time moved by `offset`. `lane`: what waits in the topic's delay lane before `edge`."""

    def carry_over(self, before: Self) -> None:  # noqa: B027 (likewise)
        """This was loaded from a checkpoint that may break off. `before`: the state up to it."""

    @abstractmethod
    def owed(self, edge: int, kinds: Kinds) -> Iterator[Span]:
        """What a state that was just loaded owes, as (first, end), but for `flags`."""

    def flags(self, first: int, end: int) -> bytes:
        """For each of messages first..end 1 if it is owed by itself; b"" if none is."""
        return b""

    @classmethod
    @abstractmethod
    def of(cls, reader: Reader) -> Self:
        """What of a live reader of this kind survives a restart, by the monotonic clock."""

    @abstractmethod
    def revive(self, reader: Reader, plain: list[Span], offset: int, now: int) -> None:
        """Fill a live reader of this kind that was just made with the state, which is settled.

        `plain`: what there is of the topic's messages that were published without a delay, up to the edge; the state's
        times are later by `offset` than the monotonic clock's.
        """
