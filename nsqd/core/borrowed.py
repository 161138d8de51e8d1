"""Messages of another node's channel that are lent to consumers here: a stripe of the channel here, kept in memory only.

The consumers of the home channel get these messages as they get those of any stripe (window.py). What becomes of a message is
told to its lender: it is finished, or it goes back, with or without a delay, and with or without a failure. Nothing waits here
for a time but the time-outs of deliveries, and nothing is buried here.

See docs/design/cluster.md#sharing-channels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from nsqd.core.broker import Broker
from nsqd.core.channel.channel import Channel
from nsqd.core.channel.window import link, unlink
from nsqd.core.message.frame import STAMP, message_id
from nsqd.core.reader import Parts
from nsqd.core.sequence.extent import Extent
from nsqd.core.sequence.mark import Mark
from nsqd.core.sequence.offsets import TopicOffsets
from nsqd.core.timing.deferred import Message
from nsqd.core.timing.pause import Pause

UNDELIVERED = -1  # in place of a delay: no consumer has got the message, and the delivery does not count
NOT_FAILED = -2  # in place of a delay: a consumer has got the message, and the delivery did not fail
_ATTEMPTS = slice(16, 18)  # the bytes of a frame that hold its attempts


class Lender(Protocol):
    """The node that lends messages, as their channel here needs it."""

    def finished(self, ids: list[bytes]) -> None:
        """Take note that messages are finished, by their ids."""

    def returned(self, message_id: bytes, delay: int) -> None:
        """Take a message back that failed, to be ready again after so many ns. `delay`: UNDELIVERED or NOT_FAILED: at once."""


class BorrowedMessages:
    """The lent messages, by ordinals that they have here only. Implements Extents and ReaderJournal."""

    __slots__ = ("_lender", "extents_by_ordinal", "last", "ordinals")

    def __init__(self, lender: Lender) -> None:
        self._lender = lender
        self.extents_by_ordinal: dict[int, Extent] = {}  # of one message each
        self.ordinals: dict[bytes, int] = {}  # by id of the message
        self.last = -1  # ordinal

    def add(self, frame: bytes) -> int:
        """Add a message. Returns its ordinal."""
        self.last += 1
        extent = Extent(self.last, False)
        extent.frames.append(frame)
        extent.ids += message_id(frame)
        extent.largest = len(frame)
        self.extents_by_ordinal[self.last] = extent
        self.ordinals[bytes(extent.ids)] = self.last
        return self.last

    def forget(self, ordinal: int) -> bytes:
        """Forget a message. Returns its id."""
        name = bytes(self.extents_by_ordinal.pop(ordinal).ids)
        del self.ordinals[name]
        return name

    def give_back(self, ordinal: int, delay: int) -> None:
        """Give a message back to its lender. See Lender.returned."""
        self._lender.returned(self.forget(ordinal), delay)

    def __repr__(self) -> str:
        return f"<BorrowedMessages: {len(self.extents_by_ordinal)}>"

    # Extents

    def read(self, ordinal: int) -> Extent | None:
        return self.extents_by_ordinal[ordinal]

    def extents(self, first: int, end: int) -> Iterable[tuple[int, int, bool]]:
        return [(ordinal, ordinal + 1, False) for ordinal in self.extents_by_ordinal if first <= ordinal < end]

    def cold(self, first: int, end: int) -> int:
        return 0

    def frame_in_memory(self, ordinal: int, attributes: bool = True) -> bytes:
        extent = self.extents_by_ordinal.get(ordinal)
        return extent.frames[0] if extent is not None else b""

    def copied_end(self) -> int:
        return self.last + 1

    def published(self, ordinal: int) -> int:
        return int.from_bytes(self.frame_in_memory(ordinal)[STAMP])

    def published_plain(self, ordinal: int) -> int:
        return self.published(min((one for one in self.extents_by_ordinal if one >= ordinal), default=-1))

    def file_number(self, ordinal: int) -> int:
        return 0

    # ReaderJournal: the lender records what happens

    def promise(self) -> tuple[Mark, ...]:
        return ()

    def finish(self, first: int, count: int) -> None:
        self._lender.finished([self.forget(ordinal) for ordinal in range(first, first + count)])

    def finish_all(self, end: int) -> None:
        pass

    def release(self, first: int, end: int) -> None:
        pass

    def advance(self, cursor: int) -> None:
        pass

    def requeue(self, ordinal: int, attempts: int, failures: int, due: int) -> None:
        pass

    def bury(self, ordinal: int, message_id: bytes, attempts: int, failures: int, reason: str) -> None:
        raise AssertionError("nothing is buried but by its owner")

    def job(self, ordinal: int, row: bytes) -> None:
        raise AssertionError("a channel has no jobs")

    def pause(self, paused: Pause | None) -> None:
        pass

    def drop(self) -> None:
        pass


class BorrowedChannel(Channel):
    """A stripe of what one other node lends."""

    is_borrowed = True

    __slots__ = ("_messages",)

    def __init__(self, parts: Parts, name: str, messages: BorrowedMessages, random_below: Callable[[int], int]) -> None:
        """Make an empty one. `borrow` does, and says what its parts are."""
        super().__init__(name, parts, False, False, None, None, random_below)
        self._messages = messages

    def add(self, frame: bytes) -> None:
        """Add a message that is lent, for the next consumer that has room.

        It takes the place of the same message, if that is here already: its lender has taken that back.
        """
        before = self._messages.ordinals.get(message_id(frame))
        if before is not None:
            self._drop(message_id(frame), before)
        attempts = int.from_bytes(frame[_ATTEMPTS])
        super().put_back(Message(self._messages.add(frame), attempts - 1))

    def _drop(self, name: bytes, ordinal: int) -> None:
        """Forget a message, also one that a consumer has: its FIN will fail."""
        holders = [one for one in self.consumers.values() if self.in_flight.take_out(one, name) is not None]
        if not holders:
            retry = self.backlog.retry
            kept = [entry for entry in retry if entry[1].ordinal != ordinal]
            retry.clear()
            retry.extend(kept)
        self._messages.forget(ordinal)
        for consumer in holders:
            self.refresh(consumer)

    @property
    def held(self) -> int:
        """Return how many messages are here."""
        return len(self._messages.ordinals)

    def pause(self, paused: Pause | None) -> None:
        """Stop deliveries, and give back what no consumer has got; None: resume them."""
        super().pause(paused)
        if paused:
            self.give_back_waiting()

    def put_back(self, message: Message) -> None:
        """Give a message back whose delivery is over."""
        self._messages.give_back(message.ordinal, 0 if message.failures else NOT_FAILED)

    def wait(self, message: Message, due: int, now: int) -> None:
        """Give a message back that is to wait until `due` (monotonic ns; 0: it is to be ready at once)."""
        if due:
            self._messages.give_back(message.ordinal, max(0, due - now))
        else:
            self.put_back(message)

    def give_back_waiting(self) -> None:
        """Give back all messages that no consumer has got."""
        waiting = [message.ordinal for _, message in self.backlog.retry]
        self.backlog.retry.clear()
        for ordinal in waiting:
            self._messages.give_back(ordinal, UNDELIVERED)

    def empty(self) -> None:
        """Give back all messages: they are the lender's to drop."""
        self.give_back_waiting()
        for first, count in list(self.in_flight.spans()):
            for ordinal in range(first, first + count):
                self._messages.give_back(ordinal, NOT_FAILED)
        self.in_flight.clear()
        for consumer in self.consumers.values():
            self.refresh(consumer)


def borrow(broker: Broker, home: Channel, lender: Lender) -> BorrowedChannel:
    """Return a new stripe of `home` for what `lender` lends to its consumers. `broker`: the node's own, which has `home`."""
    messages = BorrowedMessages(lender)
    parts = Parts(home.topic_name, 0, TopicOffsets(0), messages, messages, broker.agenda, broker.limits, 0)
    channel = BorrowedChannel(parts, home.name, messages, broker.context.random_below)
    broker.scan.add(channel)
    link(home, channel)
    return channel


def end(broker: Broker, channel: BorrowedChannel) -> None:
    """Forget a stripe with all that it has: FINs for what is in flight will fail."""
    unlink(channel)
    broker.scan.discard(channel)
    broker.agenda.remove_reader(channel)
