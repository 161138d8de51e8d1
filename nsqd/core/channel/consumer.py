"""A consumer: one subscriber of a channel, with its RDY window and the sink that its messages go to.

A consumer decides nothing: the channel moves messages, `Dispatch` chooses whose turn it is, and `InFlight` counts what each
consumer has in flight.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from nsqd.core.channel.inflight import NOT_STUCK, InFlight, Run

SAME_ZONE, SAME_REGION, ELSEWHERE = 0, 1, 2  # where a consumer is, as seen from this node


class ConsumerSink(Protocol):
    """The receiving end of a consumer: its connection, or a test."""

    def deliver(self, frames: list[bytes], size: int, now: int) -> None:
        """Take frames, `size` bytes in all, to send to the client. `now`: monotonic ns."""

    def room(self) -> int:
        """Return the number of bytes that the sink takes now; a delivery of n bytes makes the room n smaller.

        At most 0 means no room. In that case the owner of the sink calls Channel.refresh when there is room again. The sink
        may make the consumer's window smaller or larger meanwhile.
        """

    def flush(self) -> None:
        """Send everything that is held back, because the consumer has stopped being ready."""

    def evicted(self) -> None:
        """Close the connection, because the channel was deleted."""


class _ClosedSink:
    """The sink of every consumer that has left, so that messages still in flight there do not keep the connection in memory."""

    def deliver(self, frames: list[bytes], size: int, now: int) -> None:
        raise AssertionError("nothing is delivered to a consumer that is gone")

    def room(self) -> int:
        return 0

    def flush(self) -> None:
        pass

    def evicted(self) -> None:
        pass


CLOSED_SINK = _ClosedSink()


class Window(Protocol):
    """How many messages a consumer may have in flight over the shards of its channel: ShardedWindow (window.py)."""

    local: Consumer  # the consumer of the node's own channel
    rdy: int  # messages that the client asked for
    taken: int  # messages that are in flight in all shards

    def count(self, member: Consumer) -> int:
        """Count what `member` has in flight now. Return how many more messages may be in flight; at most 0: none."""

    def total(self, count: str) -> int:
        """Return the sum of a count of the consumer in all shards, for example "finish_count"."""

    def in_flight(self) -> list[tuple[InFlight, Consumer]]:
        """Return the messages in flight of each shard, with the consumer there; those of the node's own channel first."""


class Consumer:
    """One subscriber of a channel. Channel.subscribe creates it; the channel, its Dispatch and its InFlight change it."""

    __slots__ = (
        "answered", "answered_at", "counted", "distance", "finish_count", "in_flight", "message_count", "msg_timeout",
        "ready", "requeue_count", "room", "runs", "sample_rate", "sink", "stuck_at", "takes_headers", "window",
    )  # fmt: skip

    def __init__(
        self, sink: ConsumerSink, msg_timeout: int, sample_rate: int, distance: int, takes_headers: bool = False
    ) -> None:
        self.sink = sink
        self.msg_timeout = msg_timeout  # ns until an unanswered delivery times out
        self.sample_rate = sample_rate  # 0: all; s: each message is kept with (s + 1) %
        self.distance = distance  # SAME_ZONE, SAME_REGION or ELSEWHERE: the nearer is served first
        self.takes_headers = takes_headers  # True: frames of messages with headers have them (frame.py)
        # the RDY window; with shards, what is in flight plus what is free of `window`
        self.ready = 0
        self.window: Window | None = None  # over the shards of the channel; None: it has none
        self.counted = 0  # of `in_flight`, what `window` knows of
        self.room = 0  # bytes that the sink had left when last asked; at most 0: Channel.refresh asks again
        self.in_flight = 0  # messages delivered, and neither finished nor requeued nor timed out
        self.runs: deque[Run] = deque()  # the runs of those messages that are in order: see DeliveryOwner
        self.answered = self.answered_at = -1  # see DeliveryOwner
        self.stuck_at = NOT_STUCK
        self.message_count = 0  # number of deliveries
        self.finish_count = 0
        self.requeue_count = 0

    def __repr__(self) -> str:
        state = "gone" if self.sink is CLOSED_SINK else f"room for {self.room} bytes"
        return f"<Consumer: RDY {self.ready}, {self.in_flight} in flight, {state}>"
