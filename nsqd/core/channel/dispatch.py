"""Round-robin delivery: which consumers of a channel can be given messages, and what share each one gets.

`ready` has every consumer with an open RDY window whose sink has room. These are served in turn, each with an equal share of
the ready messages, as far as its window and its room allow. A consumer with a sample rate gets a random part of its share, and
the rest is discarded. If delivery is topology-aware, the nearest consumers come first.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

from nsqd.core.channel.consumer import ELSEWHERE, SAME_REGION, SAME_ZONE, Consumer
from nsqd.core.channel.inflight import DeliveryOwner
from nsqd.core.message.frame import message_id

# calls of put_in_flight in a turn: 10 ms if each returns one message, as from a retry queue
TAKEN_AT_ONCE = 1000


class Supply(Protocol):
    """The source of the messages that are delivered: a channel."""

    def put_in_flight(self, consumer: Consumer, count: int, room: int, now: int) -> list[bytes]:
        """Put the next messages in flight at `consumer` and return their frames.

        There are at most `count` of them, and at most `room` bytes unless a single frame is larger. Return an empty list if
        no message is ready, or if the next one must be read from disk first.
        """

    def finish_undelivered(self, consumer: Consumer, message_id: bytes) -> None:
        """Finish a message that `put_in_flight` just returned for the consumer, which does not get it."""


class Dispatch:
    """The ready consumers of one channel, in the order in which they are served."""

    __slots__ = ("_takes_left", "deliveries", "nearest_first", "random_below", "ready")

    def __init__(self, nearest_first: bool, random_below: Callable[[int], int]) -> None:
        """Begin without ready consumers. `nearest_first`: serve by distance. `random_below(n)` returns a number in 0..n-1."""
        self.ready: dict[Consumer, None] = {}  # in the order of their turns; each had room when its sink was last asked
        self.deliveries = [0, 0, 0]  # number of messages by the consumer's distance, counted if `nearest_first`
        self.nearest_first = nearest_first
        self.random_below = random_below
        self._takes_left = 0  # in this turn: see TAKEN_AT_ONCE

    def join(self, consumer: Consumer) -> None:
        """Add a new consumer. Nothing is to be done before its RDY count."""

    def refresh(self, consumer: Consumer) -> bool:
        """Look again at the window and the sink of `consumer`. Return True if it has just become ready."""
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
        """Close the window of `consumer` and remove it from the ready ones."""
        consumer.ready = 0
        self.ready.pop(consumer, None)

    def leads(self, channel: object) -> bool:
        """Return True unless the channel is a shard of another one (window.py)."""
        return True

    def close(self) -> None:
        """Prepare for the end of the channel: let it have no shards, and be none (window.py)."""

    def pass_on(self) -> None:
        """Let other shards deliver: the channel was woken, and can deliver nothing after all."""

    def serve(self, supply: Supply, depth: int, now: int) -> None:
        """Give each ready consumer its share of `depth` messages, once, or the first of them a part of their shares."""
        self._takes_left = TAKEN_AT_ONCE
        if self.nearest_first:
            self._serve_by_distance(supply, depth, now)
        else:
            self._serve(supply, len(self.ready), depth, now)

    def _serve_by_distance(self, supply: Supply, depth: int, now: int) -> None:
        """Serve the nearest consumers first; farther ones get the rest, as in later versions of nsqd."""
        for distance in (SAME_ZONE, SAME_REGION, ELSEWHERE):
            group = [consumer for consumer in self.ready if consumer.distance == distance]
            before = self._message_count(group)
            again, last = group, depth + 1
            while again and last > depth > 0:
                last = depth
                order = dict.fromkeys(again) | self.ready  # they come to the front, in their order
                self.ready.clear()
                self.ready.update(order)  # in place: shards share it
                depth = self._serve(supply, len(again), depth, now)
                # The shares were too small if some consumer had no room for its share, so the others are served again. A
                # consumer that samples is served once: it could take the whole backlog.
                again = [consumer for consumer in again if consumer in self.ready and not consumer.sample_rate]
            self.deliveries[distance] += self._message_count(group) - before

    def _message_count(self, consumers: list[Consumer]) -> int:
        """Return the number of messages that the channel has delivered to these consumers."""
        return sum(consumer.message_count for consumer in consumers)

    def _serve(self, supply: Supply, waiting: int, depth: int, now: int) -> int:
        """Give each of the first `waiting` ready consumers its share, once. Return the number of messages that is left."""
        ready = self.ready
        while waiting > 0 and depth > 0 and self._takes_left:
            consumer = next(iter(ready))
            del ready[consumer]  # it is appended below if it stays ready, so the turn rotates
            depth = self._deliver_share(supply, consumer, -(-depth // waiting), depth, now)
            waiting -= 1
            if consumer.room > 0 and consumer.ready > consumer.in_flight:
                ready[consumer] = None
        return depth

    def _deliver_share(self, supply: Supply, consumer: Consumer, share: int, depth: int, now: int) -> int:
        """Deliver up to `share` messages at once, as window and sink allow. Return the number of messages that is left."""
        room, rate = consumer.sink.room(), consumer.sample_rate  # the sink may make the window smaller
        count = min(share, consumer.ready - consumer.in_flight)
        frames: list[bytes] = []
        size = 0
        while count > 0 and room > size and self._takes_left:
            self._takes_left -= 1
            taken = supply.put_in_flight(consumer, 1 if rate else count, room - size, now)
            if not taken:
                depth = 0
                break
            count -= len(taken)
            depth -= len(taken)
            if rate and self.random_below(100) > rate:
                supply.finish_undelivered(consumer, message_id(taken[0]))
                continue
            frames += taken
            size += sum(map(len, taken))
        if frames:
            consumer.message_count += len(frames)
            consumer.sink.deliver(frames, size, now)
        # the sink is full: being asked again, it knows that it must report when it has room
        consumer.room = room - size if room > size else consumer.sink.room()
        return depth

    def check_consumers(self, consumers: Mapping[DeliveryOwner, Consumer]) -> None:
        """Raise AssertionError if the ready consumers do not agree with `consumers`, those of the channel."""
        assert all(consumer in consumers for consumer in self.ready)

    def check(self) -> None:
        """Raise AssertionError if an invariant of this class does not hold."""
        assert all(consumer.ready > consumer.in_flight and consumer.room > 0 for consumer in self.ready)

    def __repr__(self) -> str:
        return f"<Dispatch: {len(self.ready)} ready>"
