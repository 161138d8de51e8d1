"""Deliver to a consumer whose client's identity has limits: of messages in flight, and of bytes of output.

It stands between the consumer and its Subscription, so that consumers without such limits have nothing to ask. The channel
asks for room before each delivery. The answer is 0 if the account has no room, and the window of the consumer is otherwise
made as small as the room is: RDY is what the client asked for, and `wanted` keeps it.

Consumers without room take turns: when one finishes a message, the one that has waited longest is next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nsqd.core.channel.channel import Channel
from nsqd.core.channel.consumer import Consumer, ConsumerSink

if TYPE_CHECKING:  # only nodes with an auth file have accounts
    from collections.abc import Callable

    from nsqd.protocols.account import Usage


class LimitedSink:
    """The sink of such a consumer. Implements ConsumerSink, and nsqd.protocols.account.Blocked."""

    __slots__ = ("_ask_again", "_channel", "_consumer", "_is_its_turn", "_sink", "usage", "wanted")

    def __init__(
        self, sink: ConsumerSink, channel: Channel, consumer: Consumer, usage: Usage, ask_again: Callable[[], None]
    ) -> None:
        """`sink`: of the consumer before. `ask_again` is called when `wake` must follow soon."""
        self._sink, self._channel, self._consumer = sink, channel, consumer
        self._ask_again = ask_again
        self._is_its_turn = False  # no other waiting consumer is before this one, until it has got messages
        self.usage = usage
        self.wanted = consumer.ready  # messages: the RDY of the client

    def room(self) -> int:
        """Return the bytes of messages that the client may get now, and set the window to the number of messages."""
        usage = self.usage
        if usage.has_output:
            usage.client.outbox.refused = True  # when all of its output is sent, the channel asks again
            return 0
        if not usage.limits.in_flight:
            return self._sink.room()
        blocked, left = usage.account.blocked, usage.room()
        if left > 0 and (self._is_its_turn or not blocked or next(iter(blocked)) is self):
            blocked.pop(self, None)
            self._set_window(left)
            return self._sink.room()
        self._set_window(self.wanted)  # so that the channel asks again when a message of the consumer is finished
        self._wait_for_room()
        if left > 0:
            next(iter(blocked)).wake()
        return 0

    def _wait_for_room(self) -> None:
        blocked = self.usage.account.blocked
        if self not in blocked:
            blocked[self] = None
            self._ask_again()

    def _set_window(self, left: int) -> None:
        """Let the consumer have as many more messages in flight as are left, and as it wants."""
        consumer, window = self._consumer, self._consumer.window
        if window is None:
            consumer.ready = min(self.wanted, consumer.in_flight + left)
        else:
            window.count(consumer)
            window.rdy = min(self.wanted, window.taken + left)
            consumer.ready = consumer.in_flight + window.count(consumer)

    def wake(self) -> None:
        """Ask for messages again, before others that wait."""
        self.usage.account.blocked.pop(self, None)
        self._is_its_turn = True
        self.look_for_room()

    def look_for_room(self) -> None:
        """Have the channel ask for room."""
        self._set_window(self.wanted)
        self._channel.refresh(self._consumer)

    @property
    def is_blocked(self) -> bool:
        """Return True while there is no room in flight for the consumer."""
        return self in self.usage.account.blocked

    def leave(self) -> None:
        """Give the consumer back to the sink that it had, with the window that its client wants."""
        self.usage.account.blocked.pop(self, None)
        consumer = self._consumer
        consumer.sink = self._sink
        self._set_window(self.wanted)

    def deliver(self, frames: list[bytes], size: int, now: int) -> None:
        self._sink.deliver(frames, size, now)
        self._is_its_turn = False
        if self._consumer.in_flight >= self._consumer.ready < self.wanted:
            self._wait_for_room()

    def flush(self) -> None:
        self._sink.flush()

    def evicted(self) -> None:
        self.usage.account.blocked.pop(self, None)
        self._sink.evicted()
