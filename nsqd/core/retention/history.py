"""Reading a topic back, finished messages included: the protocols and types between storage and HTTP.

An offset is a message's place in its topic's sequence on this node: dense, ascending, never given twice. Everything published
from `first` on can be read, except messages that are not durable yet. Reading changes nothing.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from nsqd.core.message.attributes import NONE, Attributes, unpack
from nsqd.core.message.frame import cut, split
from nsqd.core.retention.cursors import Cursor


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The range of offsets that can be read now."""

    log: str  # owner of the offsets: the log's id and the topic's number; new with each data directory or topic
    first: int  # the lowest offset that can be read
    next: int  # the offset after the last message that can be read
    # the logs that this one was restored from, each with the offset up to which its offsets mean the same messages here
    parents: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Amount:
    """The amount of messages in a window."""

    size: int  # bytes on disk, about
    oldest: int  # when the first message was published, ns since the epoch; 0: there is none
    newest: int  # when the last message was published, ns since the epoch; 0: there is none


@dataclass(frozen=True, slots=True)
class MessageBatch:
    """Consecutive messages of a topic, which share their attributes."""

    first: int  # offset of the first message
    count: int
    largest: int  # bytes of the largest frame
    frames: bytes  # end to end, as consumers get them (nsqd/core/message/frame.py)
    packed: bytes = b""  # attributes of the messages (nsqd/core/message/attributes.py)

    @property
    def attributes(self) -> Attributes:
        """Return the attributes of the first message. All messages have the same, except for the producer's sequence."""
        return unpack(self.packed, self.first)

    @property
    def end(self) -> int:
        """Return the offset after the last message."""
        return self.first + self.count

    def part(self, first: int, end: int) -> "MessageBatch":
        """Return the messages with the indexes first..end of this batch (`end` excluded)."""
        if end - first == self.count:
            return self
        frames = cut(self.frames, self.count, self.largest, first, end)
        return MessageBatch(self.first + first, end - first, self.largest, frames, self.packed)

    def messages(self) -> Iterator[tuple[int, bytes]]:
        """Yield the offset and the frame of each message."""
        return enumerate(split(self.frames, 0, len(self.frames), self.count, self.largest), self.first)


class MessagesGone(Exception):
    """The messages of a plan were removed after the plan was made."""


class Plan(Protocol):
    """A plan to read a part of a topic. Any thread may use it."""

    def read(self) -> tuple[list[MessageBatch], int]:
        """Return the messages, ascending, and the offset at which to continue.

        Messages before that offset that are not among them are corrupt. Raises MessagesGone, OSError.
        """


def read_messages(plans: Iterable[Plan], ordinals: Container[int]) -> Iterator[tuple[int, bytes, Attributes]]:
    """Read plans, and yield the ordinal, the frame and the attributes of each of these messages that is not corrupt.

    Raises MessagesGone, OSError.
    """
    for plan in plans:
        for batch in plan.read()[0]:
            for ordinal, frame in batch.messages():
                if ordinal in ordinals:
                    yield ordinal, frame, batch.attributes.behind(ordinal - batch.first) if batch.packed else NONE


class History(Protocol):
    """The reader of topics' histories in one log. Its methods are for the trio thread."""

    @property
    def log_id(self) -> bytes:
        """Return the id of the log."""

    def window(self, topic: int) -> OffsetRange:
        """Return the range of the topic's offsets that can be read."""

    def amount(self, topic: int) -> Amount:
        """Return the amount that can be read of the topic. Looks at every extent."""

    def await_messages(self, topic: int, end: int, until: int, ready: Callable[[], None]) -> None:
        """Call `ready` once, in the trio thread, when everything before `end` can be read or the topic is deleted.

        At the latest `ready` is called in the first turn from `until` (monotonic ns) on.
        """

    def end_waiting(self) -> None:
        """Call `ready` of all that await messages, now and from now on."""

    def plan(self, topic: int, start: int, end: int, most: int) -> Plan:
        """Plan to read from `start` up to `end` at most: about `most` bytes, but at least one message if there is one."""

    def plans_of(self, topic: int, ordinals: list[int]) -> Sequence[Plan]:
        """Plan to read these messages, which must be referenced; the plans may cover messages between them."""

    def plan_for(self, topic: int, stamp: int) -> tuple[int, Plan]:
        """Locate the first message that was published at `stamp` (ns since the epoch) or later.

        Returns an offset and a plan. If the message is not in the plan, it is the one at the offset.
        """


@dataclass(frozen=True, slots=True)
class PastTopic:
    """A topic in a log that can only be read."""

    number: int
    cursors: Mapping[str, Cursor]


class PastLog(Protocol):
    """A log that can only be read, as it was at one moment: a replica of another node's log. For the trio thread."""

    @property
    def log_id(self) -> bytes:
        """Return the id of the log."""

    @property
    def node(self) -> int:
        """Return the number of the node that published into the log."""

    @property
    def history(self) -> History:
        """Return the reader of the log's topics."""

    def topic(self, name: str) -> PastTopic | None:
        """Return the topic of that name; None if the log has none."""
