"""What can be read back of a topic, whoever has finished it: the shapes that storage gives and HTTP tells.

An offset is a message's place in its topic's sequence on this node: dense, ascending, never given twice. All that was published
from `first` on is there; what is not yet durable is not told of. Reading changes nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from nsqd.core.message.attributes import Attributes, unpack
from nsqd.core.message.frame import cut, split


@dataclass(frozen=True, slots=True)
class Window:
    """What is there now."""

    log: str  # whose offsets these are: the log's id and the topic's number; others after a new data directory or topic
    first: int  # the lowest offset that can be read
    next: int  # the offset behind the last one


@dataclass(frozen=True, slots=True)
class Amount:
    """How much that is."""

    size: int  # bytes on disk, about
    oldest: int  # when the first was published, ns since the epoch; 0: nothing is there
    newest: int  # likewise the last


@dataclass(frozen=True, slots=True)
class Batch:
    """Consecutive messages."""

    first: int  # offset
    count: int
    largest: int  # bytes of the largest frame
    frames: bytes  # end to end, as consumers get them (nsqd/core/message/frame.py)
    packed: bytes = b""  # attributes of the messages (nsqd/core/message/attributes.py)

    @property
    def attributes(self) -> Attributes:
        """Those of the first message; but for a sequence they are those of all."""
        return unpack(self.packed, self.first)

    @property
    def end(self) -> int:
        """The offset behind the last."""
        return self.first + self.count

    def part(self, first: int, end: int) -> "Batch":
        """The messages from the `first`th up to the `end`th, which is behind it."""
        if end - first == self.count:
            return self
        frames = cut(self.frames, self.count, self.largest, first, end)
        return Batch(self.first + first, end - first, self.largest, frames, self.packed)

    def messages(self) -> Iterator[tuple[int, bytes]]:
        """Each message's offset, and its frame."""
        return enumerate(split(self.frames, 0, len(self.frames), self.count, self.largest), self.first)


class Gone(Exception):
    """What was to be read has been removed since it was planned."""


class Plan(Protocol):
    """A part of a topic that is to be read. In any thread."""

    def read(self) -> tuple[list[Batch], int]:
        """The messages, ascending, and the offset to go on at: before it, what is not among them is damaged.

        Raises Gone, OSError.
        """


class History(Protocol):
    """Its methods are for the trio thread."""

    def window(self, topic: int) -> Window:
        """What is there of the topic."""

    def amount(self, topic: int) -> Amount:
        """How much there is. Looks at every extent."""

    def watch(self, topic: int, end: int, until: int, ready: Callable[[], None]) -> None:
        """Have `ready` called in the trio thread, once: when everything before `end` can be read, or the topic is gone, or in
        the first turn from `until` (monotonic ns) on."""

    def plan(self, topic: int, start: int, end: int, most: int) -> Plan:
        """To read from `start` up to `end` at the most: about `most` bytes, but at least one message if there is one."""

    def plans_of(self, topic: int, ordinals: list[int]) -> Sequence[Plan]:
        """To read these messages, which somebody owes, and some beside them."""

    def plan_for(self, topic: int, stamp: int) -> tuple[int, Plan]:
        """Where the first message is that was published at `stamp` (ns since the epoch) or later: in this plan; if it is not
        there, at this offset."""
