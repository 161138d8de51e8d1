"""A consumer: one subscriber of a channel, with its RDY window and where its messages go.

It decides nothing: the channel moves messages, `Dispatch` says whose turn it is, `InFlight` counts what a consumer has.
"""

from collections import deque
from typing import Protocol

from nsqd.core.channel.inflight import Run

SAME_ZONE, SAME_REGION, ELSEWHERE = 0, 1, 2  # where a consumer is, as seen from this node


class Sink(Protocol):
    """Where a consumer's messages go: the connection, or a test."""

    def deliver(self, frames: list[bytes], size: int, now: int) -> None:
        """Take frames (`size` bytes in all) to send."""

    def room(self) -> int:
        """Bytes it takes now; a delivery of n bytes makes that n less.

        At most 0: none. Whoever owns the sink calls Channel.refresh when there is room again.
        """

    def flush(self) -> None:
        """Hold nothing back: the consumer has stopped being ready."""

    def evicted(self) -> None:
        """The channel is gone; the connection is to be closed."""


class _Gone:
    """The sink of a consumer whose connection is gone: nothing of that connection is kept until its time-outs."""

    def deliver(self, frames: list[bytes], size: int, now: int) -> None:
        raise AssertionError("nothing is delivered to a consumer that is gone")

    def room(self) -> int:
        return 0

    def flush(self) -> None:
        pass

    def evicted(self) -> None:
        pass


GONE = _Gone()


class Consumer:
    """See above. Created by Channel.subscribe; the channel, its Dispatch and its InFlight change it."""

    __slots__ = (
        "distance",
        "finish_count",
        "in_flight",
        "message_count",
        "msg_timeout",
        "ready",
        "requeue_count",
        "room",
        "runs",
        "sample_rate",
        "sink",
    )

    def __init__(self, sink: Sink, msg_timeout: int, sample_rate: int, distance: int) -> None:
        self.sink = sink
        self.msg_timeout = msg_timeout  # ns a delivery may take
        self.sample_rate = sample_rate  # 0: all; s: each message is kept with (s + 1) %
        self.distance = distance  # SAME_ZONE, SAME_REGION or ELSEWHERE: the nearer is served first
        self.ready = 0  # the RDY window
        self.room = 0  # bytes that its sink had left when it was last asked; at most 0: Channel.refresh asks again
        self.in_flight = 0  # messages delivered, and neither finished nor handed back nor timed out
        self.runs: deque[Run] = deque()  # of those, the ones in order: see Owner
        self.message_count = 0  # deliveries
        self.finish_count = 0
        self.requeue_count = 0

    def __repr__(self) -> str:
        state = "gone" if self.sink is GONE else f"room for {self.room} bytes"
        return f"<Consumer: RDY {self.ready}, {self.in_flight} in flight, {state}>"
