"""The recent activity of all topics and channels of a node, in bounded memory: an hour in short steps, a day in long ones.

Each step has a value of these for each topic and each channel:

    published      messages in the step: of a topic those that were published to it, of a channel those that came to it
    finished       messages in the step; those that were emptied or dropped count, too, and those that were buried do not
    requeued, timed_out     deliveries in the step that ended so; if the message was buried for it, it counts anyway
    buried, depth, in_flight, deferred      messages at the end of the step

A log that the node promotes or gives back changes levels only: its messages were not published or finished in that step.
The values of a topic but `published` are the sums over its channels; its depth includes what no channel was given yet. A step
of which nothing is known (the node was down, the topic was new) is None.

A round records all of them, in batches. What did not change costs nearly nothing, so all is recorded, looked at or not.
If there are more than MOST topics and channels, a new one takes the place of the one that did nothing for the longest time, if
that is IDLE or longer, else it is left out. If all steps together take more than MOST_BYTES, the oldest are forgotten. See
docs/contributing/decisions/0100-steps-are-kept-by-the-block.md. Callers pass the time.
"""

from array import array
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from operator import add
from typing import NamedTuple

from nsqd.core.channel.channel import Channel
from nsqd.core.observation.held_changes import HeldChanges
from nsqd.core.observation.series_block import SIZE, WIDTH, Block, Ring, Values, read_back
from nsqd.core.observation.sums import ShardCounts, channel_sums, topic_depth
from nsqd.core.topic import Topic

NAMES = ("published", "finished", "requeued", "timed_out", "buried", "depth", "in_flight", "deferred")
COUNTERS = 4  # of NAMES are counts of the step; the others are levels at its end
HELD = slice(NAMES.index("depth"), None)  # the levels of messages that a channel holds and that are not buried
COARSE, FINE = 300, 10  # s per step
COARSE_SLOTS, FINE_SLOTS = 288, 360  # a day, an hour
MOST = 50_000  # topics and channels, of which each takes 0.45 KB in addition to its steps
IDLE = 360  # short steps without a change after which a place can be given to another one
MOST_BYTES = 64_000_000  # of all steps: more than 10,000 topics and channels that do something in every step need
FORGOTTEN_AT_ONCE = 16  # the part of the steps that is forgotten when there are too many bytes
CHANNELS_AT_ONCE = 50  # in a batch: 0.1 ms

Subject = Topic | Channel
Columns = dict[str, list[int | None]]


class Steps(NamedTuple):
    """The steps of one topic or channel as they were noted; `columns` unpacks them."""

    step: int  # s
    values: Values

    @property
    def first(self) -> int:
        """Return the time at which the oldest step began, s since the epoch."""
        return self.values.slots[0] * self.step

    def columns(self) -> Columns:
        """Return the values by name, the oldest first. It takes about 3 us a step, in any thread."""
        return dict(zip(NAMES, read_back(self.values, COUNTERS), strict=True))


class Series:
    """The steps of all topics and channels of a node."""

    def __init__(self) -> None:
        self._fine, self._coarse = Ring(FINE, FINE_SLOTS), Ring(COARSE, COARSE_SLOTS)
        self._blocks: list[Block[Subject]] = []
        self._places: OrderedDict[Subject, int] = OrderedDict()  # place of each; the one longest without a change first
        self._changed = array("q")  # by place: the serial number of the short step in which anything changed last
        self._free: list[int] = []  # places
        self._held = HeldChanges()  # by place
        self._sharded: dict[Channel, ShardCounts] = {}  # of the channels that have shards, or had some

    def record(self, topics: Iterable[Topic], at: int) -> Iterator[None]:
        """Record the steps that end at `at` (s since the epoch), in batches of 0.1 ms. No other call may begin meanwhile.

        A time that is not later than the last one changes nothing.
        """
        rings = [ring for ring in (self._fine, self._coarse) if not at % ring.step and ring.is_before(at)]
        if not rings:
            return
        for topic in topics:
            if topic.legal and not topic.deleted:
                yield from self._look_at(topic)
        self._sharded = {channel: counts for channel, counts in self._sharded.items() if not channel.deleted}
        for ring in rings:
            ring.begin(at)
        for number, block in enumerate(self._blocks):
            for place, subject in block.drop_deleted():
                self._free.append(number * SIZE + place)
                del self._places[subject]
            block.record(rings)
            block.trim((self._fine, self._coarse))
            yield
        self._held.end_look(at)
        if self.stored_bytes > MOST_BYTES:
            for ring in (self._fine, self._coarse):
                ring.forget(len(ring.slots) // FORGOTTEN_AT_ONCE)

    def _look_at(self, topic: Topic) -> Iterator[None]:
        """Take the state of a topic and its channels."""
        total: tuple[int, ...] = (0,) * WIDTH
        for number, channel in enumerate(list(topic.channels.values())):
            if number % CHANNELS_AT_ONCE == CHANNELS_AT_ONCE - 1:
                yield
            if not channel.deleted:
                state = self._state(channel)
                total = tuple(map(add, total, state))
                self._set(channel, state, sum(state[HELD]))
        _, finished, requeued, timed_out, buried, depth, in_flight, deferred = total
        waiting = topic_depth(topic)
        published = topic.intake.message_count
        state = (published, finished, requeued, timed_out, buried, depth + waiting, in_flight, deferred)
        self._set(topic, state, waiting)
        yield

    def _state(self, channel: Channel) -> tuple[int, ...]:
        """Return the values of a channel: its counters since the process started, and its levels."""
        sharded = self._sharded.get(channel)
        if sharded is None and len(channel.shards) == 1:
            published, depth, in_flight = channel.message_count, channel.depth, channel.in_flight.count
            deferred, buried = channel.deferred_count, len(channel.buried)
            finished = published - depth - in_flight - deferred - buried
            return published, finished, channel.requeue_count, channel.timeout_count, buried, depth, in_flight, deferred
        if sharded is None:
            sharded = self._sharded[channel] = ShardCounts()
        sums, totals = channel_sums(channel), sharded.totals(channel)
        if totals.attached and channel in self._places:
            self._held.shift(self._places[channel], totals.attached)
        return *totals.counts, sums.buried, sums.depth, sums.in_flight, sums.deferred

    def _set(self, subject: Subject, state: tuple[int, ...], held: int) -> None:
        """Set the state of a topic or channel, and how many messages it holds itself."""
        place = self._places.get(subject)
        if place is None:
            place = self._new_place()
            if place is None:
                return
            self._places[subject] = place
            self._blocks[place // SIZE].enter(place % SIZE, subject, array("q", state), (self._fine, self._coarse))
            self._held.enter(place, held)
            self._changed[place] = self._fine.following
            return
        self._held.set(place, held)
        if self._blocks[place // SIZE].set(place % SIZE, array("q", state)):
            self._places.move_to_end(subject)
            self._changed[place] = self._fine.following

    def _new_place(self) -> int | None:
        """Return a place that is free, or that of the one which did nothing for the longest time; None: all did something."""
        if len(self._places) >= MOST:
            idlest = next(iter(self._places))
            if self._fine.following - self._changed[self._places[idlest]] < IDLE:
                return None
            return self._places.pop(idlest)
        if not self._free:
            self._blocks.append(Block(self._fine, self._coarse))
            self._changed.extend([0] * SIZE)
            self._free = [len(self._blocks) * SIZE - number - 1 for number in range(SIZE)]
        return self._free.pop()

    def hour_of(self, subject: Subject) -> Steps | None:
        """Return the short steps of a topic or channel; None: there are none yet."""
        return self._steps_of(subject, self._fine)

    def day_of(self, subject: Subject) -> Steps | None:
        """Return the long steps of a topic or channel; None: there are none yet."""
        return self._steps_of(subject, self._coarse)

    def _steps_of(self, subject: Subject, ring: Ring) -> Steps | None:
        place = self._places.get(subject)
        values = self._blocks[place // SIZE].values(place % SIZE, ring) if place is not None else None
        return Steps(ring.step, values) if values is not None else None

    def held_change(self, subject: Subject) -> tuple[int, int] | None:
        """Return (messages, s): how many more messages a channel holds than some time ago, or a topic that no reader was given.

        The time is up to held_changes.SPAN before the last round. None: it is not known yet. What came with a promoted log does
        not count, and buried messages are not held.
        """
        place = self._places.get(subject)
        return self._held.change(place) if place is not None else None

    @property
    def stored_bytes(self) -> int:
        """Return the memory that the steps take."""
        return sum(block.stored_bytes for block in self._blocks)

    def __repr__(self) -> str:
        return f"<Series of {len(self._places)} topics and channels, {self.stored_bytes} B>"
