"""The recent activity of topics, in ring buffers of fixed memory.

A coarse ring covers a day; a fine one covers an hour, for topics that are looked at. Each has a value of these for each step:

    published, finished     messages in the step, of all channels together; emptied messages count as finished
    depth, in_flight        messages at the end of the step, of the topic and its channels

A step of which nothing is known (the node was down, the topic was new) is NaN. This file is pure: callers pass the time.
"""

from array import array
from collections import OrderedDict
from math import isnan, nan

from nsqd.core.observation.sums import channel_sums, topic_depth
from nsqd.core.topic import Topic

NAMES = ("published", "finished", "depth", "in_flight")
COARSE, FINE = 300, 10  # s per step
COARSE_SLOTS, FINE_SLOTS = 288, 360  # a day, an hour
MOST_COARSE = 10_000  # topics: 46 MB
MOST_FINE = 200  # topics that were looked at within LOOKED_AT: 1.2 MB
FINE_IDLE = 600  # s after the last look at which the fine ring is dropped

Counts = tuple[int, int]  # published and finished in total


class Ring:
    """The values of one topic for its latest steps. A slot is the number of a step since the epoch."""

    __slots__ = ("_before", "_begun", "_slots", "_values", "last", "step")

    def __init__(self, step: int, slots: int) -> None:
        self.step = step
        self.last = -1  # the newest slot; -1: none
        self._begun = -1  # the first slot; -1: none
        self._slots = slots
        self._values = [array("f", [nan]) * slots for _ in NAMES]
        self._before: Counts | None = None

    def put(self, at: int, counts: Counts, depth: int, in_flight: int) -> None:
        """Record the step that ends at `at` (s since the epoch). A time that is not later than the last one changes nothing."""
        slot = at // self.step - 1
        if slot <= self.last:
            return
        for missed in range(max(self.last + 1, slot - self._slots + 1), slot) if self.last >= 0 else ():
            self._set(missed, (nan,) * len(NAMES))
        before = self._before if self.last == slot - 1 else None
        published, finished = (
            (max(0, new - old) for new, old in zip(counts, before, strict=True)) if before else (nan, nan)
        )
        self._set(slot, (published, finished, depth, in_flight))
        self._begun = slot if self._begun < 0 else self._begun
        self._before, self.last = counts, slot

    def _set(self, slot: int, values: tuple[float, ...]) -> None:
        for kept, value in zip(self._values, values, strict=True):
            kept[slot % self._slots] = value

    def columns(self) -> dict[str, list[float | None]]:
        """Return the values by name, the oldest first; None where nothing is known."""
        places = [slot % self._slots for slot in range(self._oldest, self.last + 1)]
        return {
            name: [None if isnan(kept[place]) else kept[place] for place in places]
            for name, kept in zip(NAMES, self._values, strict=True)
        }

    @property
    def first(self) -> int:
        """Return when the oldest step began (s since the epoch)."""
        return self._oldest * self.step

    @property
    def _oldest(self) -> int:
        """Return the slot of the oldest step; it is above `last` if there is no step."""
        return max(self._begun, self.last - self._slots + 1) if self.last >= 0 else 0

    def __repr__(self) -> str:
        return f"<Ring: {self.step} s a step, the last is {self.last}>"


class Series:
    """The rings of all topics of a node, by topic number."""

    def __init__(self) -> None:
        self._coarse: dict[int, Ring] = {}
        self._fine: OrderedDict[int, tuple[Ring, int]] = OrderedDict()  # with the last look, s since the epoch
        self.left_out = 0  # topics without a ring, for lack of room, in the last round

    def rings_of(self, number: int, now: int) -> tuple[Ring | None, Ring]:
        """Return the coarse and the fine ring of a topic; the fine one begins with the first look. `now`: s since the epoch."""
        fine, _ = self._fine.pop(number, (Ring(FINE, FINE_SLOTS), 0))
        self._fine[number] = fine, now
        if len(self._fine) > MOST_FINE:
            self._fine.popitem(last=False)
        return self._coarse.get(number), fine

    def topics_in_use(self, now: int) -> list[int]:
        """Drop fine rings that were not looked at for LOOKED_AT. Return the topics of the others. `now`: s since the epoch."""
        for number in [number for number, (_, looked) in self._fine.items() if looked < now - FINE_IDLE]:
            del self._fine[number]
        return list(self._fine)

    def put_fine(self, topic: Topic, at: int) -> None:
        """Record a fine step that ends at `at` (s since the epoch), if the topic has a fine ring."""
        kept = self._fine.get(topic.number)
        if kept is not None:
            kept[0].put(at, *_state(topic))

    def put_coarse(self, topic: Topic, at: int) -> None:
        """Record a coarse step that ends at `at` (s since the epoch). Add a ring for the topic if there is room."""
        ring = self._coarse.get(topic.number)
        if ring is None:
            if len(self._coarse) >= MOST_COARSE:
                self.left_out += 1
                return
            ring = self._coarse[topic.number] = Ring(COARSE, COARSE_SLOTS)
        ring.put(at, *_state(topic))

    def begin(self, numbers: set[int]) -> None:
        """Begin a round over all topics: drop the rings of topics that are not among these numbers."""
        self.left_out = 0
        for kept in (self._coarse, self._fine):
            for number in kept.keys() - numbers:
                del kept[number]

    def __repr__(self) -> str:
        return f"<Series of {len(self._coarse)} topics, {len(self._fine)} looked at>"


def _state(topic: Topic) -> tuple[Counts, int, int]:
    """Return the totals of published and finished messages, and the depth and the number in flight now."""
    waiting, in_flight, finished = topic_depth(topic), 0, 0
    for channel in topic.channels.values():
        sums = channel_sums(channel)
        waiting += sums.depth
        in_flight += sums.in_flight
        finished += sums.messages - sums.unfinished
    return (topic.intake.message_count, finished), waiting, in_flight
