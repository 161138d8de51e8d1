"""What topics did lately, in rings of fixed memory: a value for each step of a day, and finer for an hour where somebody looks.

    published, finished     messages in the step, of all channels together; what is emptied counts as finished
    depth, in_flight        messages at its end, of the topic and its channels

A step of which nothing is known (the node was not there, the topic was new) is NaN. Pure: whoever calls has the time.
"""

from array import array
from collections import OrderedDict
from collections.abc import Iterator
from math import isnan, nan

from nsqd.core.topic import Topic

NAMES = ("published", "finished", "depth", "in_flight")
COARSE, FINE = 300, 10  # s of a step
COARSE_SLOTS, FINE_SLOTS = 288, 360  # a day, an hour
MOST_COARSE = 10_000  # topics: 46 MB
MOST_FINE = 200  # topics that were looked at lately: 1.2 MB
LOOKED_AT = 600  # s after which nobody looks any more

Counts = tuple[int, int]  # published and finished, ever


class Ring:
    """Values of a topic. A slot is a step's number since the epoch."""

    __slots__ = ("_before", "_begun", "_slots", "_values", "last", "step")

    def __init__(self, step: int, slots: int) -> None:
        self.step = step
        self.last = -1  # the newest slot; -1: none
        self._begun = -1  # the first slot; -1 likewise
        self._slots = slots
        self._values = [array("f", [nan]) * slots for _ in NAMES]
        self._before: Counts | None = None

    def put(self, at: int, counts: Counts, depth: int, in_flight: int) -> None:
        """The step that ends at `at` (s since the epoch) is over. A clock that went back changes nothing."""
        slot = at // self.step - 1
        if slot <= self.last:
            return
        for missed in range(max(self.last + 1, slot - self._slots + 1), slot) if self.last >= 0 else ():
            self._set(missed, (nan,) * len(NAMES))
        before = self._before if self.last == slot - 1 else None
        came, left = (max(0, new - old) for new, old in zip(counts, before, strict=True)) if before else (nan, nan)
        self._set(slot, (came, left, depth, in_flight))
        self._begun = slot if self._begun < 0 else self._begun
        self._before, self.last = counts, slot

    def _set(self, slot: int, values: tuple[float, ...]) -> None:
        for kept, value in zip(self._values, values, strict=True):
            kept[slot % self._slots] = value

    def told(self) -> dict[str, list[float | None]]:
        """By name, the oldest first; None where nothing is known."""
        places = [slot % self._slots for slot in range(self._oldest, self.last + 1)]
        return {
            name: [None if isnan(kept[place]) else kept[place] for place in places]
            for name, kept in zip(NAMES, self._values, strict=True)
        }

    @property
    def first(self) -> int:
        """When the oldest step began, s since the epoch."""
        return self._oldest * self.step

    @property
    def _oldest(self) -> int:
        """Its slot; above `last` if there is none."""
        return max(self._begun, self.last - self._slots + 1) if self.last >= 0 else 0

    def __repr__(self) -> str:
        return f"<Ring: {self.step} s a step, the last is {self.last}>"


class Series:
    """The rings of a node's topics, by their numbers."""

    def __init__(self) -> None:
        self._coarse: dict[int, Ring] = {}
        self._fine: OrderedDict[int, tuple[Ring, int]] = OrderedDict()  # with when somebody looked last
        self.left_out = 0  # topics that there was no room for, at the last look

    def look(self, number: int, now: int) -> tuple[Ring | None, Ring]:
        """A topic's rings; the finer one begins with the first look. `now`: s since the epoch."""
        fine, _ = self._fine.pop(number, (Ring(FINE, FINE_SLOTS), 0))
        self._fine[number] = fine, now
        if len(self._fine) > MOST_FINE:
            self._fine.popitem(last=False)
        return self._coarse.get(number), fine

    def watched(self, now: int) -> list[int]:
        """Topics that somebody looks at; the others are forgotten."""
        for number in [number for number, (_, looked) in self._fine.items() if looked < now - LOOKED_AT]:
            del self._fine[number]
        return list(self._fine)

    def put_fine(self, topic: Topic, at: int) -> None:
        """A short step is over."""
        kept = self._fine.get(topic.number)
        if kept is not None:
            kept[0].put(at, *_state(topic))

    def put_coarse(self, topic: Topic, at: int) -> None:
        """A long one."""
        ring = self._coarse.get(topic.number)
        if ring is None:
            if len(self._coarse) >= MOST_COARSE:
                self.left_out += 1
                return
            ring = self._coarse[topic.number] = Ring(COARSE, COARSE_SLOTS)
        ring.put(at, *_state(topic))

    def begin(self, numbers: set[int]) -> None:
        """A look at all topics begins: those that are gone leave."""
        self.left_out = 0
        for kept in (self._coarse, self._fine):
            for number in kept.keys() - numbers:
                del kept[number]

    def __repr__(self) -> str:
        return f"<Series of {len(self._coarse)} topics, {len(self._fine)} looked at>"


def _state(topic: Topic) -> tuple[Counts, int, int]:
    """What came and left so far, and what there is."""
    waiting, in_flight, left = topic.depth, 0, 0
    for depth, flying, held, came in _channels(topic):
        waiting += depth
        in_flight += flying
        left += came - held
    return (topic.intake.message_count, left), waiting, in_flight


def _channels(topic: Topic) -> Iterator[tuple[int, int, int, int]]:
    for channel in topic.channels.values():
        depth, flying = channel.depth, channel.in_flight_count
        held = depth + flying + channel.deferred_count + len(channel.buried)
        yield depth, flying, held, channel.message_count
