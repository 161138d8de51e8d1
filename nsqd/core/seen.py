"""De-duplicated publish: what a topic remembers of messages that it was given, to know one that is sent again.

A message has a key, or a producer that numbers its messages, ascending. Keys are remembered for some time, and so many of them;
of a producer its last number, however old, unless there come too many others. What is remembered comes from the messages'
attributes in the log, and from checkpoints: a retry after a kill is known as before it.
"""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

from nsqd.core.attributes import Attributes


@dataclass(frozen=True, slots=True)
class SeenLimits:
    """How much a topic remembers."""

    window: int = 600_000_000_000  # ns, of a key
    keys: int = 100_000
    producers: int = 10_000


class Seen:
    """See above."""

    __slots__ = ("_limits", "keys", "producers")

    def __init__(self, limits: SeenLimits) -> None:
        self._limits = limits
        self.keys: OrderedDict[str, int] = (
            OrderedDict()
        )  # when each was published (ns since the epoch), the first first
        self.producers: OrderedDict[str, int] = OrderedDict()  # the last number of each; who published last is last

    def admit(self, attributes: Attributes, count: int, wall: int) -> int:
        """`count` messages are published at `wall`. Returns how many of them, the first ones, were before; notes the rest."""
        if attributes.key:
            return count if self._is_known(attributes.key, wall) else 0
        if not attributes.producer:
            return 0
        last, newest = self.producers.get(attributes.producer, -1), attributes.sequence + count - 1
        known = min(count, max(0, last + 1 - attributes.sequence))
        self.producers[attributes.producer] = max(last, newest)
        self.producers.move_to_end(attributes.producer)
        self._keep_to_limits(wall)
        return known

    def _is_known(self, key: str, wall: int) -> bool:
        self._keep_to_limits(wall)
        if key in self.keys:
            return True
        self.keys[key] = wall
        self._keep_to_limits(wall)
        return False

    def restore(self, keys: Mapping[str, int], producers: Mapping[str, int], wall: int) -> None:
        """After a restart: this is what was known."""
        self.keys.update(keys)
        self.producers.update(producers)
        self._keep_to_limits(wall)

    def _keep_to_limits(self, wall: int) -> None:
        keys, oldest = self.keys, wall - self._limits.window
        while keys and (len(keys) > self._limits.keys or next(iter(keys.values())) < oldest):
            keys.popitem(last=False)
        while len(self.producers) > self._limits.producers:
            self.producers.popitem(last=False)
