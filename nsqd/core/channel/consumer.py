"""A consumer: one subscriber of a channel, its RDY window, and what it has in flight.

In flight is kept in runs, as delivered: a run is finished whole by comparing bytes when FINs come in order (measured: 10 ns
a message), and falls apart into single messages only when they do not. The consumer never decides what is delivered; the
channel does.
"""

from collections import deque
from itertools import islice
from struct import unpack
from typing import TYPE_CHECKING, Protocol

from nsqd.core.message.frame import ID_SIZE

if TYPE_CHECKING:
    from nsqd.core.channel.channel import Channel

NOT_IN_FLIGHT = "ID not in flight"
NOT_OWNER = "client does not own message"
STAMP_SIZE = 8
SAME_ZONE, SAME_REGION, ELSEWHERE = 0, 1, 2  # where a consumer is, as seen from this node


class Sink(Protocol):
    """Where a consumer's messages go: the connection, or a test."""

    def deliver(self, frames: list[bytes], size: int, now: int) -> None:
        """Take frames (`size` bytes in all) to send."""

    def room(self) -> int:
        """Bytes it will take now; 0: ask again after Consumer.refresh()."""

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


class Run:
    """Consecutive messages of one delivery that are in flight: ordinals first.., deadlines alike.

    Either in order (`loose` is None: those from `head` on are in flight) or fallen apart (`loose` maps id to ordinal).
    """

    __slots__ = (
        "attempts",
        "deadline",
        "delivered",
        "first",
        "handle",
        "head",
        "ids",
        "last",
        "loose",
        "owner",
        "stamps",
    )

    def __init__(self, owner: "Consumer", first: int, ids: bytes, attempts: int, delivered: int, deadline: int) -> None:
        self.owner = owner
        self.first = first  # ordinal of the message with the first of `ids`
        self.ids = ids  # 16 bytes each
        self.last = ids[-ID_SIZE:]  # the highest of them
        self.attempts = attempts  # deliveries of each of its messages, this one included
        self.delivered = delivered  # ns
        self.deadline = deadline  # ns; its entry in the channel's in-flight queue
        self.handle = -1  # of that entry
        self.head = 0  # messages before it are finished
        self.stamps = b""  # 8 bytes each: when they were published, of all from `first` on; "": nobody wants to know
        self.loose: dict[bytes, int] | None = None

    def last_id(self) -> bytes:
        """The highest id it was delivered with."""
        return self.last

    def holds(self, message_id: bytes) -> bool:
        """True if the message is in flight here and the run has not fallen apart."""
        at = self.ids.find(message_id, self.head * ID_SIZE)
        while at >= 0 and at % ID_SIZE:
            at = self.ids.find(message_id, at + 1)
        return at >= 0

    def members(self, limit: int) -> dict[bytes, int]:
        """The ordinals of its first `limit` messages that are in flight, by id."""
        if self.loose is not None:
            return dict(islice(self.loose.items(), limit))
        start = self.head
        stop = min(start + limit, len(self.ids) // ID_SIZE)
        return {self.ids[i * ID_SIZE : (i + 1) * ID_SIZE]: self.first + i for i in range(start, stop)}

    def published(self, first: int, count: int) -> tuple[int, ...]:
        """When messages first.. were published, ns since the epoch."""
        at = (first - self.first) * STAMP_SIZE
        return unpack(f">{count}q", self.stamps[at : at + count * STAMP_SIZE])

    def fall_apart(self) -> dict[bytes, int]:
        """From now on each message by its id."""
        if self.loose is None:
            ids, start = self.ids, self.head
            if len(ids) == ID_SIZE and not start:
                self.loose = {ids: self.first}
                self.ids = b""
                return self.loose
            self.loose = self.members(len(ids))
            self.ids = b""
        return self.loose

    def __len__(self) -> int:
        return len(self.loose) if self.loose is not None else len(self.ids) // ID_SIZE - self.head


class Consumer:
    """See above. Created by Channel.subscribe."""

    __slots__ = (
        "channel",
        "distance",
        "finish_count",
        "in_flight",
        "message_count",
        "msg_timeout",
        "ready",
        "requeue_count",
        "runs",
        "sample_rate",
        "sink",
    )

    def __init__(self, channel: "Channel", sink: Sink, msg_timeout: int, sample_rate: int, distance: int) -> None:
        self.channel = channel
        self.distance = distance  # SAME_ZONE, SAME_REGION or ELSEWHERE: the nearer is served first
        self.sink = sink
        self.msg_timeout = msg_timeout  # ns a delivery may take
        self.sample_rate = sample_rate  # 0: all; s: each message is kept with (s + 1) %
        self.ready = 0  # the RDY window
        self.in_flight = 0  # messages in `runs`, and of those in channel.loose the ones that are ours
        self.runs: deque[Run] = deque()  # first deliveries, in order, ids ascending; none is empty or fallen apart
        self.message_count = 0  # deliveries
        self.finish_count = 0
        self.requeue_count = 0

    # commands

    def set_ready(self, count: int) -> None:
        """RDY count."""
        self.ready = count
        self.refresh()
        if count <= self.in_flight:
            self.sink.flush()

    def finish(self, ids: bytes) -> list[tuple[bytes, str]]:
        """FIN of all `ids` (16 bytes each, end to end). Returns (id, why) of those that failed, in order."""
        failed: list[tuple[bytes, str]] = []
        position, total = 0, len(ids)
        runs, channel = self.runs, self.channel
        while position < total:
            if runs:
                run = runs[0]
                start = run.head * ID_SIZE
                size = min(len(run.ids) - start, total - position)
                some = ids[position : position + size]
                if run.ids[start : start + size] == some:
                    count = size // ID_SIZE
                    channel.finished(run, run.first + run.head, some)
                    self._advance(run, count)
                    self.finish_count += count
                    position += size
                    if run.stamps and not run.ids:
                        run.stamps = b""  # `fresh` may hold it for a while
                    continue
            message_id = ids[position : position + ID_SIZE]
            position += ID_SIZE
            found = self.take_out(message_id)
            if found is None:
                failed.append((message_id, channel.why_not(message_id)))
                continue
            channel.finished(found[1], found[0], message_id)
            self.finish_count += 1
        self.refresh()
        return failed

    def requeue(self, message_id: bytes, delay: int, now: int) -> str:
        """REQ: hand a message back, to be ready after `delay` ns. Returns why it failed, or ""."""
        found = self.take_out(message_id)
        if found is None:
            return self.channel.why_not(message_id)
        self.requeue_count += 1
        self.channel.requeued(message_id, found[0], found[1].attempts, delay, now)
        self.refresh()
        return ""

    def touch(self, message_id: bytes, timeout: int, longest: int, now: int) -> str:
        """TOUCH: a new deadline `timeout` from now, at most `longest` after delivery. Returns why it failed, or ""."""
        found = self.take_out(message_id)
        if found is None:
            return self.channel.why_not(message_id)
        ordinal, run = found
        deadline = min(now + timeout, run.delivered + longest)
        touched = Run(self, ordinal, message_id, run.attempts, run.delivered, deadline)
        if run.stamps:
            at = (ordinal - run.first) * STAMP_SIZE
            touched.stamps = run.stamps[at : at + STAMP_SIZE]
        self.hold(touched)
        return ""

    # what the channel does to it

    def hold(self, run: Run, *, fresh: bool = False) -> None:
        """`run` is in flight here from now on. `fresh`: a first delivery from the sequence, so its ids are the highest yet."""
        channel = self.channel
        run.handle = channel.in_flight.push(run.deadline, run)
        channel.watch(run.deadline)
        count = len(run)
        self.in_flight += count
        channel.in_flight_count += count
        if fresh:
            self.runs.append(run)
            channel.fresh.append(run)
        else:
            channel.loose.update(dict.fromkeys(run.fall_apart(), run))

    def expire(self, run: Run, limit: int) -> list[int]:
        """Take up to `limit` messages out of a run whose deadline has passed. Returns their ordinals."""
        if run.loose is None and run is self.runs[0]:
            count, first = min(limit, len(run)), run.first + run.head
            self._advance(run, count)
            return list(range(first, first + count))
        if run.loose is None:  # a later one with a shorter time-out
            self.runs.remove(run)
            self.channel.loose.update(dict.fromkeys(run.fall_apart(), run))
        run.fall_apart()
        members = run.members(limit)
        for message_id in members:
            self.take_out(message_id)
        return list(members.values())

    def discard(self, message_id: bytes) -> None:
        """Sampled out: the message is finished, and was never delivered."""
        found = self.take_out(message_id)
        if found is not None:
            self.channel.discarded(found[0])

    def clear(self) -> None:
        """Nothing is in flight any more."""
        self.runs.clear()
        self.in_flight = 0

    def refresh(self) -> None:
        """Say again to the channel whether there is room for messages."""
        channel = self.channel
        if self.ready > self.in_flight and self.sink.room() > 0:
            channel.ready[self] = None
            channel.wake()
        else:
            channel.ready.pop(self, None)

    def take_out(self, message_id: bytes) -> tuple[int, Run] | None:
        """Remove one message from what is in flight: its ordinal and its run, or None."""
        run = self.channel.loose.get(message_id)
        if run is None:
            return self._take_from_runs(message_id)
        if run.owner is not self:
            return None
        del self.channel.loose[message_id]
        members = run.fall_apart()
        ordinal = members.pop(message_id)
        self._gone(1)
        if not members:
            self.channel.in_flight.remove(run.handle)
        return ordinal, run

    def _take_from_runs(self, message_id: bytes) -> tuple[int, Run] | None:
        """Out of order: runs up to the one that holds the id fall apart, each once in its life."""
        runs = self.runs
        if not runs or message_id > runs[-1].last:
            return None
        run = runs[0]
        start = run.head * ID_SIZE
        if run.ids[start : start + ID_SIZE] == message_id:  # in order after all, singly
            ordinal = run.first + run.head
            self._advance(run, 1)
            return ordinal, run
        if message_id < run.ids[start : start + ID_SIZE]:
            return None
        while runs:
            run = runs.popleft()
            last = run.last
            self.channel.loose.update(dict.fromkeys(run.fall_apart(), run))
            if message_id <= last:
                break
        return self.take_out(message_id) if message_id in self.channel.loose else None

    def _advance(self, run: Run, count: int) -> None:
        """The first `count` messages of the first run are no longer in flight."""
        run.head += count
        self._gone(count)
        if run.head * ID_SIZE == len(run.ids):
            run.ids, run.head = b"", 0  # `fresh` may hold it for a while
            self.runs.popleft()
            self.channel.in_flight.remove(run.handle)
            if not self.channel.in_flight_count:
                self.channel.fresh.clear()

    def _gone(self, count: int) -> None:
        channel = self.channel
        self.in_flight -= count
        channel.in_flight_count -= count
        if not self.in_flight and channel.leavers:
            channel.leavers.pop(self, None)

    def check(self) -> None:
        """Raise AssertionError if a sentence above is false."""
        loose = sum(run.owner is self for run in self.channel.loose.values())
        assert self.in_flight == sum(map(len, self.runs)) + loose
        assert all(len(run) and run.loose is None for run in self.runs)
        for run, following in zip(self.runs, list(self.runs)[1:], strict=False):
            assert run.ids[-ID_SIZE:] < following.ids[:ID_SIZE]
