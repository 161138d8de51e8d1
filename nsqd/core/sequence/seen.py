"""De-duplicated publish: what a topic remembers of messages that it was given, to know one that is sent again.

A message has a key, or a producer that numbers its messages, ascending. Keys are remembered for some time; of a producer its
last number, however old. A node remembers so many of both: beyond that a topic forgets its own oldest for each new one. What is
remembered comes from the messages' attributes in the log, and from checkpoints: a retry after a kill is known as before it.
"""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

from nsqd.core.message.attributes import Attributes

MOST_FORGOTTEN = 200  # keys that are too old, for each message: a turn shall not be spent on a hundred thousand


@dataclass(frozen=True, slots=True)
class SeenLimits:
    """How much a node remembers."""

    window: int = 600_000_000_000  # ns, of a key
    keys: int = 100_000
    producers: int = 10_000


@dataclass(slots=True)
class Remembered:
    """How much a node does remember, over all topics."""

    keys: int = 0
    producers: int = 0


class Seen:
    """See above. Of a topic."""

    __slots__ = ("_limits", "_total", "keys", "producers")

    def __init__(self, limits: SeenLimits, total: Remembered) -> None:
        self._limits = limits
        self._total = total
        self.keys: OrderedDict[str, int] = OrderedDict()  # when each was published (monotonic ns), the first first
        self.producers: OrderedDict[str, int] = OrderedDict()  # the last number of each; who published last is last

    def admit(self, attributes: Attributes, count: int, now: int) -> int:
        """`count` messages are published. Returns how many of them, the first ones, were before; notes the rest."""
        if attributes.key:
            return count if self._is_known(attributes.key, now) else 0
        if not attributes.producer:
            return 0
        last, newest = self.producers.get(attributes.producer, -1), attributes.sequence + count - 1
        known = min(count, max(0, last + 1 - attributes.sequence))
        self._note_producer(attributes.producer, max(last, newest))
        return known

    def knows(self, key: str, now: int) -> bool:
        """Something was published with that key lately. Notes nothing."""
        stamp = self.keys.get(key)
        return stamp is not None and stamp >= now - self._limits.window

    def _is_known(self, key: str, now: int) -> bool:
        self.forget(now, MOST_FORGOTTEN)
        if self.knows(key, now):
            return True
        self._note_key(key, now)
        return False

    def _note_key(self, key: str, stamp: int) -> None:
        self._total.keys += key not in self.keys
        self.keys[key] = stamp
        self.keys.move_to_end(key)
        if self._total.keys > self._limits.keys:
            self._forget_first()

    def _note_producer(self, producer: str, last: int) -> None:
        self._total.producers += producer not in self.producers
        self.producers[producer] = last
        self.producers.move_to_end(producer)
        if self._total.producers > self._limits.producers:
            self.producers.popitem(last=False)
            self._total.producers -= 1

    def forget(self, now: int, most: int = 1 << 62) -> None:
        """Up to `most` of the keys that are too old."""
        oldest = now - self._limits.window
        while self.keys and most > 0 and next(iter(self.keys.values())) < oldest:
            self._forget_first()
            most -= 1

    def _forget_first(self) -> None:
        self.keys.popitem(last=False)
        self._total.keys -= 1

    def clear(self) -> None:
        """All of it is forgotten."""
        self._total.keys -= len(self.keys)
        self._total.producers -= len(self.producers)
        self.keys.clear()
        self.producers.clear()

    def restore(self, keys: Mapping[str, int], producers: Mapping[str, int], now: int) -> None:
        """After a restart: this is what was known, the oldest first."""
        for key, stamp in keys.items():
            self._note_key(key, stamp)
        for producer, last in producers.items():
            self._note_producer(producer, last)
        self.forget(now)

    def __repr__(self) -> str:
        return f"<Seen: {len(self.keys)} keys, {len(self.producers)} producers>"
