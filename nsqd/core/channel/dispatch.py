"""Whose turn it is: the consumers of a channel that can be given messages, and the share of each.

Every consumer whose RDY window is open and whose sink has room stands in `ready`. They are served in turn, each with an equal
share of what there is, as far as its window and its room allow. A consumer with a sample rate gets a part of its share; the
rest is discarded. If delivery is topology-aware, the nearest consumers come first.
"""

from collections.abc import Callable
from typing import Protocol

from nsqd.core.channel.consumer import ELSEWHERE, SAME_REGION, SAME_ZONE, Consumer
from nsqd.core.message.frame import message_id


class Supply(Protocol):
    """Where messages come from: a channel."""

    def take(self, consumer: Consumer, count: int, room: int, now: int) -> list[bytes]:
        """The next messages, in flight at `consumer` from now on: at most `count`, and `room` bytes unless one is larger.

        An empty list if there are none, or if they cannot be had now.
        """

    def discard(self, consumer: Consumer, message_id: bytes) -> None:
        """The consumer shall not get the message that it was just given: it is finished."""


class Dispatch:
    """See above. A channel has one."""

    __slots__ = ("_nearest_first", "_random_below", "deliveries", "ready")

    def __init__(self, nearest_first: bool, random_below: Callable[[int], int]) -> None:
        """`random_below(n)` gives a number in 0..n-1."""
        self.ready: dict[Consumer, None] = {}  # the next to be served first; each had room when it was last asked
        self.deliveries = [0, 0, 0]  # messages by the consumer's distance, if the nearest come first
        self._nearest_first = nearest_first
        self._random_below = random_below

    def refresh(self, consumer: Consumer) -> bool:
        """The window or the sink of `consumer` has changed. True: it can be given messages now, and could not before."""
        if consumer.ready <= consumer.in_flight:
            self.ready.pop(consumer, None)
            return False
        if consumer in self.ready:
            return False
        consumer.room = consumer.sink.room()
        if consumer.room > 0:
            self.ready[consumer] = None
        return consumer.room > 0

    def remove(self, consumer: Consumer) -> None:
        """The window of `consumer` is closed for good."""
        consumer.ready = 0
        self.ready.pop(consumer, None)

    def serve(self, supply: Supply, depth: int, now: int) -> None:
        """Give each ready consumer its share of `depth` messages, once."""
        if self._nearest_first:
            self._serve_by_distance(supply, depth, now)
        else:
            self._serve(supply, len(self.ready), depth, now)

    def _serve_by_distance(self, supply: Supply, depth: int, now: int) -> None:
        """The nearest consumers first; others get what these have no room for (as in later versions of nsqd)."""
        for distance in (SAME_ZONE, SAME_REGION, ELSEWHERE):
            group = [consumer for consumer in self.ready if consumer.distance == distance]
            before = sum(consumer.message_count for consumer in group)
            again, last = group, depth + 1
            while again and last > depth > 0:
                last = depth
                self.ready = dict.fromkeys(again) | self.ready  # to the front, in their order
                depth = self._serve(supply, len(again), depth, now)
                # The shares were too small if a consumer had no room for its own. One that samples is served once: it
                # could go on through the whole backlog.
                again = [consumer for consumer in again if consumer in self.ready and not consumer.sample_rate]
            self.deliveries[distance] += sum(consumer.message_count for consumer in group) - before

    def _serve(self, supply: Supply, waiting: int, depth: int, now: int) -> int:
        """Give each of the first `waiting` ready consumers its share, once. Returns the depth that is left."""
        ready = self.ready
        while waiting > 0 and depth > 0:
            consumer = next(iter(ready))
            del ready[consumer]  # it goes behind the others if it stays ready: the start rotates
            depth = self._give(supply, consumer, -(-depth // waiting), depth, now)
            waiting -= 1
            if consumer.room > 0 and consumer.ready > consumer.in_flight:
                ready[consumer] = None
        return depth

    def _give(self, supply: Supply, consumer: Consumer, share: int, depth: int, now: int) -> int:
        """Deliver up to `share` messages in one piece, as window and sink allow. Returns the depth that is left."""
        count = min(share, consumer.ready - consumer.in_flight)
        room, rate = consumer.sink.room(), consumer.sample_rate
        frames: list[bytes] = []
        size = 0
        while count > 0 and room > size:
            taken = supply.take(consumer, 1 if rate else count, room - size, now)
            if not taken:
                depth = 0
                break
            count -= len(taken)
            depth -= len(taken)
            if rate and self._random_below(100) > rate:
                supply.discard(consumer, message_id(taken[0]))
                continue
            frames += taken
            size += sum(map(len, taken))
        if frames:
            consumer.message_count += len(frames)
            consumer.sink.deliver(frames, size, now)
        # asked again: it is to tell when there is some
        consumer.room = room - size if room > size else consumer.sink.room()
        return depth

    def check(self) -> None:
        """Raise AssertionError if a sentence above is false."""
        assert all(consumer.ready > consumer.in_flight and consumer.room > 0 for consumer in self.ready)

    def __repr__(self) -> str:
        return f"<Dispatch: {len(self.ready)} ready>"
